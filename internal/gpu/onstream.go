package gpu

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// OnStream returns a view of r whose transfers, signals and waits are queued on s, in the order of
// its other work, and return at once. Owns: buffers belong to the heap until s has passed the call.
//
// Buffers are on the device: host memory would make the caller wait. Wait returns the Hit -1 and
// makes the stream wait, until the condition holds or the group breaks. Calls that return a value
// (GetWord, Atomic) are ErrUnsupported. Errors: ErrDevice if s is not a stream of the heap's
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

// StreamRegion is the view that Region.OnStream returns. One goroutine may use it at a time.
type StreamRegion struct {
	*Region
	s    *Stream
	args *cuda.Args
}

// base returns the region of a view, or nil for a region of another package.
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

// queue runs f with the device entered, for a checked call. The caller leaves the gate.
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

// onDevice calls enterBuffer for a buffer on the device.
func (v *StreamRegion) onDevice(call string, rank int, at int64, b tensor.Buffer) error {
	if err := v.hosted(call, rank, at, b); err != nil {
		return err
	}
	return v.enterBuffer(call, rank, at, b)
}

// hosted returns an error for a buffer on the host.
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
	case single64(src, dst) && v.heap.t.tools.kernels.err == nil:
		return v.heap.t.tools.kernels.launchStrided(v.args, s, dst, 0, address(src), 0, 1, int(n))
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
	size, there, k := b.DType().Size(), v.at(rank, at), v.heap.t.tools.kernels
	err = v.queue(func(s *cuda.Stream) error {
		if put {
			return k.launchStrided(v.args, s, there, st.Region*size, address(b), st.Buffer*size, st.Count, size)
		}
		return k.launchStrided(v.args, s, address(b), st.Buffer*size, there, st.Region*size, st.Count, size)
	})
	return v.failed(call, rank, at, n, err)
}

// PutWord implements symmetric.Region, for aligned words of 4 and 8 bytes.
//
// Errors: those of the interface; ErrUnsupported for other words.
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
		return v.heap.t.tools.kernels.launchWord(v.args, s, symmetric.OpSet, int(n), v.at(rank, at), bits, 0, 0)
	})
	return v.failed("p on stream", rank, at, n, err)
}

// GetWord implements symmetric.Region. It returns ErrUnsupported: the value is unknown until the
// stream has run.
func (v *StreamRegion) GetWord(rank int, at int64, dt tensor.DType) (uint64, error) {
	return 0, v.value("g on stream", rank, at, int64(dt.Size()))
}

// Atomic implements symmetric.Region. It returns ErrUnsupported, like GetWord.
func (v *StreamRegion) Atomic(rank int, at int64, a symmetric.Atomic) (uint64, error) {
	return 0, v.value(a.Op.String()+" on stream", rank, at, int64(a.DType.Size()))
}

func (v *StreamRegion) value(call string, rank int, at, n int64) error {
	return v.wrong(call, rank, at, n, fmt.Errorf("%w: it returns a value: call it on the region itself", dist.ErrUnsupported))
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
	return v.heap.t.tools.kernels.launchWord(v.args, s, atomicOf(op), hostheap.SignalBytes, p, value, 0, 0)
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
			return err // and no signal: a peer that waits for it would read old data
		}
		return v.signal(s, sig.at(rank, sg.At), sg.Op, sg.Value)
	})
	return v.failed(call, rank, at, src.Bytes(), err)
}

// PutSignalNBI implements symmetric.Region.
func (v *StreamRegion) PutSignalNBI(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	return v.PutSignal(rank, at, src, s)
}

// Wait implements symmetric.Region: later work on the stream runs after the update that ends the
// wait. The Hit is empty, because the wait has not run yet. ctx is checked before the wait is
// queued, not later.
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
		err = v.heap.t.tools.kernels.err
	}
	if err != nil {
		return none, v.wrong(call, own, w.At, int64(w.DType.Size()), err)
	}
	err = v.queue(func(s *cuda.Stream) error {
		return v.heap.t.tools.kernels.launchWait(v.args, s, v.at(own, w.At), w, v.heap.t.tools.stop.Device())
	})
	return none, v.failed(call, own, w.At, int64(w.DType.Size()), err)
}

// Quiet makes later work on the stream wait for all transfers of the heap itself. The view's own
// are in the stream's order anyway.
//
// Errors: ErrClosed, and those of the driver.
func (v *StreamRegion) Quiet() error {
	if v.heap.gate.Closed() {
		return fmt.Errorf("quiet on stream: %w", hostheap.ErrClosed)
	}
	return v.queue(func(s *cuda.Stream) error { return v.heap.joinPending(s, v.s.capturing.Load()) })
}
