package shm

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
	"golang.org/x/sys/unix"
)

// BenchmarkAllReduce is f32 sums in place, two ranks of one process with their own mappings, on the
// heap and on private memory. busGB/s is nccl-tests' bus bandwidth: bytes / time * 2(n-1)/n.
func BenchmarkAllReduce(b *testing.B) {
	const n = 2
	for _, where := range []string{"heap", "private"} {
		for bytes := 8; bytes <= 64<<20; bytes <<= 4 {
			b.Run(fmt.Sprintf("%s/%dB", where, bytes), func(b *testing.B) {
				ts, err := Local(n, Mapped, Config{})
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(bytes))
				var ready sync.WaitGroup
				ready.Add(n)
				start := make(chan struct{})
				go func() {
					ready.Wait()
					b.ResetTimer()
					close(start)
				}()
				for _, err := range wrap(ts, func(w *dist.World) error {
					buf := tensor.Of(make([]float32, bytes/4))
					if where == "heap" {
						h, err := w.Heap(int64(bytes))
						if err != nil {
							return err
						}
						r, err := h.Alloc(int64(bytes))
						if err != nil {
							return err
						}
						if buf, err = tensor.FromPointer(r.Local().Pointer(), bytes/4, tensor.F32, tensor.Host); err != nil {
							return err
						}
					}
					g := w.Blocking()
					runtime.LockOSThread()
					var set unix.CPUSet
					set.Set(w.Rank() % runtime.NumCPU())
					if err := unix.SchedSetaffinity(0, &set); err != nil {
						return err
					}
					ready.Done()
					<-start
					for range b.N {
						if err := done(g.AllReduce(buf, buf, dist.Sum)); err != nil {
							return err
						}
					}
					return nil
				}) {
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()*2*(n-1)/n/1e9, "busGB/s")
			})
		}
	}
}
