package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// heaps runs body as every rank of n with a heap that has addresses and no memory: for calls that
// are refused.
func heaps(t *testing.T, n int, body func(h *Heap) error) {
	t.Helper()
	onEach(t, n, sim.Config{}, func(control *dist.Group) error {
		p, err := newLedger(control, true, ages)
		if err != nil {
			return err
		}
		tr := &Transport{core: core{member: *memberOf(control), on: tensor.CUDA(3), ledger: p, limit: ages}, tools: tools{kernels: &kernels{}}}
		tr.wire()
		const bytes = 1 << 14
		arena, err := symmetric.NewArena(bytes)
		if err != nil {
			return err
		}
		slab := &Slab{Bytes: bytes}
		for r := range n {
			slab.Base = append(slab.Base, uintptr(1+r)<<20)
		}
		h := &Heap{t: tr, slab: slab, arena: arena, gate: hostheap.NewGate()}
		tr.member.Memory.Add(slab, control.Rank())
		err = body(h)
		if e := finish(control.Blocking().Barrier()); e != nil && p.broken() == nil {
			err = errors.Join(err, e)
		}
		return errors.Join(err, p.close())
	})
}

func (h *Heap) fakeRegion(off, n int64) *Region {
	return &Region{heap: h, of: &allocation{}, off: off, n: n}
}

// onGPU is n elements that claim to be on a GPU.
func onGPU(n int, dt tensor.DType, on tensor.Device) tensor.Buffer {
	b, err := tensor.FromPointer(tensor.Of(make([]uint64, n)).Pointer(), n, dt, on)
	if err != nil {
		return tensor.Buffer{}
	}
	return b
}

// refused is an error unless err is that of an access of this rank, with the sentinel.
func refused(what string, err, sentinel error) error {
	var access *symmetric.AccessError
	if !errors.Is(err, sentinel) || !errors.As(err, &access) || !strings.Contains(err.Error(), "region of") {
		return fmt.Errorf("%s: error %w, want an access error that matches %v", what, err, sentinel)
	}
	return nil
}

func TestWrongPlacesAreRefused(t *testing.T) {
	heaps(t, 2, func(h *Heap) error {
		r, gone := h.fakeRegion(512, 64), h.fakeRegion(1024, 64)
		gone.of.freed.Store(true)
		b := onGPU(1, tensor.U64, h.t.on)
		var errs []error
		for _, place := range []struct {
			what string
			r    *Region
			rank int
			at   int64
			want error
		}{
			{"rank too large", r, 2, 0, dist.ErrRoot},
			{"negative rank", r, -1, 0, dist.ErrRoot},
			{"negative offset", r, 0, -8, dist.ErrCount},
			{"offset at the end", r, 0, 64, dist.ErrCount},
			{"enormous offset", r, 0, math.MaxInt64 - 7, dist.ErrCount},
			{"freed region", gone, 0, 0, symmetric.ErrNotAllocated},
		} {
			one := symmetric.Strides{Count: 1, Region: 1, Buffer: 1}
			signal := symmetric.Signal{In: place.r, Op: symmetric.SignalSet}
			_, g := place.r.GetWord(place.rank, place.at, tensor.U64)
			_, a := place.r.Atomic(place.rank, place.at, symmetric.Atomic{Op: symmetric.OpAdd, DType: tensor.U64})
			for call, err := range map[string]error{
				"put": place.r.Put(place.rank, place.at, b), "put nbi": place.r.PutNBI(place.rank, place.at, b),
				"get": place.r.Get(b, place.rank, place.at), "get nbi": place.r.GetNBI(b, place.rank, place.at),
				"iput": place.r.IPut(place.rank, place.at, b, one), "iget": place.r.IGet(b, place.rank, place.at, one),
				"put-signal": place.r.PutSignal(place.rank, place.at, b, signal), "g": g, "atomic": a,
				"p":      place.r.PutWord(place.rank, place.at, tensor.U64, 1),
				"signal": place.r.Signal(place.rank, place.at, symmetric.SignalAdd, 1),
			} {
				errs = append(errs, refused(call+", "+place.what, err, place.want))
			}
		}
		return errors.Join(errs...)
	})
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	heaps(t, 2, func(h *Heap) error {
		r, other := h.fakeRegion(512, 64), (&Heap{t: h.t, slab: h.slab}).fakeRegion(0, 64)
		b := onGPU(1, tensor.U64, h.t.on)
		one := symmetric.Strides{Count: 1, Region: 1, Buffer: 1}
		var errs []error
		for what, bad := range map[string]struct {
			b    tensor.Buffer
			want error
		}{"no buffer": {tensor.Buffer{}, dist.ErrDType}, "another device's": {onGPU(1, tensor.U64, tensor.CUDA(0)), dist.ErrDevice}} {
			errs = append(errs, refused("put of "+what, r.Put(0, 0, bad.b), bad.want), refused("get of "+what, r.Get(bad.b, 0, 0), bad.want),
				refused("iput of "+what, r.IPut(0, 0, bad.b, one), bad.want),
				refused("put-signal of "+what, r.PutSignal(0, 0, bad.b, symmetric.Signal{In: r, Op: symmetric.SignalSet}), bad.want))
		}
		for _, s := range []symmetric.Strides{
			{Count: -1, Region: 1, Buffer: 1},
			{Count: 1, Region: 0, Buffer: 1},
			{Count: 1, Region: 1, Buffer: -1},
			{Count: 2, Region: 1, Buffer: 1},
			{Count: math.MaxInt, Region: math.MaxInt, Buffer: math.MaxInt},
		} {
			errs = append(errs, refused(fmt.Sprintf("%+v", s), r.IPut(0, 0, b, s), dist.ErrCount))
		}
		errs = append(errs,
			refused("misaligned signal", r.Signal(0, 4, symmetric.SignalSet, 1), symmetric.ErrAlignment),
			refused("no signal operation", r.Signal(0, 0, 9, 1), dist.ErrInvalid),
			refused("no signal", r.PutSignal(0, 0, b, symmetric.Signal{Op: symmetric.SignalSet}), symmetric.ErrNotAllocated),
			refused("signal of another heap", r.PutSignal(0, 0, b, symmetric.Signal{In: other, Op: symmetric.SignalSet}), symmetric.ErrNotAllocated),
			refused("misaligned signal of a put", r.PutSignal(0, 0, b, symmetric.Signal{In: r, At: 4, Op: symmetric.SignalSet}), symmetric.ErrAlignment),
			refused("p of no type", r.PutWord(0, 0, tensor.Invalid, 1), dist.ErrDType))
		for _, a := range []struct {
			a    symmetric.Atomic
			want error
		}{
			{symmetric.Atomic{DType: tensor.U64}, dist.ErrInvalid},
			{symmetric.Atomic{Op: 99, DType: tensor.U64}, dist.ErrInvalid},
			{symmetric.Atomic{Op: symmetric.OpAdd}, dist.ErrDType},
			{symmetric.Atomic{Op: symmetric.OpAdd, DType: tensor.U8}, dist.ErrDType},
			{symmetric.Atomic{Op: symmetric.OpAdd, DType: tensor.F64}, dist.ErrDType},
		} {
			_, err := r.Atomic(0, 0, a.a)
			errs = append(errs, refused(fmt.Sprintf("%+v", a.a), err, a.want))
		}
		_, misplaced := r.Atomic(0, 2, symmetric.Atomic{Op: symmetric.OpAdd, DType: tensor.U32})
		return errors.Join(append(errs, refused("misaligned atomic", misplaced, symmetric.ErrAlignment))...)
	})
}

func TestWrongWatchesAreRefused(t *testing.T) {
	heaps(t, 1, func(h *Heap) error {
		r := h.fakeRegion(512, 64)
		var errs []error
		for _, c := range []struct {
			w    symmetric.Watch
			want error
		}{
			{symmetric.Watch{Count: 1, DType: tensor.U64}, dist.ErrInvalid},
			{symmetric.Watch{Count: 1, DType: tensor.F32, Cmp: symmetric.Eq}, dist.ErrDType},
			{symmetric.Watch{Count: 0, DType: tensor.U64, Cmp: symmetric.Eq}, dist.ErrCount},
			{symmetric.Watch{Count: 9, DType: tensor.U64, Cmp: symmetric.Eq}, dist.ErrCount},
			{symmetric.Watch{Count: math.MaxInt, DType: tensor.U64, Cmp: symmetric.Eq}, dist.ErrCount},
			{symmetric.Watch{At: 4, Count: 1, DType: tensor.U64, Cmp: symmetric.Eq}, symmetric.ErrAlignment},
			{symmetric.Watch{At: -8, Count: 1, DType: tensor.U64, Cmp: symmetric.Eq}, dist.ErrCount},
		} {
			hit, err := r.Test(c.w)
			hit2, err2 := r.Wait(context.Background(), c.w)
			errs = append(errs, refused(fmt.Sprintf("test %+v", c.w), err, c.want), refused(fmt.Sprintf("wait %+v", c.w), err2, c.want))
			if hit.Index != -1 || hit2.Index != -1 {
				errs = append(errs, fmt.Errorf("refused test and wait have hits %d and %d", hit.Index, hit2.Index))
			}
		}
		var none context.Context
		_, err := r.Wait(none, symmetric.Watch{Count: 1, DType: tensor.U64, Cmp: symmetric.Eq})
		return errors.Join(append(errs, refused("wait without a context", err, dist.ErrInvalid))...)
	})
}

func TestPartThatCannotBeAddressedIsRefused(t *testing.T) {
	heaps(t, 2, func(h *Heap) error {
		h.slab.Base[1-h.t.member.Rank] = 0
		_, err := h.fakeRegion(0, 64).Peer(1 - h.t.member.Rank)
		return refused("peer", err, dist.ErrUnsupported)
	})
}

func TestBrokenGroupRefusesAccess(t *testing.T) {
	heaps(t, 2, func(h *Heap) error {
		if h.t.member.Rank == 0 {
			_ = h.t.ledger.fail(endUser, 0, "given up")
		}
		if err := want(h.t.ledger.awaitEnd(), dist.ErrAborted); err != nil {
			return err
		}
		_, err := h.fakeRegion(0, 64).Peer(0)
		if e := refused("peer", err, dist.ErrAborted); e != nil {
			return e
		}
		_, err = h.Alloc(8)
		return want(err, dist.ErrAborted, "given up")
	})
}

// Each rank that broke its promise gets that error, also after another rank has done the same.
func TestBrokenPromiseIsEachRanksOwnError(t *testing.T) {
	heaps(t, 3, func(h *Heap) error {
		inside, err := bytesAt(h.slab.Base[h.t.member.Rank], 192, h.t.on)
		if err != nil {
			return err
		}
		op := dist.Op{Kind: dist.KindAllGather, Count: 64, Dst: inside, Src: onGPU(64, tensor.U8, h.t.on), Symmetric: true}
		_, err = h.t.collective(&ticket{}, &op, nil)
		return errors.Join(
			want(err, dist.ErrInvalid, "source", "made before Split"),
			want(h.t.ledger.awaitEnd(), dist.ErrMismatch, "promised a symmetric allgather"))
	})
}

func TestClosedHeapRefuses(t *testing.T) {
	heaps(t, 1, func(h *Heap) error {
		r := h.fakeRegion(0, 64)
		h.gate.Close(func() {})
		_, err := r.Peer(0)
		_, alloc := h.Alloc(8)
		if b := r.Local(); b.Len() != 0 || b.Device() != h.t.on {
			return fmt.Errorf("a region of a closed heap has the view %v", b)
		}
		return errors.Join(refused("peer", err, dist.ErrClosed), want(alloc, dist.ErrClosed), want(h.Free(r), dist.ErrClosed),
			want(h.Quiet(), dist.ErrClosed), want(h.Fence(), dist.ErrClosed))
	})
}

// Allocations without elements touch no device.
func TestAllocationsAgree(t *testing.T) {
	heaps(t, 3, func(h *Heap) error {
		a, err := h.Alloc(0)
		if err != nil {
			return err
		}
		b, err := h.Calloc(0, 8)
		if err != nil {
			return err
		}
		c, err := h.Aligned(symmetric.MaxAlignment, 0)
		if err != nil {
			return err
		}
		if a.Offset() != 0 || b.Offset() != symmetric.Alignment || c.Offset() != symmetric.MaxAlignment {
			return fmt.Errorf("offsets %d, %d, %d", a.Offset(), b.Offset(), c.Offset())
		}
		_, whole := h.Alloc(1 << 40)
		_, negative := h.Calloc(-1, 8)
		_, much := h.Calloc(math.MaxInt64, 2)
		_, odd := h.Aligned(3, 8)
		part, err := b.Slice(0, 0)
		if err != nil {
			return err
		}
		if s := h.Stats(); s.Regions != 3 {
			return fmt.Errorf("stats %+v", s)
		}
		return errors.Join(want(whole, symmetric.ErrNoSpace), want(negative, dist.ErrCount), want(much, symmetric.ErrNoSpace),
			want(odd, symmetric.ErrAlignment), want(h.Free(part), symmetric.ErrNotAllocated), want(h.Free(nil), symmetric.ErrNotAllocated),
			h.Free(a), want(h.Free(a), symmetric.ErrNotAllocated))
	})
}

func TestAllocationsThatDifferBreakTheGroup(t *testing.T) {
	for word, call := range map[string]func(h *Heap) error{
		"count": func(h *Heap) error {
			_, err := h.Alloc(int64(h.t.member.Rank) * 512)
			return err
		},
		"alignment": func(h *Heap) error {
			_, err := h.Aligned(int64(512+512*h.t.member.Rank), 0)
			return err
		},
		"operation": func(h *Heap) error {
			if h.t.member.Rank == 0 {
				_, err := h.Alloc(0)
				return err
			}
			c := opEntry{sig: dist.Signature{Kind: dist.KindBarrier, Root: -1}}
			_ = h.t.ledger.announce(&c)
			return h.t.ledger.awaitEnd()
		},
	} {
		t.Run(word, func(t *testing.T) {
			onEach(t, 2, sim.Config{}, func(control *dist.Group) error {
				return fakeHeap(control, func(h *Heap) error { return want(call(h), dist.ErrMismatch, word, "rank 1") })
			})
		})
	}
}

// fakeHeap is heaps for one rank of a group that breaks.
func fakeHeap(control *dist.Group, body func(h *Heap) error) error {
	p, err := newLedger(control, true, ages)
	if err != nil {
		return err
	}
	tr := &Transport{core: core{member: *memberOf(control), on: tensor.CUDA(3), ledger: p, limit: ages}, tools: tools{kernels: &kernels{}}}
	tr.wire()
	arena, err := symmetric.NewArena(1 << 14)
	if err != nil {
		return err
	}
	h := &Heap{t: tr, slab: &Slab{Bytes: 1 << 14, Base: make([]uintptr, control.Size())}, arena: arena, gate: hostheap.NewGate()}
	return errors.Join(body(h), p.close())
}

func TestViewsOfStreamsRefuseTheHost(t *testing.T) {
	heaps(t, 1, func(h *Heap) error {
		r := h.fakeRegion(512, 64)
		_, err := r.OnStream(dist.Stream(nil))
		v := &StreamRegion{Region: r}
		host := tensor.Of(make([]uint64, 1))
		_, g := v.GetWord(0, 0, tensor.U64)
		_, a := v.Atomic(0, 0, symmetric.Atomic{Op: symmetric.OpAdd, DType: tensor.U64})
		_, w := v.Wait(context.Background(), symmetric.Watch{Count: 1, DType: tensor.U64})
		return errors.Join(refused("view", err, dist.ErrDevice),
			refused("put", v.Put(0, 0, host), dist.ErrDevice), refused("get", v.Get(host, 0, 0), dist.ErrDevice),
			refused("iput", v.IPut(0, 0, host, symmetric.Strides{}), dist.ErrDevice),
			refused("put-signal", v.PutSignal(0, 0, host, symmetric.Signal{}), dist.ErrDevice),
			refused("g", g, dist.ErrUnsupported), refused("atomic", a, dist.ErrUnsupported), refused("wait", w, dist.ErrInvalid),
			refused("p of a byte", v.PutWord(0, 0, tensor.U8, 1), dist.ErrUnsupported))
	})
}

func TestScanFindsTheWordThatDecides(t *testing.T) {
	words := tensor.Of([]uint32{5, 5, 9, 5}).Raw()
	for _, c := range []struct {
		w    symmetric.Watch
		want int
	}{
		{symmetric.Watch{DType: tensor.U32, Cmp: symmetric.Eq, Value: 9}, 2},
		{symmetric.Watch{DType: tensor.U32, Cmp: symmetric.Gt, Value: 9}, -1},
		{symmetric.Watch{DType: tensor.U32, Cmp: symmetric.Eq, Value: 5, All: true}, 2},
		{symmetric.Watch{DType: tensor.U32, Cmp: symmetric.Ge, Value: 5, All: true}, -1},
	} {
		if got, _ := scan(words, c.w); got != c.want {
			t.Errorf("%+v: word %d decides, want %d", c.w, got, c.want)
		}
	}
}
