package conformance

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Launcher starts the ranks of a job.
type Launcher struct {
	// Commands returns the commands that run program, a command line, as the n ranks of a job: one
	// command that starts all ranks, such as mpirun, or one for each rank, in their order.
	Commands func(t *testing.T, n int, program []string) []*exec.Cmd
}

// Launched is Processes for the ranks of a launcher. Tests in which a rank dies are skipped if one
// command starts all ranks, because launchers then end the job.
//
// The files of the test must be visible to all ranks at the path of t.TempDir.
func Launched(open Opener, by Launcher) Launch {
	return (&processes{open: open, calls: map[string]int{}, by: &by}).launch
}

// IsRank reports whether this process was started as a rank by Processes or Launched. A test that
// prepares something for its ranks, such as hosts, omits it in a rank.
func IsRank() bool {
	_, ok := roleOf(flag.Args())
	return ok
}

// spawn runs the ranks of a launch, and waits for them. Returns: the errors by rank, and that of
// the job as that of rank -1.
func (l *Launcher) spawn(t *testing.T, n, call int, die *Die) map[int]error {
	t.Helper()
	limit := launchTime(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit+testMargin)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	own := role{-1, call, filepath.Join(t.TempDir(), "done-")}
	commands := l.Commands(t, n, append([]string{program}, rankArgs(limit, t.Name(), own)...))
	if die != nil && len(commands) != n {
		t.Skip("the launcher ends all ranks when one dies")
	}
	ended, outputs := make([]error, len(commands)), make([]tail, len(commands))
	var all sync.WaitGroup
	for i, cmd := range commands {
		all.Go(func() {
			if ended[i] = run(ctx, cmd, &outputs[i]); ended[i] != nil && (die == nil || die.Rank != i) {
				time.AfterFunc(guard, cancel) // the others notice by themselves, or are killed
			}
		})
	}
	all.Wait()
	errs := map[int]error{}
	for r := range n {
		i := min(r, len(commands)-1)
		_, missing := os.Stat(own.done + strconv.Itoa(r))
		dies := die != nil && die.Rank == r
		switch {
		case dies && (ended[i] == nil || missing == nil):
			errs[r] = fmt.Errorf("it should have killed itself:\n%s", outputs[i].String())
		case dies:
		case ended[i] != nil && len(commands) != n:
			errs[-1] = fmt.Errorf("%w:\n%s", ended[i], outputs[i].String())
		case ended[i] != nil:
			errs[r] = fmt.Errorf("%w:\n%s", ended[i], outputs[i].String())
		case missing != nil:
			errs[r] = fmt.Errorf("it ended without reaching its launch:\n%s", outputs[i].String())
		}
	}
	return errs
}

// run runs a command until ctx ends. It then interrupts the command, so that a launcher ends its
// ranks, and kills it later.
func run(ctx context.Context, cmd *exec.Cmd, output *tail) error {
	bound := exec.CommandContext(ctx, cmd.Path)
	bound.Args, bound.Env, bound.Err = cmd.Args, cmd.Env, cmd.Err
	bound.Stdout, bound.Stderr, bound.WaitDelay = output, output, testMargin
	bound.Cancel = func() error { return bound.Process.Signal(os.Interrupt) }
	return bound.Run()
}
