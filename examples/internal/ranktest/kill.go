package ranktest

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// variables tell a process which rank of which job it is.
func variables(job string, rank, size int) []string {
	return []string{
		fmt.Sprintf("SYMGRAD_JOB=%s-%d", job, os.Getpid()),
		fmt.Sprint("SYMGRAD_RANK=", rank), fmt.Sprint("SYMGRAD_WORLD_SIZE=", size),
		fmt.Sprint("SYMGRAD_LOCAL_RANK=", rank), fmt.Sprint("SYMGRAD_LOCAL_WORLD_SIZE=", size),
	}
}

// Kill runs the program as n ranks, waits for the first output of rank 0, kills the rank victim, and returns how the ranks
// ended. Nobody but the ranks themselves ends the others: a launcher would, after a while. The program's arguments must make
// it run for ever after that output.
func Kill(t testing.TB, n, victim int, args ...string) []Outcome {
	t.Helper()
	job := fmt.Sprintf("%s-%d-%v", t.Name(), victim, args)
	ranks := make([]*process, n)
	for r := range ranks {
		ranks[r] = start(t, variables(job, r, n), args)
	}
	select {
	case <-ranks[0].seen.first:
	case <-time.After(hang):
		t.Error("no output")
	}
	if err := ranks[victim].Process.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	outcomes := make([]Outcome, n)
	for r, p := range ranks {
		outcomes[r] = p.outcome(t)
	}
	return outcomes
}

// WantLost fails the test unless every rank but the victim of a Kill ended because it lost a peer: with code 75, and an error
// that begins with the program's name and its own.
func WantLost(t testing.TB, program string, victim int, outcomes []Outcome) {
	t.Helper()
	for r, o := range outcomes {
		if r != victim {
			o.Want(t, 75, fmt.Sprintf("%s: rank %d of %d: ", program, r, len(outcomes)), fmt.Sprintf("rank %d died", victim))
		}
	}
}
