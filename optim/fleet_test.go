package optim

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/tensor"
)

// ring adds arrays of several goroutines, in the order of the ranks.
type ring struct {
	mu      sync.Mutex
	all     *sync.Cond
	parts   [][]float64
	there   int
	round   int
	total   []float64
	calls   int
	failure error // of all later sums
}

func newRing(ranks int) *ring {
	r := &ring{parts: make([][]float64, ranks)}
	r.all = sync.NewCond(&r.mu)
	return r
}

// of returns the sum function of one rank.
func (r *ring) of(rank int) func(x []float64) error {
	return func(x []float64) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.parts[rank] = x
		r.there++
		if round := r.round; r.there < len(r.parts) {
			for r.round == round {
				r.all.Wait()
			}
		} else {
			r.total = make([]float64, len(x))
			for _, part := range r.parts {
				for i, v := range part {
					r.total[i] += v
				}
			}
			r.there, r.round, r.calls = 0, r.round+1, r.calls+1
			r.all.Broadcast()
		}
		copy(x, r.total)
		return r.failure
	}
}

// pieceShapes are parameters whose sizes have little to do with blocks, spans and ranks, in both
// dtypes.
var pieceShapes = []ParamShape{
	{"stem.weight", []int{33, 21}, gtensor.Float32},
	{"stem.bias", []int{1, 21}, gtensor.Float32},
	{"norm.scale", []int{}, gtensor.Float64},
	{"body.weight", []int{41, 7, 3}, gtensor.Float64},
	{"nothing", []int{0, 5}, gtensor.Float32},
	{"wide.weight", []int{spanLen + 700}, gtensor.Float32},
	{"body.bias", []int{256}, gtensor.Float64},
	{"head.weight", []int{257, 1}, gtensor.Float32},
}

// buckets is memory for the parameters of each dtype, one after the other, each starting at a
// block.
type buckets struct {
	weight32, grad32 []float32
	weight64, grad64 []float64
	offsets          []int // of parameters
	shard            int   // elements of a rank
}

func newBuckets(ranks int) *buckets {
	b := &buckets{}
	var n32, n64 int
	for _, p := range pieceShapes {
		n := &n32
		if p.DType == gtensor.Float64 {
			n = &n64
		}
		b.offsets = append(b.offsets, *n)
		*n += blocksOf(shapeSize(p.Shape)) * Block
	}
	b.shard = (blocksOf(max(n32, n64)) + ranks - 1) / ranks * Block
	b.weight32, b.grad32 = make([]float32, b.shard*ranks), make([]float32, b.shard*ranks)
	b.weight64, b.grad64 = make([]float64, b.shard*ranks), make([]float64, b.shard*ranks)
	return b
}

// whole returns the memory of parameter i.
func (b *buckets) whole(i int) (weight, grad tensor.Buffer) {
	lo := b.offsets[i]
	hi := lo + shapeSize(pieceShapes[i].Shape)
	if pieceShapes[i].DType == gtensor.Float64 {
		return tensor.Of(b.weight64[lo:hi]), tensor.Of(b.grad64[lo:hi])
	}
	return tensor.Of(b.weight32[lo:hi]), tensor.Of(b.grad32[lo:hi])
}

// pieces returns the pieces of a rank.
func (b *buckets) pieces(t testing.TB, rank int) (pieces []Piece) {
	t.Helper()
	for i, p := range pieceShapes {
		size := shapeSize(p.Shape)
		lo := max(rank*b.shard-b.offsets[i], 0)
		hi := min((rank+1)*b.shard-b.offsets[i], size)
		if lo >= hi {
			continue
		}
		weight, grad := b.whole(i)
		w, err1 := weight.Slice(lo, hi)
		g, err2 := grad.Slice(lo, hi)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		pieces = append(pieces, Piece{Name: p.Name, Shape: p.Shape, Offset: lo, Weight: w, Grad: g})
	}
	return pieces
}

// model returns the whole parameters.
func (b *buckets) model(t testing.TB) (model []gorgonia.ValueGrad) {
	t.Helper()
	for i, p := range pieceShapes {
		lo := b.offsets[i]
		hi := lo + shapeSize(p.Shape)
		vg := &parameter{name: p.Name}
		switch {
		case len(p.Shape) == 0:
			vg.value, vg.grad = (*gorgonia.F64)(&b.weight64[lo]), (*gorgonia.F64)(&b.grad64[lo])
		case p.DType == gtensor.Float64:
			vg.value, vg.grad = denseOf(b.weight64[lo:hi], p.Shape...), denseOf(b.grad64[lo:hi], p.Shape...)
		default:
			vg.value, vg.grad = denseOf(b.weight32[lo:hi], p.Shape...), denseOf(b.grad32[lo:hi], p.Shape...)
		}
		model = append(model, vg)
	}
	return model
}

// draw returns noise for each of pieceShapes.
func draw(seed uint64) (all [][]float32) {
	for i, p := range pieceShapes {
		all = append(all, noise(shapeSize(p.Shape), seed*100+uint64(i)))
	}
	return all
}

// fill copies drawn to the weights or the gradients, and sets one gradient element to poison if
// that is not 0.
func (b *buckets) fill(grads bool, drawn [][]float32, poison float64) {
	to32, to64 := b.weight32, b.weight64
	if grads {
		to32, to64 = b.grad32, b.grad64
	}
	for i, x := range drawn {
		lo := b.offsets[i]
		if pieceShapes[i].DType == gtensor.Float32 {
			copy(to32[lo:], x)
			continue
		}
		for k, v := range x {
			to64[lo+k] = float64(v)
		}
		if i == 3 && poison != 0 {
			to64[lo+300] = poison
		}
	}
}

// fleet is a rank's solver on each of several goroutines, over one memory.
type fleet struct {
	*buckets
	ring  *ring
	ranks []PieceSolver
}

func newFleet(t testing.TB, c Config, ranks int) *fleet {
	t.Helper()
	f := &fleet{buckets: newBuckets(ranks), ring: newRing(ranks)}
	for rank := range ranks {
		sum := f.ring.of(rank)
		if ranks == 1 {
			sum = nil
		}
		s, err := NewPieces(c, pieceShapes, f.pieces(t, rank), sum)
		if err != nil {
			t.Fatal(err)
		}
		f.ranks = append(f.ranks, s)
	}
	return f
}

// each calls do for all ranks at once.
func (f *fleet) each(do func(rank int, s PieceSolver) error) []error {
	errs := make([]error, len(f.ranks))
	var all sync.WaitGroup
	for rank, s := range f.ranks {
		all.Go(func() { errs[rank] = do(rank, s) })
	}
	all.Wait()
	return errs
}

func (f *fleet) step() error {
	return errors.Join(f.each(func(_ int, s PieceSolver) error { return s.Step() })...)
}

// merged returns the state of all ranks as that of whole parameters.
func (f *fleet) merged() State {
	whole := f.ranks[0].State()
	for i := range whole.Params {
		p := &whole.Params[i]
		p.Offset = 0
		for k := range p.Slots {
			slot := &p.Slots[k]
			slot.F32, slot.F64 = nil, nil
			size := shapeSize(p.Shape)
			if p.DType == gtensor.Float32 {
				slot.F32 = make([]float32, size)
			} else {
				slot.F64 = make([]float64, size)
			}
			for _, s := range f.ranks {
				run := s.State().Params[i]
				copy(slot.F32[min(run.Offset, len(slot.F32)):], run.Slots[k].F32)
				copy(slot.F64[min(run.Offset, len(slot.F64)):], run.Slots[k].F64)
			}
		}
	}
	return whole
}

// sameWeights reports whether two memories hold the same bits, whatever their padding.
func sameWeights(a, b *buckets) error {
	for i, p := range pieceShapes {
		x, _ := a.whole(i)
		y, _ := b.whole(i)
		if !slices.Equal(x.Raw(), y.Raw()) {
			return fmt.Errorf("weights of %s differ", p.Name)
		}
	}
	return nil
}

// sameState compares two states bit by bit.
func sameState(a, b State) error {
	if a.Steps != b.Steps || a.Name != b.Name || len(a.Params) != len(b.Params) {
		return fmt.Errorf("%s after %d steps with %d parameters, and %s after %d with %d", a.Name, a.Steps, len(a.Params), b.Name, b.Steps, len(b.Params))
	}
	for i, p := range a.Params {
		q := b.Params[i]
		if p.Name != q.Name || len(p.Slots) != len(q.Slots) || p.Offset != q.Offset {
			return fmt.Errorf("%q has %d slots and %q %d", p.Name, len(p.Slots), q.Name, len(q.Slots))
		}
		for k, s := range p.Slots {
			if s.Name != q.Slots[k].Name || !slices.Equal(tensor.Of(s.F32).Raw(), tensor.Of(q.Slots[k].F32).Raw()) ||
				!slices.Equal(tensor.Of(s.F64).Raw(), tensor.Of(q.Slots[k].F64).Raw()) {
				return fmt.Errorf("slot %s of %s differs", s.Name, p.Name)
			}
		}
	}
	return nil
}
