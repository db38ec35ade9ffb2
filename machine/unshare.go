package machine

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/tensor"
)

// bytesAt is a range of host memory.
type bytesAt struct{ from, to uintptr }

// spanOf returns the range of a value's elements, which may have gaps.
func spanOf(v gorgonia.Value) (at bytesAt) {
	switch x := v.(type) {
	case nil:
	case *gtensor.Dense:
		if _, err := values.DType(x.Dtype()); err == nil {
			at.from = uintptr(values.Elements(x))
			at.to = at.from + x.MemSize()
		}
	case interface{ Pointer() unsafe.Pointer }: // scalars
		at.from = uintptr(x.Pointer())
		at.to = at.from + v.MemSize()
	}
	return at
}

// unshare copies an input's value that is in the memory of an output or a gradient, as after
// gorgonia.Let(state, next.Value()). Otherwise the run would write there while it reads the input,
// and would change the input's value. It checks only values that are new since the last run.
func (c *compiled) unshare() error {
	var written []bytesAt
	for i := range c.sources {
		s := &c.sources[i]
		v := s.Node.Value()
		at := spanOf(v)
		if at == s.seen {
			continue
		}
		if written == nil {
			written = c.written()
		}
		if overlaps(written, at) {
			own, err := values.Packed(v)
			if err == nil {
				err = gorgonia.UnsafeLet(s.Node, own)
			}
			if err != nil {
				return fmt.Errorf("input %q: a copy of its value, which is in the memory of an output: %w", lower.Called(s.Node), err)
			}
			at = spanOf(own)
		}
		s.seen = at
	}
	return nil
}

// written returns the ranges that a run writes outputs and gradients to, sorted.
func (c *compiled) written() []bytesAt {
	buffers := slices.Concat(c.memory, c.apart)
	if c.gpu != nil {
		buffers = append(buffers, c.gpu.duals...)
	}
	all := make([]bytesAt, 0, len(buffers))
	for _, b := range buffers {
		if !b.IsZero() && b.Bytes() > 0 && b.Device() == tensor.Host {
			from := uintptr(b.Pointer())
			all = append(all, bytesAt{from, from + uintptr(b.Bytes())})
		}
	}
	slices.SortFunc(all, func(a, b bytesAt) int { return cmp.Compare(a.from, b.from) })
	return all
}

// overlaps reports whether at has a byte of one of the sorted, disjoint ranges.
func overlaps(sorted []bytesAt, at bytesAt) bool {
	k, _ := slices.BinarySearchFunc(sorted, at.from, func(b bytesAt, from uintptr) int { return cmp.Compare(b.to, from+1) })
	return k < len(sorted) && sorted[k].from < at.to
}
