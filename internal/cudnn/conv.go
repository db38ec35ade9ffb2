package cudnn

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/dl"
)

// Pass is a direction of a convolution; Passes are or'ed.
type Pass uint8

// The directions.
const (
	Forward        Pass = 1 << iota // y from x and w
	BackwardData                    // dx from w and dy
	BackwardFilter                  // dw from x and dy
)

// ConvDesc is a convolution of images x, N by C by H by W, with filters w, K by C/Groups by R by S,
// to images y, N by K by P by Q (Out):
//
//	y[n,k,p,q] = sum over c, r, s of w[k,c,r,s] * x[n,c,i,j]
//	i = p*StrideH + r*DilationH - PadH,  j = q*StrideW + s*DilationW - PadW
//
// with zeros for x outside of the image. All lie in rows without gaps.
type ConvDesc struct {
	DType DType
	Math  Math

	N, C, H, W int
	K, R, S    int

	PadH, PadW           int
	StrideH, StrideW     int // 0 means 1
	DilationH, DilationW int // 0 means 1
	Groups               int // 0 means 1

	Passes            Pass  // which are needed; 0 means all
	Deterministic     bool  // only algorithms that give the same bits at each run
	Timed             bool  // algorithms are measured, in memory taken for it; not while a stream captures
	MaxWorkspaceBytes int64 // limit of an algorithm; 0 means 256 MiB
}

// defaultWorkspace is MaxWorkspaceBytes where that is 0: enough for all algorithms on most layers.
const defaultWorkspace = 256 << 20

// filled is d with its defaults in place.
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

// Out returns the height and width of y; 0 if the window does not fit. d is otherwise valid.
func (d ConvDesc) Out() (p, q int) {
	d = d.filled()
	return output(d.H, d.R, d.PadH, d.StrideH, d.DilationH), output(d.W, d.S, d.PadW, d.StrideW, d.DilationW)
}

// shapes is those of x, w and y.
func (d ConvDesc) shapes() (x, w, y dims) {
	d = d.filled()
	p, q := d.Out()
	return dims{d.N, d.C, d.H, d.W}, dims{d.K, d.C / d.Groups, d.R, d.S}, dims{d.N, d.K, p, q}
}

// Validate rejects impossible convolutions. Errors: cuda.ErrInvalid.
func (d ConvDesc) Validate() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("cudnn: %v: %w: %s", d, cuda.ErrInvalid, fmt.Sprintf(format, args...))
	}
	f := d.filled()
	switch {
	case d.DType.known() == 0:
		return fmt.Errorf("cudnn: %w: elements of no known type (%d)", cuda.ErrInvalid, uint8(d.DType))
	case d.Math > TF32 || d.Math == TF32 && d.DType != F32:
		return wrong("math %d for elements of %v", d.Math, d.DType)
	case min(d.N, d.C, d.H, d.W, d.K, d.R, d.S) < 1:
		return wrong("all dimensions are at least 1")
	case min(d.PadH, d.PadW) < 0 || min(f.StrideH, f.StrideW, f.DilationH, f.DilationW, f.Groups) < 1:
		return wrong("padding %dx%d, stride %dx%d, dilation %dx%d, %d groups: no negative ones", d.PadH, d.PadW, d.StrideH, d.StrideW,
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

// String is "conv f32 256x1x28x28 * 32x1x3x3 pad 1x1", with stride, dilation and groups where they
// are not 1.
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

// Conv is a convolution whose algorithms have been chosen.
type Conv struct {
	h       *Handle
	desc    ConvDesc // with its defaults in place
	x, w, y uintptr  // descriptors; dx, dw and dy are like them
	way     [3]way   // forward, data, filter
	closed  bool
}

// way is one direction.
type way struct {
	calls
	pass      Pass
	name      string
	names     []string // of algorithms
	p, q, r   uintptr  // descriptors of the inputs, and of the output
	conv      uintptr  // cudnnConvolutionDescriptor_t, with the algorithm's kind of arithmetic
	candidate          // the one that is used
	timed     []candidate
}

// candidate is an algorithm with a kind of arithmetic.
type candidate struct {
	algo, math int32
	bytes      int64   // of workspace
	ms         float32 // 0 or less where nothing was measured
}

// took returns the measured time; 0 if it was not measured.
func (k candidate) took() time.Duration {
	if k.ms <= 0 {
		return 0
	}
	return max(time.Duration(float64(k.ms)*float64(time.Millisecond)), 1)
}

// calls is the functions of a direction: those that propose algorithms, measure them, tell their
// workspace, and run one.
type calls struct {
	get, find, size, run *dl.Proc
	call                 string // the name of run
}

// The algorithms by number, of cudnn_ops.h.
var (
	forwardNames = [...]string{"implicit-gemm", "implicit-precomp-gemm", "gemm", "direct", "fft", "fft-tiling", "winograd", "winograd-nonfused"}
	dataNames    = [...]string{"0", "1", "fft", "fft-tiling", "winograd", "winograd-nonfused"}
	filterNames  = [...]string{"0", "1", "fft", "3", "winograd", "winograd-nonfused", "fft-tiling"}
)

// NewConv chooses algorithms for d.
//
// Owns: the caller closes it, before the handle. Errors: dl.ErrUnsupported where the library has no
// algorithm (IsUnavailable); cuda.ErrInvalid for a wrong d; cuda.ErrMemory; ErrClosed; *Error.
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
		for i := range c.way {
			if c.desc.Passes&c.way[i].pass == 0 {
				continue
			}
			if err := c.choose(&c.way[i]); err != nil {
				return fmt.Errorf("%s: %w", c.way[i].name, err)
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
	c.way = [3]way{
		{pass: Forward, name: "forward", p: c.x, q: c.w, r: c.y, names: forwardNames[:]},
		{pass: BackwardData, name: "data", p: c.w, q: c.y, r: c.x, names: dataNames[:]},
		{pass: BackwardFilter, name: "filter", p: c.x, q: c.y, r: c.w, names: filterNames[:]},
	}
	c.way[0].calls = calls{&t.getForward, &t.findForward, &t.sizeForward, &t.runForward, "cudnnConvolutionForward"}
	c.way[1].calls = calls{&t.getData, &t.findData, &t.sizeData, &t.runData, "cudnnConvolutionBackwardData"}
	c.way[2].calls = calls{&t.getFilter, &t.findFilter, &t.sizeFilter, &t.runFilter, "cudnnConvolutionBackwardFilter"}
	for i := range c.way {
		if err := c.describeConv(&c.way[i].conv); err != nil {
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

// WorkspaceBytes returns the workspace of the Conv's passes, one at a time; 0 for none.
func (c *Conv) WorkspaceBytes() int64 { return max(c.way[0].bytes, c.way[1].bytes, c.way[2].bytes) }

// Candidates is the algorithms of a pass that were measured, in words, and how long each took; 0
// for one that does not work, or not as ConvDesc says. Their order is the same for the same
// convolution on the same kind of GPU. nil where none was measured.
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

// Take makes candidate i the algorithm of a pass, instead of the fastest. WorkspaceBytes changes
// then.
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

// of is a direction that the Conv was made for; nil for none, or several.
func (c *Conv) of(pass Pass) *way {
	for i := range c.way {
		if c.way[i].pass == pass && c.desc.Passes&pass != 0 {
			return &c.way[i]
		}
	}
	return nil
}

// Desc returns the description of the Conv, with defaults filled in.
func (c *Conv) Desc() ConvDesc { return c.desc }

// Forward queues y = x * w. workspace is WorkspaceBytes bytes of the device's memory. It allocates
// nothing, and may be captured.
//
// Owns: the memory is the stream's until it has done the work. Errors: cuda.ErrInvalid for no
// address, or a pass that the Conv was not made for; ErrClosed; *Error.
func (c *Conv) Forward(x, w, y, workspace uintptr) error {
	return c.queue(&c.way[0], x, w, y, workspace)
}

// BackwardData queues dx, the gradient of x, from w and the gradient of y. Otherwise it is as
// Forward.
func (c *Conv) BackwardData(w, dy, dx, workspace uintptr) error {
	return c.queue(&c.way[1], w, dy, dx, workspace)
}

// BackwardFilter queues dw, the gradient of w, from x and the gradient of y. Otherwise it is as
// Forward.
func (c *Conv) BackwardFilter(x, dy, dw, workspace uintptr) error {
	return c.queue(&c.way[2], x, dy, dw, workspace)
}

// queue queues one direction.
func (c *Conv) queue(w *way, p, q, r, workspace uintptr) error {
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

// scalars is the addresses of 1 and 0 for elements of d. They live as long as h.
func (h *Handle) scalars(d DType) (one, zero uintptr) {
	if d == F64 {
		return uintptr(unsafe.Pointer(&h.one64)), uintptr(unsafe.Pointer(&h.zero64))
	}
	return uintptr(unsafe.Pointer(&h.one32)), uintptr(unsafe.Pointer(&h.zero32))
}

// Close frees the library's memory of the convolution. Idempotent. Errors: *Error.
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
		for i := range c.way {
			if d := c.way[i].conv; d != 0 {
				errs = append(errs, l.check("cudnnDestroyConvolutionDescriptor", l.t.convDestroy(d)))
			}
		}
		return errors.Join(errs...)
	})
}
