package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// Hierarchical is the name of the engine for allreduces over several hosts with as many ranks each.
const Hierarchical = "hier"

// hierarchy is the engine Hierarchical. An allreduce of n elements over hosts of g ranks is
//
//	a reduce-scatter among the ranks of each host: n/g elements for each rank
//	an allreduce of these among the ranks of equal place on all hosts
//	an all-gather among the ranks of each host
//
// So every byte of the result crosses the network as often as in an allreduce of one rank a host,
// and the ranks of a host share the work. The n%g last elements take part as a reduce, and go to
// all ranks by a broadcast. Sums are not in rank order: hosts are added up first.
type hierarchy struct {
	near, across level
	place        int // of this rank on its host
	n            int // ranks of a host
	probe        [4]dist.Op
}

// level is the engines of one kind of subgroup.
type level struct {
	control *dist.Group
	engines []Engine
	choose  *dispatcher
}

// hierarchical reports whether the group has several hosts with as many ranks each, more than one.
func (p *Member) hierarchical() bool {
	counts := make([]int, p.HostCount())
	for _, h := range p.Hosts {
		counts[h]++
	}
	return len(counts) > 1 && counts[0] > 1 && slices.Min(counts) == slices.Max(counts)
}

// newHierarchy makes the engine of the group of p. build makes the engines of both levels.
//
// Collective: all ranks of p. Errors: on all ranks.
func newHierarchy(c DispatchConfig, p *Member, build Maker, word tensor.Buffer) (*hierarchy, error) {
	h := &hierarchy{}
	var err error
	if h.near.control, err = p.Control.Split(p.Hosts[p.Rank], p.Rank); err == nil {
		h.place, h.n = h.near.control.Rank(), h.near.control.Size()
		h.across.control, err = p.Control.Split(h.place, p.Rank)
	}
	if err == nil {
		err = p.Agree(h.near.open(DispatchConfig{Table: c.Table}, p.Device, build, word))
	}
	if err == nil {
		err = p.Agree(h.across.open(DispatchConfig{First: true}, p.Device, build, word))
	}
	if err != nil {
		h.Abort()
		return nil, fmt.Errorf("%s: %w", Hierarchical, errors.Join(err, h.Close()))
	}
	return h, nil
}

// open makes the engines of a level.
//
// Collective: all ranks of its control group.
func (l *level) open(c DispatchConfig, dev *cuda.Device, build Maker, word tensor.Buffer) (err error) {
	p := MemberOf(l.control, dev)
	if l.engines, err = build(p); err != nil {
		return err
	}
	l.choose, err = newDispatcher(c, p, l.engines, false, word)
	return err
}

// can returns nil if an engine can do op as it is.
func (l *level) can(op *dist.Op) error {
	r, err := l.choose.pick(op)
	if err == nil && r.how != plain {
		err = fmt.Errorf("%w: no engine can do %v of %v as it is", dist.ErrUnsupported, op.Kind, op.DType())
	}
	return err
}

// queue queues op by the engine for it.
func (l *level) queue(op *dist.Op, s *cuda.Stream) error {
	if op.Count == 0 {
		return nil
	}
	r, err := l.choose.pick(op)
	if err != nil {
		return err
	}
	e := l.engines[r.engine]
	if err := e.Enqueue(op, s); err != nil {
		return fmt.Errorf("%s: %w", e.Name(), err)
	}
	return nil
}

// Name implements Engine.
func (h *hierarchy) Name() string { return Hierarchical }

// Can implements Engine.
func (h *hierarchy) Can(op *dist.Op) error {
	if op.Kind != dist.KindAllReduce {
		return fmt.Errorf("%w: engine %s does allreduces only, no %v", dist.ErrUnsupported, Hierarchical, op.Kind)
	}
	if op.Red.Kind == dist.RedAvg && !op.DType().IsFloat() {
		return fmt.Errorf("%w: engine %s cannot average %v: hosts would round their averages", dist.ErrUnsupported, Hierarchical, op.DType())
	}
	if err := h.parts(op); err != nil {
		return err
	}
	for i := range h.probe {
		if err := h.level(i).can(&h.probe[i]); err != nil {
			return err
		}
	}
	return nil
}

// level returns the subgroup of part i of an allreduce.
func (h *hierarchy) level(i int) *level {
	if i == 2 {
		return &h.across
	}
	return &h.near
}

// parts sets probe to the parts of op: the reduce-scatter, the reduce of the rest to the last rank,
// the allreduce between hosts, and the all-gather. Broadcasts of the rest follow.
func (h *hierarchy) parts(op *dist.Op) error {
	each := op.Count / h.n
	whole := each * h.n
	from := h.place * each
	last := h.place == h.n-1
	to := from + each
	if last {
		to = op.Count
	}
	red := op.Red
	if red.Kind == dist.RedPreMulSum { // the factors are in the sums of the hosts
		red = dist.Sum
	}
	var err error
	cut := func(b tensor.Buffer, i, j int) tensor.Buffer {
		c, e := b.Slice(i, j)
		err = errors.Join(err, e)
		return c
	}
	h.probe = [4]dist.Op{
		{Kind: dist.KindReduceScatter, Red: op.Red, Count: each, Src: cut(op.Src, 0, whole), Dst: cut(op.Dst, from, from+each), Seq: op.Seq},
		{Kind: dist.KindAllReduce, Red: op.Red, Count: op.Count - whole, Src: cut(op.Src, whole, op.Count), Dst: cut(op.Dst, whole, op.Count), Seq: op.Seq},
		{Kind: dist.KindAllReduce, Red: red, Count: to - from, Src: cut(op.Dst, from, to), Dst: cut(op.Dst, from, to), Seq: op.Seq},
		{Kind: dist.KindAllGather, Count: each, Src: cut(op.Dst, from, from+each), Dst: cut(op.Dst, 0, whole), Seq: op.Seq},
	}
	return err
}

// Enqueue implements Engine.
func (h *hierarchy) Enqueue(op *dist.Op, s *cuda.Stream) error {
	if err := h.parts(op); err != nil {
		return err
	}
	for i := range h.probe {
		if err := h.level(i).queue(&h.probe[i], s); err != nil {
			return err
		}
	}
	rest := dist.Op{Kind: dist.KindBroadcast, Root: h.n - 1, Count: h.probe[1].Count, Dst: h.probe[1].Dst, Seq: op.Seq}
	if h.place == rest.Root {
		rest.Src = rest.Dst
	}
	return h.near.queue(&rest, s)
}

// each returns the engines of both levels.
func (h *hierarchy) each() []Engine { return slices.Concat(h.near.engines, h.across.engines) }

// Failed implements Engine.
func (h *hierarchy) Failed() error {
	for _, l := range [...]*level{&h.near, &h.across} {
		for _, e := range l.engines {
			if err := e.Failed(); err != nil {
				return fmt.Errorf("%s: %w", e.Name(), err)
			}
		}
	}
	return nil
}

// Abort implements Engine. It also ends the waits of ranks that close their engines together.
func (h *hierarchy) Abort() {
	for _, e := range h.each() {
		e.Abort()
	}
	for _, l := range [...]*level{&h.near, &h.across} {
		if l.control != nil {
			_ = l.control.Abort(errAbortedLevel) // an error means that it is closed
		}
	}
}

var errAbortedLevel = errors.New("the group over several hosts has ended")

// Split implements Engine. Parts of a group over hosts make their engines anew.
func (h *hierarchy) Split(*Member) (Engine, error) {
	return nil, fmt.Errorf("%w: engine %s is not split", dist.ErrUnsupported, Hierarchical)
}

// Close implements Engine. The groups of its levels end with the control group.
func (h *hierarchy) Close() error {
	var errs []error
	all := h.each()
	for _, e := range slices.Backward(all) {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}
