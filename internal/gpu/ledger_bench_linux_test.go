package gpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/internal/sim"
)

// BenchmarkAnnounce measures a rank's cost of the agreement while others announce the same
// operations. Each rank has its own core, as far apart as the order of cores allows. Between two
// operations a rank works for about the time of queueing one. The cost of the clock is included.
func BenchmarkAnnounce(b *testing.B) {
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("ranks=%d", n), func(b *testing.B) {
			if runtime.NumCPU() < n {
				b.Skip("fewer cores than ranks")
			}
			announceAll(b, n)
		})
	}
}

// batchOf is how many operations ranks announce before they wait for each other.
const batchOf = 100

func announceAll(b *testing.B, n int) {
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		b.Fatal(err)
	}
	var took, arrived atomic.Int64
	var ranks sync.WaitGroup
	for r, w := range worlds {
		ranks.Go(func() {
			defer w.Close()
			runtime.LockOSThread() // and never unlocked: the thread goes with the goroutine
			var set unix.CPUSet
			set.Set(r * runtime.NumCPU() / n)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				b.Error(err)
				return
			}
			p, err := newLedger(w.Group, true, ages)
			if err != nil {
				b.Error(err)
				return
			}
			c, own, spins := allReduceEntry(3), time.Duration(0), uint64(1)
			for i := range b.N {
				if i%batchOf == 0 {
					arrived.Add(1)
					for arrived.Load() < int64(n*(i/batchOf+1)) {
						runtime.Gosched()
					}
				}
				began := time.Now()
				if err := p.announce(&c); err != nil {
					b.Error(err)
					return
				}
				own += time.Since(began)
				for range 2000 {
					spins = spins*6364136223846793005 + 1
				}
			}
			if spins == 0 {
				b.Error("the work between is not done")
			}
			took.Add(int64(own))
		})
	}
	ranks.Wait()
	b.ReportMetric(float64(took.Load())/float64(n)/float64(b.N), "ns/announce")
	b.ReportMetric(0, "ns/op")
}
