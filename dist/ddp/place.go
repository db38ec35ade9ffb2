package ddp

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

var _ ops.Placed = (*slot)(nil)

// Place implements ops.Placed. A gradient is computed in its slot if the run overwrites the slot
// unscaled: without accumulation, and with samples. A scalar has no memory to share. With Stage 2 a
// gradient is copied, since its bucket has no memory before its first gradient. With Stage 3 the
// node's value is not read.
func (s *slot) Place() (gradient, reduced tensor.Buffer) {
	d := s.d
	if s.scalar() || d.team.onGPU() || d.plan.gathers() {
		return gradient, reduced
	}
	next := d.nextRun()
	if !d.plan.staged() && next.how() == overwrite {
		gradient = s.buf
	}
	if !d.plan.staged() && !next.local {
		return gradient, s.buf
	}
	if zeros, err := s.zeroView(); err == nil { // else Wait returns the error
		reduced, _ = tensor.BufferOf(zeros) // of floats, contiguous
	}
	return gradient, reduced
}

// Filled implements ops.Placed.
func (s *slot) Filled() error {
	switch r := &s.d.run; {
	case !r.running:
		return s.d.stepError(fmt.Errorf("gradient of %q: %w: the run did not call Begin", s.param.Name(), dist.ErrInvalid))
	case s.filled:
		return s.d.stepError(fmt.Errorf("gradient of %q: %w: it was computed twice in one run", s.param.Name(), dist.ErrInvalid))
	}
	return s.count()
}

// Reduced implements ops.Placed.
func (s *slot) Reduced() error {
	if s.d.run.local && !s.d.plan.staged() {
		return nil
	}
	if err := s.d.await(s.b); err != nil {
		s.d.counts.uncount(&s.d.run)
		return s.d.stepError(fmt.Errorf("gradient of %q: %w", s.param.Name(), err))
	}
	return nil
}

// Rank returns this rank's number, which random numbers of a compiled graph depend on.
func (s *slot) Rank() int { return s.d.team.place() }

// Staged reports whether the gradient is copied in every run, by StartFrom, because it cannot be
// computed in its slot.
func (s *slot) Staged() bool { return s.d.plan.staged() }

// StartFrom is Start for the elements of the gradient, in C order.
func (s *slot) StartFrom(grad tensor.Buffer) error {
	if err := s.take(grad); err != nil {
		return s.d.stepError(fmt.Errorf("gradient of %q: %w", s.param.Name(), err))
	}
	return s.count()
}
