package ddp

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// Calls between a machine and its DDP for runs that return before they are done, and machines that
// update the weights.

// late reports whether runs gather weights before they read them.
func (d *DDP) late() bool { return d.cfg.OverlapGather && d.sharded() && !d.gathers() }

// Stale reports whether this rank has old values of weights that other ranks update: with
// Config.OverlapGather, between a run and their gather by the next run or Consolidate.
func (d *DDP) Stale() bool { return d.stale }

// GatherWeights gives all ranks the weights that each has updated of its own, in the buckets. It is
// for a machine that has changed them outside of a run. Without sharding, and with Stage 3, where
// no rank has others' weights, it does nothing.
//
// Collective: all ranks, while no run is on its way. Errors: dist.ErrClosed; those of the group,
// naming rank and bucket.
func (d *DDP) GatherWeights() error {
	if !d.sharded() || d.gathers() {
		return nil
	}
	if err := d.ready(); err != nil {
		return fmt.Errorf("ddp: %w", err)
	}
	works := make([]dist.Work, len(d.buckets))
	err := d.queueGathers(works)
	if err == nil {
		err = waitAll(works, nil)
	}
	if err == nil {
		d.stale = false
	}
	return err
}

// Await makes Wait, Consolidate, Adopt and Close wait by f for queued runs, for a machine whose
// runs return before they are done. Returns: a function that ends this.
func (d *DDP) Await(f func() error) (stop func()) {
	d.machines = append(d.machines, &f)
	return func() { d.machines = slices.DeleteFunc(d.machines, func(g *func() error) bool { return g == &f }) }
}

// Wait returns when all runs of machines that Await knows are done, and weights and buckets are
// those of the last one. A machine calls it before a run that reads another's updates.
//
// Errors: those of the runs; dist.ErrClosed.
func (d *DDP) Wait() error {
	if err := d.ready(); err != nil {
		return fmt.Errorf("ddp: %w", err)
	}
	return d.queued()
}

// Take records that a machine is about to run the graph, and reports whether it is not the previous
// one: Layout.Weights may then hold any values.
func (d *DDP) Take(machine any) (another bool) {
	another = d.taker != machine
	d.taker = machine
	return another
}

// queued returns when no run is on its way.
func (d *DDP) queued() error {
	for _, f := range d.machines {
		if err := (*f)(); err != nil {
			return err
		}
	}
	return nil
}
