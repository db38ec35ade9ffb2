package cudnn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// proposals is the number of algorithms to ask for: more than exist, with each kind of arithmetic.
const proposals = 32

// errUnwanted is the error of an algorithm that works and does not meet the descriptor.
var errUnwanted = errors.New("does not meet the descriptor")

// choose takes the first algorithm of cuDNN's order that meets d. If d.Timed it takes the fastest,
// and w.timed has all of them.
func (c *Conv) choose(w *direction) error {
	d := &c.desc
	list, err := c.propose(w)
	if err != nil {
		return err
	}
	var last error
	found := false
	for _, p := range list {
		k, err := c.fit(w, p)
		if err == nil && !found {
			w.candidate, found = k, true
		}
		if err != nil && !errors.Is(err, errUnwanted) {
			last = err
		}
		if d.Timed {
			w.timed = append(w.timed, k)
		} else if found {
			break
		}
	}
	if found {
		w.timed = inOrder(w.timed)
		if err := c.time(w); err != nil {
			return err
		}
		return c.h.lib.check("cudnnSetConvolutionMathType", c.h.lib.t.convMath(w.conv, w.math))
	}
	err = fmt.Errorf("cudnn: %w: of the %d algorithms that %s proposes, none meets the descriptor: deterministic %t, workspace of at most %d B",
		dl.ErrUnsupported, len(list), c.h.lib.name, d.Deterministic, d.MaxWorkspaceBytes)
	if last != nil {
		err = fmt.Errorf("%w; the last one: %w", err, last)
	}
	return err
}

// fit returns p as a candidate for w, and sets w's descriptor to its kind of arithmetic. A
// candidate with an error has no time.
//
// Errors: errUnwanted, *Error.
func (c *Conv) fit(w *direction, p perf) (candidate, error) {
	l, d := c.h.lib, &c.desc
	kind, ok := d.takes(p)
	k := candidate{algo: p.algo, math: kind}
	if !ok {
		return k, errUnwanted
	}
	if err := l.check("cudnnSetConvolutionMathType", l.t.convMath(w.conv, kind)); err != nil {
		return k, err
	}
	bytes := new(uint64)
	r, err := w.size.Call(c.h.handle, w.p, w.q, w.conv, w.r, uintptr(p.algo), uintptr(unsafe.Pointer(bytes)))
	if err == nil {
		err = l.check("the workspace of "+w.call, int32(r))
	}
	switch {
	case err != nil:
		return k, err
	case *bytes > uint64(d.MaxWorkspaceBytes):
		return k, errUnwanted
	}
	k.bytes, k.ms = int64(*bytes), p.ms
	return k, nil
}

// inOrder sorts candidates by number, since the order of measured times varies. Of equal
// candidates, which differ in proposed arithmetic only, it keeps the fastest one that works.
func inOrder(list []candidate) []candidate {
	slices.SortStableFunc(list, func(a, b candidate) int {
		works := cmp.Compare(min(b.took(), 1), min(a.took(), 1))
		return cmp.Or(cmp.Compare(a.algo, b.algo), cmp.Compare(a.math, b.math), works, cmp.Compare(a.ms, b.ms))
	})
	return slices.CompactFunc(list, func(a, b candidate) bool { return a.algo == b.algo && a.math == b.math })
}

// takes reports whether p meets d, and with which kind of arithmetic.
func (d *ConvDesc) takes(p perf) (math int32, ok bool) {
	math, ok = mathFor(d.DType, d.Math, p.math)
	return math, ok && p.status == success && (!d.Deterministic || p.determinism == deterministic) && p.memory <= uint64(d.MaxWorkspaceBytes)
}

// propose asks cuDNN for algorithms, the fastest first, by estimate or by measurement.
func (c *Conv) propose(w *direction) ([]perf, error) {
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

// String returns "conv f32 256x1x28x28 * 32x1x3x3 pad 1x1: forward implicit-gemm fma 0 B, data 1
// fma 128 B, filter 1 fma 64 B".
func (c *Conv) String() string {
	text := c.desc.String()
	for i := range c.directions {
		w, mark := &c.directions[i], ", "
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

// mathNames are names by cudnnMathType_t.
var mathNames = [...]string{mathDefault: "default", mathTensorOp: "tensor", mathTensorOpConvert: "tensor-convert", mathFMA: "fma"}

// algorithm returns the name of the algorithm.
func (w *direction) algorithm() string { return w.nameOf(w.algo) }

// nameOf returns the name of an algorithm, or its number if it is unknown.
func (w *direction) nameOf(algo int32) string {
	if algo >= 0 && int(algo) < len(w.names) {
		return w.names[algo]
	}
	return fmt.Sprintf("#%d", algo)
}
