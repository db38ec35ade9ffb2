package nvshmem

import (
	"cmp"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/gpu/gputest"
)

// The tests of this package that need GPUs run as ranks, each a process with a GPU of its own: see
// package gputest.

// rankTime limits one run of ranks: starting the library and compiling kernels takes seconds.
const rankTime = 4 * time.Minute

func TestMain(m *testing.M) { os.Exit(processes.Main(m)) }

// roles maps the name of a role to its function. A rank's errors and output reach the test's log.
var roles = map[string]func(r *rank) error{
	"lifecycle":      lifecycle,
	"collectives":    collectives,
	"without nccl":   withoutNCCL,
	"groups":         groups,
	"team limit":     teamLimit,
	"messages":       messages,
	"one-sided":      oneSided,
	"misuse":         misuse,
	"memory":         memory,
	"allocations":    allocations,
	"graph":          graphs,
	"abort":          aborts,
	"abort at once":  abortsAtOnce,
	"one aborts":     oneAborts,
	"unused":         unused,
	"endless":        endless,
	"aborted part":   abortedPart,
	"closed streams": closedStreams,
	"device code":    deviceCode,
}

// rank is one process of a test.
type rank struct {
	member   *gpu.Member
	dev      *cuda.Device
	compiler *cuda.Compiler
}

// n is the number of ranks, me this one's.
func (r *rank) n() int  { return r.member.Size }
func (r *rank) me() int { return r.member.Rank }

// library opens NVSHMEM with c and the paths that the rank knows.
func (r *rank) library(c Config) (*Library, error) {
	c.Compiler = r.compiler
	return Open(found(c))
}

// found is c with where the machine's libraries are, as programs find them.
func found(c Config) Config {
	root, environ := os.DirFS("/"), os.Environ()
	c.Path, c.NCCL = dl.NVSHMEM.AtHome(root, environ), cmp.Or(c.NCCL, dl.NCCL.AtHome(root, environ))
	c.Dirs = dl.Places(root, environ)
	return c
}

// started is a runtime with c, and the engine of the world.
func (r *rank) started(c Config) (*Runtime, *engine, error) {
	l, err := r.library(c)
	if err != nil {
		return nil, nil, err
	}
	rt, err := Start(l, r.member)
	if err != nil {
		return nil, nil, err
	}
	engines, err := rt.Make(r.member)
	if err != nil {
		return nil, nil, err
	}
	return rt, engines[0].(*engine), nil
}

// processes runs roles.
var processes = &gputest.Ranks{Job: "nvshmem", Time: rankTime, Body: func(role string, g *gputest.Rank) error {
	body, ok := roles[role]
	if !ok {
		return fmt.Errorf("no role %q", role)
	}
	r := &rank{member: g.Member, dev: g.Member.Device}
	var err error
	if r.compiler, err = r.dev.Driver().Compiler(); err != nil {
		return err
	}
	return body(r)
}}

// leastGPUs is how many a machine for these tests has. Tests with more skip on one that has only
// these.
const leastGPUs = 2

// available skips the test unless this machine has n GPUs and NVSHMEM.
func available(t *testing.T, n int) {
	t.Helper()
	cudatest.Many(t, n, leastGPUs)
	if _, err := Open(found(Config{})); err != nil {
		cudatest.Missing(t, "no NVSHMEM: %v", err)
	}
}

// runRanks runs role on n ranks and logs their output.
func runRanks(t *testing.T, n int, role string) {
	t.Helper()
	available(t, n)
	processes.Run(t, n, role)
}

// onGPUs runs role on 2 to 4 ranks, at most one for each GPU.
func onGPUs(t *testing.T, role string) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { runRanks(t, n, role) })
	}
}

func TestStartAndClose(t *testing.T)                       { onGPUs(t, "lifecycle") }
func TestEveryOperationTypeAndReduction(t *testing.T)      { onGPUs(t, "collectives") }
func TestEveryOperationWithoutNCCLInside(t *testing.T)     { onGPUs(t, "without nccl") }
func TestSplitsAndTheirTeams(t *testing.T)                 { onGPUs(t, "groups") }
func TestTheLastTeamIsNamed(t *testing.T)                  { onGPUs(t, "team limit") }
func TestMessagesAndGroupCalls(t *testing.T)               { onGPUs(t, "messages") }
func TestOneSidedCallsOnStreams(t *testing.T)              { onGPUs(t, "one-sided") }
func TestMisuseIsAnErrorAndTheProcessLives(t *testing.T)   { onGPUs(t, "misuse") }
func TestAllocatorAgreesOrRefuses(t *testing.T)            { onGPUs(t, "memory") }
func TestEnqueueAllocatesNothing(t *testing.T)             { onGPUs(t, "allocations") }
func TestOperationsRunAgainInAGraph(t *testing.T)          { onGPUs(t, "graph") }
func TestAbortLeavesTheRankAbleToEnd(t *testing.T)         { onGPUs(t, "abort") }
func TestAbortWhileAnOperationIsQueued(t *testing.T)       { onGPUs(t, "abort at once") }
func TestAllRanksLeaveTheLibraryIfOneAborts(t *testing.T)  { onGPUs(t, "one aborts") }
func TestGroupsGoOnAfterAPartWasAborted(t *testing.T)      { onGPUs(t, "aborted part") }
func TestAnAbortOfAnUnusedGroupIsHarmless(t *testing.T)    { onGPUs(t, "unused") }
func TestCloseDoesNotWaitForAnEndlessKernel(t *testing.T)  { onGPUs(t, "endless") }
func TestSplitsAfterTheStreamWasClosed(t *testing.T)       { onGPUs(t, "closed streams") }
func TestDeviceCodeLinkedAgainstTheLibrary(t *testing.T)   { onGPUs(t, "device code") }
func TestAGroupOfOneNeedsNoTeam(t *testing.T)              { runRanks(t, 1, "collectives") }
func TestARuntimeOfOneRankStartsAndAllocates(t *testing.T) { runRanks(t, 1, "memory") }
