package cudnn

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Handle is the library's state for one stream. Neither the handle nor the objects that it makes
// are safe for concurrent use.
type Handle struct {
	lib    *Library
	dev    *cuda.Device
	stream *cuda.Stream
	handle uintptr // cudnnHandle_t; 0 after Close

	args [13]uintptr
	// Factors of the result, and of the old content of the output, as the library reads them:
	// doubles for F64, floats for other types.
	one64, zero64 float64
	one32, zero32 float32
}

// NewHandle makes a handle for s.
//
// Owns: the caller closes it. Errors: dl.ErrUnsupported if the library does not support the device,
// or lacks a part; *Error.
func (l *Library) NewHandle(s *cuda.Stream) (*Handle, error) {
	h := &Handle{lib: l, dev: s.Device(), one64: 1, one32: 1}
	err := h.inside(func() error {
		if err := l.check("cudnnCreate", l.t.create(&h.handle)); err != nil {
			return fmt.Errorf("on %v: %w", h.dev, err)
		}
		return nil
	})
	if err == nil {
		err = h.SetStream(s)
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// inside runs fn with the device's context current on a locked thread.
func (h *Handle) inside(fn func() error) error {
	if err := h.dev.Enter(); err != nil {
		return err
	}
	defer h.dev.Leave()
	return fn()
}

// SetStream makes calls queue on s, a stream of the same device. Errors: cuda.ErrInvalid for a
// stream of another device, ErrClosed, *Error.
func (h *Handle) SetStream(s *cuda.Stream) error {
	switch {
	case h.handle == 0:
		return ErrClosed
	case s.Device() != h.dev:
		return fmt.Errorf("cudnn: %w: a stream of %v for a handle of %v", cuda.ErrInvalid, s.Device(), h.dev)
	case s.Handle() == 0:
		return fmt.Errorf("cudnn: the stream: %w", cuda.ErrClosed)
	}
	err := h.inside(func() error {
		return h.lib.check("cudnnSetStream", h.lib.t.setStream(h.handle, s.Handle()))
	})
	if err == nil {
		h.stream = s
	}
	return err
}

// Device returns the handle's device.
func (h *Handle) Device() *cuda.Device { return h.dev }

// Stream returns the stream that calls queue on.
func (h *Handle) Stream() *cuda.Stream { return h.stream }

// Library returns the library of the handle.
func (h *Handle) Library() *Library { return h.lib }

// Close frees the handle after the queued work is done. Its objects, and graphs with its work, must
// be closed before. On a device that is stuck the handle is kept until the process ends.
// Idempotent. Errors: *Error, *cuda.Error.
func (h *Handle) Close() error {
	handle := h.handle
	if h.handle = 0; handle == 0 || h.dev.Stuck() { // the library waits for the whole device
		return nil
	}
	var queued error
	if h.stream != nil && h.stream.Handle() != 0 {
		queued = h.stream.Synchronize()
	}
	return errors.Join(queued, h.inside(func() error { return h.lib.check("cudnnDestroy", h.lib.t.destroy(handle)) }))
}

// call calls p with the first n of h.args on the device; it allocates nothing. operation is for
// errors.
func (h *Handle) call(p *dl.Proc, name string, n int, operation fmt.Stringer) error {
	if err := h.dev.Enter(); err != nil {
		return err
	}
	defer h.dev.Leave() // after failure, which reads text of this thread
	r, err := p.CallWords(h.args[:n]...)
	runtime.KeepAlive(h)
	if err != nil {
		return err
	}
	if int32(r) != success {
		return h.lib.failure(name, int32(r), operation.String())
	}
	return nil
}

// dims is the shape of an image or filter.
type dims [4]int

// fits reports whether cuDNN can count its elements: it does so with int.
func (d dims) fits() bool {
	n := int64(1)
	for _, v := range d {
		if v < 1 || int64(v) > math.MaxInt32/n {
			return false
		}
		n *= int64(v)
	}
	return true
}

// elements returns the number of elements.
func (d dims) elements() int64 { return int64(d[0]) * int64(d[1]) * int64(d[2]) * int64(d[3]) }

// String returns "256x1x28x28".
func (d dims) String() string { return fmt.Sprintf("%dx%dx%dx%d", d[0], d[1], d[2], d[3]) }

// newTensor makes the descriptor of an image.
func (l *Library) newTensor(to *uintptr, t DType, d dims) error {
	if err := l.check("cudnnCreateTensorDescriptor", l.t.tensorCreate(to)); err != nil {
		return err
	}
	r := l.t.tensorSet(*to, formatNCHW, dtypes[t].code, int32(d[0]), int32(d[1]), int32(d[2]), int32(d[3]))
	return l.check("cudnnSetTensor4dDescriptor", r)
}

// output returns the length of a result: the number of positions, stride apart, of a window in
// length elements with pad zeros on each side. Elements of the window are dilation apart.
func output(length, window, pad, stride, dilation int) int {
	reach := (window-1)*dilation + 1
	if length+2*pad < reach {
		return 0
	}
	return (length+2*pad-reach)/stride + 1
}
