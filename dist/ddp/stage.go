package ddp

import (
	"strconv"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// stage is the strategy of Config.Stage: the memory of a bucket, the time at which it starts, this
// rank's part of the sum, and the step that follows the sum. Each stage embeds the one before it.
type stage interface {
	// place gives a bucket its memory.
	place(x *placer, b *bucket) error
	// begin prepares a run. No operation is in flight.
	begin()
	// claim gives a bucket memory for its first gradient, if it has none.
	claim(b *bucket) error
	// full starts the full buckets whose turn has come.
	full() error
	// reduce queues the collective of a bucket, in place in buf, which has the bucket's length and
	// any dtype. Only this rank's part holds the sum then; the rest is unchanged.
	reduce(b *bucket, buf tensor.Buffer, red dist.RedOp) (dist.Work, error)
	// part returns this rank's part of buf, which has as many elements as b.
	part(b *bucket, buf tensor.Buffer) (tensor.Buffer, error)
	// reduced follows the sum of a bucket.
	reduced(b *bucket) error
	// memory adds the bytes of all buckets.
	memory(m *Memory)
}

// newStage returns the stage of d's plan.
func newStage(d *DDP) stage {
	zero := wholeStage{d}
	one := stateStage{zero}
	switch {
	case d.plan.gathers():
		d.shards = &shards{stagings: stagings{stateStage: one}}
		return d.shards
	case d.plan.staged():
		return &stagings{stateStage: one}
	case d.plan.sharded():
		return one
	}
	return zero
}

// wholeStage is Stage 0: every rank has all of every bucket and updates all weights.
type wholeStage struct{ d *DDP }

func (wholeStage) begin()                {}
func (wholeStage) claim(*bucket) error   { return nil }
func (wholeStage) reduced(*bucket) error { return nil }

func (x wholeStage) place(p *placer, b *bucket) (err error) {
	b.buf, err = p.grads.next(b.elements, b.dtype)
	return err
}

func (x wholeStage) full() error {
	if x.d.cfg.NoOverlap || x.d.run.local {
		return nil
	}
	return x.d.startFull()
}

func (wholeStage) reduce(b *bucket, buf tensor.Buffer, red dist.RedOp) (dist.Work, error) {
	return b.view.in.AllReduce(buf, buf, red)
}

func (wholeStage) part(_ *bucket, buf tensor.Buffer) (tensor.Buffer, error) { return buf, nil }

func (x wholeStage) memory(m *Memory) {
	for _, b := range x.d.buckets {
		m.Grads += b.bytes()
		for _, s := range b.slots { // weights are the nodes' own, without padding
			m.Params += int64(s.n) * int64(b.dtype.Size())
		}
	}
}

// stateStage is Stage 1: a rank owns its part of each bucket, and updates it in a bucket of
// weights, which is gathered.
type stateStage struct{ wholeStage }

func (x stateStage) place(p *placer, b *bucket) error {
	err := x.wholeStage.place(p, b)
	if err == nil {
		err = x.placeWeights(p, b)
	}
	if err == nil {
		b.owned, err = x.part(b, b.buf)
	}
	return err
}

// placeWeights cuts the bucket of weights from the memory.
func (x stateStage) placeWeights(p *placer, b *bucket) (err error) {
	b.gather = x.d.team.named(weightsPrefix + strconv.Itoa(b.index))
	if b.weights, err = p.values.next(b.elements, b.dtype); err == nil {
		b.mine, err = x.part(b, b.weights)
	}
	return err
}

func (x stateStage) reduce(b *bucket, buf tensor.Buffer, red dist.RedOp) (dist.Work, error) {
	own, err := x.part(b, buf)
	if err != nil {
		return dist.Work{}, err
	}
	b.scattered, err = b.view.in.ReduceScatter(own, buf, red)
	if err != nil || b.view.across == nil {
		return b.scattered, err
	}
	return b.view.across.AllReduce(own, own, dist.Sum) // in stream order
}

func (x stateStage) part(b *bucket, buf tensor.Buffer) (tensor.Buffer, error) {
	lo := x.d.team.Rank() * b.shard
	return buf.Slice(lo, lo+b.shard)
}

func (x stateStage) memory(m *Memory) {
	for _, b := range x.d.buckets {
		m.Grads += b.bytes()
		m.Params += b.weights.Bytes()
	}
}
