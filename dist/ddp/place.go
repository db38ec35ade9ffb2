package ddp

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

var _ ops.Placed = (*slot)(nil)

// Place implements ops.Placed. A gradient can be computed in its slot if the run overwrites the
// slot unchanged: not if micro-batches are accumulated, nor if the rank has no samples. A scalar
// has no memory to place. With Stage 2 a gradient is copied: its bucket has no memory before the
// first of its gradients arrives. With Stage 3 the node's value has no reader.
func (s *slot) Place() (gradient, reduced tensor.Buffer) {
	d := s.d
	if s.scalar() || d.onGPU() || d.gathers() {
		return gradient, reduced
	}
	next := d.nextRun()
	if !d.staged() && next.how() == overwrite {
		gradient = s.buf
	}
	if !d.staged() && !next.local {
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
		return s.d.stepError(fmt.Errorf("gradient of %q: %w: the run did not go through Begin", s.param.Name(), dist.ErrInvalid))
	case s.filled:
		return s.d.stepError(fmt.Errorf("gradient of %q: %w: it has come twice in one run", s.param.Name(), dist.ErrInvalid))
	}
	return s.count()
}

// Reduced implements ops.Placed.
func (s *slot) Reduced() error {
	if s.d.run.local && !s.d.staged() {
		return nil
	}
	if err := s.d.await(s.b); err != nil {
		s.d.uncount()
		return s.d.stepError(fmt.Errorf("gradient of %q: %w", s.param.Name(), err))
	}
	return nil
}

// Rank is this rank's number: random numbers of a compiled graph depend on it.
func (s *slot) Rank() int { return s.d.world.Rank() }
