package gpu

import (
	"errors"
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Wrap returns a Stream for a CUstream of v that another library made. 0 is the default stream.
//
// Owns: the CUstream stays with its owner, and outlives the Stream. Close waits for its work.
func Wrap(v *cuda.Device, handle uintptr) *Stream { return streamOver(v, v.BorrowStream(handle)) }

// Capture records the work that f queues on s, as a graph that replays it. The Works of f are done
// at once, and the ranks compare its operations once, now. A captured group must have run its last
// operation on s. Another stream of the group in f is ErrInvalid.
//
// Owns: the caller closes the graph, before s and its groups. Errors: f's, without a graph;
// ErrInvalid for a stream that is being captured; those of the driver.
func (s *Stream) Capture(f func() error) (*cuda.Graph, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	err := f()
	g, ended := s.end()
	if err = errors.Join(err, ended); err != nil {
		if g != nil {
			err = errors.Join(err, g.Close())
		}
		return nil, err
	}
	return g, nil
}

func (s *Stream) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if s.capturing.Load() {
		return fmt.Errorf("stream on %v: %w: it is being captured", s.Device(), dist.ErrInvalid)
	}
	if s.last > s.done { // so that waits for it record no event during the capture
		if err := s.mark(s.last); err != nil {
			return err
		}
	}
	if err := s.cu.BeginCapture(); err != nil {
		return err
	}
	s.capturing.Store(true)
	return nil
}

func (s *Stream) end() (*cuda.Graph, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capturing.Store(false)
	return s.cu.EndCapture()
}

// clock records a timer before (0) or after (1) the operation of e. The lock is held, and the
// device entered.
func (s *Stream) clock(e *ticket, i int) error {
	if e.timer[i] == nil {
		if k := len(s.timers); k > 0 {
			e.timer[i], s.timers = s.timers[k-1], s.timers[:k-1]
		} else {
			var err error
			if e.timer[i], err = s.dev.NewTimer(); err != nil {
				return err
			}
		}
	}
	return s.cu.Record(e.timer[i])
}

// Elapsed implements dist.Timer: the time between the events around an operation.
func (s *Stream) Elapsed(n uint64) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.at(n)
	if e.op.Kind == dist.KindBatch { // each of its collectives has used the timers
		return 0, fmt.Errorf("%w: a group call between GPUs is not timed", dist.ErrUnsupported)
	}
	if n+uint64(len(s.tickets)) <= s.last || e.timer[0] == nil || e.timer[1] == nil {
		return 0, fmt.Errorf("%w: ticket %d of %d was not timed (see dist.Group.Timed), or is too old", dist.ErrUnsupported, n, s.last)
	}
	return e.timer[1].Since(e.timer[0])
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// TimeOp returns the device time of the work that f queues on s, and waits for it.
//
// Shapes/units: milliseconds. Errors: f's; ErrDevice for a stream of the host; the error of a
// broken group with operations in f; those of the driver.
func TimeOp(s dist.Stream, f func() error) (milliseconds float64, err error) {
	gs, ok := s.(*Stream)
	if !ok {
		return 0, fmt.Errorf("%w: %v has no timers", dist.ErrDevice, s.Device())
	}
	var e ticket
	defer func() {
		gs.mu.Lock()
		gs.recycle(&e)
		gs.mu.Unlock()
	}()
	if err := gs.tick(&e, 0); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := errors.Join(gs.tick(&e, 1), gs.Synchronize()); err != nil {
		return 0, err
	}
	d, err := e.timer[1].Since(e.timer[0])
	return inMilliseconds(d), err
}

// tick calls clock for callers without the lock.
func (s *Stream) tick(e *ticket, i int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.dev.Enter(); err != nil {
		return err
	}
	defer s.dev.Leave()
	return s.clock(e, i)
}
