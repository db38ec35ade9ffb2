package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// skewed is a heap that ignores alignments.
type skewed struct{ symmetric.Heap }

func (h skewed) Aligned(alignment, bytes int64) (symmetric.Region, error) {
	if symmetric.CheckAlignment(alignment, symmetric.MaxAlignment) == nil {
		alignment = symmetric.Alignment
	}
	return h.Heap.Aligned(alignment, bytes)
}

// bent is a heap whose regions have a bug: it changes their calls.
type bent struct {
	symmetric.Heap
	atomic func(at int64, a *symmetric.Atomic)
	signal func(op *symmetric.SignalOp, value *uint64)
	watch  func(w *symmetric.Watch)
}

func (h *bent) Alloc(bytes int64) (symmetric.Region, error) { return h.bend(h.Heap.Alloc(bytes)) }

func (h *bent) Calloc(count, bytes int64) (symmetric.Region, error) {
	return h.bend(h.Heap.Calloc(count, bytes))
}

func (h *bent) Aligned(alignment, bytes int64) (symmetric.Region, error) {
	return h.bend(h.Heap.Aligned(alignment, bytes))
}

func (h *bent) Free(r symmetric.Region) error { return h.Heap.Free(straightened(r)) }

func (h *bent) bend(r symmetric.Region, err error) (symmetric.Region, error) {
	if err != nil {
		return nil, err
	}
	return &bentRegion{r, h}, nil
}

type bentRegion struct {
	symmetric.Region
	h *bent
}

// straightened returns the region of the underlying heap for r.
func straightened(r symmetric.Region) symmetric.Region {
	if b, ok := r.(*bentRegion); ok {
		return b.Region
	}
	return r
}

func (r *bentRegion) Slice(at, bytes int64) (symmetric.Region, error) {
	return r.h.bend(r.Region.Slice(at, bytes))
}

func (r *bentRegion) Atomic(rank int, at int64, a symmetric.Atomic) (uint64, error) {
	if r.h.atomic != nil {
		r.h.atomic(at, &a)
	}
	return r.Region.Atomic(rank, at, a)
}

func (r *bentRegion) Signal(rank int, at int64, op symmetric.SignalOp, value uint64) error {
	if r.h.signal != nil {
		r.h.signal(&op, &value)
	}
	return r.Region.Signal(rank, at, op, value)
}

func (r *bentRegion) PutSignal(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	s.In = straightened(s.In)
	return r.Region.PutSignal(rank, at, src, s)
}

func (r *bentRegion) PutSignalNBI(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	s.In = straightened(s.In)
	return r.Region.PutSignalNBI(rank, at, src, s)
}

func (r *bentRegion) Test(w symmetric.Watch) (symmetric.Hit, error) {
	if r.h.watch != nil {
		r.h.watch(&w)
	}
	return r.Region.Test(w)
}

// wide turns 32-bit words into 64-bit ones where these fit.
func wide(from, to tensor.DType) func(at int64, a *symmetric.Atomic) {
	return func(at int64, a *symmetric.Atomic) {
		if a.DType != from || at%8 != 0 || a.Op == symmetric.OpFetch {
			return
		}
		if a.DType = to; from == tensor.I32 {
			a.Value = uint64(int64(int32(a.Value)))
		}
	}
}

func TestSuiteFindsBugsOfHeaps(t *testing.T) {
	for _, tt := range []struct {
		name string
		heap func(symmetric.Heap) symmetric.Heap
		want string // in the error
	}{
		{"no alignment", func(h symmetric.Heap) symmetric.Heap { return skewed{h} }, "is no multiple of 4096"},
		{"sums of i32 are wider", func(h symmetric.Heap) symmetric.Heap {
			return &bent{Heap: h, atomic: wide(tensor.I32, tensor.I64)}
		}, "i32 on rank 0: the word after it is -1"},
		{"sets of u32 are wider", func(h symmetric.Heap) symmetric.Heap {
			return &bent{Heap: h, atomic: wide(tensor.U32, tensor.U64)}
		}, "set of u32: the word after it is 0"},
		{"a signal is added instead of set", func(h symmetric.Heap) symmetric.Heap {
			return &bent{Heap: h, signal: func(op *symmetric.SignalOp, _ *uint64) {
				if *op == symmetric.SignalSet {
					*op = symmetric.SignalAdd
				}
			}}
		}, "signal set: "},
		{"signals have 32 bits", func(h symmetric.Heap) symmetric.Heap {
			return &bent{Heap: h, signal: func(op *symmetric.SignalOp, value *uint64) {
				if *op == symmetric.SignalSet {
					*value &= 1<<32 - 1
				}
			}}
		}, "signal set: 7, "},
		{"u64 are compared as signed", func(h symmetric.Heap) symmetric.Heap {
			return &bent{Heap: h, watch: func(w *symmetric.Watch) {
				if w.DType == tensor.U64 {
					w.DType = tensor.I64
				}
			}}
		}, "test 18446744073709551615 > 7 of u64: false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wrap := func(end dist.Transport) dist.Transport {
				return &crooked{Transport: end, heap: func(h symmetric.Heap, err error) (symmetric.Heap, error) {
					if err != nil {
						return nil, err
					}
					return tt.heap(h), nil
				}}
			}
			err := drive(t, 2, sim.Config{StepTimeout: time.Minute}, wrap, func(w *dist.World) error {
				for _, p := range parts {
					if p.name == "Heap" {
						return runPart(w, Options{Large: 101}, p, nil)
					}
				}
				return errors.New("no such part")
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
}
