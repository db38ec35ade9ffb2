package cudnn

import (
	"errors"
	"fmt"
	"time"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// time measures the candidates of w again, and takes the fastest. cuDNN launches each only a few
// times, from the host, and counts the first launch, which may load the kernel. With several
// kernels a launch takes the host longer than the device. If memory for the operands is short, or
// no candidate works now, cuDNN's measurements stay.
func (c *Conv) time(w *direction) error {
	var works []*candidate
	for i := range w.timed {
		if w.timed[i].ms > 0 {
			works = append(works, &w.timed[i])
		}
	}
	if len(works) == 0 {
		return nil
	}
	first := w.candidate
	times, err := c.compare(w, works)
	w.candidate = first
	if errors.Is(err, cuda.ErrMemory) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("timing: %w", err)
	}
	best := time.Duration(0)
	for _, t := range times {
		if t > 0 && (best == 0 || t < best) {
			best = t
		}
	}
	if best == 0 {
		return nil
	}
	for i, k := range works {
		if k.ms = float32(times[i]) / float32(time.Millisecond); times[i] == best {
			w.candidate = *k
		}
	}
	return nil
}

// compare returns the times of candidates, 0 for one that the library refuses. It leaves w with any
// of them.
func (c *Conv) compare(w *direction, works []*candidate) (times []time.Duration, err error) {
	watch, err := cuda.NewStopwatch(c.h.stream)
	if err != nil {
		return nil, err
	}
	defer func() {
		if failed := watch.Close(); failed != nil {
			err = failed // more important than a lack of memory
		}
	}()
	var most int64
	for _, k := range works {
		most = max(most, k.bytes)
	}
	var at [4]uintptr
	p, q, r := c.operands(w)
	for i, bytes := range [...]int64{p, q, r, most} {
		if at[i], err = watch.Room(bytes); err != nil {
			return nil, err
		}
	}
	take := func(i int) error {
		w.candidate = *works[i]
		return c.h.lib.check("cudnnSetConvolutionMathType", c.h.lib.t.convMath(w.conv, w.math))
	}
	queue := func() error { return c.queue(w, at[0], at[1], at[2], at[3]) }
	return watch.Compare(len(works), take, queue, func(err error) bool { return errors.Is(err, dl.ErrUnsupported) })
}

// operands returns the bytes of w's operands, in the order of its descriptors.
func (c *Conv) operands(w *direction) (p, q, r int64) {
	x, f, y := c.desc.shapes()
	size := int64(c.desc.DType.Bytes())
	switch w.pass {
	case Forward:
		return x.elements() * size, f.elements() * size, y.elements() * size
	case BackwardData:
		return f.elements() * size, y.elements() * size, x.elements() * size
	}
	return x.elements() * size, y.elements() * size, f.elements() * size
}
