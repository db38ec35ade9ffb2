package ddp

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// Owner returns the DDP of a reducer, and the index of its parameter in the Plan.
func Owner(r ops.Reducer) (d *DDP, param int, ok bool) {
	s, ok := r.(*slot)
	if !ok {
		return nil, 0, false
	}
	for i := range s.d.slots {
		if s.d.slots[i] == s {
			return s.d, i, true
		}
	}
	return nil, 0, false
}

// driver is the drive.Exchange of a DDP, and the state that machines leave between runs.
type driver struct {
	d        *DDP
	values   deviceValues
	machines []*func() error // see Await
	taker    any             // the machine that ran last; see Take
	stale    bool            // see Stale
	kept     bool            // see Keep
	form     *form           // on the host: see formOf
}

var _ drive.Exchange = (*driver)(nil)

// Layout implements drive.Exchange.
func (x *driver) Layout() drive.Layout {
	d := x.d
	l := drive.Layout{
		Rank: d.team.place(), Prefix: d.team.prefix, Group: d.team.Group, Replicas: d.cfg.Replicas, Weights: d.mem.factors, Factors: d.mem.scales,
		Overlap: !d.cfg.NoOverlap, Idle: d.cfg.Idle, Late: x.late(),
	}
	x.exchange(&l)
	for _, r := range d.mem.parts {
		l.Symmetric = append(l.Symmetric, r.Local())
	}
	for _, b := range d.buckets {
		l.Buckets = append(l.Buckets, b.buf)
		if !b.weights.IsZero() {
			l.Homes = append(l.Homes, b.weights)
		}
		if d.plan.staged() {
			l.Shards = append(l.Shards, b.owned)
		}
		if d.plan.gathers() {
			l.Own = append(l.Own, b.mine)
		}
	}
	for i := range x.values.all {
		v := &x.values.all[i]
		l.Values = append(l.Values, drive.Learnable{Node: v.node, Memory: v.buf})
		if !v.homed {
			l.Symmetric = append(l.Symmetric, v.region.Local())
		}
	}
	return l
}

// exchange sets the actions of the buckets in l, and the memory of the form.
func (x *driver) exchange(l *drive.Layout) {
	d := x.d
	ranks := float64(d.team.total())
	l.Share = d.cfg.share(ranks)
	l.Hosted = d.cfg.hook() != nil && d.cfg.cast() == nil
	l.Overlap = l.Overlap && !l.Hosted
	messages := 0
	if h := d.cfg.cast(); h != nil {
		l.WireDType, messages = h.DType, 1
	}
	for range d.buckets {
		l.Actions = append(l.Actions, d.cfg.actions(messages, d.cfg.Average.rest(ranks, d.cfg.Factor)))
	}
	f, err := x.formOf()
	if err != nil {
		return // Attach has returned it
	}
	l.Wires, l.Feedback, l.Virtual = f.wires, f.feedback, f.virtual
	if !f.raw.IsZero() {
		l.Symmetric = append(l.Symmetric, f.raw)
	}
}

// formOf returns the form of the exchange. A group on GPUs has it from Attach on. Another gets it
// for a program that is only planned, or tested in memory of the host.
func (x *driver) formOf() (*form, error) {
	d := x.d
	if w, ok := d.wire.(*bySteps); ok {
		return w.form, nil
	}
	if x.form != nil {
		return x.form, nil
	}
	alloc := func(n int64) (tensor.Buffer, error) { return tensor.Of(make([]uint64, n/8)), nil }
	if d.imagined {
		alloc = d.mem.imagined.alloc
	}
	var err error
	x.form, err = newForm(&d.plan, &d.cfg, d.team.Size(), alloc)
	return x.form, err
}

// Group implements drive.Exchange.
func (x *driver) Group() *dist.Group { return x.d.team.Group }

// Next implements drive.Exchange.
func (x *driver) Next() (drive.Run, error) {
	d := x.d
	if err := d.ready(); err != nil {
		return drive.Run{}, fmt.Errorf("ddp: %w", err)
	}
	if x.lowers() {
		if err := d.wire.check(); err != nil {
			return drive.Run{}, d.stepError(err)
		}
	}
	d.rows.warn(d.team, &d.cfg)
	r := drive.Run{Local: d.batch.noSync, Joins: d.batch.micro > 0}
	if d.cfg.VirtualRanks > 0 {
		r.Joins, r.Virtual, r.Part = false, true, d.batch.micro
	}
	r.Weights = [5]float64{d.batch.pending + d.batch.weight, 0, d.batch.weight, d.batch.weight, 1}
	if r.Joins {
		r.Weights[2] = 1 // the slots hold weighted sums
	}
	if w, ok := d.wire.(*bySteps); ok && w.again {
		r.Weights[4] = 0
	}
	return r, nil
}

// Ran implements drive.Exchange.
func (x *driver) Ran(err error) {
	d := x.d
	switch {
	case err != nil:
		d.batch.drop()
		x.restart(true)
		x.stale = x.stale || !d.batch.noSync && x.late() // it may have updated weights
	case d.batch.noSync:
		d.batch.add(d.batch.weight)
		x.stale = false
	default:
		d.counts.step++
		d.local.ran(d.batch.pending + d.batch.weight)
		d.batch.drop()
		x.restart(false)
		x.stale = x.late()
	}
}

// restart says whether the residuals of error feedback restart in the next run.
func (x *driver) restart(again bool) {
	switch w := x.d.wire.(type) {
	case *bySteps:
		w.again = again
	case *hooked:
		w.begin(again)
	}
}

// lowers reports whether the exchange is by steps.
func (x *driver) lowers() bool {
	_, ok := x.d.wire.(*bySteps)
	return ok
}

// CheckSum implements drive.Exchange.
func (x *driver) CheckSum(sum float64) error {
	if err := checkSum(sum); err != nil {
		return x.d.stepError(err)
	}
	return nil
}

// late reports whether runs gather weights before they read them.
func (x *driver) late() bool {
	d := x.d
	return d.cfg.OverlapGather && d.plan.sharded() && !d.plan.gathers()
}

// Stale implements drive.Exchange.
func (x *driver) Stale() bool { return x.stale }

// GatherWeights implements drive.Exchange.
func (x *driver) GatherWeights() error {
	d := x.d
	if !d.plan.sharded() || d.plan.gathers() {
		return nil
	}
	if err := d.ready(); err != nil {
		return fmt.Errorf("ddp: %w", err)
	}
	works := make([]dist.Work, len(d.buckets))
	err := queueGathers(d.buckets, works)
	if err == nil {
		err = waitAll(works, nil)
	}
	if err == nil {
		x.stale = false
	}
	return err
}

// Await implements drive.Exchange.
func (x *driver) Await(f func() error) (stop func()) {
	x.machines = append(x.machines, &f)
	return func() { x.machines = slices.DeleteFunc(x.machines, func(g *func() error) bool { return g == &f }) }
}

// Wait implements drive.Exchange.
func (x *driver) Wait() error {
	if err := x.d.ready(); err != nil {
		return fmt.Errorf("ddp: %w", err)
	}
	return x.queued()
}

// Take implements drive.Exchange.
func (x *driver) Take(machine any) (another bool) {
	another = x.taker != machine
	x.taker = machine
	return another
}

// queued returns when no run is in flight.
func (x *driver) queued() error {
	for _, f := range x.machines {
		if err := (*f)(); err != nil {
			return err
		}
	}
	return nil
}

// Adopt implements drive.Exchange.
func (x *driver) Adopt() error {
	d := x.d
	if err := d.ready(); err != nil {
		return fmt.Errorf("ddp: %w", err)
	}
	if !d.plan.gathers() || !slices.ContainsFunc(d.slots, (*slot).given) {
		return nil
	}
	if err := x.queued(); err != nil {
		return err
	}
	return d.shards.adopt()
}
