package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
)

// newRunCommand returns symgrad run, which starts the ranks of a job on this host.
func newRunCommand() *cobra.Command {
	var cfg launch.SpawnConfig
	var secretFile string
	cmd := &cobra.Command{
		Use:   "run -n RANKS [flags] [--] PROGRAM [ARGUMENTS...]",
		Short: "Start a program as several ranks, on this host or several",
		// Names of this command in other programs.
		SuggestFor: []string{"launch", "start", "exec", "mpirun", "mpiexec", "torchrun", "srun"},
		Long: `Start a program as several ranks on this host and wait for all of them. With
--nnodes the job is on several hosts: run this command on each of them.

Flags of symgrad come before PROGRAM; everything after it belongs to PROGRAM.

Rank 0's lines are printed unchanged, those of other ranks start with "[1] ". When a
rank fails, the others learn which one, and ranks that do not end by themselves are
killed, with all processes that they started. The report starts with the last lines
of the rank that failed first.

A rank on GPUs uses the one with its number on this host, among those in
CUDA_VISIBLE_DEVICES; do not start more ranks than GPUs.

On several hosts the launcher with --node-rank 0 serves a store at --store, with
TLS 1.3. The launchers of the other hosts join it with the same secret, which never
travels: see symgrad secret. Ranks are numbered host by host, and -n may differ. When
a rank, a launcher or the network fails, all launchers end their ranks within seconds
and return the same exit code. They return 0 only if all ranks did.

With --max-restarts a failed job begins again, on all hosts together. Ranks then resume
from their newest checkpoint, as the example programs do. It begins after a pause of
1s, which doubles up to 30s while no rank gets further. It does not begin again when
the same rank fails twice in a row at the same step, or after Ctrl-C. With it, exit code
0 of mpirun, srun or torchrun as PROGRAM is a failure unless rank 0 marked its success.

The first Ctrl-C is passed on to the ranks, the second one kills them.

Exit codes: that of the rank that failed first (128 plus the number of the signal
that killed it), 130 Ctrl-C, 143 SIGTERM, 141 the reader of the output ended (| head),
75 a host or its launcher is lost, 2 invalid command line.`,
		Example: `  symgrad run -n 4 ./train --config configs/mnist-mlp.yaml
  symgrad run -n 2 --log-dir logs -- sh -c 'exec ./train --set run.name=$USER'
  symgrad run -n 4 --max-restarts 10 ./train --config configs/mnist-mlp.yaml
  symgrad run --nnodes 2 --node-rank 0 --store hostA:29500 --secret job.secret -n 4 ./train`,
		Args: usageArgs(checkProgram),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Program, cfg.Args = args[0], args[1:]
			cfg.Stdout, cfg.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if cfg.Nodes > 1 {
				var err error
				if cfg.Secret, err = launch.ReadSecret(secretFile); err != nil {
					return usageError{err}
				}
			}
			return run(cmd.Context(), cfg)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after PROGRAM are PROGRAM's
	flags.IntVarP(&cfg.N, "ranks", "n", 0, "number of ranks to start (required)")
	flags.StringVar(&cfg.Master, "master", "", "host:port at which the rendezvous store listens; empty means a free port of 127.0.0.1, or --store with several hosts")
	flags.IntVar(&cfg.Nodes, "nnodes", 1, "number of hosts")
	flags.IntVar(&cfg.Node, "node-rank", 0, "index of this host, 0 to nnodes-1")
	flags.StringVar(&cfg.Store, "store", "", "host:port at which all hosts reach the host with --node-rank 0, which listens there")
	flags.StringVar(&secretFile, "secret", "", "file with the job's secret; empty means SYMGRAD_SECRET, or the file that SYMGRAD_SECRET_FILE names")
	flags.DurationVar(&cfg.Wait, "wait", launch.DefaultWait, "time for all hosts to join")
	flags.IntVar(&cfg.MaxRestarts, "max-restarts", 0, "times that a failed job begins again; on several hosts that of --node-rank 0 counts")
	flags.DurationVar(&cfg.Grace, "grace", 2*time.Second, "time from the first failure until all ranks are killed")
	flags.StringVar(&cfg.Bind, "bind", launch.BindNone, "core gives each rank an equal number of its own cores; none lets all ranks use all cores")
	complete(cmd, "bind", cobra.FixedCompletions([]string{launch.BindCore, launch.BindNone}, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&cfg.LogDir, "log-dir", "", "folder for a copy of each rank's output: rank-0.log and so on; empty means no copies")
	complete(cmd, "log-dir", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	return cmd
}

// checkProgram requires a program, a number of ranks, and a positive grace, because launch takes 0
// for its default.
func checkProgram(cmd *cobra.Command, args []string) error {
	n, err := cmd.Flags().GetInt("ranks")
	grace, graceErr := cmd.Flags().GetDuration("grace")
	bind, bindErr := cmd.Flags().GetString("bind")
	switch err := errors.Join(err, graceErr, bindErr); {
	case err != nil:
		return err
	case !cmd.Flags().Changed("ranks"):
		return errors.New("the number of ranks is missing: add -n 2, for example")
	case checkRanks(n) != nil:
		return checkRanks(n)
	case cmd.Flags().Changed("nnodes") && !cmd.Flags().Changed("node-rank") && cmd.Flag("nnodes").Value.String() != "1":
		return errors.New("--node-rank is missing: 0 on the host of --store, 1 and so on on the others")
	case grace <= 0:
		return fmt.Errorf("--grace %v: want more than 0", grace)
	case bind != launch.BindCore && bind != launch.BindNone:
		return fmt.Errorf("--bind %q: use %s or %s", bind, launch.BindCore, launch.BindNone)
	case len(args) == 0:
		return errors.New("no program to run: add one after the flags")
	}
	return nil
}

// run starts the ranks. Errors: exitError with the exit code of a failed job, usageError for an
// invalid command line.
func run(ctx context.Context, cfg launch.SpawnConfig) error {
	res, err := launch.Spawn(ctx, cfg)
	switch {
	case errors.Is(err, dist.ErrInvalid):
		return usageError{invalidRun{err}}
	case res.Code != 0:
		return &exitError{code: res.Code, err: err}
	default:
		return err
	}
}

// invalidRun is a dist.ErrInvalid of package launch, as command run reports it.
type invalidRun struct{ error }

// Error returns the text without the name of the package and without the words of dist.ErrInvalid,
// which the exit code already says.
func (e invalidRun) Error() string {
	return "run: " + strings.TrimSuffix(strings.TrimPrefix(e.error.Error(), "launch: "), ": "+dist.ErrInvalid.Error())
}

func (e invalidRun) Unwrap() error { return e.error }
