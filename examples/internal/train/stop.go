package train

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// stopper makes all ranks end after the same step when one of them got a signal, so that they can
// save. On the host each step carries the question. On GPUs, where an answer would make the host
// wait for the device, ranks ask when they share losses.
type stopper struct {
	k    *talk
	ctx  context.Context
	g    *dist.Group
	v    [2]int64 // the signal that this rank knows of, and the largest of all ranks
	work dist.Work

	wanted bool // this run can save
}

func newStopper(ctx context.Context, k *talk) *stopper {
	return &stopper{k: k, ctx: ctx, g: k.w.Named("a signal to stop")}
}

// known is the number of the signal that has come to this rank; 0 for none.
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

// ask begins to ask the other ranks. It does not wait.
//
// Collective: all ranks, before each step.
func (s *stopper) ask(wanted bool) (err error) {
	if s.wanted = wanted; !wanted || s.k.w.Device() != tensor.Host {
		return nil
	}
	s.v[0] = s.known()
	s.work, err = s.g.AllReduce(tensor.Of(s.v[1:]), tensor.Of(s.v[:1]), dist.Max)
	return err
}

// answer is the end of the run that some rank wants; nil for none.
//
// Collective: all ranks, after each step; shared is that of the step.
func (s *stopper) answer(shared bool) (stop *interrupted, err error) {
	switch onHost := s.k.w.Device() == tensor.Host; {
	case !s.wanted:
		return nil, nil
	case onHost:
		err = s.work.Wait()
	case shared:
		s.v[1] = s.known()
		err = reduce(s.k, "a signal to stop", s.v[1:], dist.Max)
	}
	if err != nil || s.v[1] == 0 {
		return nil, err
	}
	return &interrupted{sig: syscall.Signal(s.v[1])}, nil
}

// guard aborts the world when ctx ends, so that no rank waits for one that will not come; but not
// while it is off.
//
// Owns: the owner calls off.
type guard struct {
	ctx     context.Context
	w       *dist.World
	release func() // nil while it is off
}

func newGuard(ctx context.Context, w *dist.World) *guard {
	g := &guard{ctx: ctx, w: w}
	g.on()
	return g
}

// off lets ranks end together by themselves. Idempotent.
func (g *guard) off() {
	if g.release != nil {
		g.release()
		g.release = nil
	}
}

// on is the state at the start. A signal that came while it was off ends the run now. Idempotent.
func (g *guard) on() {
	if g.release == nil {
		g.release = abortAfter(g.ctx, g.w)
	}
}

// saved is the end of a run that a signal stopped, and of which a checkpoint tells.
type saved struct {
	*interrupted
	step int
	at   string
}

// Error says where to go on.
func (s *saved) Error() string {
	return fmt.Sprintf("%v after step %d, which is in %s: the same command goes on from there", s.interrupted, s.step, s.at)
}

// Unwrap is the signal.
func (s *saved) Unwrap() error { return s.interrupted }
