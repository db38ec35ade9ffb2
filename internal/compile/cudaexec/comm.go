package cudaexec

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/along"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// collective is a program.Collective that lacks only the addresses.
type collective struct {
	op     *program.Collective
	group  *dist.Group // on the stream of communication, with the step's name
	symm   *dist.Group // the same, with Symmetric if the heaps are this group's
	in     side
	out    side
	factor side // of premulsum; absent for none
	beside bool // by copy engines, if the engine has them
}

// side is the operand of a collective on one side: the elements of a view, without gaps.
type side struct {
	argument
	n  int
	dt tensor.DType
}

// absent is a missing side.
var absent = side{argument: argument{slot: literal}}

// buffer returns the side as a buffer, with its address from addr.
func (s *side) buffer(addr []uintptr, on tensor.Device) (tensor.Buffer, error) {
	if s.slot == literal {
		return tensor.Buffer{}, nil
	}
	return bufferAt(addr[s.slot]+uintptr(s.offset), s.n, s.dt, on)
}

// comm is the communication of a program: its groups, all on one stream.
type comm struct {
	groups []*dist.Group // views on stream, by number; nil for groups that no step uses
	stream *gpu.Stream
	steps  []*collective // by step
	none   tensor.Buffer // no elements
	works  []dist.Work   // of the newest run, by group: done when the run is
}

// newComm binds the collectives of p to groups. It returns nil if p has none. All of them run on
// the stream of the first group that is used, so that they run in the order of the steps.
//
// Errors: dist.ErrInvalid for an unknown group, dist.ErrDevice for a group of another device.
func newComm(p *program.Program, cfg *Config, groups []*dist.Group) (*comm, error) {
	c := &comm{groups: make([]*dist.Group, len(groups)), steps: make([]*collective, len(p.Steps)), works: make([]dist.Work, len(groups))}
	for i := range p.Steps {
		o, ok := p.Steps[i].Op.(*program.Collective)
		if !ok {
			continue
		}
		if err := c.add(p, cfg, groups, i, o); err != nil {
			return nil, err
		}
	}
	if c.stream == nil {
		return nil, nil
	}
	var err error
	c.none, err = tensor.FromPointer(nil, 0, tensor.F32, cfg.Device.Tensor())
	return c, err
}

func (c *comm) add(p *program.Program, cfg *Config, groups []*dist.Group, i int, o *program.Collective) error {
	if o.Group < 0 || o.Group >= len(groups) || groups[o.Group] == nil {
		return fmt.Errorf("cudaexec: %w: %s: unknown group %d, the run has %d", dist.ErrInvalid, stepName(p, i), o.Group, len(groups))
	}
	g := groups[o.Group]
	s, ok := g.Stream().(*gpu.Stream)
	if !ok || s.CUDA().Device() != cfg.Device {
		return fmt.Errorf("cudaexec: %w: %s: group %d is on %v, the program on %v", dist.ErrDevice, stepName(p, i), o.Group, g.Device(), cfg.Device.Tensor())
	}
	if c.stream == nil {
		c.stream = s
	}
	if c.groups[o.Group] == nil {
		c.groups[o.Group] = g.On(c.stream).With(dist.Hints{Name: "run of " + p.Name})
	}
	beside := p.Steps[i].Stream == program.Comm && yields(p, i, cfg.Compute, g.Size())
	v := g.On(c.stream).With(dist.Hints{Name: p.Steps[i].Name, Overlap: beside})
	if goesAlong(p, i) {
		v = along.View(v).(*dist.Group)
	}
	symm := v
	if cfg.HeapGroup == nil || cfg.HeapGroup == g {
		symm = v.With(dist.Hints{Symmetric: true})
	}
	k := &collective{op: o, group: v, symm: symm, in: absent, out: absent, factor: absent, beside: beside}
	k.sides(p, &p.Steps[i])
	c.steps[i] = k
	return nil
}

// goesAlong reports whether collective i of p could have started with the previous one of its
// group. The previous one must be in the program, so that it did not start before the program did.
func goesAlong(p *program.Program, i int) bool {
	o, ok := p.Steps[i].Op.(*program.Collective)
	return ok && o.Early && slices.ContainsFunc(p.Steps[:i], func(s program.Step) bool {
		before, ok := s.Op.(*program.Collective)
		return ok && before.Group == o.Group
	})
}

// yields reports whether collective i of p, among n ranks, should use copy engines. They leave
// multiprocessors to the computation that runs at the same time. Among more than two ranks they are
// slower than multiprocessors, because copies to one rank collide. They pay in these cases:
//
//   - A large sum follows, and elements of 32 bits or more are multiplied in F32: products take
//     longest there, and steps wait for them.
//   - Nothing large comes before a gather: the first products need multiprocessors as soon as they
//     have their weights.
//   - A program opens with gathers, and the gather ends it: then it overlaps updates.
//
// Only collectives and their order decide, which agree on all ranks. Other steps may differ.
func yields(p *program.Program, i int, compute Compute, n int) bool {
	if n <= 2 {
		return true
	}
	before, after := false, false // other large sums: products come before them
	opens := false                // with a gather
	for j := range p.Steps {
		if c, ok := p.Steps[j].Op.(*program.Collective); ok {
			opens = opens || c.Early
		}
		if j != i && sumBytes(p, j) >= gpu.LeastAside {
			before, after = before || j < i, after || j > i
		}
	}
	o, in := p.Steps[i].Op.(*program.Collective), p.Steps[i].In
	if o.Kind == dist.KindAllGather && (!before || opens && !after) {
		return true
	}
	return after && compute == F32 && len(in) > 0 && p.Values[in[0].Value].DType.Size() >= tensor.F32.Size()
}

// sumBytes returns the bytes that step i of p reduces; 0 if it reduces nothing.
func sumBytes(p *program.Program, i int) int64 {
	o, ok := p.Steps[i].Op.(*program.Collective)
	if !ok || !o.Kind.Reduces() || len(p.Steps[i].In) == 0 {
		return 0
	}
	in := &p.Values[p.Steps[i].In[0].Value]
	return int64(in.Len()) * int64(in.DType.Size())
}

// mostAside is the largest number of ranks for which weight gradients on a stream of their own were
// measured.
const mostAside = 2

// Aside reports whether weight gradients should have a stream of their own in p, whose collectives
// are those of groups. They gain without collectives, and during sums among few ranks. They lose
// during sums that are so large that a step waits for the links. Sharded gradients and weights were
// not measured.
func Aside(p *program.Program, groups []*dist.Group) bool {
	for i := range p.Steps {
		o, ok := p.Steps[i].Op.(*program.Collective)
		if !ok || groups[o.Group].Size() == 1 {
			continue
		}
		if groups[o.Group].Size() > mostAside || o.Kind != dist.KindAllReduce || sumBytes(p, i) >= gpu.LeastAside {
			return false
		}
	}
	return true
}

// goAhead finds the large sums that must get their multiprocessors before the next step of Compute.
// That step is ready as early as the sum. If it fills the GPU, the sum has to wait for all of it.
// So the step waits until the sum has begun: for the time of a launch, or until earlier sums end.
//
// The last of several sums is not ahead, since a long computation that hides it may follow. After
// each other sum there is one more sum to wait for. A step that already waits for communication has
// no part in it: the device would make it wait for the end of the sum.
func (c *comm) goAhead(p *program.Program, o *order) {
	if c == nil {
		return
	}
	var sums []int
	for i, k := range c.steps {
		if k != nil && !k.beside && k.group.Size() > 1 && p.Steps[i].Stream == program.Comm && sumBytes(p, i) >= gpu.LeastAside {
			sums = append(sums, i)
		}
	}
	for n, i := range sums {
		next := i + 1 + slices.Index(o.on[i+1:], program.Compute)
		if next > i && len(o.turns[next].waits) == 0 && (n == 0 || n < len(sums)-1) {
			o.turns[i].ahead, o.turns[next].behind = true, true
		}
	}
}

// sides sets the sides of k from the views of its step.
func (k *collective) sides(p *program.Program, step *program.Step) {
	for n, to := range []*side{&k.in, &k.factor} {
		if n < len(step.In) {
			*to = wholeOf(p, step.In[n])
		}
	}
	if len(step.Out) > 0 {
		k.out = wholeOf(p, step.Out[0])
	}
	part, whole := &k.in, &k.out
	if k.op.Kind == dist.KindReduceScatter {
		part, whole = whole, part
	}
	if k.op.Part > 0 {
		part.n = k.op.Part
	}
	if k.op.Whole > 0 {
		whole.n = k.op.Whole
	}
}

// wholeOf returns the elements of v, which is packed and reaches the end of its value.
func wholeOf(p *program.Program, v program.View) side {
	val := &p.Values[v.Value]
	return side{viewOf(p, v), max(val.Len()-v.Offset, 0), val.DType}
}

// bytes returns the bytes of the larger side, which is the whole vector.
func (k *collective) bytes() int64 { return int64(max(k.in.n*k.in.dt.Size(), k.out.n*k.out.dt.Size())) }

// leastCrowd is the bytes from which a collective on multiprocessors takes as long as large Maps.
const leastCrowd = 4 << 20

// crowds reports whether multiprocessors communicate for long, in collectives that are too small
// for copy engines. They need memory bandwidth, of which Maps with short blocks take more. Larger
// collectives do not count, even on multiprocessors (see yields): during these, Maps with
// long-lived blocks made a step no faster.
func (c *comm) crowds() bool {
	return c != nil && slices.ContainsFunc(c.steps, func(k *collective) bool {
		return k != nil && k.group.Size() > 1 && k.bytes() >= leastCrowd && k.bytes() < gpu.LeastAside
	})
}

// queue issues the collective.
func (k *collective) queue(cfg *Config, addr []uintptr) error {
	on := cfg.Device.Tensor()
	in, err := k.in.buffer(addr, on)
	if err != nil {
		return err
	}
	out, err := k.out.buffer(addr, on)
	if err != nil {
		return err
	}
	g := k.group
	if (in.IsZero() || cfg.symmetric(in)) && (out.IsZero() || cfg.symmetric(out)) {
		g = k.symm
	}
	red := k.op.Red
	if red.Kind == dist.RedPreMulSum && k.factor.slot != literal {
		factor, err := k.factor.buffer(addr, on)
		if err != nil {
			return err
		}
		red = dist.PreMulSumAt(factor)
	}
	return k.issue(g, out, in, red)
}

func (k *collective) issue(g *dist.Group, out, in tensor.Buffer, red dist.RedOp) error {
	var err error
	switch k.op.Kind {
	case dist.KindAllReduce:
		_, err = g.AllReduce(out, in, red)
	case dist.KindReduce:
		_, err = g.Reduce(out, in, red, k.op.Root)
	case dist.KindBroadcast:
		_, err = g.Broadcast(out, in, k.op.Root)
	case dist.KindAllGather:
		_, err = g.AllGather(out, in)
	case dist.KindReduceScatter:
		_, err = g.ReduceScatter(out, in, red)
	case dist.KindAllToAll:
		_, err = g.AllToAll(out, in)
	case dist.KindGather:
		_, err = g.Gather(out, in, k.op.Root)
	case dist.KindScatter:
		_, err = g.Scatter(out, in, k.op.Root)
	case dist.KindBarrier:
		_, err = g.Barrier()
	case dist.KindSync:
		_, err = g.Sync()
	default:
		err = fmt.Errorf("%w: %v is no collective of a program", dist.ErrUnsupported, k.op.Kind)
	}
	return err
}

// announce tells all groups that a run is queued, by an operation without elements that launches
// nothing. Its Work stands for the whole run, and ends when a rank dies. That includes replays, of
// which the groups know nothing.
func (c *comm) announce() error {
	for i, g := range c.groups {
		if g == nil {
			continue
		}
		w, err := g.AllReduce(c.none, c.none, dist.Sum)
		if err != nil {
			return err
		}
		c.works[i] = w
	}
	return nil
}

// wait returns when the newest run is done on all ranks, or with the reason why it never will be.
func (c *comm) wait() error {
	for _, w := range c.works {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	return nil
}
