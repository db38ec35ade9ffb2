package gpu

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/hostheap"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// OnStream is a view of r whose transfers, signals and waits are queued on s, between what is
// queued there before and after, and return at once. Owns: buffers belong to the heap until s is
// past the call.
//
// Buffers lie on the device: memory of the host would make the caller wait. Wait returns the Hit -1
// and lets the stream wait; should the group break, the stream goes on. What gives a value to the
// caller (GetWord, Atomic) is ErrUnsupported. Errors: ErrDevice when s is no stream of the heap's
// device; ErrClosed.
func (r *Region) OnStream(s dist.Stream) (*StreamRegion, error) {
	gs, ok := s.(*Stream)
	if !ok || gs.dev != r.heap.t.member.Device {
		return nil, r.wrong("on stream", r.heap.t.member.Rank, 0, 0, fmt.Errorf("%w: not a stream of %v", dist.ErrDevice, r.heap.t.device()))
	}
	if err := gs.usable(); err != nil {
		return nil, err
	}
	args, err := newArgs()
	if err != nil {
		return nil, err
	}
	return &StreamRegion{Region: r, s: gs, args: args}, nil
}

// StreamRegion is what Region.OnStream gives. It is used by one goroutine at a time.
type StreamRegion struct {
	*Region
	s    *Stream
	args *cuda.Args
}

// base is the region under a view, or nil where r is none of this package's.
func base(r symmetric.Region) *Region {
	switch x := r.(type) {
	case *Region:
		return x
	case *StreamRegion:
		if x != nil {
			return x.Region
		}
	}
	return nil
}

// queue runs f with the device entered, for a call that has been checked; the gate is left by the
// caller.
func (v *StreamRegion) queue(f func(s *cuda.Stream) error) error {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	if err := v.s.usable(); err != nil {
		return err
	}
	if err := v.s.dev.Enter(); err != nil {
		return err
	}
	defer v.s.dev.Leave()
	return f(v.s.cu)
}

// onDevice is enterBuffer for a buffer on the device.
func (v *StreamRegion) onDevice(call string, rank int, at int64, b tensor.Buffer) error {
	if err := v.hosted(call, rank, at, b); err != nil {
		return err
	}
	return v.enterBuffer(call, rank, at, b)
}

// hosted is an error for a buffer on the host.
func (v *StreamRegion) hosted(call string, rank int, at int64, b tensor.Buffer) error {
	if !b.IsZero() && b.Device() == tensor.Host {
		return v.wrong(call, rank, at, b.Bytes(), fmt.Errorf("%w: on a stream the buffer must be on %v, not on the host",
			dist.ErrDevice, v.heap.t.device()))
	}
	return nil
}

// Slice implements symmetric.Region.
func (v *StreamRegion) Slice(at, bytes int64) (symmetric.Region, error) {
	r, err := v.Region.Slice(at, bytes)
	if err != nil {
		return nil, err
	}
	return &StreamRegion{Region: base(r), s: v.s, args: v.args}, nil
}

// Put implements symmetric.Region.
func (v *StreamRegion) Put(rank int, at int64, src tensor.Buffer) error {
	if err := v.onDevice("put on stream", rank, at, src); err != nil {
		return err
	}
	defer v.heap.gate.Leave()
	err := v.queue(func(s *cuda.Stream) error { return v.copyTo(s, rank, at, src) })
	return v.failed("put on stream", rank, at, src.Bytes(), err)
}

func (v *StreamRegion) copyTo(s *cuda.Stream, rank int, at int64, src tensor.Buffer) error {
	dst, n := v.at(rank, at), src.Bytes()
	switch {
	case n == 0:
		return nil
	case single64(src, dst) && v.heap.t.kernels.err == nil:
		return v.heap.t.kernels.launchStrided(v.args, s, dst, 0, address(src), 0, 1, int(n))
	}
	return s.Copy(dst, address(src), n)
}

// PutNBI implements symmetric.Region.
func (v *StreamRegion) PutNBI(rank int, at int64, src tensor.Buffer) error {
	return v.Put(rank, at, src)
}

// Get implements symmetric.Region.
func (v *StreamRegion) Get(dst tensor.Buffer, rank int, at int64) error {
	if err := v.onDevice("get on stream", rank, at, dst); err != nil {
		return err
	}
	defer v.heap.gate.Leave()
	n := dst.Bytes()
	if n == 0 {
		return nil
	}
	err := v.queue(func(s *cuda.Stream) error { return s.Copy(address(dst), v.at(rank, at), n) })
	return v.failed("get on stream", rank, at, n, err)
}

// GetNBI implements symmetric.Region.
func (v *StreamRegion) GetNBI(dst tensor.Buffer, rank int, at int64) error {
	return v.Get(dst, rank, at)
}

// IPut implements symmetric.Region.
func (v *StreamRegion) IPut(rank int, at int64, src tensor.Buffer, s symmetric.Strides) error {
	return v.strided("iput on stream", rank, at, src, s, true)
}

// IGet implements symmetric.Region.
func (v *StreamRegion) IGet(dst tensor.Buffer, rank int, at int64, s symmetric.Strides) error {
	return v.strided("iget on stream", rank, at, dst, s, false)
}

func (v *StreamRegion) strided(call string, rank int, at int64, b tensor.Buffer, st symmetric.Strides, put bool) error {
	if err := v.hosted(call, rank, at, b); err != nil {
		return err
	}
	n, err := v.enterStrided(call, rank, at, b, st)
	if err != nil {
		return err
	}
	defer v.heap.gate.Leave()
	if n == 0 {
		return nil
	}
	size, there, k := b.DType().Size(), v.at(rank, at), v.heap.t.kernels
	err = v.queue(func(s *cuda.Stream) error {
		if put {
			return k.launchStrided(v.args, s, there, st.Region*size, address(b), st.Buffer*size, st.Count, size)
		}
		return k.launchStrided(v.args, s, address(b), st.Buffer*size, there, st.Region*size, st.Count, size)
	})
	return v.failed(call, rank, at, n, err)
}

// PutWord implements symmetric.Region, for words of 4 and 8 bytes at a multiple of their size.
//
// Errors: besides those of the interface, ErrUnsupported for others.
func (v *StreamRegion) PutWord(rank int, at int64, dt tensor.DType, bits uint64) error {
	n := int64(dt.Size())
	if n < 4 {
		return v.wrong("p on stream", rank, at, n, fmt.Errorf("%w: %w: %v", dist.ErrDType, dist.ErrUnsupported, dt))
	}
	if err := v.enterWord("p on stream", rank, at, n); err != nil {
		return err
	}
	defer v.heap.gate.Leave()
	err := v.queue(func(s *cuda.Stream) error {
		return v.heap.t.kernels.launchWord(v.args, s, symmetric.OpSet, int(n), v.at(rank, at), bits, 0, 0)
	})
	return v.failed("p on stream", rank, at, n, err)
}

// GetWord implements symmetric.Region. It is ErrUnsupported: its value is known when the stream is
// past it.
func (v *StreamRegion) GetWord(rank int, at int64, dt tensor.DType) (uint64, error) {
	return 0, v.value("g on stream", rank, at, int64(dt.Size()))
}

// Atomic implements symmetric.Region. It is ErrUnsupported, as GetWord.
func (v *StreamRegion) Atomic(rank int, at int64, a symmetric.Atomic) (uint64, error) {
	return 0, v.value(a.Op.String()+" on stream", rank, at, int64(a.DType.Size()))
}

func (v *StreamRegion) value(call string, rank int, at, n int64) error {
	return v.wrong(call, rank, at, n, fmt.Errorf("%w: it gives a value to the caller: call it on the region itself", dist.ErrUnsupported))
}

// Signal implements symmetric.Region.
func (v *StreamRegion) Signal(rank int, at int64, op symmetric.SignalOp, value uint64) error {
	if err := hostheap.CheckSignal(op); err != nil {
		return v.wrong("signal on stream", rank, at, hostheap.SignalBytes, err)
	}
	if err := v.enterWord("signal on stream", rank, at, hostheap.SignalBytes); err != nil {
		return err
	}
	defer v.heap.gate.Leave()
	err := v.queue(func(s *cuda.Stream) error { return v.signal(s, v.at(rank, at), op, value) })
	return v.failed("signal on stream", rank, at, hostheap.SignalBytes, err)
}

func (v *StreamRegion) signal(s *cuda.Stream, p uintptr, op symmetric.SignalOp, value uint64) error {
	return v.heap.t.kernels.launchWord(v.args, s, atomicOf(op), hostheap.SignalBytes, p, value, 0, 0)
}

// PutSignal implements symmetric.Region.
func (v *StreamRegion) PutSignal(rank int, at int64, src tensor.Buffer, sg symmetric.Signal) error {
	const call = "put-signal on stream"
	if err := v.hosted(call, rank, at, src); err != nil {
		return err
	}
	sig, err := v.enterSignal(call, rank, at, src, sg)
	if err != nil {
		return err
	}
	defer v.heap.gate.Leave()
	defer v.heap.gate.Leave()
	err = v.queue(func(s *cuda.Stream) error {
		if err := v.copyTo(s, rank, at, src); err != nil {
			return err // and no signal: who waits for it would read what has not come
		}
		return v.signal(s, sig.at(rank, sg.At), sg.Op, sg.Value)
	})
	return v.failed(call, rank, at, src.Bytes(), err)
}

// PutSignalNBI implements symmetric.Region.
func (v *StreamRegion) PutSignalNBI(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	return v.PutSignal(rank, at, src, s)
}

// Wait implements symmetric.Region: what is queued on the stream later comes after the update that
// ends it. The Hit says nothing, because nothing has been waited for yet. ctx is asked before it is
// queued, not after.
func (v *StreamRegion) Wait(ctx context.Context, w symmetric.Watch) (symmetric.Hit, error) {
	const call = "wait on stream"
	none, own := symmetric.Hit{Index: -1}, v.heap.t.member.Rank
	if ctx == nil {
		return none, v.wrong(call, own, w.At, 0, fmt.Errorf("%w: no context", dist.ErrInvalid))
	}
	if err := v.enterWatch(call, w); err != nil {
		return none, err
	}
	defer v.heap.gate.Leave()
	err := context.Cause(ctx)
	if err == nil {
		err = v.heap.t.kernels.err
	}
	if err != nil {
		return none, v.wrong(call, own, w.At, int64(w.DType.Size()), err)
	}
	err = v.queue(func(s *cuda.Stream) error {
		return v.heap.t.kernels.launchWait(v.args, s, v.at(own, w.At), w, v.heap.t.stop.Device())
	})
	return none, v.failed(call, own, w.At, int64(w.DType.Size()), err)
}

// Quiet makes what is queued on the stream later come after all transfers that the heap itself has
// queued; those of the view are in the stream's order anyway.
//
// Errors: ErrClosed, and those of the driver.
func (v *StreamRegion) Quiet() error {
	if v.heap.gate.Closed() {
		return fmt.Errorf("quiet on stream: %w", hostheap.ErrClosed)
	}
	return v.queue(func(s *cuda.Stream) error { return v.heap.joinPending(s, v.s.capturing.Load()) })
}
