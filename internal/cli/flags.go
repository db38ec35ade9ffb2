package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// RanksFlag is the flag of every program that starts ranks: --ranks, or -n.
const RanksFlag = "ranks"

// wanted names the values that a flag takes, by its type.
var wanted = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number from 0 on",
	"float64": "a number", "bool": "true or false", "duration": "a duration, such as 2s or 1m30s",
}

// FlagError returns an error of parsing flags in plain words: pflag's has the names of functions of
// Go's library.
func FlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	name := "--" + flag.Name
	if flag.Shorthand != "" {
		name = "-" + flag.Shorthand
	}
	want, ok := wanted[flag.Value.Type()]
	switch cause := errors.Unwrap(invalid); {
	case errors.Is(cause, strconv.ErrRange):
		return fmt.Errorf("%s %q: the number is too large", name, invalid.GetValue())
	case ok:
		return fmt.Errorf("%s %q: want %s", name, invalid.GetValue(), want)
	case cause != nil:
		return fmt.Errorf("%s %q: %w", name, invalid.GetValue(), cause)
	}
	return err
}

// ranksNames are the long names that other launchers have for the number of ranks: torchrun,
// mpirun, srun.
var ranksNames = []string{"np", "nproc", "nprocs", "nproc-per-node", "ntasks", "num-procs"}

// MeansRanks reports whether err, of parsing flags, is about a flag with which other launchers set
// the number of ranks.
func MeansRanks(err error) bool {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return false
	}
	name := strings.ReplaceAll(unknown.GetSpecifiedName(), "_", "-")
	return name == "n" || name == RanksFlag || slices.Contains(ranksNames, name)
}

// Normalize makes flags take names with underscores for those with dashes, and, if there is a flag
// --ranks, the names that other launchers have for it.
func Normalize(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(func(f *pflag.FlagSet, name string) pflag.NormalizedName {
		name = strings.ReplaceAll(name, "_", "-")
		if slices.Contains(ranksNames, name) && f.Lookup(RanksFlag) != nil {
			return RanksFlag
		}
		return pflag.NormalizedName(name)
	})
}

// Ranks returns args with -np, which is mpirun's, replaced by -n. Pflag would take it for -n with
// the value "p". Arguments after --, and, where flags do not stand between arguments, those after
// the first argument that is no flag, stay.
func Ranks(flags *pflag.FlagSet, interspersed bool, args []string) []string {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--" || !interspersed && !strings.HasPrefix(a, "-"):
			return append(out, args[i:]...)
		case a == "-np":
			a = "-n"
		case strings.HasPrefix(a, "-np="):
			a = "-n=" + a[len("-np="):]
		}
		out = append(out, a)
		if takesNext(flags, a) && i+1 < len(args) {
			i++
			out = append(out, args[i])
		}
	}
	return out
}

// takesNext reports whether the value of the flag a is the argument after it.
func takesNext(flags *pflag.FlagSet, a string) bool {
	var flag *pflag.Flag
	switch {
	case strings.Contains(a, "="):
		return false
	case strings.HasPrefix(a, "--"):
		flag = flags.Lookup(a[2:])
	case strings.HasPrefix(a, "-") && len(a) == 2:
		flag = flags.ShorthandLookup(a[1:])
	}
	return flag != nil && flag.NoOptDefVal == ""
}
