package gpu

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// engineSet is the engines of a group and the choice between them.
type engineSet struct {
	*core
	*tools
	list     []Engine
	keepers  []Keeper // by engine; nil for one that is no Keeper
	unending []bool   // by engine
	choose   *dispatcher
	rewrites dist.Op // scratch: a composed operation
}

// abort aborts the engines.
func (x *engineSet) abort() {
	for _, e := range x.list {
		e.Abort()
	}
}

// close closes the engines, the last first.
func (x *engineSet) close() error {
	var errs []error
	for i := len(x.list) - 1; i >= 0; i-- {
		if err := x.list[i].Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", x.list[i].Name(), err))
		}
	}
	return errors.Join(errs...)
}

// failed returns the first error of an engine.
func (x *engineSet) failed() error {
	for _, e := range x.list {
		if err := e.Failed(); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}

// queue queues op by the engine and composition of w. The device is entered.
func (x *engineSet) queue(op *dist.Op, w route, s *cuda.Stream) error {
	e := x.list[w.engine]
	if w.how == plain {
		return e.Enqueue(op, s)
	}
	x.choose.compose(&x.rewrites, op, w.how)
	if w.how == premul {
		if err := x.scale(op.Dst, op.Src, &op.Red.Scalar, s); err != nil {
			return err
		}
	}
	if err := e.Enqueue(&x.rewrites, s); err != nil {
		return err
	}
	if w.how == scaled && op.Dst.Len() > 0 {
		return x.kernels.launchScale(x.args, s, op.Dst, op.Dst, 0, uint64(x.member.Size), true)
	}
	return nil
}

// cachedLaunch returns the engine's cached launch of op, or nil. Barriers, composed and timed
// operations and captured streams have none. A barrier first waits for the heaps, timers need the
// context, and a capture records an operation's present launch.
func (x *engineSet) cachedLaunch(op *dist.Op, w route, s *Stream) *cuda.Kept {
	k := x.keepers[w.engine]
	if k == nil || w.how != plain || op.Kind == dist.KindBarrier || op.Timed || s.capturing.Load() {
		return nil
	}
	return k.Kept(op, s.cu)
}

// register registers slab with the engines that are Registrars. All ranks succeed or none.
func (x *engineSet) register(slab *Slab) error {
	for i, e := range x.list {
		r, ok := e.(Registrar)
		if !ok {
			continue
		}
		own := r.Register(slab)
		err := x.member.Agree(own)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", e.Name(), err)
		if own == nil {
			err = errors.Join(err, x.whole(func() error { return r.Unregister(slab) }))
		}
		return errors.Join(err, x.whole(func() error { return unregister(x.list[:i], slab) }))
	}
	return nil
}

// unregister removes slab from engines, the last first.
func unregister(engines []Engine, slab *Slab) error {
	var errs []error
	for i := len(engines) - 1; i >= 0; i-- {
		if r, ok := engines[i].(Registrar); ok {
			if err := r.Unregister(slab); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", engines[i].Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// splitEngines returns this rank's engines of the part of member; none if member is nil.
//
// Errors: on all ranks of the group.
func (x *engineSet) splitEngines(member *Member) ([]Engine, error) {
	var engines []Engine
	var failed error
	for _, e := range x.list {
		part, err := e.Split(member)
		unsupported := errors.Is(err, dist.ErrUnsupported)
		if err != nil && !unsupported && failed == nil {
			failed = fmt.Errorf("%s: %w", e.Name(), err)
		}
		if part != nil && err == nil {
			engines = append(engines, part)
		}
		if failed = x.member.Agree(failed); failed != nil {
			return engines, failed
		}
	}
	return engines, nil
}

// closeEngines ends engines that belong to no transport.
func closeEngines(engines []Engine) error {
	var errs []error
	for _, e := range engines {
		e.Abort()
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}
