package shm

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
	"golang.org/x/sys/unix"
)

// BenchmarkBound is allreduce in place of 64 MiB by two ranks against what the machine can do: the
// bandwidth of two cores that add two arrays of that size into a third, measured before and after
// every operation of the same run. An operation moves four times its size (see dist/doc.go), an
// addition three times. of-bound is the allreduce's bandwidth over the addition's, of plain float32
// for all dtypes.
func BenchmarkBound(b *testing.B) {
	for _, dt := range []tensor.DType{tensor.F32, tensor.F64, tensor.BF16, tensor.F16} {
		b.Run(dt.String(), func(b *testing.B) { bound(b, dt, 64<<20) })
	}
}

func bound(b *testing.B, dt tensor.DType, bytes int) {
	const n = 2
	ts, err := Local(n, Mapped, Config{})
	if err != nil {
		b.Fatal(err)
	}
	var addGBs, reduceGBs [n]float64
	for _, err := range wrap(ts, func(w *dist.World) error {
		x, arrays, err := boundMemory(w, dt, bytes)
		if err != nil {
			return err
		}
		if err := onOwnCore(w.Rank()); err != nil {
			return err
		}
		g := w.Blocking()
		var adding, reducing time.Duration
		adds := 0
		add := func() error {
			took, err := timed(g, func() error { addHalf(arrays, bytes/n); return nil })
			adding += took
			adds++
			return err
		}
		if err := add(); err != nil { // pages
			return err
		}
		adding, adds = 0, 0
		for range b.N {
			if err := add(); err != nil {
				return err
			}
			took, err := timed(g, func() error { return done(g.AllReduce(x, x, dist.Sum)) })
			if err != nil {
				return err
			}
			reducing += took
			if err := add(); err != nil {
				return err
			}
		}
		addGBs[w.Rank()] = 3 * float64(bytes) * float64(adds) / adding.Seconds() / 1e9
		reduceGBs[w.Rank()] = 2 * n * float64(bytes) * float64(b.N) / reducing.Seconds() / 1e9
		return nil
	}) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(addGBs[0], "addGB/s")
	b.ReportMetric(reduceGBs[0], "reduceGB/s")
	b.ReportMetric(reduceGBs[0]/addGBs[0], "of-bound")
}

// boundMemory is the buffer of the allreduce, on the heap, and this rank's half of three arrays.
func boundMemory(w *dist.World, dt tensor.DType, bytes int) (x tensor.Buffer, arrays [3]unsafe.Pointer, err error) {
	h, err := w.Heap(int64(bytes))
	if err != nil {
		return x, arrays, err
	}
	r, err := h.Alloc(int64(bytes))
	if err != nil {
		return x, arrays, err
	}
	for i := range arrays {
		arrays[i] = unsafe.Pointer(unsafe.SliceData(make([]float32, bytes/2/4)))
	}
	x, err = tensor.FromPointer(r.Local().Pointer(), bytes/dt.Size(), dt, tensor.Host)
	return x, arrays, err
}

// addHalf is c = a + b of bytes bytes, stored in the faster of the two ways for arrays larger than
// the caches.
func addHalf(arrays [3]unsafe.Pointer, bytes int) {
	add := reduce.For(tensor.F32, dist.RedSum)
	add(arrays[2:], arrays[:2], bytes/4, nil, reduce.NonTemporal)
}

// timed is how long f takes on all ranks, which begin together.
func timed(g *dist.Group, f func() error) (time.Duration, error) {
	if err := done(g.Barrier()); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	err := done(g.Barrier())
	return time.Since(began), err
}

// onOwnCore keeps the goroutine of a rank on a core of its own, to its end.
func onOwnCore(rank int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(rank % runtime.NumCPU())
	return unix.SchedSetaffinity(0, &set)
}
