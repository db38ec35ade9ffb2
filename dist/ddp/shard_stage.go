package ddp

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
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

// stagings is Stage 2: buckets of gradients share buffers, and a rank keeps its part of each sum.
type stagings struct {
	stateStage
	all []*staging
}

func (x *stagings) place(p *placer, b *bucket) error {
	err := x.placeGradients(p, b)
	if err == nil {
		err = x.placeWeights(p, b)
	}
	return err
}

// placeGradients gives b the address that it has under a machine on a GPU, and memory for this
// rank's part of its sum.
func (x *stagings) placeGradients(p *placer, b *bucket) (err error) {
	if len(x.all) == 0 {
		for _, m := range x.d.mem.staging {
			x.all = append(x.all, &staging{buf: m})
		}
	}
	s := x.all[x.d.plan.stagingOf(b.index)]
	if b.buf, err = tensor.FromPointer(s.buf.Pointer(), b.elements, b.dtype, s.buf.Device()); err == nil {
		b.owned, err = p.shards.next(b.shard, b.dtype)
	}
	return err
}

func (x *stagings) memory(m *Memory) {
	for _, b := range x.d.buckets {
		m.Grads += b.owned.Bytes()
		m.Params += b.weights.Bytes()
	}
	for _, s := range x.all {
		m.Staging += s.buf.Bytes()
	}
}

// claim gives b memory to fill: a free buffer, or else that of the bucket whose reduction started
// first, after waiting for it. All ranks start that reduction without this rank's help. If all
// buffers are still filling, as two dtypes under one machine can cause, b gets memory of its own
// permanently.
//
// Errors: those of the reduction waited for.
func (x *stagings) claim(b *bucket) error {
	if b.staging != nil {
		return nil
	}
	s := x.freest(b.bytes())
	if s == nil {
		s = &staging{buf: tensor.Of(make([]float64, (b.bytes()+7)/8))}
		x.all = append(x.all, s)
	}
	if h := s.holder; h != nil {
		if err := x.d.await(h); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	return x.put(b, s)
}

// freest returns a buffer of at least bytes bytes that is free or will be free first; nil when all
// are filling.
func (x *stagings) freest(bytes int64) *staging {
	var oldest *staging
	for _, s := range x.all {
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
func (x *stagings) put(b *bucket, s *staging) error {
	var err error
	if b.buf, err = tensor.FromPointer(s.buf.Pointer(), b.elements, b.dtype, s.buf.Device()); err != nil {
		return err
	}
	s.holder, b.staging = b, s
	for _, t := range b.slots {
		q := &x.d.plan.Params[t.index]
		if t.buf, err = b.buf.Slice(q.Offset, q.Offset+t.n); err != nil {
			return err
		}
	}
	b.clearGaps(b.buf)
	return nil
}

// clearGaps zeroes the elements between and after the gradients in buf, the bucket or a copy of it.
func (b *bucket) clearGaps(buf tensor.Buffer) {
	raw, size, end := buf.Raw(), b.dtype.Size(), 0
	for _, t := range b.slots {
		q := &t.d.plan.Params[t.index]
		clear(raw[end*size : q.Offset*size])
		end = q.Offset + t.n
	}
	clear(raw[end*size:])
}

// reduced copies this rank's part of a bucket's sum to its lasting memory, and frees the buffer.
func (x *stagings) reduced(b *bucket) error {
	if b.staging == nil {
		return nil
	}
	d := x.d
	sum, err := x.part(b, b.buf)
	if err != nil {
		return err
	}
	b.staging.holder, b.staging = nil, nil
	if !d.run.joins {
		copy(b.owned.Raw(), sum.Raw())
		return nil
	}
	factor, err := x.joinFactor(b)
	if err != nil {
		return err
	}
	return reduce.Weighted(b.owned, []tensor.Buffer{b.owned, sum}, []float64{factor, 1})
}

// joinFactor returns the factor of the sums of earlier micro-batches: 1 while more micro-batches
// follow, and in the last run that run's factor without part.
func (x *stagings) joinFactor(b *bucket) (float64, error) {
	d := x.d
	if d.run.local || d.cfg.Average == PreMulSum {
		return 1, nil
	}
	return d.shares.of(b.dtype)
}

// begin frees the buffers that an unfinished run's buckets still hold.
func (x *stagings) begin() {
	for _, s := range x.all {
		if s.holder != nil {
			s.holder.staging, s.holder = nil, nil
		}
	}
}

// full starts the full buckets. Without overlap it also waits for them: other buckets need the
// buffer before the backward pass ends.
func (x *stagings) full() error {
	d := x.d
	if err := d.startFull(); err != nil {
		return err
	}
	if !d.cfg.NoOverlap {
		return nil
	}
	for _, b := range d.buckets {
		if b.staging == nil || !b.started {
			continue
		}
		if err := d.await(b); err != nil {
			return d.stepError(fmt.Errorf("%s: %w", b.name, err))
		}
	}
	return nil
}

// partFactor writes the factor of a micro-batch for the buckets' collectives. It is a dist.Runner.
type partFactor struct {
	mem    *memory
	factor float64
}

// Run writes it.
func (u *partFactor) Run(*dist.Op, uint64) error { return u.mem.setShare(u.factor) }
