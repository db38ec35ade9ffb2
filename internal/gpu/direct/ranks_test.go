package direct

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/gpu/gputest"
	"github.com/symgrad/symgrad/internal/sim"
)

// A test that needs GPUs has a body that every rank runs. Ranks are goroutines of the test, or
// processes: the test binary is then started once for each, with the name of the body.

// rankTime limits one run of ranks: compiling all kernels may take minutes, and a hang does not
// end.
const rankTime = 8 * time.Minute

func TestMain(m *testing.M) { os.Exit(processes.Main(m)) }

// bodies has the bodies of ranks by name.
var bodies = map[string]func(r *rank) error{
	"every type and reduction": everyReduction,
	"every operation":          everyOperation,
	"random operations":        randomOperations,
	"pieces":                   pieces,
	"few blocks":               fewBlocks,
	"rounds":                   rounds,
	"again":                    again,
	"copies":                   copiesMoved,
	"along":                    goneAlong,
	"graph":                    graphs,
	"abort":                    aborts,
	"behind a wait":            behindAWait,
	"loads":                    loads,
	"split":                    splits,
	"allocations":              allocations,
	"sweep":                    sweep,
	"one rank":                 oneRank,
}

// Memory of a rank: a slab of heapBytes, and as much that no other rank knows.
const heapBytes = 640 << 20

// rank is one rank of a test.
type rank struct {
	*gpu.Member
	engines []Tunable // by way
	s       *cuda.Stream
	heap    *gpu.Slab
	private uintptr
	alone   bool // a process of its own
}

// open makes engines, with boards of cfg, and memory. It leaves the device entered.
func (r *rank) open(cfg Config) error {
	if err := r.Device.Enter(); err != nil {
		return err
	}
	engines, err := Make(cfg)(r.Member)
	if err != nil {
		return err
	}
	for _, e := range engines {
		r.engines = append(r.engines, e.(Tunable))
	}
	_, greatest, err := r.Device.PriorityRange()
	if err != nil {
		return err
	}
	if r.s, err = r.Device.NewStream(greatest); err != nil {
		return err
	}
	if r.private, err = r.Device.Alloc(heapBytes); err != nil {
		return err
	}
	if r.heap, err = (IPC{}).Alloc(r.Member, heapBytes); err != nil {
		return err
	}
	return r.engines[twoshot].(gpu.Registrar).Register(r.heap)
}

// close frees the results of open. If the engines were aborted, the peers may be unable to do the
// same.
func (r *rank) close(aborted bool) error {
	defer r.Device.Leave()
	if aborted || r.heap == nil {
		for _, e := range r.engines {
			e.Abort()
		}
		var errs []error
		for _, e := range r.engines {
			errs = append(errs, e.Close())
		}
		return errors.Join(errs...)
	}
	errs := []error{r.s.Synchronize(), r.engines[twoshot].(gpu.Registrar).Unregister(r.heap), r.heap.Free()}
	for _, e := range r.engines {
		errs = append(errs, e.Close(), e.Close())
	}
	return errors.Join(append(errs, r.Device.Free(r.private), r.s.Close())...)
}

// crew is the ranks of one process, so that one that fails can end the others.
type crew struct {
	mu    sync.Mutex
	ranks []*rank
}

func (c *crew) add(r *rank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranks = append(c.ranks, r)
}

func (c *crew) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.ranks {
		for _, e := range r.engines {
			e.Abort()
		}
	}
}

// smallBoards makes operations of a few hundred KiB take several launches.
var smallBoards = Config{PacketBytes: 256 << 10, LineBytes: 512 << 10, StageBytes: 512 << 10, TileBytes: 512 << 10}

// asGoroutines runs a body on n ranks of this process, whose control group is a simulated world.
func asGoroutines(t *testing.T, n int, role string) {
	t.Helper()
	devices := cudatest.Devices(t, n)
	cudatest.Compiler(t)
	worlds, err := sim.New(n, sim.Config{StepTimeout: rankTime})
	if err != nil {
		t.Fatal(err)
	}
	var all crew
	var ranks sync.WaitGroup
	for i, w := range worlds {
		ranks.Go(func() {
			r := &rank{Member: &gpu.Member{Device: devices[i], Rank: i, Size: n, World: w.Ranks(), Control: w.Group, Memory: new(gpu.Memory)}}
			err := r.open(boards(role))
			all.add(r)
			if err == nil {
				err = bodies[role](r)
			}
			if err != nil {
				t.Errorf("rank %d/%d: %v", i, n, err)
				_ = w.Abort(err)
				all.abort()
			}
			if err := errors.Join(r.close(err != nil || role == "abort"), w.Close()); err != nil {
				t.Errorf("rank %d/%d: closing: %v", i, n, err)
			}
		})
	}
	ranks.Wait()
}

// fewest is the bound of the body "few blocks".
const fewest = 8

// boards is the configuration for a body.
func boards(role string) Config {
	switch role {
	case "pieces":
		return smallBoards
	case "few blocks":
		return Config{MaxCTAs: fewest}
	}
	return Config{}
}

// processes runs bodies on ranks that are processes.
var processes = &gputest.Ranks{Job: "direct", Time: rankTime, StepTimeout: rankTime, Body: func(role string, g *gputest.Rank) error {
	r := &rank{alone: true, Member: g.Member}
	err := r.open(boards(role))
	if err == nil {
		err = bodies[role](r)
	}
	return errors.Join(err, r.close(err != nil || role == "abort"))
}}

// asProcesses runs a body on n ranks that are processes, and logs their output.
func asProcesses(t *testing.T, n int, role string) {
	t.Helper()
	cudatest.Devices(t, n)
	cudatest.Compiler(t)
	processes.Run(t, n, role, sweepEnvironment()...)
}

// onGPUs runs a body on 1, 2 and 4 GPUs, on goroutines and on processes.
func onGPUs(t *testing.T, role string) {
	t.Helper()
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d goroutines", n), func(t *testing.T) { asGoroutines(t, n, role) })
		t.Run(fmt.Sprintf("%d processes", n), func(t *testing.T) { asProcesses(t, n, role) })
	}
}

// The full matrix takes long: once for each number of ranks is enough.
func TestEveryTypeAndReductionIsThatOfTheHost(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d processes", n), func(t *testing.T) { asProcesses(t, n, "every type and reduction") })
	}
}

func TestEveryOperationWhereverBuffersLie(t *testing.T) { onGPUs(t, "every operation") }
func TestRandomOperationsInOneStream(t *testing.T)      { onGPUs(t, "random operations") }
func TestLargeOperationsInPieces(t *testing.T)          { onGPUs(t, "pieces") }
func TestFewBlocksMakeTheSameBits(t *testing.T)         { onGPUs(t, "few blocks") }
func TestTilesGoRound(t *testing.T)                     { onGPUs(t, "rounds") }
func TestWhatComesAgainIsKept(t *testing.T)             { onGPUs(t, "again") }
func TestCopyEnginesMoveBetweenGPUs(t *testing.T)       { onGPUs(t, "copies") }
func TestGatheringsGoAlong(t *testing.T)                { onGPUs(t, "along") }
func TestAGraphIsReplayedAThousandTimes(t *testing.T)   { onGPUs(t, "graph") }
func TestAbortEndsKernelsWhosePeersNeverCome(t *testing.T) {
	onGPUs(t, "abort")
}
func TestNoCallWaitsForAKernelThatWaits(t *testing.T) { onGPUs(t, "behind a wait") }
func TestKernelsAreLoadedWithTheGroup(t *testing.T)   { onGPUs(t, "loads") }
func TestPartsOfAGroup(t *testing.T)                  { onGPUs(t, "split") }
func TestEnqueueAllocatesNothing(t *testing.T)        { onGPUs(t, "allocations") }
func TestAGroupOfOne(t *testing.T) {
	asGoroutines(t, 1, "one rank")
	asProcesses(t, 1, "one rank")
}
