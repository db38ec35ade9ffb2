package ddp

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// The stages of sharding, Config.Stage. Each includes those before it.
const (
	stageState  = 1 // a rank has only the solver's state of its own pieces
	stageGrads  = 2 // the same for gradients
	stageParams = 3 // the same for parameters
)

// Piece is the run of a parameter that one rank owns and updates.
type Piece struct {
	Param  int // index in Plan.Params
	Offset int // of its first element in the parameter, a multiple of optim.Block
	Len    int // elements
}

// Owned returns the pieces of a rank, in the order of Params. Without sharding it returns every
// whole parameter. With sharding a piece is the part of a parameter in elements rank*Shard to
// (rank+1)*Shard of its bucket.
func (p *Plan) Owned(rank int) []Piece {
	var own []Piece
	for i, q := range p.Params {
		piece := Piece{Param: i, Len: q.Len()}
		if p.Stage > 0 {
			shard := p.Buckets[q.Bucket].Shard
			lo := max(q.Offset, rank*shard)
			piece.Offset, piece.Len = lo-q.Offset, min(q.Offset+q.Len(), (rank+1)*shard)-lo
		}
		if piece.Len > 0 {
			own = append(own, piece)
		}
	}
	return own
}

// shard pads each bucket to Shard elements for every rank, with Shard a multiple of optim.Block.
func (p *Plan) shard(ranks int) {
	for i := range p.Buckets {
		b := &p.Buckets[i]
		unit := ranks * optim.Block
		b.Elements = (b.Elements + unit - 1) / unit * unit
		b.Shard = b.Elements / ranks
	}
}

// Pieces returns this rank's pieces of the parameters of Plan.Params.
func (d *DDP) Pieces() []Piece { return d.plan.Owned(d.team.Rank()) }

// sharded reports whether a rank updates only its own pieces.
func (d *DDP) sharded() bool { return d.cfg.Stage >= stageState }

// staged reports whether whole buckets of gradients exist only while they fill and are reduced.
func (d *DDP) staged() bool { return d.cfg.Stage >= stageGrads }

// own returns this rank's part of buf, which has as many elements as b.
func (d *DDP) own(b *bucket, buf tensor.Buffer) (tensor.Buffer, error) {
	lo := d.team.Rank() * b.shard
	return buf.Slice(lo, lo+b.shard)
}

// valueOver returns a value of v's type and shape whose elements are b.
func valueOver(b tensor.Buffer, v gorgonia.Value) (gorgonia.Value, error) {
	if d, ok := v.(*gtensor.Dense); ok && !d.Shape().IsScalar() {
		return tensor.View(b, slices.Clone([]int(d.Shape()))...)
	}
	if b.DType() == tensor.F64 {
		return (*gorgonia.F64)(b.Pointer()), nil
	}
	return (*gorgonia.F32)(b.Pointer()), nil
}

// rehome moves the weights of all parameters into the buckets of weights, if any: the nodes' values
// become views of them. It moves values again that the program has set since.
func (d *DDP) rehome() error {
	switch {
	case d.gathers():
		return d.adopt()
	case d.team.onGPU(): // broadcastValues has copied them, and a machine copies values that are let anew
		return nil
	}
	for _, s := range d.slots {
		if s.weights.IsZero() {
			continue
		}
		if err := s.rehome(); err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
	}
	return nil
}

// countUnused counts the bytes of the learnables that are not among used.
func (d *DDP) countUnused(used, learnables gorgonia.Nodes) error {
	for _, n := range learnables {
		if used.Contains(n) {
			continue
		}
		b, err := valueMemory(n.Value())
		if err != nil {
			return fmt.Errorf("parameter %q: %w", n.Name(), err)
		}
		d.unusedBytes += b.Bytes()
	}
	return nil
}

// rehome copies the node's value to its bucket, unless it is there, and sets the node's value to a
// view of that.
func (s *slot) rehome() error {
	v := s.param.Value()
	if v == nil {
		return fmt.Errorf("%w: its node has lost its value", dist.ErrInvalid)
	}
	from, err := valueMemory(v)
	if err != nil {
		return err
	}
	if tensor.Same(from, s.weights) {
		return nil
	}
	if from.DType() != s.weights.DType() || from.Len() != s.weights.Len() {
		return fmt.Errorf("%w: its value is %v, want %v", dist.ErrCount, from, s.weights)
	}
	copy(s.weights.Raw(), from.Raw())
	home, err := valueOver(s.weights, v)
	if err != nil {
		return err
	}
	return gorgonia.Let(s.param, home)
}

// moveOut gives the nodes copies of their weights. If gone, the memory is freed, and copies are
// NaN.
//
// Errors: dist.ErrClosed if weights are lost.
func (d *DDP) moveOut(gone bool) error {
	if d.gathers() {
		return d.forget()
	}
	lost := 0
	for _, s := range d.slots {
		if s == nil || s.weights.IsZero() {
			continue
		}
		out, err := s.moveOut(gone)
		if err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
		if out && gone {
			lost++
		}
	}
	if lost > 0 {
		return fmt.Errorf("ddp close rank %d/%d: %w: the weights of %d parameters were in buckets of the world; close the DDP before its world",
			d.team.Rank(), d.team.Size(), dist.ErrClosed, lost)
	}
	return nil
}

// moveOut reports whether the node's value was in the bucket.
func (s *slot) moveOut(gone bool) (bool, error) {
	v := s.param.Value()
	if v == nil {
		return false, nil
	}
	from, err := valueMemory(v)
	if err != nil || !tensor.Same(from, s.weights) {
		return false, err
	}
	var own tensor.Buffer
	if s.weights.DType() == tensor.F64 {
		own, err = ownCopy[float64](s.weights, gone)
	} else {
		own, err = ownCopy[float32](s.weights, gone)
	}
	if err != nil {
		return false, err
	}
	home, err := valueOver(own, v)
	if err != nil {
		return false, err
	}
	return true, gorgonia.Let(s.param, home)
}

// ownCopy returns a copy of b on the Go heap, or NaNs if gone, when b cannot be read.
func ownCopy[T float32 | float64](b tensor.Buffer, gone bool) (tensor.Buffer, error) {
	own := make([]T, b.Len())
	if gone {
		for i := range own {
			own[i] = T(math.NaN())
		}
		return tensor.Of(own), nil
	}
	from, err := tensor.Data[T](b)
	copy(own, from)
	return tensor.Of(own), err
}
