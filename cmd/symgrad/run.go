package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
)

// newRunCommand is symgrad run: it starts the ranks of a job on this host.
func newRunCommand() *cobra.Command {
	var cfg launch.SpawnConfig
	cmd := &cobra.Command{
		Use:   "run -n RANKS [flags] [--] PROGRAM [ARGUMENTS...]",
		Short: "Start a program as several ranks on this host",
		// Words by which other programs are known for the same.
		SuggestFor: []string{"launch", "start", "exec", "mpirun", "mpiexec", "torchrun", "srun"},
		Long: `Start a program as several ranks on this host and wait for all of them.

Flags of symgrad come before PROGRAM; everything after it belongs to PROGRAM.

Lines of rank 0 are shown as they are, lines of the others begin with "[1] ".
When a rank fails the others get its number, and those that do not end by
themselves are ended, with all processes that the ranks have started. The report
begins with the last lines of the rank that failed first.

A rank that uses GPUs takes the one of its number on this host, among those that
CUDA_VISIBLE_DEVICES leaves; start no more ranks than GPUs.

Ctrl-C is passed on to the ranks once; the second time it kills them.

Exit codes: the one of the rank that failed first (128 plus the number of the
signal that killed it), 130 after Ctrl-C, 143 after SIGTERM, 141 if the output has
lost its reader (| head), 2 for an invalid command line.`,
		Example: `  symgrad run -n 4 ./train --config configs/mnist-mlp.yaml
  symgrad run -n 2 --log-dir logs -- sh -c 'exec ./train --set run.name=$USER'`,
		Args: usageArgs(checkProgram),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Program, cfg.Args = args[0], args[1:]
			cfg.Stdout, cfg.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return run(cmd.Context(), cfg)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after PROGRAM belong to PROGRAM
	flags.IntVarP(&cfg.N, "ranks", "n", 0, "how many ranks to start (required)")
	flags.StringVar(&cfg.Master, "master", "", "host:port of the store where the ranks meet; empty means a free port of 127.0.0.1")
	flags.DurationVar(&cfg.Grace, "grace", 2*time.Second, "from the first failure until everything has ended")
	flags.StringVar(&cfg.Bind, "bind", launch.BindNone, "core gives each rank as many cores of its own as the others; none leaves all ranks on all cores")
	complete(cmd, "bind", cobra.FixedCompletions([]string{launch.BindCore, launch.BindNone}, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&cfg.LogDir, "log-dir", "", "folder for the output of each rank, as rank-0.log and so on, in addition to showing it")
	complete(cmd, "log-dir", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	return cmd
}

// checkProgram wants a program, and the number of ranks, and no time that launch would take for its
// default.
func checkProgram(cmd *cobra.Command, args []string) error {
	n, err := cmd.Flags().GetInt("ranks")
	grace, graceErr := cmd.Flags().GetDuration("grace")
	switch err := errors.Join(err, graceErr); {
	case err != nil:
		return err
	case !cmd.Flags().Changed("ranks"):
		return errors.New("how many ranks? say -n 2, for instance")
	case checkRanks(n) != nil:
		return checkRanks(n)
	case grace <= 0:
		return fmt.Errorf("--grace %v: want more than 0", grace)
	case len(args) == 0:
		return errors.New("no program to run: name one after the flags")
	}
	return nil
}

// run starts the ranks. Errors: exitError with the code of the job if it fails, usageError for a
// wrong command line.
func run(ctx context.Context, cfg launch.SpawnConfig) error {
	res, err := launch.Spawn(ctx, cfg)
	switch {
	case errors.Is(err, dist.ErrInvalid):
		return usageError{err}
	case res.Code != 0:
		return &exitError{code: res.Code, err: err}
	default:
		return err
	}
}
