package ddp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// Attach makes the training of learnables on cost data-parallel over the ranks of on: a world, or a
// group of some of its ranks. Call it instead of gorgonia.Grad, when the graph is complete and the
// learnables have values, before making a machine. The package comment describes the changes to the
// graph, which cannot be used after an error. A learnable without a name gets one: "learnable 0",
// the first. In errors, traces and the flight recorder, operations of a group's second DDP begin
// with "ddp 2", and so on.
//
// Collective: all ranks of the group, with graphs that differ only in the length of the batch.
// Other ranks of the world take no part. Owns: close d with the group, or before it by Close.
// Errors: dist.ErrInvalid and its kinds, naming parameter or node, on the faulty rank, and ErrPeer
// on the others; ErrPlan on all ranks if they differ; symmetric.ErrNoSpace; those of the group.
func Attach(on dist.Members, cost *gorgonia.Node, learnables gorgonia.Nodes, cfg Config) (*DDP, error) {
	return attach(on, cost, learnables, cfg, false)
}

// groupOf returns the group of on.
//
// Errors: dist.ErrInvalid for none.
func groupOf(on dist.Members) (*dist.Group, error) {
	if on != nil {
		if g := on.Members(); g != nil {
			return g, nil
		}
	}
	return nil, fmt.Errorf("%w: no group; pass a world, or a group of Split", dist.ErrInvalid)
}

// attach implements Attach and Imagine.
func attach(on dist.Members, cost *gorgonia.Node, learnables gorgonia.Nodes, cfg Config, imagined bool) (*DDP, error) {
	g, err := groupOf(on)
	if err != nil {
		return nil, fmt.Errorf("ddp attach: %w", err)
	}
	d := &DDP{team: newTeam(g, cfg.Replicas), cfg: cfg.withDefaults(), plan: Plan{Stage: cfg.Stage}, batch: batch{weight: 1}, imagined: imagined}
	if !imagined {
		d.team.number()
	}
	d.driver.d = d
	d.stage = newStage(d)
	d.local = localSGD{d: d, every: cfg.LocalSteps}
	d.wire = plain{d: d}
	b := builder{d: d, cost: cost}
	err = b.agree(learnables, b.tryBuild(learnables))
	if err == nil {
		err = b.allocate(learnables)
	}
	if err != nil {
		return nil, fmt.Errorf("ddp attach rank %d/%d: %w", g.Rank(), g.Size(), errors.Join(err, d.leave(), d.release()))
	}
	if len(d.plan.Unused) > 0 && g.Rank() == 0 {
		d.cfg.Log.Warn("ddp: the cost does not depend on these learnables; they are not trained",
			"names", strings.Join(d.plan.Unused, " "))
	}
	return d, nil
}

// builder does the part of Attach that needs no other rank.
type builder struct {
	d     *DDP
	cost  *gorgonia.Node
	used  gorgonia.Nodes
	hooks []*ops.Hook
	waits gorgonia.Nodes
	lines []string

	parts  gorgonia.Nodes // with Stage 3: nodes that users read instead of hooks, see zero3.go
	shards gorgonia.Nodes // inputs, one for each bucket
}

// build changes the graph and makes the plan.
func (b *builder) build(learnables gorgonia.Nodes) error {
	if err := b.d.cfg.Validate(); err != nil {
		return err
	}
	if b.cost == nil || b.cost.Graph() == nil {
		return fmt.Errorf("%w: no cost, or one without a graph", dist.ErrInvalid)
	}
	if err := checkLearnables(b.cost, learnables, !b.d.imagined); err != nil {
		return err
	}
	if err := b.checkApart(learnables); err != nil {
		return err
	}
	name := b.cost.Name()
	var model gorgonia.NodeSet
	var err error
	if model, b.cost, err = modelOf(b.cost); err != nil {
		return err
	}
	reached, err := ops.Differentiable(b.cost)
	if err != nil {
		return err
	}
	for _, w := range learnables {
		if reached.Contains(w) {
			b.used = append(b.used, w)
		} else {
			b.d.plan.Unused = append(b.d.plan.Unused, w.Name())
		}
	}
	if len(b.used) == 0 {
		return fmt.Errorf("cost %q: %w: it depends on none of the %d learnables",
			name, dist.ErrInvalid, len(learnables))
	}
	order, err := b.differentiate(model)
	if err != nil {
		return err
	}
	return b.makePlan(order)
}

// differentiate hooks the parameters and takes the gradient. It returns the gradients' order.
func (b *builder) differentiate(model gorgonia.NodeSet) ([]int, error) {
	var err error
	if b.hooks, err = hook(b.cost.Graph(), model, b.used); err != nil {
		return nil, err
	}
	if b.d.plan.gathers() {
		if err := b.insertParts(); err != nil {
			return nil, err
		}
	}
	overlap, err := ops.NewOverlap(b.cost, phases{b.d})
	if err != nil {
		return nil, err
	}
	for _, h := range b.hooks {
		if err := overlap.Add(h); err != nil {
			return nil, err
		}
	}
	if b.waits, err = overlap.Grad(); err != nil {
		return nil, err
	}
	return overlap.Order(), nil
}

func (b *builder) makePlan(order []int) error {
	p := &b.d.plan
	for _, w := range b.used {
		dt, err := tensor.FromGorgonia(w.Dtype())
		if err != nil {
			return fmt.Errorf("parameter %q: %w", w.Name(), err)
		}
		q := PlanParam{Name: w.Name(), DType: dt}
		if !w.IsScalar() {
			q.Shape = slices.Clone(w.Shape())
		}
		if v := w.Value(); v != nil && v.Shape().TotalSize() != q.Len() {
			return fmt.Errorf("parameter %q: %w: its value has shape %v, the node %v", w.Name(), dist.ErrCount, w.Value().Shape(), w.Shape())
		}
		p.Params = append(p.Params, q)
	}
	c := b.d.cfg
	p.lay(order, c, b.d.team.Size(), b.d.team.alignment())
	if b.d.plan.gathers() {
		if err := b.gatherParams(); err != nil {
			return err
		}
	}
	program, err := operations(b.cost.Graph(), ops.Below(b.waits...))
	if err != nil {
		return err
	}
	if err := c.fits(b.d.team.Group); err != nil {
		return err
	}
	b.lines = append(b.lines, c.lines()...)
	b.lines = append(b.lines, p.lines()...)
	b.lines = append(b.lines, program...)
	return nil
}

// allocate makes the buckets and gives all ranks rank 0's weights, also of unused learnables.
func (b *builder) allocate(learnables gorgonia.Nodes) error {
	d := b.d
	if c := &d.cfg; c.Factor == 0 {
		c.Factor = c.Average.defaultFactor(d.team.total())
	}
	var err error
	if d.imagined {
		d.mem, err = newImagined(&d.plan)
	} else {
		d.mem, err = newMemory(d.team.Group, &d.plan)
	}
	if err != nil {
		return err
	}
	d.plan.Memory = d.mem.where
	if err := place(d, b.used, b.waits); err != nil {
		return err
	}
	for i, h := range b.hooks {
		h.Bind(d.slots[i])
	}
	if d.imagined {
		_, err := d.driver.formOf()
		return err
	}
	if d.team.onGPU() {
		if err := d.driver.values.allocate(d, learnables); err != nil {
			return err
		}
	}
	if !d.plan.gathers() {
		if err := d.rehome(); err != nil {
			return err
		}
	}
	if err := d.mem.countUnused(b.used, learnables); err != nil {
		return err
	}
	if err := d.allocateWire(); err != nil {
		return err
	}
	if d.team.onGPU() {
		if err := d.driver.values.broadcast(d.team); err != nil || !d.plan.gathers() {
			return err
		}
		return d.shards.fillOnGPU(b.shards)
	}
	if err := broadcast(d.team, learnables); err != nil || !d.plan.gathers() {
		return err
	}
	return d.shards.fill(b.shards)
}

// broadcast copies rank 0's values of the nodes to all ranks, in the values' own memory.
//
// Collective: all ranks, the same nodes.
func broadcast(t *team, nodes gorgonia.Nodes) error {
	bufs := make([]tensor.Buffer, len(nodes))
	for i, n := range nodes {
		var err error
		if bufs[i], err = valueMemory(n.Value()); err != nil {
			return fmt.Errorf("parameter %q: %w", n.Name(), err)
		}
	}
	copies := make([]works, len(nodes))
	for i, n := range nodes {
		var err error
		if copies[i], err = t.plainView(n.Name()).spread(bufs[i]); err != nil {
			return waitAll(copies[:i+1], err)
		}
	}
	return waitAll(copies, nil)
}

// valueMemory returns the memory of a parameter's value, never a copy.
func valueMemory(v gorgonia.Value) (tensor.Buffer, error) {
	if d, ok := v.(*gtensor.Dense); ok && !d.Shape().IsScalar() {
		return tensor.BufferOf(d)
	}
	return ops.Elements(v)
}
