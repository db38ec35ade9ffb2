package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// RanksFlag is the flag --ranks, or -n, of every program that starts ranks.
const RanksFlag = "ranks"

// wanted describes the valid values of a flag, by its type.
var wanted = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number from 0 on",
	"float64": "a number", "bool": "true or false", "duration": "a duration, such as 2s or 1m30s",
}

// FlagError returns an error of parsing flags in plain words. Pflag's error has names of functions
// of Go's library.
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

// ranksNames are the long names for the number of ranks in torchrun, mpirun and srun.
var ranksNames = []string{"np", "nproc", "nprocs", "nproc-per-node", "ntasks", "num-procs"}

// MeansRanks reports whether err, of parsing flags, is about a flag for the number of ranks, in a
// program that has none.
func MeansRanks(err error) bool {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return false
	}
	name := strings.ReplaceAll(unknown.GetSpecifiedName(), "_", "-")
	return name == "n" || name == RanksFlag || slices.Contains(ranksNames, name)
}

// Normalize makes flags accept names with underscores instead of dashes and, for --ranks, the names
// that other launchers have.
func Normalize(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(func(f *pflag.FlagSet, name string) pflag.NormalizedName {
		name = strings.ReplaceAll(name, "_", "-")
		if slices.Contains(ranksNames, name) && f.Lookup(RanksFlag) != nil {
			return RanksFlag
		}
		return pflag.NormalizedName(name)
	})
}

// Ranks returns args with mpirun's -np replaced by -n; pflag would read it as -n with the value
// "p". It does not change arguments after --. If flags are not interspersed, it does not change
// arguments after the first one that is no flag.
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

// takesNext reports whether the next argument is the value of the flag a.
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
