package nvshmem

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// window is a slab and a stream for one-sided tests. The first page holds signals.
type window struct {
	r    *rank
	rt   *Runtime
	slab *gpu.Slab
	base uintptr // this rank's
	s    *cuda.Stream
	mine uintptr // private memory of the GPU
}

const windowBytes = 1 << 20

func openWindow(r *rank, rt *Runtime) (*window, error) {
	slab, err := rt.Alloc(r.member, windowBytes)
	if err != nil {
		return nil, err
	}
	w := &window{r: r, rt: rt, slab: slab, base: slab.Base[r.me()]}
	if w.s, err = r.dev.NewStream(0); err != nil {
		return nil, err
	}
	w.mine, err = r.dev.Alloc(windowBytes)
	return w, err
}

func (w *window) close() error {
	return errors.Join(w.s.Synchronize(), w.s.Close(), w.r.dev.Free(w.mine), w.slab.Free())
}

// data is this rank's memory from addr on.
func (w *window) data(addr uintptr, bytes int) ([]byte, error) {
	raw := make([]byte, bytes)
	return raw, w.r.dev.CopyToHost(unsafe.Pointer(&raw[0]), addr, int64(bytes))
}

func (w *window) fill(addr uintptr, raw []byte) error {
	return w.r.dev.CopyFromHost(addr, unsafe.Pointer(&raw[0]), int64(len(raw)))
}

// meet waits for the stream here and for all ranks.
func (w *window) meet() error {
	if err := errors.Join(w.rt.Barrier(w.s), w.s.Synchronize()); err != nil {
		return err
	}
	return w.r.member.Agree(nil)
}

func oneSided(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	w, err := openWindow(r, rt)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		run  func(w *window, bytes int) error
	}{{"put", puts}, {"get", gets}, {"put with signal", putSignals}, {"signals", signals}} {
		for _, bytes := range []int{1, 8, 1000, 300000} {
			if err := part.run(w, bytes); err != nil {
				return fmt.Errorf("%s, %d B: %w", part.name, bytes, err)
			}
		}
	}
	if err := peers(w); err != nil {
		return err
	}
	if n := testingAllocs(func() {
		err = errors.Join(err, rt.Put(w.s, 0, Transfer{w.base + 8192, w.base + 4096, 8}), rt.Quiet(w.s))
	}); n != 0 || err != nil {
		return fmt.Errorf("a put and a quiet allocate %v times, error %v", n, err)
	}
	return errors.Join(w.close(), e.Close(), rt.Close())
}

// puts gives the next rank a block from private memory, and one from the heap without holding up
// the stream.
func puts(w *window, bytes int) error {
	me, n := w.r.me(), w.r.n()
	next, previous := (me+1)%n, (me+n-1)%n
	const first, second, own = 4096, 350000, 700000
	if err := errors.Join(w.fill(w.mine, letter(me, next, 0, bytes)), w.fill(w.base+own, letter(me, next, 1, bytes)), w.meet()); err != nil {
		return err
	}
	err := errors.Join(
		w.rt.Put(w.s, next, Transfer{w.base + first, w.mine, int64(bytes)}),
		w.rt.PutNBI(w.s, next, Transfer{w.base + second, w.base + own, int64(bytes)}),
		w.rt.Quiet(w.s),
		w.meet(),
	)
	if err != nil {
		return err
	}
	for i, at := range []uintptr{first, second} {
		got, err := w.data(w.base+at, bytes)
		if err != nil {
			return err
		}
		if err := differ(fmt.Sprintf("put %d", i), tensor.U8, got, letter(previous, me, i, bytes)); err != nil {
			return err
		}
	}
	return w.meet()
}

// gets takes a block of the next rank's into private memory, and one into the heap.
func gets(w *window, bytes int) error {
	me, n := w.r.me(), w.r.n()
	next := (me + 1) % n
	const own, to = 4096, 500000
	if err := errors.Join(w.fill(w.base+own, letter(me, 0, 3, bytes)), w.meet()); err != nil {
		return err
	}
	err := errors.Join(
		w.rt.Get(w.s, next, Transfer{w.mine, w.base + own, int64(bytes)}),
		w.rt.GetNBI(w.s, next, Transfer{w.base + to, w.base + own, int64(bytes)}),
		w.rt.Quiet(w.s),
		w.s.Synchronize(),
	)
	if err != nil {
		return err
	}
	for i, at := range []uintptr{w.mine, w.base + to} {
		got, err := w.data(at, bytes)
		if err != nil {
			return err
		}
		if err := differ(fmt.Sprintf("get %d", i), tensor.U8, got, letter(next, 0, 3, bytes)); err != nil {
			return err
		}
	}
	return w.meet()
}

// putSignals puts two blocks to the next rank, each followed by a signal that the receiver's stream
// waits for.
func putSignals(w *window, bytes int) error {
	me, n := w.r.me(), w.r.n()
	next, previous := (me+1)%n, (me+n-1)%n
	const first, second, own, set, added = 4096, 350000, 700000, 0, 64
	err := errors.Join(w.fill(w.base, make([]byte, 4096)), w.fill(w.mine, letter(me, next, 4, bytes)), w.fill(w.base+own, letter(me, next, 5, bytes)), w.meet())
	if err != nil {
		return err
	}
	err = errors.Join(
		w.rt.PutSignal(w.s, next, Transfer{w.base + first, w.mine, int64(bytes)}, Signal{w.base + set, SignalSet, 41}),
		w.rt.PutSignalNBI(w.s, next, Transfer{w.base + second, w.base + own, int64(bytes)}, Signal{w.base + added, SignalAdd, 2}),
		w.rt.PutSignal(w.s, next, Transfer{}, Signal{w.base + added, SignalAdd, 5}), // no data: the signal alone
		w.rt.SignalWait(w.s, w.base+set, Equal, 41),
		w.rt.SignalWait(w.s, w.base+added, Equal, 7),
		w.s.Copy(w.mine+windowBytes/2, w.base+first, int64(bytes)),
		w.rt.Quiet(w.s),
		w.s.Synchronize(),
	)
	if err != nil {
		return err
	}
	for i, at := range []uintptr{w.mine + windowBytes/2, w.base + second} {
		got, err := w.data(at, bytes)
		if err != nil {
			return err
		}
		if err := differ(fmt.Sprintf("put signal %d", i), tensor.U8, got, letter(previous, me, 4+i, bytes)); err != nil {
			return err
		}
	}
	return w.meet()
}

// signals counts up a signal of the next rank, and waits with every comparison.
func signals(w *window, _ int) error {
	me, n := w.r.me(), w.r.n()
	next := (me + 1) % n
	if err := errors.Join(w.fill(w.base, make([]byte, 4096)), w.meet()); err != nil {
		return err
	}
	for i := range uint64(3) {
		if err := w.rt.Signal(w.s, next, Signal{w.base, SignalAdd, 1 + i}); err != nil { // 1, 3, 6
			return err
		}
	}
	for _, c := range []struct {
		is    Comparison
		value uint64
	}{{GreaterEqual, 6}, {Equal, 6}, {NotEqual, 5}, {Greater, 5}, {LessEqual, 6}, {Less, 7}} {
		if err := w.rt.SignalWait(w.s, w.base, c.is, c.value); err != nil {
			return fmt.Errorf("wait for %v %d: %w", c.is, c.value, err)
		}
	}
	if err := w.s.Synchronize(); err != nil {
		return err
	}
	got, err := w.data(w.base, 8)
	if err != nil {
		return err
	}
	if v := at(got, tensor.U64, 0); v != 6 {
		return fmt.Errorf("the signal is %d, want 6", v)
	}
	return w.meet()
}

// peers checks that every rank's part can be addressed, and that the addresses are those of the
// slab.
func peers(w *window) error {
	me := w.r.me()
	if err := errors.Join(w.fill(w.base+4096, letter(me, 0, 9, 64)), w.meet()); err != nil {
		return err
	}
	for q := range w.r.n() {
		addr, err := w.rt.Peer(q, w.base+4096)
		if err != nil {
			return err
		}
		if addr == 0 || addr != w.slab.Base[q]+4096 {
			return fmt.Errorf("the memory of rank %d is at %#x, the slab says %#x", q, addr, w.slab.Base[q]+4096)
		}
		if err := w.r.dev.Copy(w.mine, addr, 64); err != nil {
			return err
		}
		got, err := w.data(w.mine, 64)
		if err != nil {
			return err
		}
		if err := differ("peer pointer", tensor.U8, got, letter(q, 0, 9, 64)); err != nil {
			return err
		}
	}
	return w.meet()
}

// misuse makes every mistake that the library would end the process for.
func misuse(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	w, err := openWindow(r, rt)
	if err != nil {
		return err
	}
	var other uintptr // freed memory
	slab, err := rt.Alloc(r.member, 8192)
	if err != nil {
		return err
	}
	other = slab.Base[r.me()]
	if err := errors.Join(slab.Free(), slab.Free()); err != nil {
		return fmt.Errorf("free, twice: %w", err)
	}
	ok := Transfer{w.base + 8192, w.base + 4096, 8}
	for _, c := range []struct {
		name string
		err  error
		kind error
	}{
		{"no stream", rt.Put(nil, 0, ok), dist.ErrInvalid},
		{"no such rank", rt.Put(w.s, r.n(), ok), dist.ErrRoot},
		{"a negative rank", rt.Get(w.s, -1, ok), dist.ErrRoot},
		{"a negative length", rt.Put(w.s, 0, Transfer{ok.Dst, ok.Src, -1}), dist.ErrCount},
		{"beyond the slab", rt.Put(w.s, 0, Transfer{w.base + windowBytes - 4, w.base, 8}), dist.ErrCount},
		{"to no memory", rt.Put(w.s, 0, Transfer{0, w.base, 8}), symmetric.ErrNotAllocated},
		{"to private memory", rt.Put(w.s, 0, Transfer{w.mine, w.base, 8}), symmetric.ErrNotAllocated},
		{"to freed memory", rt.Put(w.s, 0, Transfer{other, w.base, 8}), symmetric.ErrNotAllocated},
		{"from no memory", rt.Put(w.s, 0, Transfer{w.base, 8, 8}), dist.ErrDevice},
		{"from beyond private memory", rt.Put(w.s, 0, Transfer{w.base, w.mine + windowBytes - 4, 8192 * 1024}), dist.ErrCount},
		{"get into nothing", rt.GetNBI(w.s, 0, Transfer{0, w.base, 8}), dist.ErrDevice},
		{"a misaligned signal", rt.Signal(w.s, 0, Signal{w.base + 4, SignalSet, 1}), symmetric.ErrAlignment},
		{"a private signal", rt.Signal(w.s, 0, Signal{w.mine, SignalSet, 1}), symmetric.ErrNotAllocated},
		{"no signal operation", rt.PutSignal(w.s, 0, ok, Signal{w.base, 3, 1}), dist.ErrInvalid},
		{"no comparison", rt.SignalWait(w.s, w.base, 17, 1), dist.ErrInvalid},
		{"wait for private memory", rt.SignalWait(w.s, w.mine, Equal, 1), symmetric.ErrNotAllocated},
		{"barrier without a stream", rt.Barrier(nil), dist.ErrInvalid},
		{"quiet without a stream", rt.Quiet(nil), dist.ErrInvalid},
		{"an operation without a stream", e.Enqueue(&dist.Op{Kind: dist.KindBarrier}, nil), dist.ErrInvalid},
		{"the engine of another group", func() error {
			_, err := rt.Make(&gpu.Member{Device: r.dev, Size: 1, World: []int{0}})
			return err
		}(), dist.ErrUnsupported},
		{"memory for another group", func() error {
			_, err := rt.Alloc(&gpu.Member{Device: r.dev, Size: 1, World: []int{0}}, 8)
			return err
		}(), dist.ErrUnsupported},
	} {
		if !errors.Is(c.err, c.kind) {
			return fmt.Errorf("%s: error %v, want %v", c.name, c.err, c.kind)
		}
	}
	// All of it is as it was.
	if err := errors.Join(rt.Put(w.s, (r.me()+1)%r.n(), ok), w.meet(), rt.Failed()); err != nil {
		return err
	}
	if err := errors.Join(w.close(), e.Close(), rt.Close()); err != nil {
		return err
	}
	s, err := r.dev.NewStream(0)
	if err != nil {
		return err
	}
	if err := rt.Put(s, 0, ok); !errors.Is(err, dist.ErrClosed) {
		return fmt.Errorf("put after close: error %v, want ErrClosed", err)
	}
	if err := e.Enqueue(&dist.Op{Kind: dist.KindBarrier}, s); !errors.Is(err, dist.ErrClosed) {
		return fmt.Errorf("barrier after close: error %v, want ErrClosed", err)
	}
	return s.Close()
}

// memory allocates, checks that everything is zeroed and aligned, and that a request that would
// destroy the library's heap is rejected.
func memory(r *rank) error {
	rt, e, err := r.started(small())
	if err != nil {
		return err
	}
	var last *gpu.Slab
	for _, bytes := range []int64{1, 4096, 5000, 3 << 20, 600 << 20} {
		slab, err := r.fresh(rt, bytes)
		if err != nil {
			return fmt.Errorf("%d B: %w", bytes, err)
		}
		if last != nil { // for the next to take
			if err := last.Free(); err != nil {
				return err
			}
		}
		last = slab
	}
	if err := r.refusals(rt); err != nil {
		return err
	}
	b, err := newBench(r, rt, e, 8*1000*8) // the library's heap still stands
	if err != nil {
		return err
	}
	if err := errors.Join(b.copies([]int{1000}), b.close(), e.Close()); err != nil {
		return err
	}
	if err := errors.Join(rt.Close(), rt.Left()); err != nil {
		return fmt.Errorf("close with an allocation left: %w", err)
	}
	if err := last.Free(); !errors.Is(err, dist.ErrClosed) {
		return fmt.Errorf("free after close: error %v, want ErrClosed", err)
	}
	return nil
}

// fresh allocates a slab, checks that it is aligned and zeroed, and fills it for the next check.
func (r *rank) fresh(rt *Runtime, bytes int64) (*gpu.Slab, error) {
	slab, err := rt.Alloc(r.member, bytes)
	if err != nil {
		return nil, err
	}
	for q, base := range slab.Base {
		if base == 0 || base%symmetric.MaxAlignment != 0 || slab.Bytes != bytes {
			return nil, fmt.Errorf("rank %d is at %#x with %d B", q, base, slab.Bytes)
		}
	}
	raw := make([]byte, min(bytes, 1<<20))
	if err := r.dev.CopyToHost(unsafe.Pointer(&raw[0]), slab.Base[r.me()], int64(len(raw))); err != nil {
		return nil, err
	}
	for i, v := range raw {
		if v != 0 {
			return nil, fmt.Errorf("byte %d is %d", i, v)
		}
		raw[i] = 0xa5
	}
	return slab, r.dev.CopyFromHost(slab.Base[r.me()], unsafe.Pointer(&raw[0]), int64(len(raw)))
}

// refusals makes requests that must be rejected.
func (r *rank) refusals(rt *Runtime) error {
	_, total, err := r.dev.Memory()
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name  string
		bytes int64
		kind  error
	}{
		{"more than the heap can have", rt.lib.cfg.HeapBytes + 1, dist.ErrInvalid},
		{"more than there is", min(total, rt.lib.cfg.HeapBytes) - 256<<20, symmetric.ErrNoSpace},
		{"nothing", 0, dist.ErrInvalid},
		{"less than nothing", -5, dist.ErrInvalid},
		{"another size on each rank", int64(8 + 8*r.me()), dist.ErrMismatch},
	} {
		if errors.Is(c.kind, dist.ErrMismatch) && r.n() == 1 {
			continue
		}
		if _, err := rt.Alloc(r.member, c.bytes); !errors.Is(err, c.kind) {
			return fmt.Errorf("%s: error %v, want %v", c.name, err, c.kind)
		}
	}
	return nil
}
