package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Random makes random calls on the symmetric heap of a world, most of them invalid: ranks, offsets,
// sizes, types, strides, freed regions, closed heaps. Every call must succeed or return an error
// that callers can branch on. Collective calls are drawn from a sequence that all ranks share,
// others from a sequence of the rank.
type Random struct {
	Seed  uint64
	Steps int           // calls between two collective ones, times eight; 0 means 1000
	For   time.Duration // minimum duration; 0 means until Steps are done
	// FarPeers is that of Options.
	FarPeers bool
	Turns    bool // one rank at a time, for the race detector: conflicting calls have no defined outcome
}

// thrower is the state of one rank.
type thrower struct {
	w       *dist.World
	turns   bool
	far     bool // some peers have no address
	shared  *rand.Rand
	own     *rand.Rand
	heap    symmetric.Heap
	regions []symmetric.Region
	freed   []symmetric.Region // lately
	calls   int
	errs    int
	buf     []uint64
}

// Run makes the calls of one rank.
//
// Collective: all ranks, same settings. Returns: the number of calls, and of those that were
// rejected. Errors: a call with a wrong outcome, with the seed.
func (r Random) Run(w *dist.World) (calls, refused int, err error) {
	if r.Steps <= 0 {
		r.Steps = 1000
	}
	t := &thrower{
		w: w, turns: r.Turns, far: r.FarPeers, shared: rand.New(rand.NewPCG(r.Seed, 0)), own: rand.New(rand.NewPCG(r.Seed, uint64(w.Rank()+1))),
		buf: make([]uint64, 128),
	}
	begin := time.Now()
	for done := false; !done; {
		if err = t.epoch(r.Steps); err != nil {
			return t.calls, t.errs, fmt.Errorf("random calls with seed %d, after %d calls on rank %d: %w", r.Seed, t.calls, w.Rank(), err)
		}
		enough := []int32{0}
		if time.Since(begin) >= r.For {
			enough[0] = 1
		}
		if err = finish(w.Broadcast(tensor.Of(enough), tensor.Of(enough), 0)); err != nil {
			return t.calls, t.errs, err
		}
		done = enough[0] == 1
	}
	return t.calls, t.errs, nil
}

// epoch tests one heap from Heap to Close.
func (t *thrower) epoch(steps int) error {
	h, err := t.w.Heap(int64(1+t.shared.IntN(64)) * symmetric.Alignment)
	if err != nil {
		return err
	}
	t.heap, t.regions, t.freed = h, nil, nil
	for range 8 {
		if err := t.together(); err != nil {
			return err
		}
		if err := t.each(max(steps/8, 1)); err != nil {
			return err
		}
	}
	if err := errors.Join(finish(t.w.Barrier()), h.Close()); err != nil {
		return err
	}
	return errors.Join(t.each(20), finish(t.w.Barrier())) // on the closed heap
}

// each lets every rank make its calls, concurrently or in turn.
func (t *thrower) each(steps int) error {
	for rank := range t.w.Size() {
		if t.turns {
			if err := finish(t.w.Barrier()); err != nil {
				return err
			}
		}
		if rank != t.w.Rank() {
			continue
		}
		for range steps {
			if err := t.alone(); err != nil {
				return err
			}
		}
	}
	if t.turns {
		return finish(t.w.Barrier())
	}
	return nil
}

// sound returns an error for an outcome that a caller could not branch on.
func (t *thrower) sound(what string, err error) error {
	t.calls++
	if err == nil {
		return nil
	}
	t.errs++
	for _, known := range []error{
		dist.ErrInvalid, dist.ErrClosed, symmetric.ErrNotAllocated, symmetric.ErrAlignment,
		symmetric.ErrNoSpace, context.Canceled,
	} {
		if errors.Is(err, known) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// together makes a few collective calls, the same on all ranks.
func (t *thrower) together() error {
	for range 4 {
		var r symmetric.Region
		var err error
		switch size := pick(t.shared, 0, 1, 8, 100, 512, 1024, 4096, 4096, 1<<20, -1, math.MaxInt64); t.shared.IntN(6) {
		case 0, 1:
			r, err = t.heap.Alloc(size)
		case 2:
			r, err = t.heap.Calloc(pick(t.shared, 0, 1, 3, -1, math.MaxInt64/2), size)
		case 3:
			r, err = t.heap.Aligned(pick(t.shared, 1, 8, 512, 1024, 4096, 0, 3, 8192, -512), size)
		default:
			if len(t.regions) > 0 {
				i := t.shared.IntN(len(t.regions))
				gone := t.regions[i]
				err = t.heap.Free(gone)
				t.regions = append(t.regions[:i], t.regions[i+1:]...)
				t.freed = append(t.freed, gone)
				if again := t.heap.Free(gone); !errors.Is(again, symmetric.ErrNotAllocated) {
					return fmt.Errorf("second free: %w", again)
				}
			}
		}
		if r != nil {
			t.regions = append(t.regions, r)
		}
		if err := t.sound("allocation", err); err != nil {
			return err
		}
	}
	return nil
}

func pick(r *rand.Rand, from ...int64) int64 { return from[r.IntN(len(from))] }

// region returns any present or freed region, or a slice of one.
func (t *thrower) region() symmetric.Region {
	from := t.regions
	if len(from) == 0 || t.own.IntN(8) == 0 {
		from = t.freed
	}
	if len(from) == 0 {
		return nil
	}
	r := from[t.own.IntN(len(from))]
	if t.own.IntN(4) == 0 {
		if part, err := r.Slice(t.offset(r), int64(t.own.IntN(64))); err == nil {
			return part
		}
	}
	return r
}

// offset returns an offset that is mostly in r or slightly past its end.
func (t *thrower) offset(r symmetric.Region) int64 {
	if t.own.IntN(8) == 0 {
		return pick(t.own, -1, -8, math.MinInt64, math.MaxInt64, math.MaxInt64-7, 1<<40)
	}
	at := t.own.Int64N(r.Local().Bytes() + 9)
	if t.own.IntN(2) == 0 {
		at &^= 7
	}
	return at
}

func (t *thrower) rank() int {
	if t.own.IntN(8) == 0 {
		return int(pick(t.own, -1, int64(t.w.Size()), math.MaxInt, math.MinInt))
	}
	return t.own.IntN(t.w.Size())
}

// dtype returns a type that mostly has atomics.
func (t *thrower) dtype() tensor.DType {
	if t.own.IntN(2) == 0 {
		return []tensor.DType{tensor.I32, tensor.I64, tensor.U32, tensor.U64}[t.own.IntN(4)]
	}
	return tensor.DType(t.own.IntN(int(tensor.U64) + 2))
}

// buffer returns private memory, or no buffer, or one marked as device memory.
func (t *thrower) buffer() tensor.Buffer {
	dev := tensor.Host
	switch t.own.IntN(12) {
	case 0:
		return tensor.Buffer{}
	case 1:
		dev = tensor.CUDA(0)
	}
	dt := tensor.DTypes()[t.own.IntN(len(tensor.DTypes()))]
	n := t.own.IntN(len(t.buf) + 1)
	if t.own.IntN(2) == 0 {
		n = t.own.IntN(4)
	}
	b, _ := tensor.FromPointer(unsafe.Pointer(&t.buf[0]), n, dt, dev)
	return b
}

// alone makes one call that is not collective.
func (t *thrower) alone() error {
	r := t.region()
	if r == nil {
		return t.sound("fence", t.heap.Fence())
	}
	rank, at := t.rank(), t.offset(r)
	strides := symmetric.Strides{Count: t.own.IntN(6) - 1, Region: t.own.IntN(5), Buffer: t.own.IntN(5)}
	if t.own.IntN(20) == 0 {
		strides.Count, strides.Region = math.MaxInt, math.MaxInt
	}
	op := symmetric.SignalOp(t.own.IntN(4))
	signal := symmetric.Signal{In: t.region(), At: t.offset(r) &^ 7, Op: op, Value: t.own.Uint64()}
	calls := []struct {
		name string
		call func() error
	}{
		{"put", func() error { return r.Put(rank, at, t.buffer()) }},
		{"put nbi", func() error { return r.PutNBI(rank, at, t.buffer()) }},
		{"get", func() error { return r.Get(t.buffer(), rank, at) }},
		{"get nbi", func() error { return errors.Join(r.GetNBI(t.buffer(), rank, at), t.heap.Quiet()) }}, // the next call uses the buffer
		{"iput", func() error { return r.IPut(rank, at, t.buffer(), strides) }},
		{"iget", func() error { return r.IGet(t.buffer(), rank, at, strides) }},
		{"p", func() error { return r.PutWord(rank, at, t.dtype(), t.own.Uint64()) }},
		{"g", func() error { _, err := r.GetWord(rank, at, t.dtype()); return err }},
		{"put-signal", func() error { return r.PutSignal(rank, at, t.buffer(), signal) }},
		{"put-signal nbi", func() error { return r.PutSignalNBI(rank, at, t.buffer(), signal) }},
		{"signal", func() error { return r.Signal(rank, at, op, 1) }},
		{"atomic", func() error {
			_, err := r.Atomic(rank, at, symmetric.Atomic{Op: symmetric.AtomicOp(t.own.IntN(9)), DType: t.dtype(), Value: t.own.Uint64()})
			return err
		}},
		{"test", func() error { _, err := r.Test(t.watch(at)); return err }},
		{"wait", func() error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, err := r.Wait(ctx, t.watch(at))
			return err
		}},
		{"peer", func() error { return t.peer(r, rank) }},
		{"slice", func() error { _, err := r.Slice(at, t.offset(r)); return err }},
		{"local", func() error { _ = r.Local().Bytes() + r.Offset(); return nil }},
		{"quiet", func() error { return t.heap.Quiet() }},
		{"free of a slice", func() error {
			part, err := r.Slice(0, 0)
			if err != nil {
				return err
			}
			return t.heap.Free(part)
		}},
		{"stats", func() error { _ = t.heap.Stats(); return nil }},
	}
	c := calls[t.own.IntN(len(calls))]
	return t.sound(c.name, c.call())
}

// peer takes a direct view, which some ranks may not have.
func (t *thrower) peer(r symmetric.Region, rank int) error {
	_, err := r.Peer(rank)
	if t.far && rank != t.w.Rank() && errors.Is(err, dist.ErrUnsupported) {
		return nil
	}
	return err
}

func (t *thrower) watch(at int64) symmetric.Watch {
	return symmetric.Watch{
		At: at, Count: t.own.IntN(9) - 1, DType: t.dtype(), Cmp: symmetric.Comparison(t.own.IntN(8)),
		Value: t.own.Uint64N(3), All: t.own.IntN(2) == 0,
	}
}

// shortRandom makes random calls for a short time.
func (s *suite) shortRandom(symmetric.Heap) error {
	_, _, err := Random{Seed: 1, Steps: 2000, Turns: true, FarPeers: s.opt.FarPeers}.Run(s.w)
	return err
}
