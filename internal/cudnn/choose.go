package cudnn

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// proposals is how many algorithms are asked for: more than there are, with each kind of arithmetic.
const proposals = 32

// choose takes the first algorithm of cuDNN's order that is as d wants it.
func (c *Conv) choose(w *way) error {
	l, d := c.h.lib, &c.desc
	list, err := c.propose(w)
	if err != nil {
		return err
	}
	var last error
	for _, p := range list {
		kind, ok := d.takes(p)
		if !ok {
			continue
		}
		if last = l.check("cudnnSetConvolutionMathType", l.t.convMath(w.conv, kind)); last != nil {
			continue
		}
		bytes := new(uint64)
		r, err := w.size.Call(c.h.handle, w.p, w.q, w.conv, w.r, uintptr(p.algo), uintptr(unsafe.Pointer(bytes)))
		if err != nil {
			return err
		}
		if last = l.check("the workspace of "+w.call, int32(r)); last != nil || *bytes > uint64(d.MaxWorkspaceBytes) {
			continue
		}
		w.algo, w.math, w.bytes, w.ms = p.algo, kind, int64(*bytes), p.ms
		return nil
	}
	err = fmt.Errorf("cudnn: %w: of the %d algorithms that %s proposes, none is as asked for: deterministic %t, workspace of at most %d B",
		dl.ErrUnsupported, len(list), l.name, d.Deterministic, d.MaxWorkspaceBytes)
	if last != nil {
		err = fmt.Errorf("%w; the last one: %w", err, last)
	}
	return err
}

// takes reports whether p is as d wants it, and with which kind of arithmetic.
func (d *ConvDesc) takes(p perf) (math int32, ok bool) {
	math, ok = mathFor(d.DType, d.Math, p.math)
	return math, ok && p.status == success && (!d.Deterministic || p.determinism == deterministic) && p.memory <= uint64(d.MaxWorkspaceBytes)
}

// propose asks cuDNN for algorithms, the fastest first, by estimate or by measurement.
func (c *Conv) propose(w *way) ([]perf, error) {
	ask, name := w.get, "the heuristic of "+w.call
	if c.desc.Timed {
		ask, name = w.find, "the measurement of "+w.call
	}
	list, n := make([]perf, proposals), new(int32)
	r, err := ask.Call(c.h.handle, w.p, w.q, w.conv, w.r, proposals, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(&list[0])))
	if err != nil {
		return nil, err
	}
	if int32(r) != success {
		return nil, c.h.lib.failure(name, int32(r), "")
	}
	return list[:min(max(int(*n), 0), proposals)], nil
}

// String is "conv f32 256x1x28x28 * 32x1x3x3 pad 1x1: forward implicit-gemm fma 0 B, data 1 fma 128 B, filter 1 fma 64 B".
func (c *Conv) String() string {
	text := c.desc.String()
	for i := range c.way {
		w, mark := &c.way[i], ", "
		if w.conv == 0 || c.desc.Passes&w.pass == 0 {
			continue
		}
		if text == c.desc.String() {
			mark = ": "
		}
		text += fmt.Sprintf("%s%s %s %s %d B", mark, w.name, w.algorithm(), mathNames[w.math], w.bytes)
		if c.desc.Timed {
			text += fmt.Sprintf(" %.3g ms", w.ms)
		}
	}
	return text
}

// mathNames is names by cudnnMathType_t.
var mathNames = [...]string{mathDefault: "default", mathTensorOp: "tensor", mathTensorOpConvert: "tensor-convert", mathFMA: "fma"}

// algorithm is the name of the algorithm, or its number if it is new.
func (w *way) algorithm() string {
	if w.algo >= 0 && int(w.algo) < len(w.names) {
		return w.names[w.algo]
	}
	return fmt.Sprintf("#%d", w.algo)
}
