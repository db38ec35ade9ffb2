package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/internal/net/hosttest"
)

// fault is an event, and the right outcome for a job of ranks 0 and 1 on host 0, and 2 and 3 on
// host 1.
type fault struct {
	name   string
	strike func(j *job)
	after  func(j *job)  // when the survivors know; nil for nothing
	dead   []int         // ranks without a last word
	codes  [2]int        // exit codes of the launchers; any for a host that is gone
	within time.Duration // longest time until all survivors have an error; 0 for a fault that no rank notices

	killed      bool   // the launchers of MPI find it, and may kill survivors before they notice
	here, there string // host that survivors on hosts 0 and 1 blame; "host" for any
}

// any is an exit code that no process sees.
const anyCode = -1

// silence bounds the time in which the heartbeats of ranks and launchers find a lost host.
const silence = 5 * time.Second

// stopped is the time for which a host is stopped.
const stopped = 10 * time.Second

var faults = []fault{
	{
		name: "rank killed", strike: func(j *job) { j.tell(2, die) }, dead: []int{2},
		codes: [2]int{137, 137}, killed: true, within: silence, here: "host1", there: "host1",
	},
	{
		name: "host killed", strike: func(j *job) { j.h.Kill(1) }, dead: []int{2, 3},
		codes: [2]int{launch.ExitPeerLost, anyCode}, within: silence, here: "host1",
	},
	{
		name: "link cut", strike: func(j *job) { j.h.Cut(1) },
		codes: [2]int{launch.ExitPeerLost, launch.ExitPeerLost}, within: silence, here: "host1", there: "host0",
	},
	{
		name: "host stopped", strike: func(j *job) { j.h.Stop(1) }, after: func(j *job) { j.sleep(stopped); j.h.Continue(1) },
		codes: [2]int{launch.ExitPeerLost, launch.ExitPeerLost}, within: silence, killed: true, here: "host1", there: "host",
	},
	{name: "packets lost", strike: func(j *job) { j.h.Loss(1, 5) }},
	{
		name: "store's host killed", strike: func(j *job) { j.h.Kill(0) }, dead: []int{0, 1},
		codes: [2]int{anyCode, launch.ExitPeerLost}, within: silence, there: "host0",
	},
}

var phases = []string{idle, allreduce, saving, meeting}

// TestHostFaults strikes a job under symgrad run with each fault in each phase.
func TestHostFaults(t *testing.T) {
	for _, f := range faults {
		for _, phase := range phases {
			t.Run(f.name+"/"+phase, func(t *testing.T) {
				t.Parallel()
				f.run(t, "", phase)
			})
		}
	}
}

// TestHostFaultsDuringConnections strikes a job whose ranks have met, and open their world: rank 2
// has not begun the next part of it.
func TestHostFaultsDuringConnections(t *testing.T) {
	for _, f := range faults[:2] {
		for _, phase := range []string{connecting, joining} {
			t.Run(f.name+"/"+phase, func(t *testing.T) {
				t.Parallel()
				f.run(t, "", phase)
			})
		}
	}
}

// TestHostFaultsUnderMPI does the same under the launchers of MPI, which symgrad run supervises.
func TestHostFaultsUnderMPI(t *testing.T) {
	for _, by := range []hosttest.MPI{hosttest.OpenMPI, hosttest.MPICH} {
		for i, f := range faults {
			for _, phase := range []string{allreduce, meeting} {
				if !long.Enabled() && (phase == meeting || i > 1) {
					continue // in make test-long
				}
				t.Run(string(by)+"/"+f.name+"/"+phase, func(t *testing.T) {
					t.Parallel()
					f.run(t, by, phase)
				})
			}
		}
	}
}

// run plays one case, and records it.
func (f *fault) run(t *testing.T, by hosttest.MPI, phase string) {
	late := 1
	if phase == connecting || phase == joining {
		late = 2
	}
	j := newJob(t, phase, late, 0)
	j.start(by, 0)
	all := []int{0, 1, 2, 3}
	j.await(0, all, began)
	switch phase {
	case connecting, joining:
		j.await(0, []int{late}, held)
	case meeting:
		j.await(0, []int{late}, held)
		if by == "" {
			j.met()
		}
	case saving:
		j.await(0, []int{late}, held)
	case allreduce:
		j.await(0, all, step)
	}
	since := len(j.seen)
	f.strike(j)
	at := time.Now()
	if late == 1 {
		j.tell(late, open)
	}
	slowest := time.Duration(0)
	if f.within == 0 {
		j.goesOn(since, phase, all)
	} else {
		slowest = f.judge(j, since, at)
	}
	for host, p := range j.launchers {
		if want := f.codes[host]; want != anyCode {
			if got := j.exit(p); got != want && (by == "" || got == 0 || want == 0) {
				t.Errorf("the launcher of host %d ends with code %d, want %d", host, got, want)
			}
		}
	}
	if t.Failed() {
		t.Log(j.state())
	}
	hosttest.Record(t, cmp.Or(string(by), "symgrad run")+"/"+f.name+"/"+phase, slowest, versions)
}

// goesOn lets the job work under a fault, and then end well.
func (j *job) goesOn(since int, phase string, all []int) {
	j.t.Helper()
	j.sleep(silence)
	if phase != idle {
		j.await(since, all, step)
	}
	for _, rank := range all {
		j.tell(rank, finish)
	}
	j.await(since, all, ended)
	for _, rank := range all {
		if e, _ := j.first(since, rank, ended); e.Code != 0 {
			j.t.Errorf("rank %d ends with code %d: %s", rank, e.Code, e.Text)
		}
	}
}

// judge waits for the errors of all survivors, compares them with the right ones, and returns the
// time of the last one.
func (f *fault) judge(j *job, since int, at time.Time) (slowest time.Duration) {
	j.t.Helper()
	named := 0 // errors that are not MPI_Init's
	for host, blamed := range []string{f.here, f.there} {
		if host == 1 && f.after != nil {
			f.after(j)
			at = time.Now()
		}
		for rank := host * perHost; rank < (host+1)*perHost; rank++ {
			if slices.Contains(f.dead, rank) {
				continue
			}
			j.await(since, []int{rank}, broke, ended, gone)
			e, _ := j.first(since, rank, broke, ended, gone)
			took, within := e.at.Sub(at), f.within
			slowest = max(slowest, took)
			inMPI := len(j.launchers) == 1 && j.rank.Phase == meeting // whose MPI_Init notices nothing
			if inMPI {
				within += meetingTime
			}
			if took > within {
				j.t.Errorf("rank %d notices after %v, want at most %v", rank, took, within)
			}
			if inMPI && strings.Contains(e.Text, fmt.Sprintf("rank %d/4: mpi: MPI_Init_thread waits", rank)) {
				continue
			}
			if e.Kind == gone && len(j.launchers) == 1 {
				continue // killed by the launcher of MPI, because of the fault or of the first error
			}
			named++
			if !names(e.Text, blamed) {
				j.t.Errorf("rank %d: %s %q, want the name of a rank on %s", rank, e.Kind, e.Text, blamed)
			}
		}
	}
	if named == 0 && !f.killed && j.rank.Phase != meeting {
		j.t.Error("no rank names the fault")
	}
	return slowest
}

// names reports whether an error names a rank of a host, and the host.
func names(text, host string) bool {
	ranks := map[string][]int{"host0": {0, 1}, "host1": {2, 3}, "host": {0, 1, 2, 3}}[host]
	return strings.Contains(text, host) && slices.ContainsFunc(ranks, func(r int) bool {
		return strings.Contains(text, fmt.Sprintf("rank %d", r)) && !strings.Contains(text, fmt.Sprintf("rank %d/", r))
	})
}

// met waits until all ranks except the late one, and the launcher of host 1, have a connection to
// the store, and until the store knows them.
func (j *job) met() {
	j.t.Helper()
	for connections := 0; connections < 4; {
		connections = 0
		for _, port := range j.ports(0, established) {
			if port == storePort {
				connections++
			}
		}
	}
	j.sleep(200 * time.Millisecond)
}

// sleep lets time pass: it is the length of a fault.
func (j *job) sleep(d time.Duration) {
	j.t.Helper()
	select {
	case <-time.After(d):
	case <-j.over:
	}
}
