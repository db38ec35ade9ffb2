package ddp

import (
	"fmt"
	"strconv"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// mostStagings is the most buffers that buckets of Stage 2 share: one fills while the previous one
// is reduced.
const mostStagings = 2

// staging is memory of a bucket from its first gradient until this rank's part of the sum has been
// copied out.
type staging struct {
	buf    tensor.Buffer // f64 of the largest bucket's size
	holder *bucket       // nil while free
}

// claim gives b memory to fill: a free buffer, or else that of the bucket whose reduction started
// first, after waiting for it. All ranks start that reduction without this rank's help. If all
// buffers are still filling, as two dtypes under one machine can cause, b gets memory of its own
// permanently.
//
// Errors: those of the reduction waited for.
func (d *DDP) claim(b *bucket) error {
	s := d.freest(b.bytes())
	if s == nil {
		s = &staging{buf: tensor.Of(make([]float64, (b.bytes()+7)/8))}
		d.stagings = append(d.stagings, s)
	}
	if h := s.holder; h != nil {
		if err := d.await(h); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	return d.put(b, s)
}

// freest returns a buffer of at least bytes bytes that is free or will be free first; nil when all
// are filling.
func (d *DDP) freest(bytes int64) *staging {
	var oldest *staging
	for _, s := range d.stagings {
		switch {
		case s.buf.Bytes() < bytes: // it was made for another bucket
		case s.holder == nil:
			return s
		case s.holder.started && (oldest == nil || s.holder.index < oldest.holder.index):
			oldest = s
		}
	}
	return oldest
}

// put makes s the memory of b, and clears the gaps between gradients.
func (d *DDP) put(b *bucket, s *staging) error {
	var err error
	if b.buf, err = tensor.FromPointer(s.buf.Pointer(), b.elements, b.dtype, s.buf.Device()); err != nil {
		return err
	}
	s.holder, b.stage = b, s
	for _, t := range b.slots {
		q := &d.plan.Params[t.index]
		if t.buf, err = b.buf.Slice(q.Offset, q.Offset+t.n); err != nil {
			return err
		}
	}
	d.clearGaps(b)
	return nil
}

// clearGaps zeroes the elements between and after the gradients of a bucket.
func (d *DDP) clearGaps(b *bucket) {
	raw, size, end := b.buf.Raw(), b.dtype.Size(), 0
	for _, t := range b.slots {
		q := &d.plan.Params[t.index]
		clear(raw[end*size : q.Offset*size])
		end = q.Offset + t.n
	}
	clear(raw[end*size:])
}

// takeOut copies this rank's part of a staged bucket's sum to its lasting memory, and frees the
// buffer.
func (d *DDP) takeOut(b *bucket) error {
	sum, err := d.own(b, b.buf)
	if err != nil {
		return err
	}
	b.stage.holder, b.stage = nil, nil
	if !d.run.joins {
		copy(b.owned.Raw(), sum.Raw())
		return nil
	}
	factor, err := d.joinFactor(b)
	if err != nil {
		return err
	}
	return reduce.Weighted(b.owned, []tensor.Buffer{b.owned, sum}, []float64{factor, 1})
}

// joinFactor returns the factor of the sums of earlier micro-batches: 1 while more micro-batches
// follow, and in the last run that run's factor without part.
func (d *DDP) joinFactor(b *bucket) (float64, error) {
	if d.run.local || d.cfg.Average == PreMulSum {
		return 1, nil
	}
	return d.share(b.dtype)
}

// dropStaged frees the buffers that an unfinished run's buckets still hold. No operation is in
// flight.
func (d *DDP) dropStaged() {
	for _, s := range d.stagings {
		if s.holder != nil {
			s.holder.stage, s.holder = nil, nil
		}
	}
}

// startStaged starts the full buckets. Without overlap it also waits for them: other buckets need
// the buffer before the backward pass ends.
func (d *DDP) startStaged() error {
	if err := d.startFull(); err != nil {
		return err
	}
	if !d.cfg.NoOverlap {
		return nil
	}
	for _, b := range d.buckets {
		if b.stage == nil || !b.started {
			continue
		}
		if err := d.await(b); err != nil {
			return d.stepError(fmt.Errorf("%s: %w", b.name, err))
		}
	}
	return nil
}

// sendPart is sendWeight for a run inside NoSync. It queues the factor of a micro-batch that others
// follow, which does not depend on all their weights.
func (d *DDP) sendPart() (err error) {
	u := &d.part
	u.mem, u.factor = d.mem, d.cfg.Average.part(d.cfg.Factor)
	d.exchange = works{}
	if d.team.queue != nil {
		d.factored, err = d.team.queue.Submit(u, dist.Op{Name: "ddp factor"}, 0)
		return err
	}
	return u.Run(nil, 0)
}

// part returns the factor of a rank's gradients that is the same for all micro-batches.
func (a Average) part(factor float64) float64 {
	if a == PreMulSum {
		return factor
	}
	return 1
}

// partFactor writes the factor of a micro-batch for the buckets' collectives. It is a dist.Runner.
type partFactor struct {
	mem    *memory
	factor float64
}

// Run writes it.
func (u *partFactor) Run(*dist.Op, uint64) error { return u.mem.setShare(u.factor) }

// placeShard cuts this rank's shard of b, and of its weights, from the memory.
func (d *DDP) placeShard(b *bucket, values, shards *cursor) error {
	b.gather = d.team.named(weightsPrefix + strconv.Itoa(b.index))
	var err error
	if d.cfg.Stage == stageParams {
		b.mine, err = values.next(b.shard, b.dtype)
	} else if b.weights, err = values.next(b.elements, b.dtype); err == nil {
		b.mine, err = d.own(b, b.weights)
	}
	if err != nil {
		return err
	}
	if d.staged() {
		b.owned, err = shards.next(b.shard, b.dtype)
	} else {
		b.owned, err = d.own(b, b.buf)
	}
	return err
}
