package nccl

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// copied is one collective that only moves.
type copied struct {
	kind    dist.Kind
	dt      tensor.DType
	count   int
	root    int
	inPlace bool
	promise bool
}

// in is n elements that rank puts in: any bits.
func (c copied) in(rank, n int) []byte {
	return elements(c.dt, n, func(i int) uint64 { return hash(rank, i, 7) & mask(c.dt) })
}

// lengths is how many elements this rank reads and writes; -1 for no buffer.
func (c copied) lengths(r *rank) (src, dst int) {
	src, dst = c.count, c.count
	switch c.kind {
	case dist.KindAllGather, dist.KindGather:
		dst = r.Size * c.count
	case dist.KindScatter:
		src = r.Size * c.count
	case dist.KindAllToAll:
		src, dst = r.Size*c.count, r.Size*c.count
	}
	if r.Rank != c.root {
		switch c.kind {
		case dist.KindGather:
			dst = -1
		case dist.KindBroadcast, dist.KindScatter:
			src = -1
		}
	}
	return src, dst
}

// want returns this rank's expected data.
func (c copied) want(r *rank) []byte {
	block := c.count * c.dt.Size()
	switch c.kind {
	case dist.KindBroadcast:
		return c.in(c.root, c.count)
	case dist.KindScatter:
		return c.in(c.root, r.Size*c.count)[r.Rank*block : (r.Rank+1)*block]
	}
	var all []byte
	for q := range r.Size {
		if c.kind == dist.KindAllToAll {
			all = append(all, c.in(q, r.Size*c.count)[r.Rank*block:(r.Rank+1)*block]...)
		} else {
			all = append(all, c.in(q, c.count)...)
		}
	}
	return all
}

func (r *rank) copies(e gpu.Engine, c copied) error {
	r.at.used = 0
	op := dist.Op{Kind: c.kind, Root: c.root, Count: c.count, Symmetric: c.promise}
	srcLen, dstLen := c.lengths(r)
	var err error
	if srcLen >= 0 {
		if op.Src, err = r.buffer(c.dt, srcLen, c.in(r.Rank, srcLen)); err != nil {
			return err
		}
	}
	whole := tensor.Buffer{} // what the result is read with
	at := 0
	switch {
	case dstLen < 0:
	case c.inPlace && srcLen >= 0 && c.kind == dist.KindScatter:
		whole, at = op.Src, r.Rank*c.count
		op.Dst, err = op.Src.Slice(at, at+c.count)
	case c.inPlace && srcLen >= 0 && c.kind == dist.KindBroadcast:
		op.Dst, whole = op.Src, op.Src
	case c.inPlace:
		block := c.in(r.Rank, max(srcLen, 0))
		raw := bytes.Repeat([]byte{guardByte}, dstLen*c.dt.Size())
		if srcLen >= 0 {
			copy(raw[r.Rank*len(block):], block)
		}
		if op.Dst, err = r.buffer(c.dt, dstLen, raw); err == nil && srcLen >= 0 {
			op.Src, err = op.Dst.Slice(r.Rank*c.count, (r.Rank+1)*c.count)
		}
		whole = op.Dst
	default:
		op.Dst, err = r.buffer(c.dt, dstLen, nil)
		whole = op.Dst
	}
	if err == nil {
		err = r.do(e, op)
	}
	if err != nil || dstLen < 0 {
		return err
	}
	raw, err := r.read(whole)
	if err != nil {
		return err
	}
	want := c.want(r)
	if got := raw[at*c.dt.Size():][:len(want)]; !bytes.Equal(got, want) {
		return errors.New("the result is wrong")
	}
	return nil
}

var moving = []dist.Kind{dist.KindBroadcast, dist.KindAllGather, dist.KindAllToAll, dist.KindGather, dist.KindScatter}

// Every collective, type, root and length, in place where that is legal: any bits arrive as they
// are.
func TestCopiesMoveEveryBit(t *testing.T) {
	onSizes(t, func(r *rank) error { return r.allCopies() })
}

func (r *rank) allCopies() error {
	for _, kind := range moving {
		for _, dt := range tensor.DTypes() {
			for _, count := range []int{1, 13, 70_001} {
				roots := r.Size
				if kind == dist.KindAllGather || kind == dist.KindAllToAll {
					roots = 1
				}
				for root := range roots {
					for _, inPlace := range []bool{false, true} {
						if inPlace && kind == dist.KindAllToAll {
							continue
						}
						c := copied{kind: kind, dt: dt, count: count, root: root, inPlace: inPlace}
						if err := r.copies(r.plain, c); err != nil {
							return fmt.Errorf("%+v: %w", c, err)
						}
					}
				}
			}
		}
	}
	return nil
}

// A library before 2.28 does the same by sends and receives.
func TestCopiesMoveEveryBitWithoutTheirFunctions(t *testing.T) {
	onSizes(t, func(r *rank) error {
		c := r.plain.(*plain).comm
		whole := c.lib
		c.lib = &Library{lib: whole.lib, t: whole.t, version: whole.version, cfg: whole.cfg}
		missing := whole.lib.Proc("", "2.28.3")
		c.lib.t.allToAll, c.lib.t.gather, c.lib.t.scatter = missing, missing, missing
		defer func() { c.lib = whole }()
		return r.allCopies()
	})
}

// Messages of one batch progress together, several to one peer in order; one alone pairs with the
// other end's.
func TestMessages(t *testing.T) {
	onSizes(t, func(r *rank) error {
		next, last := (r.Rank+1)%r.Size, (r.Rank+r.Size-1)%r.Size
		for _, dt := range tensor.DTypes() {
			for _, count := range []int{1, 70_001} {
				if err := r.ring(dt, count, next, last); err != nil {
					return fmt.Errorf("%v[%d]: %w", dt, count, err)
				}
			}
		}
		return r.alone()
	})
}

// ring sends two messages to the next rank and receives two of the last one, in one batch.
func (r *rank) ring(dt tensor.DType, count, next, last int) error {
	r.at.used = 0
	b := r.plain.(gpu.Batcher)
	data := func(rank, k int) []byte {
		return elements(dt, count, func(i int) uint64 { return hash(rank, i, 10+k) & mask(dt) })
	}
	var in [2]tensor.Buffer
	var ops []dist.Op
	for k := range in {
		out, err := r.buffer(dt, count, data(r.Rank, k))
		if err != nil {
			return err
		}
		if in[k], err = r.buffer(dt, count, nil); err != nil {
			return err
		}
		ops = append(ops, dist.Op{Kind: dist.KindSend, Peer: next, Count: count, Src: out}, dist.Op{Kind: dist.KindRecv, Peer: last, Count: count, Dst: in[k]})
	}
	err := onDevice(r.Device, func() error {
		if err := b.BeginBatch(r.s); err != nil {
			return err
		}
		var errs []error
		for i := range ops {
			errs = append(errs, r.plain.Can(&ops[i]), r.plain.Enqueue(&ops[i], r.s))
		}
		return errors.Join(append(errs, b.EndBatch(r.s), b.EndBatch(r.s))...)
	})
	if err := errors.Join(err, r.s.Synchronize()); err != nil {
		return err
	}
	for k := range in {
		raw, err := r.read(in[k])
		if err != nil {
			return err
		}
		if !bytes.Equal(raw, data(last, k)) {
			return fmt.Errorf("message %d of rank %d is not what it sent", k, last)
		}
	}
	return nil
}

// alone sends from the first rank to the last.
func (r *rank) alone() error {
	const count = 1000
	data := elements(tensor.F64, count, func(i int) uint64 { return hash(0, i, 20) })
	op := dist.Op{Kind: dist.KindSend, Peer: r.Size - 1, Count: count}
	var err error
	switch r.Rank {
	case 0:
		op.Src, err = r.buffer(tensor.F64, count, data)
	case r.Size - 1:
		op.Kind, op.Peer = dist.KindRecv, 0
		op.Dst, err = r.buffer(tensor.F64, count, nil)
	default:
		return nil
	}
	if err == nil {
		err = r.do(r.plain, op)
	}
	if err != nil || r.Rank == 0 {
		return err
	}
	raw, err := r.read(op.Dst)
	if err == nil && !bytes.Equal(raw, data) {
		err = errors.New("the message is not what was sent")
	}
	return err
}

// A barrier holds the stream until all ranks have reached it.
func TestBarrierHoldsUntilAllRanksHaveCome(t *testing.T) {
	onGPUs(t, 2, func(r *rank) error {
		for _, kind := range []dist.Kind{dist.KindBarrier, dist.KindSync} {
			if r.Rank == 0 {
				if err := r.queue(r.plain, dist.Op{Kind: kind}); err != nil {
					return err
				}
				if idle, err := r.s.Idle(); err != nil || idle {
					return fmt.Errorf("%v alone: done %v, error %w", kind, idle, err)
				}
			}
			if err := r.Agree(nil); err != nil { // rank 1 comes after rank 0 has looked
				return err
			}
			if r.Rank == 1 {
				if err := r.queue(r.plain, dist.Op{Kind: kind}); err != nil {
					return err
				}
			}
			if err := r.s.Synchronize(); err != nil {
				return err
			}
		}
		empty, err := r.buffer(tensor.F32, 0, nil)
		if err != nil {
			return err
		}
		return r.do(r.plain, dist.Op{Kind: dist.KindAllReduce, Src: empty, Dst: empty})
	})
}

// A captured operation runs again with each launch of the graph, the ones with kernels of ours as
// well.
func TestOperationsCanBeCaptured(t *testing.T) {
	onGPUs(t, 2, func(r *rank) error {
		for _, red := range []dist.RedOp{dist.Sum, dist.Max, dist.PreMulSum(float32(0.5))} {
			c := exactly(reduction{kind: dist.KindAllReduce, dt: tensor.F32, red: red.Kind, count: 1000}, 2)
			c.factor = func(int) uint64 { return encode(tensor.F32, 0.5) }
			r.at.used = 0
			op, err := r.prepare(&c)
			if err != nil {
				return err
			}
			if err := r.do(r.plain, op); err != nil { // connects outside of the capture
				return err
			}
			if err := r.replay(op, 3); err != nil {
				return fmt.Errorf("%v: %w", &c, err)
			}
			if err := r.check(&c, &op); err != nil {
				return fmt.Errorf("%v: %w", &c, err)
			}
		}
		return nil
	})
}

// replay captures op, clears its destination, and launches the graph times times.
func (r *rank) replay(op dist.Op, times int) (err error) {
	if err := r.s.BeginCapture(); err != nil {
		return err
	}
	queued := r.queue(r.plain, op)
	g, err := r.s.EndCapture()
	if err := errors.Join(queued, err); err != nil {
		return err
	}
	x, err := g.Instantiate()
	if err != nil {
		return errors.Join(err, g.Close())
	}
	defer func() { err = errors.Join(err, x.Close(), g.Close()) }()
	if err := r.Device.Fill(addr(&op.Dst), 0, op.Dst.Bytes()); err != nil {
		return err
	}
	for range times {
		if err := x.Launch(r.s); err != nil {
			return err
		}
	}
	return r.s.Synchronize()
}
