package ddp

import (
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// run is the state of one run of the graph, from Begin on. The goroutine that runs the graph owns
// it; between runs, the caller of RunAll.
type run struct {
	running bool    // between Begin and Join
	local   bool    // inside NoSync
	joins   bool    // micro-batches have been accumulated before this run
	each    bool    // every run is reduced by itself, also inside NoSync: Stage 2
	apart   bool    // a virtual rank, whose gradients are kept apart from those of other runs
	weight  float64 // of this run
	next    int     // index of the first bucket that has not been started
	counted bool    // in DDP.runs
}

// how returns the manner in which the run's gradients go into the slots.
func (r *run) how() manner {
	switch {
	case r.each && r.weight != 0 && (r.joins || r.local):
		return scale
	case r.weight == 0 && r.joins && !r.each:
		return keep
	case r.weight == 0:
		return zero
	case r.apart:
		return overwrite
	case r.joins:
		return add
	case r.local:
		return scale
	}
	return overwrite
}

// phases is the ops.Step of a DDP, a type of its own so that DDP does not export the methods.
type phases struct{ d *DDP }

// Begin starts a step: it makes the buckets writable and sends this rank's weight.
func (p phases) Begin() error {
	d := p.d
	if err := d.ready(); err != nil {
		return fmt.Errorf("ddp: %w", err)
	}
	if d.team.onGPU() {
		return d.team.needsMachine()
	}
	d.warnOfRows()
	failed := d.run.running
	if failed {
		d.drop()
	}
	d.settle()
	d.beginWire(failed)
	d.dropStaged()
	d.run = d.nextRun()
	d.run.running, d.run.each = true, d.staged()
	if err := d.checkVirtual(); err != nil {
		return d.stepError(err)
	}
	for _, b := range d.buckets {
		b.missing, b.started = len(b.slots), false
		for _, s := range b.slots {
			s.filled = false
		}
	}
	switch {
	case d.run.local && d.staged():
		if err := d.sendPart(); err != nil {
			return d.stepError(err)
		}
		return nil
	case d.run.local:
		if err := d.team.open(); err != nil {
			return d.stepError(err)
		}
		return nil
	}
	d.step++
	d.clock.begin(d.team.now())
	if err := d.sendWeight(); err != nil {
		return d.stepError(err)
	}
	return nil
}

// Join runs after the last gradient.
func (p phases) Join() error {
	d := p.d
	if err := d.checkFull(); err != nil {
		return d.stepError(err)
	}
	if d.run.local {
		d.run.running = false
		if err := d.keepVirtual(); err != nil {
			return d.stepError(err)
		}
		d.pending += d.run.weight
		d.micro++
		return nil
	}
	d.clock.join(d.team.now())
	if err := d.startFull(); err != nil {
		return err
	}
	d.run.running = false
	d.runs++
	d.run.counted = true
	if d.cfg.LocalSteps > 0 {
		d.local.weight += d.factor.weight
	}
	d.drop()
	return nil
}

// uncount removes a failed run from the count, so that no step uses its gradients.
func (d *DDP) uncount() {
	if d.run.counted {
		d.runs--
		d.run.counted = false
	}
}

// drop forgets the accumulated micro-batches.
func (d *DDP) drop() { d.pending, d.micro = 0, 0 }

// settle waits for operations in flight, so that buckets and scalars may be written. Their run has
// reported their errors.
func (d *DDP) settle() {
	_ = d.exchange.Wait()
	_ = d.factored.Wait()
	for _, b := range d.buckets {
		_ = b.scattered.Wait()
		_ = b.work.Wait()
	}
}

// checkFull returns an error that names the parameters without a gradient.
func (d *DDP) checkFull() error {
	var names []string
	for _, s := range d.slots {
		if !s.filled {
			names = append(names, s.param.Name())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("no gradient of %s: %w: the program leaves them out; compile it with all of Grads as outputs",
		strings.Join(names, " "), dist.ErrInvalid)
}

// startFull starts full buckets up to the first that is not full, so that all ranks start them in
// one order.
func (d *DDP) startFull() error {
	for ; d.run.next < len(d.buckets); d.run.next++ {
		b := d.buckets[d.run.next]
		if b.missing > 0 {
			return nil
		}
		b.ready = d.team.now()
		work, err := d.exchangeBucket(b)
		if err != nil {
			return d.stepError(err)
		}
		b.work, b.started = work, true
	}
	return nil
}

// exchangeBucket queues the combination of a full bucket over the ranks. Like a collective it does
// not wait for peers.
func (d *DDP) exchangeBucket(b *bucket) (dist.Work, error) {
	if d.wire != nil {
		return d.wire.start(b)
	}
	return d.reduceBucket(b, b.buf, b.red)
}

// reduceBucket queues the collective of a bucket, in place in buf, which has the bucket's length
// and any dtype. With sharding only this rank's part holds the sum, see own; the rest is unchanged.
func (d *DDP) reduceBucket(b *bucket, buf tensor.Buffer, red dist.RedOp) (dist.Work, error) {
	if !d.sharded() {
		return b.view.in.AllReduce(buf, buf, red)
	}
	own, err := d.own(b, buf)
	if err != nil {
		return dist.Work{}, err
	}
	b.scattered, err = b.view.in.ReduceScatter(own, buf, red)
	if err != nil || b.view.across == nil {
		return b.scattered, err
	}
	return b.view.across.AllReduce(own, own, dist.Sum) // in stream order
}

// await waits until b has been reduced, and checks the weights.
func (d *DDP) await(b *bucket) error {
	if !b.started {
		return fmt.Errorf("%w: the bucket was not started", dist.ErrInvalid)
	}
	if !b.work.Done() && !d.run.local {
		from := d.team.now()
		_ = b.work.Wait()
		d.clock.block(d.team.now() - from)
	}
	if !d.run.local {
		d.clock.end(d.team.now())
	}
	for _, w := range [...]dist.Work{d.exchange.in, d.exchange.across, d.factored, b.scattered, b.work} { // the cause first
		if err := w.Wait(); err != nil {
			return err
		}
	}
	if b.stage != nil {
		if err := d.takeOut(b); err != nil {
			return err
		}
	}
	if d.run.local {
		return nil
	}
	return d.checkWeight()
}

// stepError adds the step and the rank to err.
func (d *DDP) stepError(err error) error {
	return fmt.Errorf("ddp step %d rank %d/%d: %w", d.step, d.team.Rank(), d.team.Size(), err)
}

// NoSync runs fn. Runs of the graph inside fn add their gradients, times the weight, to this rank's
// buckets and communicate nothing. The next run outside adds its own gradients and reduces the sum.
// Inside, gradients are zero.
//
// All ranks must make the same number of runs outside NoSync; inside, numbers may differ.
// Exceptions:
//   - Stage >= 2: no rank has whole gradients to add to, so each run inside is reduced and a rank
//     adds up its own pieces. All ranks must make the same number of runs inside. The last bits
//     differ, since sums have another order.
//   - GPUs: a step has runs inside NoSync on all ranks or on none, since the run that ends an
//     accumulation is another program. Gradients inside are not zero: nodes keep those of the run
//     before.
//   - OverlapGather: the first run inside gathers weights. Either all ranks drop their accumulated
//     gradients, or none.
//
// Errors: fn's; then, and after a panic, all accumulated gradients are dropped. dist.ErrInvalid for
// a call inside fn, and for a nil fn.
func (d *DDP) NoSync(fn func() error) error {
	if fn == nil {
		return fmt.Errorf("ddp nosync: %w: no function", dist.ErrInvalid)
	}
	if d.noSync {
		return fmt.Errorf("ddp nosync: %w: calls cannot be nested", dist.ErrInvalid)
	}
	d.noSync = true
	whole := false
	defer func() {
		d.noSync = false
		if !whole { // also after a panic, which a caller may recover from
			d.drop()
		}
	}()
	err := fn()
	whole = err == nil
	return err
}
