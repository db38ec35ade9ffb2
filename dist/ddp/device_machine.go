package ddp

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// Calls of machines that update weights and whose runs return before they are done.

// late reports whether runs gather weights before they read them.
func (d *DDP) late() bool { return d.cfg.OverlapGather && d.sharded() && !d.gathers() }

// Stale reports whether this rank lacks other ranks' last update of the weights. With
// Config.OverlapGather it does between a run and the next gathering, by the next run or by
// Consolidate.
func (d *DDP) Stale() bool { return d.stale }

// GatherWeights gathers the weights that each rank has updated, in the buckets. A machine calls it
// after it has changed weights outside a run. Without sharding, and with Stage 3, where ranks keep
// no other rank's weights, it does nothing.
//
// Collective: all ranks, while no run is in flight. Errors: dist.ErrClosed; those of the group,
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

// Await makes Wait, Consolidate, Adopt and Close call f, which waits for queued runs of a machine.
// Machines whose runs return before they are done need it. Returns: the function that unregisters
// f.
func (d *DDP) Await(f func() error) (stop func()) {
	d.machines = append(d.machines, &f)
	return func() { d.machines = slices.DeleteFunc(d.machines, func(g *func() error) bool { return g == &f }) }
}

// Wait returns when no run of a registered machine is in flight, and weights and buckets have the
// last run's values. A machine calls it before a run that reads another machine's updates.
//
// Errors: those of the runs; dist.ErrClosed.
func (d *DDP) Wait() error {
	if err := d.ready(); err != nil {
		return fmt.Errorf("ddp: %w", err)
	}
	return d.queued()
}

// Take records the machine that is about to run the graph, and reports whether it is not the
// previous one. Layout.Weights may then hold anything.
func (d *DDP) Take(machine any) (another bool) {
	another = d.taker != machine
	d.taker = machine
	return another
}

// queued returns when no run is in flight.
func (d *DDP) queued() error {
	for _, f := range d.machines {
		if err := (*f)(); err != nil {
			return err
		}
	}
	return nil
}
