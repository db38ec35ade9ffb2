package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/build"
	"github.com/symgrad/symgrad/internal/cli"
)

// Exit codes of the program itself. A subcommand that runs another program ends with that
// program's, by an exitError.
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
		newVersionCommand(),
	)
	root.Version = version()
	root.SetVersionTemplate("{{.Version}}\n")
	root.Long = root.Short + `.

Exit codes: 0 for success, 1 for a failure, 2 for a command line or settings that make
no sense; commands that run another program end with the code of that program.`
	return root
}

// newGroup is a command that only holds others. Cobra would take any words after it for arguments
// and succeed; this one refuses them.
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
			return unknownCommand(cmd, args[0])
		},
		SuggestionsMinimumDistance: 2,
	}
	group.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			return unknownCommand(cmd, words[0]) // whose flag it is
		}
		return usageError{fmt.Errorf("%w (%s --help lists the flags)", cli.FlagError(err), cmd.CommandPath())}
	})
	group.AddCommand(commands...)
	return group
}

// unknownCommand returns the error about a word that is no subcommand of cmd, with the nearest one.
func unknownCommand(cmd *cobra.Command, word string) error {
	text := fmt.Sprintf("unknown command %q for %q", word, cmd.CommandPath())
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		text += ": did you mean " + strings.Join(near, " or ") + "?"
	} else {
		text += fmt.Sprintf(": %s --help lists them", cmd.CommandPath())
	}
	return usageError{errors.New(text)}
}

// usageError is a command line that makes no sense, or settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usageArgs makes the error of a check of arguments a usageError.
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
	root.SetArgs(otherNames(root, args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	if columns := launch.Columns(stdout); columns > 0 {
		usage := strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", columns))
		root.SetUsageTemplate(usage)
		wrapHelp(root, columns)
	}
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	rank, _ := launch.Current() // no rank, where the variables make no sense
	var exit *exitError
	if errors.As(err, &exit) {
		if exit.err != nil {
			rank.LastWord(stderr, cli.ErrorText("symgrad", err, launch.Columns(stderr)))
		}
		return exit.code
	}
	rank.LastWord(stderr, cli.ErrorText("symgrad", err, launch.Columns(stderr)))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// wrapHelp wraps the texts of a command and of those below it at the width of a terminal.
func wrapHelp(cmd *cobra.Command, columns int) {
	cmd.Long = cli.Wrap(cmd.Long, columns, 0)
	for _, c := range cmd.Commands() {
		wrapHelp(c, columns)
	}
}

// otherNames returns args with the number of ranks as mpirun and torchrun name it, in the commands
// that have one, as -n.
func otherNames(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.Flags().Lookup(cli.RanksFlag) == nil {
		return args
	}
	cli.Normalize(cmd.Flags())
	head := args[:len(args)-len(rest)]
	return append(slices.Clone(head), cli.Ranks(cmd.Flags(), cmd.Name() != "run", rest)...)
}

// version is "symgrad v1.2.3 (commit 0123456789ab, go1.26.8 linux/amd64)".
func version() string { return "symgrad " + build.Line() }

// newVersionCommand is symgrad version.
func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, with the commit that it was built from",
		Args:  usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return write(cmd.OutOrStdout(), []byte(version()+"\n"))
		},
	}
}
