package train

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// stopper makes all ranks end after the same step when a signal has reached one of them, so that
// they can save. On the host, a reduction during each step shares the signals. On GPUs the host
// would have to wait for the device, so signals are shared only together with losses.
type stopper struct {
	k    *exchange.Values
	ctx  context.Context
	g    *dist.Group
	v    [2]int64 // the signal that reached this rank, and the largest of all ranks
	work dist.Work

	wanted bool // the run can save
}

func newStopper(ctx context.Context, k *exchange.Values) *stopper {
	return &stopper{k: k, ctx: ctx, g: k.World().With(dist.Hints{Name: "a signal to stop"})}
}

// known returns the number of the signal that reached this rank; 0 for none.
func (s *stopper) known() int64 {
	cause := context.Cause(s.ctx)
	if stop := (&interrupted{}); errors.As(cause, &stop) {
		return int64(stop.sig)
	}
	if cause != nil {
		return int64(syscall.SIGTERM)
	}
	return 0
}

// ask starts to exchange the signals. It does not wait.
//
// Collective: all ranks, before each step.
func (s *stopper) ask(wanted bool) (err error) {
	if s.wanted = wanted; !wanted || s.k.World().Device() != tensor.Host {
		return nil
	}
	s.v[0] = s.known()
	s.work, err = s.g.AllReduce(tensor.Of(s.v[1:]), tensor.Of(s.v[:1]), dist.Max)
	return err
}

// answer returns the signal that ends the run; nil for none.
//
// Collective: all ranks, after each step. shared is that of trainer.shared for this step.
func (s *stopper) answer(shared bool) (stop *interrupted, err error) {
	switch onHost := s.k.World().Device() == tensor.Host; {
	case !s.wanted:
		return nil, nil
	case onHost:
		err = s.work.Wait()
	case shared:
		s.v[1] = s.known()
		err = exchange.Reduce(s.k, "a signal to stop", s.v[1:], dist.Max)
	}
	if err != nil || s.v[1] == 0 {
		return nil, err
	}
	return &interrupted{sig: syscall.Signal(s.v[1])}, nil
}

// guard aborts the world when ctx ends, unless it is off: no rank then waits for a rank that ended.
//
// Owns: the owner calls off.
type guard struct {
	ctx     context.Context
	w       *dist.World
	release func() // nil if off
}

func newGuard(ctx context.Context, w *dist.World) *guard {
	g := &guard{ctx: ctx, w: w}
	g.on()
	return g
}

// off lets the ranks end together without an abort. Idempotent.
func (g *guard) off() {
	if g.release != nil {
		g.release()
		g.release = nil
	}
}

// on restores the initial state. A signal that arrived while the guard was off aborts now.
// Idempotent.
func (g *guard) on() {
	if g.release == nil {
		g.release = abortAfter(g.ctx, g.w)
	}
}

// saved is the end of a run that a signal stopped after a checkpoint.
type saved struct {
	*interrupted
	step int
	at   string
}

// Error names the checkpoint and says how to resume.
func (s *saved) Error() string {
	return fmt.Sprintf("%v after step %d, saved in %s: the same command resumes from there", s.interrupted, s.step, s.at)
}

// Unwrap returns the signal.
func (s *saved) Unwrap() error { return s.interrupted }
