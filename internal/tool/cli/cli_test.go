package cli_test

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/internal/tool/cli"
)

func flagSet() (*pflag.FlagSet, *int) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	n := f.IntP("ranks", "n", 0, "")
	f.Duration("grace", time.Second, "")
	f.String("log-dir", "", "")
	f.BoolP("quiet", "q", false, "")
	f.Float64("below", 0, "")
	cli.Normalize(f)
	return f, n
}

func TestRanksAreTakenByTheNamesOfOtherLaunchers(t *testing.T) {
	for _, args := range []string{
		"-n 2", "-n2", "--ranks 2", "-np 2", "-np=2", "--np 2", "--nproc-per-node 2", "--nproc_per_node=2", "--ntasks 2",
		"--log-dir x -np 2", "-q -np 2", "--log_dir=x -np 2",
	} {
		f, n := flagSet()
		if err := f.Parse(cli.Ranks(f, false, strings.Fields(args))); err != nil || *n != 2 {
			t.Errorf("%s: %d ranks, %v", args, *n, err)
		}
	}
}

// Arguments of the program, and values of flags, do not change.
func TestRanksLeavesTheRestAlone(t *testing.T) {
	for _, test := range []struct {
		args         string
		interspersed bool
		want         string
	}{
		{"-n 2 mpirun -np 4", false, "-n 2 mpirun -np 4"},
		{"-n 2 -- -np 4", true, "-n 2 -- -np 4"},
		{"--log-dir -np -n 2", false, "--log-dir -np -n 2"},
		{"x -np 4", true, "x -n 4"},
	} {
		f, _ := flagSet()
		if got := cli.Ranks(f, test.interspersed, strings.Fields(test.args)); !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%s: got %v", test.args, got)
		}
	}
}

func TestFlagErrorsArePlain(t *testing.T) {
	for args, want := range map[string]string{
		"-n x":                    `-n "x": want a whole number`,
		"--ranks 1.5":             `-n "1.5": want a whole number`,
		"-n 99999999999999999999": `-n "99999999999999999999": the number is too large`,
		"--grace 2":               `--grace "2": want a duration, such as 2s or 1m30s`,
		"--quiet=maybe":           `-q "maybe": want true or false`,
		"--below low":             `--below "low": want a number`,
		"--colour":                "unknown flag: --colour",
		"--log-dir":               "flag needs an argument: --log-dir",
	} {
		f, _ := flagSet()
		if err := cli.FlagError(f.Parse(strings.Fields(args))); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}

func TestWrapBreaksBetweenWords(t *testing.T) {
	for _, test := range []struct {
		text            string
		columns, indent int
		want            string
	}{
		{"one two three four", 0, 4, "one two three four"},
		{"one two three four", 18, 4, "one two three four"},
		{"one two three four", 17, 1, "one two three\n four"},
		{"key        one two three\nnext\n", 20, 11, "key        one two\n    three\nnext\n"},
		{"key   one two three four five six", 24, 6, "key   one two three four\n      five six"},
		{"averyveryverylongwordthatfitsnowhere and more", 20, 2, "averyveryverylongwordthatfitsnowhere\n  and more"},
		{"größe größe größe größe", 17, 0, "größe größe größe\ngröße"},
		{"ends in blanks   \n\n", 40, 0, "ends in blanks\n\n"},
	} {
		if got := cli.Wrap(test.text, test.columns, test.indent); got != test.want {
			t.Errorf("%q in %d columns: got %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}

// A program without --ranks rejects the flags of other launchers, and recognizes their meaning.
func TestFlagsThatMeanRanksAreKnown(t *testing.T) {
	for arg, want := range map[string]bool{"--nproc-per-node=2": true, "--nproc_per_node=2": true, "-n=2": true, "--np=2": true, "--colour=2": false} {
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		cli.Normalize(f)
		if err := f.Parse([]string{arg}); cli.MeansRanks(err) != want {
			t.Errorf("%s: %v means ranks: %v", arg, err, !want)
		}
	}
	if cli.MeansRanks(nil) {
		t.Error("no error means ranks")
	}
}
