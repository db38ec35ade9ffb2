package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/dist/launch"
)

// Exit codes of the program itself. A subcommand that runs another program ends with that program's, by an exitError.
const (
	exitOK      = 0
	exitFailure = 1 // the command ran and failed, or found something wrong
	exitUsage   = 2 // the command line or the settings make no sense
)

// newRootCommand is symgrad with all its subcommands. Each is in a file of its own.
func newRootCommand() *cobra.Command {
	root := newGroup("symgrad", "Data-parallel training for Gorgonia on symmetric memory",
		newBenchCommand(),
		newCheckpointCommand(),
		newConfigCommand(),
		newDoctorCommand(),
		newDoctorProbeCommand(),
		newPlanCommand(),
		newRunCommand(),
		newTuneCommand(),
	)
	root.Version = version()
	root.SetVersionTemplate("{{.Version}}\n")
	root.Long = root.Short + `.

Exit codes: 0 for success, 1 for a failure, 2 for a command line or settings that make
no sense; commands that run another program end with the code of that program.`
	return root
}

// newGroup is a command that only holds others. Cobra would take any words after it for arguments and succeed; this one
// refuses them.
func newGroup(name, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:           name,
		Short:         short,
		SilenceErrors: true, // execute prints them
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // RunE has the better message
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				text += ": did you mean " + strings.Join(near, " or ") + "?"
			} else {
				text += fmt.Sprintf(": %s --help lists them", cmd.CommandPath())
			}
			return usageError{errors.New(text)}
		},
		SuggestionsMinimumDistance: 2,
	}
	group.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (%s --help lists the flags)", err, cmd.CommandPath())}
	})
	group.AddCommand(commands...)
	return group
}

// usageError is a command line that makes no sense, or settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usageArgs makes what a check of arguments finds a usageError.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%s: %w", cmd.CommandPath(), err)}
		}
		return nil
	}
}

// noArgs refuses arguments. Cobra's NoArgs calls them unknown commands.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// checkRanks wants a number after -n that one host can be asked for.
func checkRanks(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("-n %d: want 1 rank or more", n)
	case n > launch.MostSpawned:
		return fmt.Errorf("-n %d: want at most %d ranks", n, launch.MostSpawned)
	}
	return nil
}

// exitError ends the program with a code of its own.
type exitError struct {
	code int
	err  error // printed; nil if the reason has been printed already
}

// Error is the reason, or the code.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap is the reason.
func (e *exitError) Unwrap() error { return e.err }

// execute runs the command that args mean and prints its error.
// Returns: the exit code.
func execute(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if errors.As(err, &exit) {
		if exit.err != nil {
			fmt.Fprintf(stderr, "symgrad: %v\n", err)
		}
		return exit.code
	}
	fmt.Fprintf(stderr, "symgrad: %v\n", err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// version is "symgrad v1.2.3 (go1.26.8 linux/amd64, revision 0123456789ab)" as far as the build knows it.
func version() string {
	v, revision := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = ", revision " + s.Value[:min(12, len(s.Value))]
			}
			if s.Key == "vcs.modified" && s.Value == "true" {
				revision += " with changes"
			}
		}
	}
	return fmt.Sprintf("symgrad %s (%s %s/%s%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH, revision)
}
