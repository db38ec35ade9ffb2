package nvshmem

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/symmetric"
)

// One-sided calls on a stream. A pair of rank and address names remote data, where the address is
// this rank's own (OpenSHMEM 1.5, section 3). Ranks are those of the runtime's group. Calls run in
// the order of the stream. Those that end in NBI run concurrently with later work until a Quiet or
// barrier on a stream. Every argument is checked before the library is called, and no Go memory is
// allocated.
//
// Errors of all of them: dist.ErrRank for an unknown rank; dist.ErrRange for a negative length, or
// one beyond an allocation; symmetric.ErrNotAllocated for an address outside of the runtime's
// memory; symmetric.ErrAlignment for a signal that is no multiple of 8; dist.ErrDevice for a local
// address that is not GPU memory, or a stream of another GPU; dist.ErrInvalid for a nil stream or
// an unknown operation; dist.ErrClosed; earlier errors of the device or the library.

// rma is the one-sided calls of a runtime, and the heap that they address.
type rma struct {
	caller
	heap heap
}

// Transfer is a copy of Bytes bytes from Src to Dst. A put has Dst on another rank and Src in any
// memory of this GPU; a get is the reverse.
type Transfer struct {
	Dst, Src uintptr
	Bytes    int64
}

// Signal is an update of the signal at At: a u64 in symmetric memory, at a multiple of 8, changed
// only by signal operations.
type Signal struct {
	At    uintptr
	Op    SignalOp
	Value uint64
}

// Put copies t to rank.
func (o *rma) Put(s *cuda.Stream, rank int, t Transfer) error {
	return o.put("put", &o.lib.t.put, s, rank, t)
}

// PutNBI is a Put that later work on the stream does not wait for. Owns: the memory at Src belongs
// to the runtime until a Quiet.
func (o *rma) PutNBI(s *cuda.Stream, rank int, t Transfer) error {
	return o.put("put nbi", &o.lib.t.putNBI, s, rank, t)
}

// Get copies t from rank.
func (o *rma) Get(s *cuda.Stream, rank int, t Transfer) error {
	return o.get("get", &o.lib.t.get, s, rank, t)
}

// GetNBI is a Get that later work on the stream does not wait for. Owns: the memory at Dst belongs
// to the runtime until a Quiet.
func (o *rma) GetNBI(s *cuda.Stream, rank int, t Transfer) error {
	return o.get("get nbi", &o.lib.t.getNBI, s, rank, t)
}

func (o *rma) put(call string, p *dl.Proc, s *cuda.Stream, rank int, t Transfer) error {
	if err := o.enter(call, s); err != nil {
		return err
	}
	defer o.exit()
	if err := o.checkMove(call, rank, t.Src, t.Dst, t.Bytes); err != nil || t.Bytes == 0 {
		return err
	}
	return o.move(call, p, s, rank, t)
}

func (o *rma) get(call string, p *dl.Proc, s *cuda.Stream, rank int, t Transfer) error {
	if err := o.enter(call, s); err != nil {
		return err
	}
	defer o.exit()
	if err := o.checkMove(call, rank, t.Dst, t.Src, t.Bytes); err != nil || t.Bytes == 0 {
		return err
	}
	return o.move(call, p, s, rank, t)
}

// move queues a put or get with checked arguments. The lock is held.
func (o *rma) move(call string, p *dl.Proc, s *cuda.Stream, rank int, t Transfer) error {
	a := &o.args
	a[0], a[1], a[2], a[3], a[4] = t.Dst, t.Src, uintptr(t.Bytes), uintptr(rank), s.Handle()
	return o.void(p, call, 5)
}

// PutSignal is Put followed by an update of a signal of the same rank. The signal is visible there
// only after the data.
func (o *rma) PutSignal(s *cuda.Stream, rank int, t Transfer, sig Signal) error {
	return o.putSignal("put signal", &o.lib.t.putSignal, s, rank, t, sig)
}

// PutSignalNBI is a PutSignal that later work on the stream does not wait for. Owns: the memory at
// Src belongs to the runtime until a Quiet.
func (o *rma) PutSignalNBI(s *cuda.Stream, rank int, t Transfer, sig Signal) error {
	return o.putSignal("put signal nbi", &o.lib.t.putSignalNBI, s, rank, t, sig)
}

func (o *rma) putSignal(call string, p *dl.Proc, s *cuda.Stream, rank int, t Transfer, sig Signal) error {
	if err := o.enter(call, s); err != nil {
		return err
	}
	defer o.exit()
	if err := o.checkMove(call, rank, t.Src, t.Dst, t.Bytes); err != nil {
		return err
	}
	if err := o.checkSignal(call, rank, sig); err != nil {
		return err
	}
	if t.Bytes == 0 {
		return o.update(call, s, rank, sig)
	}
	a := &o.args
	a[0], a[1], a[2], a[3] = t.Dst, t.Src, uintptr(t.Bytes), sig.At
	a[4], a[5], a[6], a[7] = uintptr(sig.Value), uintptr(sig.Op), uintptr(rank), s.Handle()
	return o.void(p, call, 8)
}

// Signal updates a signal of rank.
func (o *rma) Signal(s *cuda.Stream, rank int, sig Signal) error {
	if err := o.enter("signal", s); err != nil {
		return err
	}
	defer o.exit()
	if err := o.checkSignal("signal", rank, sig); err != nil {
		return err
	}
	return o.update("signal", s, rank, sig)
}

// update queues a Signal with checked arguments. The lock is held.
func (o *rma) update(call string, s *cuda.Stream, rank int, sig Signal) error {
	a := &o.args
	a[0], a[1], a[2], a[3], a[4] = sig.At, uintptr(sig.Value), uintptr(sig.Op), uintptr(rank), s.Handle()
	return o.void(&o.lib.t.signal, call, 5)
}

// SignalWait makes later work on s wait until "signal c value" holds for this rank's signal.
// Nothing else ends the wait.
func (o *rma) SignalWait(s *cuda.Stream, signal uintptr, c Comparison, value uint64) error {
	const call = "signal wait"
	if err := o.enter(call, s); err != nil {
		return err
	}
	defer o.exit()
	if c < Equal || c > GreaterEqual {
		return refused(call, dist.ErrInvalid, "comparison %d, want Equal to GreaterEqual", int32(c))
	}
	if err := o.checkSignal(call, o.member.Rank, Signal{At: signal, Op: SignalSet}); err != nil {
		return err
	}
	a := &o.args
	a[0], a[1], a[2], a[3] = signal, uintptr(c), uintptr(value), s.Handle()
	return o.void(&o.lib.t.wait, call, 4)
}

// Quiet makes later work on s wait until everything that this rank has sent, on any stream, is
// complete and visible.
func (o *rma) Quiet(s *cuda.Stream) error { return o.bare("quiet", &o.lib.t.quiet, s) }

// Barrier queues a barrier of all ranks, after which everything sent before it is complete and
// visible. It uses the same barrier as the world's engine: use that engine's stream, or separate
// the two by events.
//
// Collective: all ranks.
func (o *rma) Barrier(s *cuda.Stream) error { return o.bare("barrier", &o.lib.t.barrierAll, s) }

// Sync queues a synchronization of all ranks without memory ordering. It must be separated from the
// world's engine as Barrier must.
//
// Collective: all ranks.
func (o *rma) Sync(s *cuda.Stream) error { return o.bare("sync", &o.lib.t.syncAll, s) }

// Peer returns the address at which this GPU sees rank's copy of the memory at addr, an address in
// an allocation of the runtime; 0 if it cannot.
func (o *rma) Peer(rank int, addr uintptr) (uintptr, error) {
	const call = "peer address"
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.open(call); err != nil {
		return 0, err
	}
	if err := o.checkRank(call, rank); err != nil {
		return 0, err
	}
	if !o.heap.has(addr, 1) {
		return 0, refused(call, symmetric.ErrNotAllocated, "%#x", addr)
	}
	o.args[0], o.args[1] = addr, uintptr(rank)
	return o.lib.t.pointer.Call(o.args[:2]...)
}

// checkMove checks the arguments of put and get. The lock is held.
func (o *rma) checkMove(call string, rank int, local, remote uintptr, bytes int64) error {
	if err := o.checkRank(call, rank); err != nil {
		return err
	}
	switch {
	case bytes < 0:
		return refused(call, dist.ErrRange, "a length of %d B to rank %d", bytes, rank)
	case bytes == 0:
		return nil
	case !o.heap.has(remote, 1):
		return refused(call, symmetric.ErrNotAllocated, "%d B to rank %d at %#x", bytes, rank, remote)
	case !o.heap.has(remote, bytes):
		return refused(call, dist.ErrRange, "%d B to rank %d at %#x end beyond the allocation", bytes, rank, remote)
	case o.heap.has(local, bytes):
		return nil
	}
	return o.isMemory(call, local, bytes)
}

// checkSignal checks the arguments of signals.
func (o *rma) checkSignal(call string, rank int, sig Signal) error {
	if err := o.checkRank(call, rank); err != nil {
		return err
	}
	switch {
	case sig.Op != SignalSet && sig.Op != SignalAdd:
		return refused(call, dist.ErrInvalid, "signal operation %d, want SignalSet or SignalAdd", int32(sig.Op))
	case sig.At%signalBytes != 0:
		return refused(call, symmetric.ErrAlignment, "signal at %#x, want a multiple of %d", sig.At, signalBytes)
	case !o.heap.has(sig.At, signalBytes):
		return refused(call, symmetric.ErrNotAllocated, "signal at %#x", sig.At)
	}
	return nil
}
