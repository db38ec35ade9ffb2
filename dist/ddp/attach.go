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

// DDP is one rank's end of the data-parallel training of one model. The goroutine that runs the
// graph calls its methods, between runs.
type DDP struct {
	team  *team
	weigh view // names the operation
	cfg   Config
	plan  Plan

	imagined bool // see Imagine

	mem     *memory
	buckets []*bucket // in the order of plan.Buckets
	slots   []*slot   // in the order of plan.Params

	weight   float64
	rows     rowWatch
	noSync   bool
	pending  float64 // sum of the weights of the accumulated micro-batches
	micro    int     // number of them
	step     int     // steps begun that communicate
	runs     int     // those of them whose gradients were all reduced
	run      run
	factor   factor
	exchange works     // sum of the weights
	factored dist.Work // this rank's factor, computed from it
	clock    clock
	closed   bool
	wire     exchanger // exchanges full buckets; nil: one reduction of each
	virtual  *virtual  // set with Config.VirtualRanks; it is wire as well
	local    localSGD

	driver driver // for machines

	zeros       [2]tensor.Buffer // by position in bucketTypes; see zeroView
	stagings    []*staging       // with Stage 2
	inputs      gorgonia.Nodes   // with Stage 3: the graph's inputs over this rank's shards of weights
	part        partFactor
	solver      *shardSolver // the one of NewSolver, with sharding
	unusedBytes int64        // of learnables that are not trained
}

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
	d := &DDP{team: newTeam(g, cfg.Replicas), cfg: cfg.withDefaults(), weight: 1, imagined: imagined}
	if !imagined {
		d.team.number()
	}
	d.driver.d = d
	d.weigh = d.team.view(weightName)
	b := builder{d: d, cost: cost}
	err = d.agreeOn(&b, learnables, b.tryBuild(learnables))
	if err == nil {
		err = d.allocate(&b, learnables)
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
	if err := b.d.checkApart(learnables); err != nil {
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
	if b.d.gathers() {
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
	if b.d.gathers() {
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
func (d *DDP) allocate(b *builder, learnables gorgonia.Nodes) error {
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
	if err := d.place(b.used, b.waits); err != nil {
		return err
	}
	for i, h := range b.hooks {
		h.Bind(d.slots[i])
	}
	if d.imagined {
		return d.imagineWires()
	}
	if d.team.onGPU() {
		if err := d.driver.values.allocate(d, learnables); err != nil {
			return err
		}
	}
	if !d.gathers() {
		if err := d.rehome(); err != nil {
			return err
		}
	}
	if err := d.countUnused(b.used, learnables); err != nil {
		return err
	}
	if err := d.allocateWire(); err != nil {
		return err
	}
	if d.team.onGPU() {
		if err := d.driver.values.broadcast(d.team); err != nil || !d.gathers() {
			return err
		}
		return d.fillShardsOfGPU(b.shards)
	}
	if err := broadcast(d.team, learnables); err != nil || !d.gathers() {
		return err
	}
	return d.fillShards(b.shards)
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

// Model returns the trained parameters for solver.Step, in the order of Attach's learnables. With
// sharding only the solver of NewSolver can use their gradients: see the package comment.
func (d *DDP) Model() []gorgonia.ValueGrad {
	model := make([]gorgonia.ValueGrad, len(d.slots))
	for i, s := range d.slots {
		model[i] = s.param
	}
	return model
}

// Grads returns the gradient nodes of Model. Pass all of them to gorgonia.CompileFunction.
func (d *DDP) Grads() gorgonia.Nodes {
	grads := make(gorgonia.Nodes, len(d.slots))
	for i, s := range d.slots {
		grads[i] = s.wait
	}
	return grads
}

// Unused returns the names of the learnables that the cost does not depend on.
func (d *DDP) Unused() []string { return slices.Clone(d.plan.Unused) }

// Plan returns the layout of the buckets.
func (d *DDP) Plan() Plan { return d.plan }

// String returns the plan as a table.
func (d *DDP) String() string { return d.plan.String() }

// Close waits for operations in flight and frees the buckets. Gradients and sharded weights of the
// graph's nodes become copies, which can still be read; values taken from the nodes before cannot.
// The graph cannot run afterwards. If the world was closed first, its buckets are freed: gradients
// become zeros, and weights in buckets become NaN. With Stage 3 weights are lost unless Consolidate
// has given them to the nodes. Idempotent. Not collective.
//
// Errors: dist.ErrClosed for lost weights.
func (d *DDP) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	if d.imagined {
		return d.release()
	}
	d.settle()
	_ = d.driver.queued() // its machine reports errors of the runs
	gone := d.team.closed()
	var errs []error
	for _, s := range d.slots {
		if s.wait.Value() != nil {
			errs = append(errs, s.detach(gone))
		}
	}
	errs = append(errs, d.moveOut(gone))
	return errors.Join(append(errs, d.release())...)
}

// detach gives the gradient's node a value in its own memory.
func (s *slot) detach(gone bool) error {
	v := s.wait.Value()
	if s.view == nil {
		return nil // a scalar owns its value, and zeros of Stage 2 are never freed
	}
	if gone {
		zeros, err := s.zeroView()
		if err != nil {
			return err
		}
		v = zeros
	}
	own, err := gorgonia.CloneValue(v)
	if err != nil {
		return err
	}
	return gorgonia.UnsafeLet(s.wait, own)
}

// leave moves weights out of the buckets after an error.
func (d *DDP) leave() error {
	if d.imagined {
		return nil
	}
	return d.moveOut(d.team.closed())
}

func (d *DDP) release() error {
	errs := []error{d.driver.values.close(), d.closeWire()}
	if d.mem != nil {
		errs = append(errs, d.mem.close())
	}
	return errors.Join(errs...)
}
