package hostexec

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// collective is a step that a group does. The first step that needs it waits for it. On the compute
// stream it blocks.
type collective struct {
	op      *program.Collective
	group   *dist.Group
	dst     program.ID
	src     program.ID
	dn, sn  int
	do, so  int        // offsets
	scalar  program.ID // None: the factor is in op.Red
	blocked bool
}

func (k *maker) collective(i int, op *program.Collective) (*collective, error) {
	if op.Group >= len(k.env.Groups) || k.env.Groups[op.Group] == nil {
		return nil, fmt.Errorf("group %d of %d in the environment", op.Group, len(k.env.Groups))
	}
	s := &k.p.Steps[i]
	c := &collective{
		op: op, group: k.env.Groups[op.Group].With(dist.Hints{Name: s.Name}), blocked: s.Stream == program.Compute,
		dst: s.Out[0].Value, src: s.In[0].Value, scalar: program.None,
	}
	switch {
	case c.blocked:
		c.group = c.group.Blocking()
	case k.comm == nil:
		k.comm = c.group.Stream()
	default: // each group has its own stream, but collectives of several groups keep their order
		c.group = c.group.On(k.comm)
	}
	if op.Root >= c.group.Size() {
		return nil, fmt.Errorf("root %d of %d ranks", op.Root, c.group.Size())
	}
	if d := c.group.Device(); d != tensor.Host {
		return nil, fmt.Errorf("group %d is on %v, the program runs on the host", op.Group, d)
	}
	c.dn, c.sn = k.p.Values[c.dst].Len(), k.p.Values[c.src].Len()
	switch {
	case op.Part == 0:
	case op.Kind == dist.KindAllGather:
		c.sn, c.so = op.Part, s.In[0].Offset
		if op.Whole > 0 {
			c.dn, c.do = op.Whole, s.Out[0].Offset
		}
	case op.Kind == dist.KindReduceScatter:
		c.dn, c.do = op.Part, s.Out[0].Offset
		if op.Whole > 0 {
			c.sn, c.so = op.Whole, s.In[0].Offset
		}
	}
	if len(s.In) > 1 {
		c.scalar = s.In[1].Value
	}
	return c, nil
}

// collect starts a collective, after those of its stream.
func (r *runner) collect(s *step) error {
	w, err := s.coll.start(r.mem)
	if err != nil {
		return err
	}
	r.pending[s.index] = w
	r.open = append(r.open, s.index)
	return nil
}

func (c *collective) start(mem *memory) (dist.Work, error) {
	dst, err := mem.buffer(c.dst, c.do, c.dn)
	if err != nil {
		return dist.Work{}, err
	}
	src, err := mem.buffer(c.src, c.so, c.sn)
	if err != nil {
		return dist.Work{}, err
	}
	red := c.op.Red
	if c.scalar != program.None {
		factor, err := mem.buffer(c.scalar, 0, 1)
		if err != nil {
			return dist.Work{}, err
		}
		red = dist.PreMulSumAt(factor)
	}
	g := c.group
	switch c.op.Kind {
	case dist.KindAllReduce:
		return g.AllReduce(dst, src, red)
	case dist.KindReduce:
		return g.Reduce(dst, src, red, c.op.Root)
	case dist.KindBroadcast:
		return g.Broadcast(dst, src, c.op.Root)
	case dist.KindAllGather:
		return g.AllGather(dst, src)
	case dist.KindReduceScatter:
		return g.ReduceScatter(dst, src, red)
	case dist.KindAllToAll:
		return g.AllToAll(dst, src)
	case dist.KindGather:
		return g.Gather(dst, src, c.op.Root)
	case dist.KindScatter:
		return g.Scatter(dst, src, c.op.Root)
	}
	return dist.Work{}, fmt.Errorf("%v: %w", c.op.Kind, dist.ErrUnsupported)
}

// await waits for the collective of step i, and so for earlier ones. Errors: name step i.
func (r *runner) await(i int) error {
	for k, j := range r.open {
		if j != i {
			continue
		}
		err := r.pending[i].Wait()
		r.open = append(r.open[:k], r.open[k+1:]...)
		if err != nil {
			return stepError(r.p, i, err)
		}
		return nil
	}
	return nil
}

// settle waits for all collectives. Errors: that of the first that failed, naming its step.
func (r *runner) settle() error {
	var first error
	for _, i := range r.open {
		if err := r.pending[i].Wait(); err != nil && first == nil {
			first = stepError(r.p, i, err)
		}
	}
	r.open = r.open[:0]
	return first
}

// call is a step that a function of the environment does.
type call struct {
	f       func(in, out []tensor.Buffer) error
	views   [2][]program.View
	buffers [2][]tensor.Buffer
}

func (k *maker) call(s *program.Step, op *program.Call) (*call, error) {
	if op.Func < 0 || op.Func >= len(k.env.Calls) || k.env.Calls[op.Func] == nil {
		return nil, fmt.Errorf("function %d of %d in the environment", op.Func, len(k.env.Calls))
	}
	return &call{
		f: k.env.Calls[op.Func], views: [2][]program.View{s.In, s.Out},
		buffers: [2][]tensor.Buffer{make([]tensor.Buffer, len(s.In)), make([]tensor.Buffer, len(s.Out))},
	}, nil
}

func (c *call) run(mem *memory) error {
	for side, views := range c.views {
		for i, v := range views {
			b, err := mem.buffer(v.Value, v.Offset, mem.p.Values[v.Value].Len()-v.Offset)
			if err != nil {
				return err
			}
			c.buffers[side][i] = b
		}
	}
	return c.f(c.buffers[0], c.buffers[1])
}
