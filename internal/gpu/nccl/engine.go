package nccl

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// engine is the common part of the two engines. Each uses one of the group's communicators.
type engine struct {
	m      *member
	comm   *Comm // nil for an engine that cannot work, see absent
	absent error // the reason
	closed atomic.Bool
}

// plain is the engine "nccl". Its communicator has no windows, so ranks may have their buffers
// anywhere.
type plain struct {
	engine

	batch bool // between BeginBatch and EndBatch, which hold the communicator's lock
}

// windowed is the engine "nccl-window": a second communicator, with a window for each slab. NCCL
// uses other kernels for buffers in windows, and every rank decides for itself. So the engine takes
// only operations whose buffers are promised to be symmetric.
type windowed struct{ engine }

var (
	_ gpu.Engine    = (*plain)(nil)
	_ gpu.Batcher   = (*plain)(nil)
	_ gpu.Engine    = (*windowed)(nil)
	_ gpu.Registrar = (*windowed)(nil)
)

// Name implements gpu.Engine.
func (e *plain) Name() string { return "nccl" }

// Name implements gpu.Engine.
func (e *windowed) Name() string { return "nccl-window" }

// Can implements gpu.Engine.
func (e *plain) Can(op *dist.Op) error { return can(op, e.comm.size, e.m.tools.missing) }

// Can implements gpu.Engine.
func (e *windowed) Can(op *dist.Op) error {
	if e.absent != nil {
		return e.absent
	}
	if err := canWindow(op, e.comm.size, e.m.lib.cfg.Policy, e.m.lib.version); err != nil {
		return err
	}
	if err := e.m.windowsUsable(); err != nil {
		return err
	}
	if op.Red.Kind == dist.RedAvg && op.Kind.Reduces() {
		return e.m.tools.missing
	}
	return can(op, e.comm.size, e.m.tools.missing)
}

// Enqueue implements gpu.Engine.
func (e *plain) Enqueue(op *dist.Op, s *cuda.Stream) error {
	if e.batch {
		return e.named(op, e.comm.enqueue(op, e.m.tools, methodOf, s))
	}
	return e.alone(e.comm, op, methodOf, s)
}

// Enqueue implements gpu.Engine. Can does not see the buffers. If window kernels would be wrong for
// these, the communicator without windows does the operation.
func (e *windowed) Enqueue(op *dist.Op, s *cuda.Stream) error {
	if e.absent != nil {
		return e.absent
	}
	if !e.m.inWindows(op) {
		return errLoose
	}
	if askew(op, e.m.lib.version) {
		if e.m.plain == nil {
			return errAskew
		}
		return e.alone(e.m.plain, op, methodOf, s)
	}
	return e.alone(e.comm, op, windowMethodOf, s)
}

// alone queues one operation on c, outside a batch.
func (e *engine) alone(c *Comm, op *dist.Op, by func(tensor.DType, dist.RedKind, int) reductionMethod, s *cuda.Stream) error {
	c.mu.Lock()
	err := c.gone()
	if err == nil {
		err = c.enqueue(op, e.m.tools, by, s)
	}
	c.mu.Unlock()
	return e.named(op, err)
}

// named adds the operation to err.
func (e *engine) named(op *dist.Op, err error) error {
	if err == nil {
		return nil
	}
	var lib *Error
	if errors.As(err, &lib) && lib.What == "" {
		lib.What = fmt.Sprintf("%v %v[%d], %d B", op.Kind, op.DType(), op.Count, op.Bytes())
	}
	return err
}

// BeginBatch implements gpu.Batcher: messages until EndBatch progress together, in a group of
// NCCL's.
func (e *plain) BeginBatch(*cuda.Stream) error {
	c := e.comm
	c.mu.Lock()
	err := c.gone()
	if err == nil {
		err = c.startGroup()
	}
	if err != nil {
		c.mu.Unlock()
		return err
	}
	e.batch = true
	return nil
}

// EndBatch implements gpu.Batcher.
func (e *plain) EndBatch(*cuda.Stream) error {
	if !e.batch {
		return nil
	}
	e.batch = false
	err := e.comm.endGroup()
	e.comm.mu.Unlock()
	return err
}

// Failed implements gpu.Engine.
func (e *engine) Failed() error {
	if e.comm == nil {
		return nil
	}
	return e.comm.Failed()
}

// Abort implements gpu.Engine.
func (e *engine) Abort() {
	if e.comm != nil {
		e.comm.Abort()
	}
}

// Close implements gpu.Engine. The communicators end with the last of the engines and slabs that
// use them. Close waits for an abort, because slabs of a broken group may remain, and then no one
// else would.
func (e *engine) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	err := e.m.release()
	e.comm.settle()
	return err
}

// Split implements gpu.Engine.
func (e *plain) Split(sub *gpu.Member) (gpu.Engine, error) {
	m, c, err := e.child(sub, false)
	if m == nil || err != nil {
		return nil, err
	}
	if c != nil {
		if err := sub.Agree(c.greet()); err != nil {
			c.Abort()
			return nil, errors.Join(err, c.Close(), m.release())
		}
	}
	m.plain = c
	return &plain{engine: engine{m: m, comm: c}}, nil
}

// Split implements gpu.Engine. The new communicator has no windows until slabs are registered with
// it.
func (e *windowed) Split(sub *gpu.Member) (gpu.Engine, error) {
	m, c, err := e.child(sub, true)
	if m == nil || err != nil {
		return nil, err
	}
	m.symmetric = c
	n := &windowed{engine{m: m, comm: c, absent: e.absent}}
	if c == nil && n.absent == nil {
		n.absent = errOneRank
	}
	return n, nil
}

// child returns the member of the subgroup sub and its communicator, split from the engine's; all
// nil if sub is nil. A subgroup of one rank needs no communicator with windows.
func (e *engine) child(sub *gpu.Member, windows bool) (*member, *Comm, error) {
	parent := e.m.member
	var m *member
	var err error
	if sub != nil {
		m, err = e.m.lib.member(sub)
	}
	if err := parent.Agree(err); err != nil {
		return nil, nil, errors.Join(err, releaseIf(m))
	}
	if e.comm == nil {
		return m, nil, nil
	}
	name := "group"
	if windows {
		name = "group windows"
	}
	c, err := e.m.lib.splitOff(e.comm, parent, sub, name, windows)
	if err := parent.Agree(err); err != nil {
		if c != nil {
			c.Abort()
			err = errors.Join(err, c.Close())
		}
		return nil, nil, errors.Join(err, releaseIf(m))
	}
	return m, c, nil
}

func releaseIf(m *member) error {
	if m == nil {
		return nil
	}
	return m.release()
}
