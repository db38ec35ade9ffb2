package ddp

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
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
	d.rows.warn(d.team, &d.cfg)
	failed := d.run.running
	if failed {
		d.batch.drop()
	}
	d.settle()
	d.wire.begin(failed)
	d.stage.begin()
	d.run = d.nextRun()
	d.run.running, d.run.each = true, d.plan.staged()
	if err := d.wire.check(); err != nil {
		return d.stepError(err)
	}
	for _, b := range d.buckets {
		b.missing, b.started = len(b.slots), false
		for _, s := range b.slots {
			s.filled = false
		}
	}
	switch {
	case d.run.local && d.plan.staged():
		if err := d.shares.sendPart(); err != nil {
			return d.stepError(err)
		}
		return nil
	case d.run.local:
		if err := d.team.open(); err != nil {
			return d.stepError(err)
		}
		return nil
	}
	d.counts.step++
	d.clock.begin(d.team.now())
	if err := d.wire.weigh(); err != nil {
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
		if err := d.wire.keep(); err != nil {
			return d.stepError(err)
		}
		d.batch.add(d.run.weight)
		return nil
	}
	d.clock.join(d.team.now())
	if err := d.startFull(); err != nil {
		return err
	}
	d.run.running = false
	d.counts.runs++
	d.run.counted = true
	d.local.ran(d.shares.factor.weight)
	d.batch.drop()
	return nil
}

// counts are numbers of steps.
type counts struct {
	step int // begun that communicate
	runs int // those of them whose gradients were all reduced
}

// uncount removes a failed run from the count, so that no step uses its gradients.
func (c *counts) uncount(r *run) {
	if r.counted {
		c.runs--
		r.counted = false
	}
}

// batch is this rank's part of a batch, which several runs may make.
type batch struct {
	weight  float64 // of the next run
	noSync  bool
	pending float64 // sum of the weights of the accumulated micro-batches
	micro   int     // number of them
}

// add counts a run inside NoSync.
func (b *batch) add(weight float64) {
	b.pending += weight
	b.micro++
}

// drop forgets the accumulated micro-batches.
func (b *batch) drop() { b.pending, b.micro = 0, 0 }

// settle waits for operations in flight, so that buckets and scalars may be written. Their run has
// reported their errors.
func (d *DDP) settle() {
	d.shares.settle()
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
		work, err := d.wire.start(b)
		if err != nil {
			return d.stepError(err)
		}
		b.work, b.started = work, true
	}
	return nil
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
	s := &d.shares
	for _, w := range [...]dist.Work{s.exchange.in, s.exchange.across, s.factored, b.scattered, b.work} { // the cause first
		if err := w.Wait(); err != nil {
			return err
		}
	}
	if err := d.stage.reduced(b); err != nil {
		return err
	}
	if d.run.local {
		return nil
	}
	return s.check()
}

// stepError adds the step and the rank to err.
func (d *DDP) stepError(err error) error {
	return fmt.Errorf("ddp step %d rank %d/%d: %w", d.counts.step, d.team.Rank(), d.team.Size(), err)
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
	if d.batch.noSync {
		return fmt.Errorf("ddp nosync: %w: calls cannot be nested", dist.ErrInvalid)
	}
	d.batch.noSync = true
	whole := false
	defer func() {
		d.batch.noSync = false
		if !whole { // also after a panic, which a caller may recover from
			d.batch.drop()
		}
	}()
	err := fn()
	whole = err == nil
	return err
}

// SetWeight sets the weight of this rank's gradient in later steps: the number of samples in the
// mean of its cost. It is 1 at the start, so that equal parts need no call. A rank without samples
// sets 0 and still runs the graph, on any input, because the others reduce with it. Its gradients
// are ignored on the host, and on GPUs with Config.Idle. On GPUs without Idle they are multiplied
// by 0 and must be finite: run on zeros, or on the previous batch.
//
// Ranks whose parts differ in length must call it; RunPart does. If lengths of inputs differ
// without a call, rank 0 warns once. Machine.Let of package machine changes the number of rows of a
// graph; gorgonia.Let rejects that. For a tape machine use RunPart.
//
// Not collective. Errors: dist.ErrInvalid for a weight that is negative or not finite, which
// changes nothing.
func (d *DDP) SetWeight(weight float64) error {
	if !(weight >= 0) || math.IsInf(weight, 1) {
		return fmt.Errorf("ddp weight %v rank %d/%d: %w: want a number of samples, at least 0",
			weight, d.team.Rank(), d.team.Size(), dist.ErrInvalid)
	}
	d.batch.weight, d.rows.weight = weight, true
	return nil
}

// Weight returns this rank's weight.
func (d *DDP) Weight() float64 { return d.batch.weight }

// nextRun returns the state of a run that begins now.
func (d *DDP) nextRun() run {
	r := run{local: d.batch.noSync, apart: d.cfg.VirtualRanks > 0, weight: d.batch.weight}
	r.joins = d.batch.micro > 0 && !d.run.running && !r.apart
	return r
}

// Timeline returns the times of the last step that communicated. Do not call it while the graph
// runs.
func (d *DDP) Timeline() Timeline {
	c := &d.clock
	t := Timeline{Step: d.counts.step, BackwardStart: c.begun, BackwardEnd: c.joined, End: c.ended, Exposed: c.exposed, Period: c.period()}
	for i, b := range d.buckets {
		if b.started {
			t.Buckets = append(t.Buckets, BucketTimes{Bucket: i, Bytes: d.wireBytes(b), Ready: b.ready})
		}
	}
	for _, r := range d.team.records() {
		switch {
		case r.Queued < int64(c.begun):
		case strings.HasPrefix(r.Name, d.team.prefix+bucketPrefix):
			if c.ended > c.begun && r.Queued > int64(c.ended) {
				continue // of a run inside NoSync since
			}
			for i := range t.Buckets {
				if q := &t.Buckets[i]; r.Name == d.buckets[q.Bucket].name {
					if q.Started == 0 {
						q.Started = time.Duration(r.Started)
					}
					q.Ended = time.Duration(r.Ended) // of several, the last
					break
				}
			}
		case d.solver != nil && len(t.Gathers) < len(d.buckets) && r.Signature.Kind == dist.KindAllGather && strings.HasPrefix(r.Name, d.team.prefix+weightsPrefix):
			if i, err := strconv.Atoi(r.Name[len(d.team.prefix+weightsPrefix):]); err == nil && !d.plan.gathers() {
				t.Gathers = append(t.Gathers, BucketTimes{
					Bucket: i, Bytes: r.Bytes, Ready: time.Duration(r.Queued), Started: time.Duration(r.Started), Ended: time.Duration(r.Ended),
				})
			}
		}
	}
	return t
}

// ExposedComm returns the exposed communication of the last step, and its fraction of the time from
// the previous step's end to its own end.
func (d *DDP) ExposedComm() (time.Duration, float64) {
	period := d.clock.period()
	if period <= 0 {
		return d.clock.exposed, 0
	}
	return d.clock.exposed, float64(d.clock.exposed) / float64(period)
}
