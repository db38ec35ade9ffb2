package cudnn

import (
	"errors"
	"fmt"
	"math"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// PoolMode is the reduction over a window.
type PoolMode uint8

// Modes. For a maximum, elements outside of the image are less than all others.
const (
	Max            PoolMode = iota
	AverageInclude          // the sum divided by the size of the window, even outside of the image
	AverageExclude          // the mean of the elements in the image
)

// poolModes has name and cudnnPoolingMode_t by PoolMode. The maximum is the deterministic one,
// whose gradient has the same bits at each run.
var poolModes = [...]struct {
	name string
	code int32
}{Max: {"max", poolMaxDeterministic}, AverageInclude: {"average", poolAverageInclude}, AverageExclude: {"average-inside", poolAverageExclude}}

// String returns the name, such as "max".
func (m PoolMode) String() string {
	if int(m) < len(poolModes) {
		return poolModes[m].name
	}
	return "invalid"
}

// PoolDesc is pooling of images x, N by C by H by W, to images y, N by C by P by Q (Out), over
// windows of R by S. All are row-major without gaps.
type PoolDesc struct {
	DType            DType
	Mode             PoolMode
	N, C, H, W       int
	R, S             int
	PadH, PadW       int // less than R and S
	StrideH, StrideW int // 0 means 1
}

// Out returns the height and width of y; 0 if the window does not fit. Otherwise d is valid.
func (d PoolDesc) Out() (p, q int) {
	return output(d.H, d.R, d.PadH, max(d.StrideH, 1), 1), output(d.W, d.S, d.PadW, max(d.StrideW, 1), 1)
}

// Validate reports an invalid descriptor. Errors: cuda.ErrInvalid.
func (d PoolDesc) Validate() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("cudnn: %v: %w: %s", d, cuda.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case d.DType.known() == 0:
		return fmt.Errorf("cudnn: %w: unknown element type (%d)", cuda.ErrInvalid, uint8(d.DType))
	case int(d.Mode) >= len(poolModes):
		return wrong("mode %d", d.Mode)
	case min(d.N, d.C, d.H, d.W, d.R, d.S) < 1:
		return wrong("all dimensions are at least 1")
	case min(d.PadH, d.PadW, d.StrideH, d.StrideW) < 0 || d.PadH >= d.R || d.PadW >= d.S:
		return wrong("padding %dx%d, stride %dx%d: must not be negative, and the padding must be smaller than the window", d.PadH, d.PadW, d.StrideH, d.StrideW)
	case max(d.H, d.W, d.R, d.S, d.StrideH, d.StrideW) > math.MaxInt32/2:
		return wrong("lengths and stride are at most %d", math.MaxInt32/2)
	}
	p, q := d.Out()
	if p == 0 || q == 0 {
		return wrong("the window is larger than the image with its padding")
	}
	if !(dims{d.N, d.C, d.H, d.W}).fits() || !(dims{d.N, d.C, p, q}).fits() {
		return wrong("an image has more than %d elements", math.MaxInt32)
	}
	return nil
}

// String returns "max pool f32 256x32x28x28 window 2x2 pad 0x0 stride 2x2".
func (d PoolDesc) String() string {
	return fmt.Sprintf("%v pool %v %v window %dx%d pad %dx%d stride %dx%d", d.Mode, d.DType, dims{d.N, d.C, d.H, d.W}, d.R, d.S,
		d.PadH, d.PadW, max(d.StrideH, 1), max(d.StrideW, 1))
}

// Pool is pooling, ready to run.
type Pool struct {
	h      *Handle
	desc   PoolDesc
	x, y   uintptr // descriptors
	pool   uintptr // cudnnPoolingDescriptor_t
	closed bool
}

// NewPool makes the library's descriptors for d.
//
// Owns: the caller closes it, before the handle. Errors: cuda.ErrInvalid for an invalid d,
// ErrClosed, *Error.
func (h *Handle) NewPool(d PoolDesc) (*Pool, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	if h.handle == 0 {
		return nil, ErrClosed
	}
	p := &Pool{h: h, desc: d}
	if err := h.inside(p.describe); err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", d, err), p.Close())
	}
	return p, nil
}

// describe makes the descriptors.
func (p *Pool) describe() error {
	l, d := p.h.lib, &p.desc
	height, width := d.Out()
	err := errors.Join(
		l.newTensor(&p.x, d.DType, dims{d.N, d.C, d.H, d.W}),
		l.newTensor(&p.y, d.DType, dims{d.N, d.C, height, width}),
		l.check("cudnnCreatePoolingDescriptor", l.t.poolCreate(&p.pool)),
	)
	if err != nil {
		return err
	}
	r, err := l.t.poolSet.CallWords(p.pool, uintptr(poolModes[d.Mode].code), propagateNaN, uintptr(d.R), uintptr(d.S),
		uintptr(d.PadH), uintptr(d.PadW), uintptr(max(d.StrideH, 1)), uintptr(max(d.StrideW, 1)))
	if err != nil {
		return err
	}
	return l.check("cudnnSetPooling2dDescriptor", int32(r))
}

// Desc returns the descriptor.
func (p *Pool) Desc() PoolDesc { return p.desc }

// String returns that of Desc.
func (p *Pool) String() string { return p.desc.String() }

// Forward queues y from x. It allocates nothing, and may be captured.
//
// Owns: the memory is the stream's until the work is done. Errors: cuda.ErrInvalid for a missing
// address, ErrClosed, *Error.
func (p *Pool) Forward(x, y uintptr) error {
	if err := p.ready(x, y, x, y); err != nil {
		return err
	}
	h := p.h
	alpha, beta := h.scalars(p.desc.DType)
	a := &h.args
	a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7] = h.handle, p.pool, alpha, p.x, x, beta, p.y, y
	return h.call(&h.lib.t.poolForward, "cudnnPoolingForward", 8, p)
}

// Backward queues dx, the gradient of x, from the gradient of y, and x and y of Forward. The rest
// is as in Forward.
func (p *Pool) Backward(y, dy, x, dx uintptr) error {
	if err := p.ready(y, dy, x, dx); err != nil {
		return err
	}
	h := p.h
	alpha, beta := h.scalars(p.desc.DType)
	a := &h.args
	a[0], a[1], a[2], a[3], a[4], a[5], a[6] = h.handle, p.pool, alpha, p.y, y, p.y, dy
	a[7], a[8], a[9], a[10], a[11] = p.x, x, beta, p.x, dx
	return h.call(&h.lib.t.poolBackward, "cudnnPoolingBackward", 12, p)
}

// ready returns nil if p can run on memory at these addresses.
func (p *Pool) ready(a, b, c, d uintptr) error {
	if p.closed || p.h.handle == 0 {
		return ErrClosed
	}
	if a == 0 || b == 0 || c == 0 || d == 0 {
		return fmt.Errorf("cudnn: %v: %w: an operand without memory", p, cuda.ErrInvalid)
	}
	return nil
}

// Close frees the library's state of the pooling. Idempotent. Errors: *Error.
func (p *Pool) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	l := p.h.lib
	return p.h.inside(func() error {
		var errs []error
		for _, d := range [...]uintptr{p.x, p.y} {
			if d != 0 {
				errs = append(errs, l.check("cudnnDestroyTensorDescriptor", l.t.tensorDestroy(d)))
			}
		}
		if p.pool != 0 {
			errs = append(errs, l.check("cudnnDestroyPoolingDescriptor", l.t.poolDestroy(p.pool)))
		}
		return errors.Join(errs...)
	})
}
