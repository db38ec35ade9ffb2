package cudnn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/symgrad/symgrad/internal/cuda"
)

// time measures the candidates of w again, and takes the fastest. cuDNN launches each a few times only, the first time among them,
// when the kernel may have to be loaded: in one run of a program an algorithm that takes 59 us lost to one of 98. Where memory for the
// operands is short, what cuDNN has measured stays.
func (c *Conv) time(w *way) error {
	if len(w.timed) == 0 {
		return nil
	}
	b, err := c.newBench(w)
	first := slices.Clone(w.timed)
	for turn := range cuda.Turns {
		for i := 0; i < len(w.timed) && err == nil; i++ {
			before := w.timed[i].ms
			if err = b.run(c, w, &w.timed[i]); turn > 0 {
				w.timed[i].ms = min(w.timed[i].ms, before)
			}
		}
	}
	if err != nil {
		w.timed = first
	}
	err = errors.Join(err, b.close())
	if errors.Is(err, cuda.ErrMemory) {
		err = nil
	}
	works := slices.DeleteFunc(slices.Clone(w.timed), func(k candidate) bool { return k.ms <= 0 })
	if err == nil && len(works) > 0 {
		w.candidate = slices.MinFunc(works, func(a, b candidate) int { return cmp.Compare(a.ms, b.ms) })
	}
	return err
}

// bench is what timing needs: a watch of the handle's stream, and memory for the operands.
type bench struct {
	dev     *cuda.Device
	watch   *cuda.Stopwatch
	p, q, r uintptr
	work    uintptr
}

// newBench makes a bench. What there is of it is there to be closed also after an error.
func (c *Conv) newBench(w *way) (*bench, error) {
	b := &bench{dev: c.h.dev}
	var err error
	if b.watch, err = cuda.NewStopwatch(c.h.stream); err != nil {
		return b, err
	}
	var most int64
	for _, k := range w.timed {
		most = max(most, k.bytes)
	}
	p, q, r := c.operands(w)
	for _, m := range [...]struct {
		to    *uintptr
		bytes int64
	}{{&b.p, p}, {&b.q, q}, {&b.r, r}, {&b.work, most}} {
		if m.bytes == 0 {
			continue
		}
		if *m.to, err = b.dev.Alloc(m.bytes); err != nil {
			return b, err
		}
		// Small numbers in all types, so that the device draws the power that it does with real ones.
		if err := b.dev.Fill(*m.to, 0x3c, m.bytes); err != nil {
			return b, err
		}
	}
	return b, nil
}

// operands is the bytes that w reads and writes, in the order of its descriptors.
func (c *Conv) operands(w *way) (p, q, r int64) {
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

// run measures k, and leaves w with it; one that the library refuses has no time afterwards.
func (b *bench) run(c *Conv, w *way, k *candidate) error {
	if k.ms <= 0 {
		return nil
	}
	if err := c.h.lib.check("cudnnSetConvolutionMathType", c.h.lib.t.convMath(w.conv, k.math)); err != nil {
		return err
	}
	w.candidate = *k
	t, err := b.watch.Time(func() error { return c.queue(w, b.p, b.q, b.r, b.work) })
	var refused *Error
	switch {
	case errors.As(err, &refused):
		k.ms = 0
	case err != nil:
		return fmt.Errorf("timing %s: %w", w.nameOf(k.algo), err)
	default:
		k.ms = float32(t) / float32(time.Millisecond)
	}
	return nil
}

// close frees what there is.
func (b *bench) close() error {
	var errs []error
	for _, p := range [...]uintptr{b.p, b.q, b.r, b.work} {
		errs = append(errs, b.dev.Free(p))
	}
	if b.watch != nil {
		errs = append(errs, b.watch.Close())
	}
	return errors.Join(errs...)
}
