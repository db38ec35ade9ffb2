package ranktest

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// variables returns the environment that gives a process its rank and job.
func variables(job string, rank, size int) []string {
	return []string{
		fmt.Sprintf("SYMGRAD_JOB=%s-%d", job, os.Getpid()),
		fmt.Sprint("SYMGRAD_RANK=", rank), fmt.Sprint("SYMGRAD_WORLD_SIZE=", size),
		fmt.Sprint("SYMGRAD_LOCAL_RANK=", rank), fmt.Sprint("SYMGRAD_LOCAL_WORLD_SIZE=", size),
	}
}

// Kill runs the program as n ranks, waits for the first output of rank 0, kills the rank victim,
// and returns how the ranks ended. There is no launcher that would end the other ranks. The
// program's arguments must make it run without end after that output.
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

// KillAt is Kill with another time of the kill: when moment returns, which gets the first output of
// rank 0.
//
// Returns: also the time from the kill to the end of each rank.
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

// WantLost fails the test unless every rank except the victim of a Kill ended because it lost a
// peer: with code 75 and an error that starts with the names of program and rank.
func WantLost(t testing.TB, program string, victim int, outcomes []Outcome) {
	t.Helper()
	for r, o := range outcomes {
		if r != victim {
			o.Want(t, 75, fmt.Sprintf("%s: rank %d of %d: ", program, r, len(outcomes)), fmt.Sprintf("rank %d died", victim))
		}
	}
}
