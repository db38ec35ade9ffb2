package nvshmem

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/dl"
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
func (rt *Runtime) Put(s *cuda.Stream, rank int, t Transfer) error {
	return rt.put("put", &rt.lib.t.put, s, rank, t)
}

// PutNBI is a Put that later work on the stream does not wait for. Owns: the memory at Src belongs
// to the runtime until a Quiet.
func (rt *Runtime) PutNBI(s *cuda.Stream, rank int, t Transfer) error {
	return rt.put("put nbi", &rt.lib.t.putNBI, s, rank, t)
}

// Get copies t from rank.
func (rt *Runtime) Get(s *cuda.Stream, rank int, t Transfer) error {
	return rt.get("get", &rt.lib.t.get, s, rank, t)
}

// GetNBI is a Get that later work on the stream does not wait for. Owns: the memory at Dst belongs
// to the runtime until a Quiet.
func (rt *Runtime) GetNBI(s *cuda.Stream, rank int, t Transfer) error {
	return rt.get("get nbi", &rt.lib.t.getNBI, s, rank, t)
}

func (rt *Runtime) put(call string, p *dl.Proc, s *cuda.Stream, rank int, t Transfer) error {
	if err := rt.enter(call, s); err != nil {
		return err
	}
	defer rt.exit()
	if err := rt.checkMove(call, rank, t.Src, t.Dst, t.Bytes); err != nil || t.Bytes == 0 {
		return err
	}
	return rt.move(call, p, s, rank, t)
}

func (rt *Runtime) get(call string, p *dl.Proc, s *cuda.Stream, rank int, t Transfer) error {
	if err := rt.enter(call, s); err != nil {
		return err
	}
	defer rt.exit()
	if err := rt.checkMove(call, rank, t.Dst, t.Src, t.Bytes); err != nil || t.Bytes == 0 {
		return err
	}
	return rt.move(call, p, s, rank, t)
}

// move queues a put or get with checked arguments. The lock is held.
func (rt *Runtime) move(call string, p *dl.Proc, s *cuda.Stream, rank int, t Transfer) error {
	a := &rt.args
	a[0], a[1], a[2], a[3], a[4] = t.Dst, t.Src, uintptr(t.Bytes), uintptr(rank), s.Handle()
	return rt.void(p, call, 5)
}

// PutSignal is Put followed by an update of a signal of the same rank. The signal is visible there
// only after the data.
func (rt *Runtime) PutSignal(s *cuda.Stream, rank int, t Transfer, sig Signal) error {
	return rt.putSignal("put signal", &rt.lib.t.putSignal, s, rank, t, sig)
}

// PutSignalNBI is a PutSignal that later work on the stream does not wait for. Owns: the memory at
// Src belongs to the runtime until a Quiet.
func (rt *Runtime) PutSignalNBI(s *cuda.Stream, rank int, t Transfer, sig Signal) error {
	return rt.putSignal("put signal nbi", &rt.lib.t.putSignalNBI, s, rank, t, sig)
}

func (rt *Runtime) putSignal(call string, p *dl.Proc, s *cuda.Stream, rank int, t Transfer, sig Signal) error {
	if err := rt.enter(call, s); err != nil {
		return err
	}
	defer rt.exit()
	if err := rt.checkMove(call, rank, t.Src, t.Dst, t.Bytes); err != nil {
		return err
	}
	if err := rt.checkSignal(call, rank, sig); err != nil {
		return err
	}
	if t.Bytes == 0 {
		return rt.update(call, s, rank, sig)
	}
	a := &rt.args
	a[0], a[1], a[2], a[3] = t.Dst, t.Src, uintptr(t.Bytes), sig.At
	a[4], a[5], a[6], a[7] = uintptr(sig.Value), uintptr(sig.Op), uintptr(rank), s.Handle()
	return rt.void(p, call, 8)
}

// Signal updates a signal of rank.
func (rt *Runtime) Signal(s *cuda.Stream, rank int, sig Signal) error {
	if err := rt.enter("signal", s); err != nil {
		return err
	}
	defer rt.exit()
	if err := rt.checkSignal("signal", rank, sig); err != nil {
		return err
	}
	return rt.update("signal", s, rank, sig)
}

// update queues a Signal with checked arguments. The lock is held.
func (rt *Runtime) update(call string, s *cuda.Stream, rank int, sig Signal) error {
	a := &rt.args
	a[0], a[1], a[2], a[3], a[4] = sig.At, uintptr(sig.Value), uintptr(sig.Op), uintptr(rank), s.Handle()
	return rt.void(&rt.lib.t.signal, call, 5)
}

// SignalWait makes later work on s wait until "signal c value" holds for this rank's signal.
// Nothing else ends the wait.
func (rt *Runtime) SignalWait(s *cuda.Stream, signal uintptr, c Comparison, value uint64) error {
	const call = "signal wait"
	if err := rt.enter(call, s); err != nil {
		return err
	}
	defer rt.exit()
	if c < Equal || c > GreaterEqual {
		return refused(call, dist.ErrInvalid, "comparison %d, want Equal to GreaterEqual", int32(c))
	}
	if err := rt.checkSignal(call, rt.member.Rank, Signal{At: signal, Op: SignalSet}); err != nil {
		return err
	}
	a := &rt.args
	a[0], a[1], a[2], a[3] = signal, uintptr(c), uintptr(value), s.Handle()
	return rt.void(&rt.lib.t.wait, call, 4)
}

// Quiet makes later work on s wait until everything that this rank has sent, on any stream, is
// complete and visible.
func (rt *Runtime) Quiet(s *cuda.Stream) error { return rt.bare("quiet", &rt.lib.t.quiet, s) }

// Barrier queues a barrier of all ranks, after which everything sent before it is complete and
// visible. It uses the same barrier as the world's engine: use that engine's stream, or separate
// the two by events.
//
// Collective: all ranks.
func (rt *Runtime) Barrier(s *cuda.Stream) error { return rt.bare("barrier", &rt.lib.t.barrierAll, s) }

// Sync queues a synchronization of all ranks without memory ordering. It must be separated from the
// world's engine as Barrier must.
//
// Collective: all ranks.
func (rt *Runtime) Sync(s *cuda.Stream) error { return rt.bare("sync", &rt.lib.t.syncAll, s) }

// bare queues a call whose only argument is the stream.
func (rt *Runtime) bare(call string, p *dl.Proc, s *cuda.Stream) error {
	if err := rt.enter(call, s); err != nil {
		return err
	}
	defer rt.exit()
	rt.args[0] = s.Handle()
	return rt.void(p, call, 1)
}

// Peer returns the address at which this GPU sees rank's copy of the memory at addr, an address in
// an allocation of the runtime; 0 if it cannot.
func (rt *Runtime) Peer(rank int, addr uintptr) (uintptr, error) {
	const call = "peer address"
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if err := rt.open(call); err != nil {
		return 0, err
	}
	if err := rt.checkRank(call, rank); err != nil {
		return 0, err
	}
	if !rt.heap.has(addr, 1) {
		return 0, refused(call, symmetric.ErrNotAllocated, "%#x", addr)
	}
	rt.args[0], rt.args[1] = addr, uintptr(rank)
	return rt.lib.t.pointer.Call(rt.args[:2]...)
}

// Rank returns this rank's number in the runtime.
func (rt *Runtime) Rank() int { return rt.member.Rank }

// Size returns the number of ranks of the runtime.
func (rt *Runtime) Size() int { return rt.member.Size }

// enter takes the lock and makes the device's context current for a call on s; exit undoes both.
func (rt *Runtime) enter(call string, s *cuda.Stream) error {
	rt.mu.Lock()
	err := rt.open(call)
	if err == nil {
		err = rt.dev.Enter()
	}
	if err != nil {
		rt.mu.Unlock()
		return err
	}
	if err = rt.usable(call, s); err != nil {
		rt.exit()
	}
	return err
}

func (rt *Runtime) exit() {
	rt.dev.Leave()
	rt.mu.Unlock()
}

func (rt *Runtime) checkRank(call string, rank int) error {
	if rank < 0 || rank >= rt.member.Size {
		return refused(call, dist.ErrRank, "rank %d, want 0 to %d", rank, rt.member.Size-1)
	}
	return nil
}

// checkMove checks the arguments of put and get. The lock is held.
func (rt *Runtime) checkMove(call string, rank int, local, remote uintptr, bytes int64) error {
	if err := rt.checkRank(call, rank); err != nil {
		return err
	}
	switch {
	case bytes < 0:
		return refused(call, dist.ErrRange, "a length of %d B to rank %d", bytes, rank)
	case bytes == 0:
		return nil
	case !rt.heap.has(remote, 1):
		return refused(call, symmetric.ErrNotAllocated, "%d B to rank %d at %#x", bytes, rank, remote)
	case !rt.heap.has(remote, bytes):
		return refused(call, dist.ErrRange, "%d B to rank %d at %#x end beyond the allocation", bytes, rank, remote)
	case rt.heap.has(local, bytes):
		return nil
	}
	return rt.isMemory(call, local, bytes)
}

// checkSignal checks the arguments of signals.
func (rt *Runtime) checkSignal(call string, rank int, sig Signal) error {
	if err := rt.checkRank(call, rank); err != nil {
		return err
	}
	switch {
	case sig.Op != SignalSet && sig.Op != SignalAdd:
		return refused(call, dist.ErrInvalid, "signal operation %d, want SignalSet or SignalAdd", int32(sig.Op))
	case sig.At%signalBytes != 0:
		return refused(call, symmetric.ErrAlignment, "signal at %#x, want a multiple of %d", sig.At, signalBytes)
	case !rt.heap.has(sig.At, signalBytes):
		return refused(call, symmetric.ErrNotAllocated, "signal at %#x", sig.At)
	}
	return nil
}
