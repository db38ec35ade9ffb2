package ddp

import (
	"fmt"
	"strconv"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// Stage 3: a rank keeps only its shard of each bucket of parameters. Attach makes the graph
//
//	shard_b = adopt(memory)            input, Shard elements of the symmetric heap
//	full_b  = ops.AllGather(shard_b)   whole bucket b, while it is needed
//	w_i     = part(hook_i, full_b)     Reshape(Slice(full_b)): read by the users of parameter i
//	dw_i    = Wait(Start(hold(dy_i)))  as in earlier stages: the gradient is copied into bucket b
//
// The gradient of shard_b is this rank's result of bucket b's ReduceScatter, as in Stage 2. Each
// gradient is copied into its slot; slices would add zeros.

// insertParts puts a part between each hook and its users, and between the parameter and its other
// readers, such as gorgonia.Read. The offsets of parts are set later.
func (b *builder) insertParts() error {
	g := b.cost.Graph()
	parts := make(map[*gorgonia.Node]*gorgonia.Node, 2*len(b.hooks)) // by the node that they replace
	for _, h := range b.hooks {
		o := &part{node: node{"part " + h.Param().Name() + " " + strconv.Itoa(len(b.parts)), h.Param().Shape().Clone()}, hook: h}
		if h.Param().IsScalar() {
			o.shape = nil
		}
		n, err := applyOnce(o, h.Node())
		if err != nil {
			return err
		}
		b.parts = append(b.parts, n)
		parts[h.Param()], parts[h.Node()] = n, n
	}
	for _, n := range g.AllNodes() { // in the order of ids, the same on all ranks
		if _, isHook := n.Op().(*ops.Hook); isHook || b.isPart(n) {
			continue
		}
		seen := gorgonia.NewNodeSet()
		for _, c := range ops.Children(n) {
			if to, ok := parts[c]; ok && seen.Add(c) {
				if err := replace(n, c, to); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *builder) isPart(n *gorgonia.Node) bool {
	_, ok := n.Op().(*part)
	return ok
}

// gatherParams adds the allgather of each bucket of the plan, and makes it an input of the parts.
func (b *builder) gatherParams() error {
	d := b.d
	for i, pb := range d.plan.Buckets {
		dt, err := pb.DType.Gorgonia()
		if err != nil {
			return err
		}
		name := "shard " + strconv.Itoa(i)
		in := gorgonia.NewVector(b.cost.Graph(), dt, gorgonia.WithShape(pb.Shard), gorgonia.WithName("symgrad "+name))
		mine, err := applyOnce(&adopt{node: node{"adopt " + name, in.Shape().Clone()}, d: d, bucket: i}, in)
		if err != nil {
			return err
		}
		gorgonia.WithName(name)(mine)
		full, err := ops.AllGather(d.team.Group, mine)
		if err != nil {
			return err
		}
		gorgonia.WithName(d.team.prefix + weightsPrefix + strconv.Itoa(i))(full)
		b.shards = append(b.shards, in)
		for _, j := range pb.Params {
			o, ok := b.parts[j].Op().(*part)
			if !ok {
				return fmt.Errorf("parameter %q: %w: its part is %v", d.plan.Params[j].Name, dist.ErrInvalid, b.parts[j].Op())
			}
			o.offset = d.plan.Params[j].Offset
			ops.Rewire(b.parts[j], gorgonia.Nodes{b.hooks[j].Node(), full})
		}
	}
	return nil
}

// shards is Stage 3: a rank keeps only its shards of weights, which the graph gathers.
type shards struct {
	stagings
	inputs gorgonia.Nodes // the graph's inputs over them
}

func (x *shards) place(p *placer, b *bucket) error {
	err := x.placeGradients(p, b)
	if err == nil {
		b.gather = x.d.team.named(weightsPrefix + strconv.Itoa(b.index))
		b.mine, err = p.values.next(b.shard, b.dtype)
	}
	return err
}

func (x *shards) memory(m *Memory) {
	x.stagings.memory(m) // without buckets of weights
	for _, b := range x.d.buckets {
		m.Params += b.mine.Bytes()
	}
}

// fill copies rank 0's weights into the shards, and removes the nodes' memory.
func (x *shards) fill(inputs gorgonia.Nodes) error {
	d := x.d
	x.inputs = inputs
	for i, b := range d.buckets {
		v, err := tensor.View(b.mine, b.shard)
		if err == nil {
			err = gorgonia.Let(inputs[i], v)
		}
		if err != nil {
			return fmt.Errorf("weights %d: %w", i, err)
		}
		clear(b.mine.Raw())
	}
	return x.adopt()
}

// adopt copies this rank's pieces of weights that nodes were given since the last run, and leaves
// the nodes without elements. A machine that has no steps for it calls Adopt.
func (x *shards) adopt() error {
	for _, s := range x.d.slots {
		if err := s.adopt(); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the shards, whose memory will be freed, from the graph.
func (x *shards) forget() error {
	for _, n := range x.inputs {
		if err := gorgonia.Let(n, shardedValue(n)); err != nil {
			return fmt.Errorf("node %q: %w", n.Name(), err)
		}
	}
	return nil
}

// given reports whether the parameter's node has a value with elements.
func (s *slot) given() bool {
	_, none := s.param.Value().(*sharded)
	return !none
}

func (s *slot) adopt() error {
	v := s.param.Value()
	if !s.given() {
		return nil
	}
	if v == nil {
		return fmt.Errorf("parameter %q: %w: its node has lost its value", s.param.Name(), dist.ErrInvalid)
	}
	from, err := ops.Elements(v)
	if err != nil {
		return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
	}
	if from.DType() != s.b.dtype || from.Len() != s.n {
		return fmt.Errorf("parameter %q: %w: its value is %v, want %v[%d]", s.param.Name(), dist.ErrCount, from, s.b.dtype, s.n)
	}
	size, shard := s.b.dtype.Size(), s.b.shard
	offset, first := s.d.plan.Params[s.index].Offset, s.d.team.Rank()*shard
	lo, hi := max(offset, first), min(offset+s.n, first+shard)
	switch {
	case lo >= hi:
	case s.d.team.onGPU():
		if err := s.d.shards.writeOwn(s.b, lo-first, from, lo-offset, hi-lo); err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
	default:
		if err := s.d.team.open(); err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
		copy(s.b.mine.Raw()[(lo-first)*size:(hi-first)*size], from.Raw()[(lo-offset)*size:])
	}
	return gorgonia.Let(s.param, shardedValue(s.param))
}

func (x *shards) consolidate() error {
	d := x.d
	works, whole := make([]dist.Work, len(d.buckets)), make([]tensor.Buffer, len(d.buckets))
	var err error
	for i, b := range d.buckets {
		whole[i] = heapless(b.elements, b.dtype)
		if d.team.onGPU() {
			err = x.gatherFromGPUs(b, whole[i])
		} else {
			works[i], err = b.gather.AllGather(whole[i], b.mine)
		}
		if err != nil {
			return waitAll(works[:i], err)
		}
	}
	if err := waitAll(works, nil); err != nil {
		return err
	}
	for _, s := range d.slots {
		at := d.plan.Params[s.index].Offset
		b, err := whole[s.b.index].Slice(at, at+s.n)
		if err != nil {
			return err
		}
		var v gorgonia.Value
		if s.scalar() {
			v, err = number(b)
		} else {
			v, err = tensor.View(b, s.shape...)
		}
		if err == nil {
			err = gorgonia.Let(s.param, v)
		}
		if err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
	}
	return nil
}

// noDual makes v, which is zeros, the sum of gorgonia.BindDualValues. Gorgonia would otherwise make
// a value like the parameter's, which has no elements.
func (s *slot) noDual(v gorgonia.Value) (err error) {
	if g, err := s.param.Grad(); err == nil && g != nil && g != s.wait.Value() {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("gorgonia: %v", p)
		}
	}()
	gorgonia.WithGrad(v)(s.param)
	return nil
}

// heapless returns n elements of Go's memory.
func heapless(n int, dt tensor.DType) tensor.Buffer {
	if dt == tensor.F64 {
		return tensor.Of(make([]float64, n))
	}
	return tensor.Of(make([]float32, n))
}

// spread copies rank 0's value of the parameter to the nodes of all ranks, through the memory of
// the bucket.
//
// Collective: all ranks.
func (s *slot) spread() error {
	host, err := valueMemory(s.param.Value())
	if err != nil {
		return err
	}
	r, at, err := s.d.mem.regionOf(s.buf)
	if err != nil {
		return err
	}
	me := s.d.team.Rank()
	if err = r.Put(me, at, host); err == nil {
		err = s.d.mem.heap.Quiet()
	}
	if err != nil {
		return err
	}
	work, err := s.d.team.plainView(s.param.Name()).spread(s.buf)
	if err == nil {
		err = work.Wait()
	}
	if err == nil {
		err = r.Get(host, me, at)
	}
	return err
}
