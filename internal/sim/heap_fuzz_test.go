package sim_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// three is rank 0's regions of a world of two ranks: the calls go to the middle one.
func three(f *testing.F) (regions [3]symmetric.Region) {
	f.Helper()
	worlds, err := sim.New(2, sim.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		for _, w := range worlds {
			if err := w.Close(); err != nil {
				f.Error(err)
			}
		}
	})
	var ranks sync.WaitGroup
	errs := make([]error, len(worlds))
	for rank, w := range worlds {
		ranks.Go(func() {
			h, err := w.Heap(8 * symmetric.Alignment)
			for i := range regions {
				var r symmetric.Region
				if err == nil {
					r, err = h.Alloc(symmetric.Alignment)
				}
				if rank == 0 {
					regions[i] = r
				}
			}
			errs[rank] = err
		})
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		f.Fatal(err)
	}
	return regions
}

// FuzzOneSidedCalls makes one call with any arguments: it succeeds or returns an *AccessError that
// matches a sentinel, and writes nothing outside its region. Run it for a minute by
//
//	go test ./internal/sim -fuzz OneSidedCalls -fuzztime 1m
func FuzzOneSidedCalls(f *testing.F) {
	regions := three(f)
	r := regions[1]
	memory := make([]uint64, 64)
	for call := range uint8(28) {
		f.Add(call, 1, int64(8), 3, uint8(tensor.U64), uint64(5), int64(64), int64(100), 1, 2)
		f.Add(call, 2, int64(-1), 64, uint8(tensor.I32), uint64(1), int64(508), int64(5), 1<<62, 1<<62)
		f.Add(call, 0, int64(509), 1, uint8(tensor.U8), uint64(9), int64(1)<<62, int64(1)<<62, -1, 0)
	}
	f.Fuzz(func(t *testing.T, call uint8, rank int, at int64, n int, dt uint8, value uint64, from, size int64, there, here int) {
		region := r
		if part, err := r.Slice(from, size); err == nil && call%2 == 0 {
			region = part
		} else if err != nil && !errors.Is(err, dist.ErrCount) {
			t.Errorf("slice of %d B at %d: %v", size, from, err)
		}
		b, err := tensor.FromPointer(unsafe.Pointer(&memory[0]), n, tensor.DType(dt), tensor.Host)
		if err != nil || b.Bytes() > int64(8*len(memory)) {
			b = tensor.Of(memory)
		}
		err = oneCall(region, call, rank, at, b, tensor.DType(dt), value, symmetric.Strides{Count: n, Region: there, Buffer: here})
		var access *symmetric.AccessError
		if err != nil && (!errors.As(err, &access) ||
			!errors.Is(err, dist.ErrInvalid) && !errors.Is(err, context.Canceled)) {
			t.Errorf("call %d: %v", call, err)
		}
		for rank := range 2 {
			for _, guard := range []symmetric.Region{regions[0], regions[2]} {
				view, err := guard.Peer(rank)
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range view.Raw() {
					if v != 0 {
						t.Fatalf("call %d wrote byte %d of another region of rank %d", call, i, rank)
					}
				}
			}
		}
	})
}

// oneCall is call number call modulo the number of calls.
func oneCall(r symmetric.Region, call uint8, rank int, at int64, b tensor.Buffer, dt tensor.DType, value uint64, s symmetric.Strides) error {
	signal := symmetric.Signal{In: r, At: int64(value), Op: symmetric.SignalOp(1 + value%3), Value: value}
	watch := symmetric.Watch{At: at, Count: s.Count, DType: dt, Cmp: symmetric.Comparison(value % 8), Value: value >> 3, All: value&8 != 0}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	var err error
	switch call / 2 % 14 {
	case 0:
		err = r.Put(rank, at, b)
	case 1:
		err = r.PutNBI(rank, at, b)
	case 2:
		err = r.Get(b, rank, at)
	case 3:
		err = r.GetNBI(b, rank, at)
	case 4:
		err = r.IPut(rank, at, b, s)
	case 5:
		err = r.IGet(b, rank, at, s)
	case 6:
		err = r.PutWord(rank, at, dt, value)
	case 7:
		_, err = r.GetWord(rank, at, dt)
	case 8:
		err = r.PutSignal(rank, at, b, signal)
	case 9:
		err = r.Signal(rank, at, signal.Op, value)
	case 10:
		_, err = r.Atomic(rank, at, symmetric.Atomic{Op: symmetric.AtomicOp(value % 10), DType: dt, Value: value >> 4})
	case 11:
		_, err = r.Wait(canceled, watch)
	case 12:
		_, err = r.Test(watch)
	case 13:
		_, err = r.Peer(rank)
	}
	return err
}
