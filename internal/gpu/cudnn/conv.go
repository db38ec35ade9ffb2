package cudnn

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Pass is a direction of a convolution. Passes are or'ed.
type Pass uint8

// Directions.
const (
	Forward        Pass = 1 << iota // y from x and w
	BackwardData                    // dx from w and dy
	BackwardFilter                  // dw from x and dy
)

// ConvDesc is a convolution of images x, N by C by H by W, with filters w, K by C/Groups by R by S,
// to images y, N by K by P by Q (Out):
//
//	y[n,k,p,q] = sum over c, r, s of w[k,c,r,s] *
//	    x[n, c, p*StrideH + r*DilationH - PadH, q*StrideW + s*DilationW - PadW]
//
// with zeros for x outside of the image. All are row-major without gaps.
type ConvDesc struct {
	DType DType
	Math  Math

	N, C, H, W int
	K, R, S    int

	PadH, PadW           int
	StrideH, StrideW     int // 0 means 1
	DilationH, DilationW int // 0 means 1
	Groups               int // 0 means 1

	Passes            Pass  // needed passes; 0 means all
	Deterministic     bool  // only algorithms that give the same bits at each run
	Timed             bool  // algorithms are measured, in extra memory; not during a capture
	MaxWorkspaceBytes int64 // of an algorithm, at most; 0 means 256 MiB
}

// defaultWorkspace is the default of MaxWorkspaceBytes: enough for all algorithms on most layers.
const defaultWorkspace = 256 << 20

// filled returns d with its defaults set.
func (d ConvDesc) filled() ConvDesc {
	for _, v := range [...]*int{&d.StrideH, &d.StrideW, &d.DilationH, &d.DilationW, &d.Groups} {
		if *v == 0 {
			*v = 1
		}
	}
	if d.Passes == 0 {
		d.Passes = Forward | BackwardData | BackwardFilter
	}
	if d.MaxWorkspaceBytes == 0 {
		d.MaxWorkspaceBytes = defaultWorkspace
	}
	return d
}

// Out returns the height and width of y; 0 if the window does not fit. Otherwise d is valid.
func (d ConvDesc) Out() (p, q int) {
	d = d.filled()
	return output(d.H, d.R, d.PadH, d.StrideH, d.DilationH), output(d.W, d.S, d.PadW, d.StrideW, d.DilationW)
}

// shapes returns the shapes of x, w and y.
func (d ConvDesc) shapes() (x, w, y dims) {
	d = d.filled()
	p, q := d.Out()
	return dims{d.N, d.C, d.H, d.W}, dims{d.K, d.C / d.Groups, d.R, d.S}, dims{d.N, d.K, p, q}
}

// Validate reports an invalid descriptor. Errors: cuda.ErrInvalid.
func (d ConvDesc) Validate() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("cudnn: %v: %w: %s", d, cuda.ErrInvalid, fmt.Sprintf(format, args...))
	}
	f := d.filled()
	switch {
	case d.DType.known() == 0:
		return fmt.Errorf("cudnn: %w: unknown element type (%d)", cuda.ErrInvalid, uint8(d.DType))
	case d.Math > TF32 || d.Math == TF32 && d.DType != F32:
		return wrong("math %d for elements of %v", d.Math, d.DType)
	case min(d.N, d.C, d.H, d.W, d.K, d.R, d.S) < 1:
		return wrong("all dimensions are at least 1")
	case min(d.PadH, d.PadW) < 0 || min(f.StrideH, f.StrideW, f.DilationH, f.DilationW, f.Groups) < 1:
		return wrong("padding %dx%d, stride %dx%d, dilation %dx%d, %d groups: must not be negative", d.PadH, d.PadW, d.StrideH, d.StrideW,
			d.DilationH, d.DilationW, d.Groups)
	case max(d.H, d.W, d.R, d.S, d.PadH, d.PadW, f.StrideH, f.StrideW, f.DilationH, f.DilationW) > math.MaxInt32/2:
		return wrong("lengths, padding, stride and dilation are at most %d", math.MaxInt32/2)
	case d.C%f.Groups != 0 || d.K%f.Groups != 0:
		return wrong("%d groups do not divide %d and %d channels", f.Groups, d.C, d.K)
	case f.Passes > Forward|BackwardData|BackwardFilter || d.MaxWorkspaceBytes < 0:
		return wrong("passes %#x, MaxWorkspaceBytes %d", d.Passes, d.MaxWorkspaceBytes)
	}
	x, w, y := d.shapes()
	if y[2] == 0 || y[3] == 0 {
		return wrong("the filter is larger than the image with its padding")
	}
	if !x.fits() || !w.fits() || !y.fits() {
		return wrong("an image or filter has more than %d elements", math.MaxInt32)
	}
	return nil
}

// String returns "conv f32 256x1x28x28 * 32x1x3x3 pad 1x1", with stride, dilation and groups other
// than 1.
func (d ConvDesc) String() string {
	text := fmt.Sprintf("conv %v", d.DType)
	if d.Math != Full {
		text += fmt.Sprintf(" %v", d.Math)
	}
	f := d.filled()
	text += fmt.Sprintf(" %v * %v", dims{d.N, d.C, d.H, d.W}, dims{d.K, d.C / f.Groups, d.R, d.S})
	for _, v := range [...]struct {
		name    string
		h, w, n int
	}{{"pad", d.PadH, d.PadW, 0}, {"stride", f.StrideH, f.StrideW, 1}, {"dilation", f.DilationH, f.DilationW, 1}} {
		if v.h != v.n || v.w != v.n {
			text += fmt.Sprintf(" %s %dx%d", v.name, v.h, v.w)
		}
	}
	if f.Groups != 1 {
		text += fmt.Sprintf(" groups %d", f.Groups)
	}
	return text
}

// Conv is a convolution with chosen algorithms.
type Conv struct {
	h          *Handle
	desc       ConvDesc     // with its defaults set
	x, w, y    uintptr      // descriptors; dx, dw and dy are like them
	directions [3]direction // forward, data, filter
	closed     bool
}

// direction is one direction of a convolution.
type direction struct {
	calls
	pass      Pass
	name      string
	names     []string // of algorithms
	p, q, r   uintptr  // descriptors of the two inputs, and of the output
	conv      uintptr  // cudnnConvolutionDescriptor_t, with the algorithm's kind of arithmetic
	candidate          // the one in use
	timed     []candidate
}

// candidate is an algorithm with a kind of arithmetic.
type candidate struct {
	algo, math int32
	bytes      int64   // of workspace
	ms         float32 // 0 or less if not measured
}

// took returns the measured time, or 0.
func (k candidate) took() time.Duration {
	if k.ms <= 0 {
		return 0
	}
	return max(time.Duration(float64(k.ms)*float64(time.Millisecond)), 1)
}

// calls are the functions of a direction: they propose algorithms, measure them, return their
// workspace, and run one.
type calls struct {
	get, find, size, run *dl.Proc
	call                 string // the name of run
}

// Names of the algorithms of cudnn_ops.h by number.
var (
	forwardNames = [...]string{"implicit-gemm", "implicit-precomp-gemm", "gemm", "direct", "fft", "fft-tiling", "winograd", "winograd-nonfused"}
	dataNames    = [...]string{"0", "1", "fft", "fft-tiling", "winograd", "winograd-nonfused"}
	filterNames  = [...]string{"0", "1", "fft", "3", "winograd", "winograd-nonfused", "fft-tiling"}
)

// NewConv chooses algorithms for d.
//
// Owns: the caller closes it, before the handle. Errors: dl.ErrUnsupported if the library has no
// algorithm (IsUnavailable); cuda.ErrInvalid for an invalid d; cuda.ErrMemory; ErrClosed; *Error.
func (h *Handle) NewConv(d ConvDesc) (*Conv, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	if h.handle == 0 {
		return nil, ErrClosed
	}
	c := &Conv{h: h, desc: d.filled()}
	err := h.inside(func() error {
		if err := c.describe(); err != nil {
			return err
		}
		for i := range c.directions {
			if c.desc.Passes&c.directions[i].pass == 0 {
				continue
			}
			if err := c.choose(&c.directions[i]); err != nil {
				return fmt.Errorf("%s: %w", c.directions[i].name, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", d, err), c.Close())
	}
	return c, nil
}

// describe makes the library's descriptors.
func (c *Conv) describe() error {
	l, d := c.h.lib, &c.desc
	x, w, y := d.shapes()
	err := errors.Join(l.newTensor(&c.x, d.DType, x), l.newTensor(&c.y, d.DType, y))
	if err == nil {
		err = l.check("cudnnCreateFilterDescriptor", l.t.filterCreate(&c.w))
	}
	if err == nil {
		r := l.t.filterSet(c.w, dtypes[d.DType].code, formatNCHW, int32(w[0]), int32(w[1]), int32(w[2]), int32(w[3]))
		err = l.check("cudnnSetFilter4dDescriptor", r)
	}
	if err != nil {
		return err
	}
	t := &l.t
	c.directions = [3]direction{
		{pass: Forward, name: "forward", p: c.x, q: c.w, r: c.y, names: forwardNames[:]},
		{pass: BackwardData, name: "data", p: c.w, q: c.y, r: c.x, names: dataNames[:]},
		{pass: BackwardFilter, name: "filter", p: c.x, q: c.y, r: c.w, names: filterNames[:]},
	}
	c.directions[0].calls = calls{&t.getForward, &t.findForward, &t.sizeForward, &t.runForward, "cudnnConvolutionForward"}
	c.directions[1].calls = calls{&t.getData, &t.findData, &t.sizeData, &t.runData, "cudnnConvolutionBackwardData"}
	c.directions[2].calls = calls{&t.getFilter, &t.findFilter, &t.sizeFilter, &t.runFilter, "cudnnConvolutionBackwardFilter"}
	for i := range c.directions {
		if err := c.describeConv(&c.directions[i].conv); err != nil {
			return err
		}
	}
	return nil
}

// describeConv makes a convolution descriptor.
func (c *Conv) describeConv(to *uintptr) error {
	l, d := c.h.lib, &c.desc
	if err := l.check("cudnnCreateConvolutionDescriptor", l.t.convCreate(to)); err != nil {
		return err
	}
	r, err := l.t.convSet.CallWords(*to, uintptr(d.PadH), uintptr(d.PadW), uintptr(d.StrideH), uintptr(d.StrideW),
		uintptr(d.DilationH), uintptr(d.DilationW), crossCorrelation, uintptr(dtypes[d.DType].sums))
	if err != nil {
		return err
	}
	return errors.Join(
		l.check("cudnnSetConvolution2dDescriptor", int32(r)),
		l.check("cudnnSetConvolutionGroupCount", l.t.convGroups(*to, int32(d.Groups))),
		l.check("cudnnSetConvolutionMathType", l.t.convMath(*to, mathOf(d.DType, d.Math))),
	)
}

// WorkspaceBytes returns the bytes that the passes of the Conv need, one at a time.
func (c *Conv) WorkspaceBytes() int64 {
	return max(c.directions[0].bytes, c.directions[1].bytes, c.directions[2].bytes)
}

// Candidates returns the algorithms that were measured for a pass, and their times; 0 for one that
// fails or does not meet the ConvDesc. Their order is fixed for a convolution and a kind of GPU.
// nil without measurements.
func (c *Conv) Candidates(pass Pass) (names []string, took []time.Duration) {
	w := c.of(pass)
	if w == nil {
		return nil, nil
	}
	for _, k := range w.timed {
		names, took = append(names, fmt.Sprintf("%s math %d", w.nameOf(k.algo), k.math)), append(took, k.took())
	}
	return names, took
}

// Take makes candidate i the algorithm of a pass, instead of the fastest. WorkspaceBytes may
// change.
//
// Errors: cuda.ErrInvalid for an unknown candidate, or one that does not work; ErrClosed; *Error.
func (c *Conv) Take(pass Pass, i int) error {
	w := c.of(pass)
	switch {
	case c.closed || c.h.handle == 0:
		return ErrClosed
	case w == nil || i < 0 || i >= len(w.timed):
		return fmt.Errorf("cudnn: %v: %w: no candidate %d of pass %d", c, cuda.ErrInvalid, i, pass)
	case w.timed[i].ms <= 0:
		return fmt.Errorf("cudnn: %v: %w: candidate %d does not work", c, cuda.ErrInvalid, i)
	}
	k := w.timed[i]
	if err := c.h.inside(func() error {
		return c.h.lib.check("cudnnSetConvolutionMathType", c.h.lib.t.convMath(w.conv, k.math))
	}); err != nil {
		return err
	}
	w.candidate = k
	return nil
}

// of returns the direction of a pass; nil if the Conv does not have it, or for several passes.
func (c *Conv) of(pass Pass) *direction {
	for i := range c.directions {
		if c.directions[i].pass == pass && c.desc.Passes&pass != 0 {
			return &c.directions[i]
		}
	}
	return nil
}

// Desc returns the descriptor with its defaults set.
func (c *Conv) Desc() ConvDesc { return c.desc }

// Forward queues y = x * w. workspace is WorkspaceBytes bytes of the device's memory. It allocates
// nothing, and may be captured.
//
// Owns: the memory is the stream's until the work is done. Errors: cuda.ErrInvalid for a missing
// address, or a pass that the Conv does not have; ErrClosed; *Error.
func (c *Conv) Forward(x, w, y, workspace uintptr) error {
	return c.queue(&c.directions[0], x, w, y, workspace)
}

// BackwardData queues dx, the gradient of x, from w and dy. The rest is as in Forward.
func (c *Conv) BackwardData(w, dy, dx, workspace uintptr) error {
	return c.queue(&c.directions[1], w, dy, dx, workspace)
}

// BackwardFilter queues dw, the gradient of w, from x and dy. The rest is as in Forward.
func (c *Conv) BackwardFilter(x, dy, dw, workspace uintptr) error {
	return c.queue(&c.directions[2], x, dy, dw, workspace)
}

// queue queues one direction.
func (c *Conv) queue(w *direction, p, q, r, workspace uintptr) error {
	h := c.h
	switch {
	case c.closed || h.handle == 0:
		return ErrClosed
	case c.desc.Passes&w.pass == 0:
		return fmt.Errorf("cudnn: %v: %w: it was made without the pass %s", c, cuda.ErrInvalid, w.name)
	case p == 0 || q == 0 || r == 0 || workspace == 0 && w.bytes > 0:
		return fmt.Errorf("cudnn: %v: %w: %s without memory: reads %#x and %#x, writes %#x, workspace %#x of %d B", c, cuda.ErrInvalid,
			w.name, p, q, r, workspace, w.bytes)
	}
	alpha, beta := h.scalars(c.desc.DType)
	a := &h.args
	a[0], a[1], a[2], a[3], a[4], a[5] = h.handle, alpha, w.p, p, w.q, q
	a[6], a[7], a[8], a[9] = w.conv, uintptr(w.algo), workspace, uintptr(w.bytes)
	a[10], a[11], a[12] = beta, w.r, r
	return h.call(w.run, w.call, 13, c)
}

// scalars returns the addresses of 1 and 0 for elements of d. They live as long as h.
func (h *Handle) scalars(d DType) (one, zero uintptr) {
	if d == F64 {
		return uintptr(unsafe.Pointer(&h.one64)), uintptr(unsafe.Pointer(&h.zero64))
	}
	return uintptr(unsafe.Pointer(&h.one32)), uintptr(unsafe.Pointer(&h.zero32))
}

// Close frees the library's state of the convolution. Idempotent. Errors: *Error.
func (c *Conv) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	l := c.h.lib
	return c.h.inside(func() error {
		var errs []error
		for _, d := range [...]uintptr{c.x, c.y} {
			if d != 0 {
				errs = append(errs, l.check("cudnnDestroyTensorDescriptor", l.t.tensorDestroy(d)))
			}
		}
		if c.w != 0 {
			errs = append(errs, l.check("cudnnDestroyFilterDescriptor", l.t.filterDestroy(c.w)))
		}
		for i := range c.directions {
			if d := c.directions[i].conv; d != 0 {
				errs = append(errs, l.check("cudnnDestroyConvolutionDescriptor", l.t.convDestroy(d)))
			}
		}
		return errors.Join(errs...)
	})
}
