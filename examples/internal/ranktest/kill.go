package ranktest

import (
	"fmt"
	"os"
	"sync"
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

// Kill runs the program as n ranks, waits for the first output of rank 0, kills the rank victim,
// and returns how the ranks ended. No launcher ends the other ranks; they must end by themselves.
// The program's arguments must make it run without end after that output.
func Kill(t testing.TB, n, victim int, args ...string) []Outcome {
	t.Helper()
	outcomes, _ := KillAt(t, n, victim, func(first <-chan struct{}) {
		select {
		case <-first:
		case <-time.After(hang):
			t.Error("no output")
		}
	}, args...)
	return outcomes
}

// KillAt is Kill at the moment when the function returns that is given the first output of rank 0.
//
// Returns: also how long after it each rank ended.
func KillAt(t testing.TB, n, victim int, moment func(first <-chan struct{}), args ...string) ([]Outcome, []time.Duration) {
	t.Helper()
	job := fmt.Sprintf("%s-%d-%v", t.Name(), victim, args)
	ranks := make([]*process, n)
	for r := range ranks {
		ranks[r] = start(t, variables(job, r, n), args)
	}
	moment(ranks[0].seen.first)
	killed := time.Now()
	if err := ranks[victim].Process.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	outcomes, took := make([]Outcome, n), make([]time.Duration, n)
	var all sync.WaitGroup
	for r, p := range ranks {
		all.Go(func() {
			outcomes[r] = p.outcome(t)
			took[r] = time.Since(killed)
		})
	}
	all.Wait()
	return outcomes, took
}

// WantLost fails the test unless every rank but the victim of a Kill ended because it lost a peer:
// with code 75, and an error that begins with the program's name and its own.
func WantLost(t testing.TB, program string, victim int, outcomes []Outcome) {
	t.Helper()
	for r, o := range outcomes {
		if r != victim {
			o.Want(t, 75, fmt.Sprintf("%s: rank %d of %d: ", program, r, len(outcomes)), fmt.Sprintf("rank %d died", victim))
		}
	}
}
