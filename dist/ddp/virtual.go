package ddp

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// virtual sums the gradients of V virtual ranks in their order. Each of the n real ranks runs V/n
// of them:
//
//	runs inside NoSync    bucket copied to its place in send, in n slices, one for each rank
//	the run outside       its bucket likewise, then for each bucket
//	  alltoall            slices to their ranks: V of them for each
//	  sum                 share_0*slice_0 + ... + share_V-1*slice_V-1
//	  allgather           the sums, then copied into the bucket; not with Stage 1, where a rank
//	                      needs only its own
//
// Products are rounded before they are added, as premulsum does: for any n the bits are those of V
// real ranks. It is an exchanger.
type virtual struct {
	plain
	runs    int // of each real rank in a step: V/n
	mem     *messageMemory
	weights tensor.Buffer // f64: of all virtual ranks
	own     []float64     // of this rank, this step; nothing is in flight when it is written
	shares  []float64     // of all virtual ranks
	parcels []*parcel     // in the order of the buckets
}

// parcel is the worker of one bucket.
type parcel struct {
	v     *virtual
	b     *bucket
	slice int             // elements that each rank sums; the last rank may have fewer
	send  tensor.Buffer   // [rank][run][slice]
	got   tensor.Buffer   // [virtual rank][slice]; shared by all buckets, in stream order
	parts []tensor.Buffer // of got, during the sum
	all   tensor.Buffer   // [rank][slice]; likewise
	mine  tensor.Buffer   // in all
}

// newVirtual allocates V/n times the bytes of the buckets, and V/n+1 times those of the largest.
// The result is never nil; close it after an error too.
//
// Collective: all ranks, one plan.
func newVirtual(d *DDP) (*virtual, error) {
	n := d.team.Size()
	v := &virtual{plain: plain{d: d}, runs: d.cfg.VirtualRanks / n}
	v.own = make([]float64, v.runs)
	v.shares = make([]float64, v.runs*n)
	total, longest := roundUp(int64(8*v.runs*n)), int64(0)
	for _, b := range d.buckets {
		p := &parcel{v: v, b: b, slice: (b.buf.Len() + n - 1) / n}
		v.parcels, v.lines = append(v.parcels, p), append(v.lines, newLine(d, b, d.cfg.actions(0, 1), p))
		bytes := roundUp(int64(n * p.slice * b.buf.DType().Size()))
		total += int64(v.runs) * bytes
		longest = max(longest, bytes)
	}
	var err error
	if v.mem, err = newMessageMemory(d.team.Group, total+int64(v.runs+1)*longest); err != nil {
		return v, err
	}
	if err := v.carve(total, longest); err != nil {
		return v, err
	}
	return v, nil
}

// carve assigns memory. The part shared by all buckets begins at byte shared, and its second half
// v.runs*longest later.
func (v *virtual) carve(shared, longest int64) error {
	n := v.d.team.Size()
	var err error
	if v.weights, err = v.mem.at(0, v.runs*n, tensor.F64); err != nil {
		return err
	}
	from := roundUp(int64(8 * v.runs * n))
	for _, p := range v.parcels {
		dt := p.b.buf.DType()
		if p.send, err = v.mem.at(from, n*v.runs*p.slice, dt); err != nil {
			return err
		}
		from += int64(v.runs) * roundUp(int64(n*p.slice*dt.Size()))
		if p.got, err = v.mem.at(shared, n*v.runs*p.slice, dt); err != nil {
			return err
		}
		if p.all, err = v.mem.at(shared+int64(v.runs)*longest, n*p.slice, dt); err != nil {
			return err
		}
		if p.mine, err = p.send.Slice(0, p.slice); err != nil {
			return err
		}
	}
	return nil
}

func (v *virtual) bytes(b *bucket) int64 {
	p := v.parcels[b.index]
	if v.d.plan.sharded() {
		return p.send.Bytes()
	}
	return p.send.Bytes() + p.mine.Bytes()
}

func (v *virtual) memory() int64 { return v.mem.raw.Bytes() }

func (v *virtual) close() error { return v.mem.close() }

func (v *virtual) check() error {
	d := v.d
	return d.cfg.checkVirtual(d.team.Size(), d.batch.micro, d.run.local)
}

// checkVirtual rejects a run, inside NoSync or outside, that is not the next virtual rank's after
// so many runs inside.
func (c *Config) checkVirtual(ranks, before int, local bool) error {
	inside := c.VirtualRanks/ranks - 1
	if c.VirtualRanks == 0 || local && before < inside || !local && before == inside {
		return nil
	}
	return fmt.Errorf("%w: with %d virtual ranks on %d ranks, a step is %d runs inside NoSync and one outside; this one is outside: %v, after %d inside",
		dist.ErrInvalid, c.VirtualRanks, ranks, inside, !local, before)
}

func (v *virtual) keep() error {
	v.own[v.d.batch.micro] = v.d.run.weight
	for _, p := range v.parcels {
		if err := p.pack(v.d.batch.micro); err != nil {
			return err
		}
	}
	return nil
}

// pack copies the bucket to the send memory of a run's slices.
func (p *parcel) pack(run int) error {
	for rank := range p.v.d.team.Size() {
		lo := min(rank*p.slice, p.b.buf.Len())
		hi := min(lo+p.slice, p.b.buf.Len())
		from, err := p.b.buf.Slice(lo, hi)
		if err != nil {
			return err
		}
		at := (rank*p.v.runs + run) * p.slice
		to, err := p.send.Slice(at, at+hi-lo)
		if err != nil {
			return err
		}
		copy(to.Raw(), from.Raw())
	}
	return nil
}

// weigh queues the exchange of all virtual ranks' weights, and then the computation of their
// shares.
func (v *virtual) weigh() error {
	s := &v.d.shares
	v.own[v.runs-1] = v.d.run.weight
	var err error
	if s.exchange.in, err = s.weigh.in.AllGather(v.weights, tensor.Of(v.own)); err != nil {
		return err
	}
	s.factored, err = s.team.inOrder(v, "ddp factor", putShare)
	return err
}

// Run computes the shares of all virtual ranks.
func (v *virtual) Run(*dist.Op, uint64) error {
	if err := v.d.shares.exchange.Wait(); err != nil { // done, in stream order
		return err
	}
	all, err := tensor.Data[float64](v.weights)
	if err != nil {
		return err
	}
	sum := 0.0
	for _, w := range all { // one order, whatever the number of real ranks
		sum += w
	}
	for i, w := range all {
		v.shares[i] = v.d.shares.factor.share.Of(w, sum)
	}
	weights, err := tensor.Data[float64](v.d.mem.weights)
	if err != nil {
		return err
	}
	weights[1] = sum
	return nil
}

func (p *parcel) queue(a drive.Action) (dist.Work, error) {
	if a.Do == drive.Trade {
		return p.b.view.in.AllToAll(p.got, p.send)
	}
	return p.b.view.in.AllGather(p.all, p.mine)
}

func (p *parcel) compute(a drive.Action) error {
	switch a.Do {
	case drive.Pack:
		return p.pack(p.v.runs - 1)
	case drive.Add:
		return p.sum()
	}
	whole, err := p.all.Slice(0, p.b.buf.Len())
	if err != nil {
		return err
	}
	copy(p.b.buf.Raw(), whole.Raw())
	return nil
}

func (p *parcel) spoil(a drive.Action) {
	if a.Do == drive.Pack {
		spoil(p.send)
		return
	}
	spoil(p.mine)
}

// sum adds up this rank's slices, into the send memory or, with sharding, into this rank's part of
// the bucket.
func (p *parcel) sum() error {
	to, d := p.mine, p.v.d
	if d.plan.sharded() { // a slice is a shard
		var err error
		if to, err = d.stage.part(p.b, p.b.buf); err != nil {
			return err
		}
	}
	p.parts = p.parts[:0]
	for r := range p.v.shares {
		part, err := p.got.Slice(r*to.Len(), (r+1)*to.Len())
		if err != nil {
			return err
		}
		p.parts = append(p.parts, part)
	}
	return reduce.Weighted(to, p.parts, p.v.shares) // rank after rank
}
