package nccl

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// engine is an Engine of one of a group's two communicators.
type engine struct {
	m      *member
	comm   *Comm // nil for an engine that cannot work, see absent
	absent error // why
	closed atomic.Bool
}

// plain is the engine "nccl": a communicator that knows of no window, so that ranks may have their
// buffers anywhere.
type plain struct {
	engine

	batch bool // between BeginBatch and EndBatch, which hold the communicator's lock
}

// windowed is the engine "nccl-window": a second communicator, with a window for each slab. NCCL
// picks another kernel when the buffers lie in windows, and every rank picks for itself, so it
// takes only operations on which ranks are promised to have the same.
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
		return e.named(op, e.comm.enqueue(op, e.m.tools, reductionWay, s))
	}
	return e.alone(e.comm, op, reductionWay, s)
}

// Enqueue implements gpu.Engine. Can does not see where buffers lie; what kernels for windows would
// do wrong there goes to the communicator that knows of no window.
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
		return e.alone(e.m.plain, op, reductionWay, s)
	}
	return e.alone(e.comm, op, windowWay, s)
}

// alone is Enqueue of one operation that is a call of its own, on c.
func (e *engine) alone(c *Comm, op *dist.Op, by func(tensor.DType, dist.RedKind, int) reductionMethod, s *cuda.Stream) error {
	c.mu.Lock()
	err := c.gone()
	if err == nil {
		err = c.enqueue(op, e.m.tools, by, s)
	}
	c.mu.Unlock()
	return e.named(op, err)
}

// named is err with the operation in it.
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
// use them. An abort is waited for here: of a broken group slabs may stay, and would leave it to
// nobody.
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

// child is the member of the subgroup that sub describes and a communicator of it, split from the
// engine's; all nil where sub is. A subgroup of one rank has no use for a communicator with
// windows.
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
