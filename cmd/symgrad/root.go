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
	"github.com/symgrad/symgrad/internal/tool/cli"
)

// Exit codes of the program itself. A subcommand that runs another program returns that program's
// code in an exitError.
const (
	exitOK      = 0
	exitFailure = 1 // the command ran and failed, or found an error
	exitUsage   = 2 // invalid command line or settings
)

// newRootCommand returns symgrad with all its subcommands. Each subcommand has its own file.
func newRootCommand() *cobra.Command {
	root := newGroup("symgrad", "Data-parallel training for Gorgonia on symmetric memory",
		newBenchCommand(),
		newCheckpointCommand(),
		newConfigCommand(),
		newDataCommand(),
		newDoctorCommand(),
		newDoctorProbeCommand(),
		newPlanCommand(),
		newPlotCommand(),
		newRunCommand(),
		newScaleCommand(),
		newSecretCommand(),
		newTuneCommand(),
		newVersionCommand(),
	)
	root.Version = version()
	root.SetVersionTemplate("{{.Version}}\n")
	root.Long = root.Short + `.

Exit codes: 0 success, 1 failure, 2 invalid command line or settings; commands that
run another program return the exit code of that program.`
	return root
}

// newGroup returns a command that only has subcommands. Cobra would accept any words after it as
// arguments; this one rejects them.
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
			return unknownCommand(cmd, words[0]) // an unknown flag belongs to the unknown command
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

// usageError is an error of the command line or the settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usageArgs turns the error of an argument check into a usageError, which begins with the name of
// the command.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%s: %w", nameOf(cmd), err)}
		}
		return nil
	}
}

// nameOf returns the name of a command without "symgrad", because errors already begin with
// "symgrad".
func nameOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// noArgs rejects arguments. Cobra's NoArgs calls them unknown commands.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// checkRanks rejects a value of -n that one host cannot start.
func checkRanks(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("-n %d: want 1 rank or more", n)
	case n > launch.MostSpawned:
		return fmt.Errorf("-n %d: want at most %d ranks", n, launch.MostSpawned)
	}
	return nil
}

// exitError ends the program with the given code.
type exitError struct {
	code int
	err  error // printed; nil if the reason has been printed already
}

// Error returns the reason, or the code if there is none.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the reason.
func (e *exitError) Unwrap() error { return e.err }

// execute runs the command of args and prints its error.
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
	rank, _ := launch.Current() // the zero value if the launcher's variables are invalid
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

// wrapHelp wraps the texts of a command and its subcommands to the width of the terminal.
func wrapHelp(cmd *cobra.Command, columns int) {
	cmd.Long = cli.Wrap(cmd.Long, columns, 0)
	for _, c := range cmd.Commands() {
		wrapHelp(c, columns)
	}
}

// otherNames returns args with the number of ranks as -n, in commands that have that flag. mpirun
// and torchrun use other names.
func otherNames(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.Flags().Lookup(cli.RanksFlag) == nil {
		return args
	}
	cli.Normalize(cmd.Flags())
	head := args[:len(args)-len(rest)]
	return append(slices.Clone(head), cli.Ranks(cmd.Flags(), cmd.Name() != "run", rest)...)
}

// version returns "symgrad v1.2.3 (commit 0123456789ab, go1.26.8 linux/amd64)".
func version() string { return "symgrad " + build.Line() }

// newVersionCommand returns symgrad version.
func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version and commit",
		Args:  usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return write(cmd.OutOrStdout(), []byte(version()+"\n"))
		},
	}
}
