package nccl

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

var (
	reducing = []dist.Kind{dist.KindAllReduce, dist.KindReduce, dist.KindReduceScatter}
	redKinds = []dist.RedKind{dist.RedSum, dist.RedProd, dist.RedMin, dist.RedMax, dist.RedAvg, dist.RedPreMulSum}
)

// sizes is the numbers of ranks that tests use. 3 is no power of two.
var sizes = []int{2, 3, 4}

func onSizes(t *testing.T, body func(r *rank) error) {
	for _, n := range sizes {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) { onGPUs(t, n, body) })
	}
}

// reduction is one reduction with inputs and expected results.
type reduction struct {
	kind     dist.Kind
	dt       tensor.DType
	red      dist.RedKind
	count    int
	root     int
	inPlace  bool
	inMemory bool // the scalar of premulsum
	promise  bool
	in       func(rank, i int) uint64
	factor   func(rank int) uint64
	good     func(column, factors []uint64, got uint64) bool
}

func (c *reduction) String() string {
	return fmt.Sprintf("%v %v %v[%d] root %d in place %v", c.kind, c.red, c.dt, c.count, c.root, c.inPlace)
}

// try runs c on e and looks at every element of the result.
func (r *rank) try(e gpu.Engine, c reduction) error {
	r.at.used = 0
	op, err := r.prepare(&c)
	if err != nil {
		return fmt.Errorf("%v: %w", &c, err)
	}
	if err := r.do(e, op); err != nil {
		return fmt.Errorf("%v: %w", &c, err)
	}
	if err := r.check(&c, &op); err != nil {
		return fmt.Errorf("%v: %w", &c, err)
	}
	return nil
}

// prepare is the operation of c, with its buffers.
func (r *rank) prepare(c *reduction) (dist.Op, error) {
	op := dist.Op{Kind: c.kind, Red: dist.RedOp{Kind: c.red}, Root: c.root, Count: c.count, Symmetric: c.promise}
	elems := c.count
	if c.kind == dist.KindReduceScatter {
		elems *= r.Size
	}
	var err error
	op.Src, err = r.buffer(c.dt, elems, elements(c.dt, elems, func(i int) uint64 { return c.in(r.Rank, i) }))
	if err != nil {
		return op, err
	}
	switch {
	case c.kind == dist.KindReduce && r.Rank != c.root:
	case !c.inPlace:
		op.Dst, err = r.buffer(c.dt, c.count, nil)
	case c.kind == dist.KindReduceScatter:
		op.Dst, err = op.Src.Slice(r.Rank*c.count, (r.Rank+1)*c.count)
	default:
		op.Dst = op.Src
	}
	if err != nil || c.red != dist.RedPreMulSum {
		return op, err
	}
	op.Red.Scalar = dist.Scalar{DType: c.dt, Bits: c.factor(r.Rank)}
	if c.inMemory {
		op.Red.Scalar.At, err = r.buffer(c.dt, 1, elements(c.dt, 1, func(int) uint64 { return c.factor(r.Rank) }))
	}
	return op, err
}

// check looks at the result of c, and that the source is as it was.
func (r *rank) check(c *reduction, op *dist.Op) error {
	column, factors := make([]uint64, r.Size), make([]uint64, r.Size)
	for q := range factors {
		factors[q] = encode(c.dt, 1)
		if c.red == dist.RedPreMulSum {
			factors[q] = c.factor(q)
		}
	}
	if !op.Dst.IsZero() {
		// A slice of the source is followed by the source, not by guard bytes.
		whole, first := op.Dst, 0
		if c.inPlace && c.kind == dist.KindReduceScatter {
			whole, first = op.Src, r.Rank*c.count
		}
		raw, err := r.read(whole)
		if err != nil {
			return err
		}
		for i := range c.count {
			at := i
			if c.kind == dist.KindReduceScatter {
				at += r.Rank * c.count
			}
			for q := range column {
				column[q] = c.in(q, at)
			}
			if got := get(raw, c.dt, first+i); !c.good(column, factors, got) {
				return fmt.Errorf("element %d of %x is %#x", i, column, got)
			}
		}
	}
	if c.inPlace {
		return nil
	}
	raw, err := r.read(op.Src)
	if err != nil {
		return err
	}
	for i := range op.Src.Len() {
		if get(raw, c.dt, i) != c.in(r.Rank, i) {
			return fmt.Errorf("element %d of the source was changed", i)
		}
	}
	return nil
}

// exactly makes c one in which nothing rounds: random integers, or small whole floats of which a
// mean is whole.
func exactly(c reduction, ranks int) reduction {
	dt, red := c.dt, c.red
	c.factor = func(rank int) uint64 { return encode(dt, []float64{3, -2, 0.5, 1.5}[rank%4]) }
	if !dt.IsFloat() {
		c.in = func(rank, i int) uint64 { return hash(rank, i, 1) & mask(dt) }
		c.factor = func(rank int) uint64 { return (hash(rank, 0, 2) | 1) & mask(dt) }
		c.good = func(column, factors []uint64, got uint64) bool { return got == combineInts(dt, red, column, factors) }
		return c
	}
	c.in = func(rank, i int) uint64 {
		v := float64(hash(rank, i, 3)%5) - 2
		switch red {
		case dist.RedProd:
			v = []float64{1, 2, -1, 0.5, -2}[hash(rank, i, 3)%5]
		case dist.RedAvg:
			v *= float64(ranks)
		}
		return encode(dt, v)
	}
	c.good = func(column, factors []uint64, got uint64) bool {
		zeros := red != dist.RedMin && red != dist.RedMax
		return same(dt, got, combineExactly(dt, red, column, factors), zeros)
	}
	return c
}

// Every collective, type, reduction and length, in place and not, with and without windows.
func TestReductionsAreExactWhereNothingRounds(t *testing.T) {
	onSizes(t, func(r *rank) error {
		for _, kind := range reducing {
			for _, dt := range tensor.DTypes() {
				for _, red := range redKinds {
					for k, count := range []int{1, 13, 1000, 70_001} {
						c := reduction{
							kind: kind, dt: dt, red: red, count: count, root: k % r.Size, inPlace: k%2 == 0, inMemory: k/2%2 == 0,
						}
						err := r.try(r.plain, exactly(c, r.Size))
						if dt == tensor.I16 || dt == tensor.U16 {
							if !errors.Is(err, dist.ErrUnsupported) {
								return fmt.Errorf("%v: error %w, want ErrUnsupported", &c, err)
							}
							continue
						}
						if err != nil {
							return err
						}
					}
				}
			}
		}
		return nil
	})
}

// A minimum or maximum of a NaN is NaN, -0 is below +0, and every other bit pattern keeps its
// place; in pieces as well.
func TestMinAndMaxKeepNaN(t *testing.T) {
	onSizes(t, func(r *rank) error {
		for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64} {
			for _, red := range []dist.RedKind{dist.RedMin, dist.RedMax} {
				for _, kind := range reducing {
					count := 5003
					if dt == tensor.F64 && red == dist.RedMax { // more than one piece
						count = stagingBytes/8 + 1001
						if kind == dist.KindReduceScatter {
							count = stagingBytes/8/r.Size + 1001
						}
					}
					c := reduction{kind: kind, dt: dt, red: red, count: count, root: 1, inPlace: red == dist.RedMin}
					c.in = func(rank, i int) uint64 {
						h := hash(rank, i, 4)
						switch h % 9 {
						case 0:
							return encode(dt, math.NaN()) | h>>60<<(8*dt.Size()-1)&mask(dt) // of either sign
						case 1:
							return encode(dt, math.Inf(1))
						case 2:
							return encode(dt, math.Inf(-1))
						case 3:
							return encode(dt, math.Copysign(0, -1))
						case 4:
							return 0
						case 5:
							return 1 // subnormal
						}
						return h >> 4 & mask(dt)
					}
					c.good = func(column, factors []uint64, got uint64) bool {
						return same(dt, got, combineExactly(dt, red, column, factors), false)
					}
					if err := r.try(r.plain, c); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// Numbers that round: an error of at most as many roundings as doc.go says.
func TestRandomFloatsRoundAsSaid(t *testing.T) {
	onSizes(t, func(r *rank) error {
		for _, kind := range reducing {
			for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64} {
				for _, red := range []dist.RedKind{dist.RedSum, dist.RedAvg, dist.RedPreMulSum} {
					for k := range 2 {
						c := rounding(reduction{kind: kind, dt: dt, red: red, count: 4099, inPlace: k == 1, inMemory: k == 1}, r.Size)
						if err := r.try(r.plain, c); err != nil {
							return err
						}
					}
				}
			}
		}
		return nil
	})
}

// rounding makes c one on random numbers and factors.
func rounding(c reduction, ranks int) reduction {
	dt, red := c.dt, c.red
	c.in = func(rank, i int) uint64 {
		h := hash(rank, i, 5)
		v := math.Ldexp(1+float64(h>>12)/(1<<52), int(h%9)-4)
		if h>>9&1 == 1 {
			v = -v
		}
		return encode(dt, v)
	}
	c.factor = func(rank int) uint64 { return encode(dt, []float64{1.0 / 3, -0.7, 2, 1 / math.Pi}[rank%4]) }
	c.good = func(column, factors []uint64, got uint64) bool {
		sum, size := exactSum(dt, column, factors)
		divisor, roundings := 1, len(column)-1
		switch red {
		case dist.RedAvg:
			divisor, roundings = len(column), len(column)+1 // 1/n, each product, each sum
		case dist.RedPreMulSum:
			roundings = len(column)
		}
		return near(dt, got, sum, size, divisor, roundings)
	}
	return c
}

// Two ranks have one order, so sums have the bits of every other backend.
func TestSumsOfTwoRanksHaveTheBitsOfTheHost(t *testing.T) {
	onGPUs(t, 2, func(r *rank) error {
		for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64} {
			for _, red := range []dist.RedKind{dist.RedSum, dist.RedAvg} {
				c := rounding(reduction{kind: dist.KindAllReduce, dt: dt, red: red, count: 4099}, 2)
				c.good = func(column, _ []uint64, got uint64) bool {
					x, y := value(dt, column[0]), value(dt, column[1])
					want := x + y // of f32 and halves: exact in float64 or rounded innocuously
					if dt != tensor.F64 {
						want = float64(float32(want))
					}
					if red == dist.RedAvg {
						want /= 2
					}
					return same(dt, got, encode(dt, want), true)
				}
				if err := r.try(r.plain, c); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// PreMulSum against an exact oracle: every type, factors that are and are not powers of two, a
// scalar of each rank's own, as a value and in memory, in every collective.
func TestPreMulSumScalesEachRanksInput(t *testing.T) {
	onSizes(t, func(r *rank) error {
		powers, others := []float64{1, 2, 4, 0.5}, []float64{3, -1.5, 5, 0.75}
		for _, dt := range tensor.DTypes() {
			if dt == tensor.I16 || dt == tensor.U16 {
				continue
			}
			for k, factors := range [][]float64{powers, others, {0, 1, 0, 3}, {-1, -1, -1, -1}} {
				for _, inMemory := range []bool{false, true} {
					c := exactly(reduction{
						kind: reducing[k%3], dt: dt, red: dist.RedPreMulSum, count: 5003, inMemory: inMemory, inPlace: k%2 == 1,
					}, r.Size)
					c.factor = func(rank int) uint64 {
						if dt.IsFloat() {
							return encode(dt, factors[rank%4])
						}
						return encode(dt, math.Trunc(2*factors[rank%4])) // whole, wraps where negative
					}
					if err := r.try(r.plain, c); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// More scalars than a communicator keeps, queued without waiting, then the first ones again.
func TestManyScalarsDoNotGetInEachOthersWay(t *testing.T) {
	onGPUs(t, 2, func(r *rank) error {
		const scalars = 3*redOpSlots + 1
		var out [scalars]tensor.Buffer
		src, err := r.buffer(tensor.F32, 1, elements(tensor.F32, 1, func(int) uint64 { return encode(tensor.F32, float64(r.Rank+1)) }))
		if err != nil {
			return err
		}
		for k := range out {
			if out[k], err = r.buffer(tensor.F32, 1, nil); err != nil {
				return err
			}
			op := dist.Op{Kind: dist.KindAllReduce, Red: dist.PreMulSum(float32(k % (2*redOpSlots + 1))), Count: 1, Src: src, Dst: out[k]}
			if err := r.queue(r.plain, op); err != nil {
				return err
			}
		}
		if err := r.s.Synchronize(); err != nil {
			return err
		}
		for k := range out {
			raw, err := r.read(out[k])
			if err != nil {
				return err
			}
			if got, want := value(tensor.F32, get(raw, tensor.F32, 0)), float64(3*(k%(2*redOpSlots+1))); got != want {
				return fmt.Errorf("scalar %d: %v, want %v", k, got, want)
			}
		}
		return nil
	})
}

// A scalar in memory is read when the collective runs, after earlier writes of the stream.
func TestScalarInMemoryIsReadWhenTheCollectiveRuns(t *testing.T) {
	onGPUs(t, 2, func(r *rank) error {
		one := func(v float64) []byte {
			return elements(tensor.F32, 1, func(int) uint64 { return encode(tensor.F32, v) })
		}
		at, err := r.buffer(tensor.F32, 1, one(100))
		if err != nil {
			return err
		}
		later, err := r.buffer(tensor.F32, 1, one(float64(r.Rank+2)))
		if err != nil {
			return err
		}
		buf, err := r.buffer(tensor.F32, 1, one(10))
		if err != nil {
			return err
		}
		if err := r.s.Copy(addr(&at), addr(&later), 4); err != nil {
			return err
		}
		op := dist.Op{Kind: dist.KindAllReduce, Red: dist.PreMulSumAt(at), Count: 1, Src: buf, Dst: buf}
		if err := r.do(r.plain, op); err != nil {
			return err
		}
		raw, err := r.read(buf)
		if err == nil && value(tensor.F32, get(raw, tensor.F32, 0)) != 50 {
			err = fmt.Errorf("%v, want 2*10 + 3*10", value(tensor.F32, get(raw, tensor.F32, 0)))
		}
		return err
	})
}

// On one rank everything is a copy, bit for bit, and premulsum scales.
func TestOneRankCopiesAndScales(t *testing.T) {
	onGPUs(t, 1, func(r *rank) error {
		for _, dt := range tensor.DTypes() {
			if dt == tensor.I16 || dt == tensor.U16 {
				continue
			}
			for _, red := range redKinds {
				for _, kind := range reducing {
					c := exactly(reduction{kind: kind, dt: dt, red: red, count: 1003}, 1)
					if red != dist.RedPreMulSum {
						c.in = func(rank, i int) uint64 { return hash(rank, i, 6) & mask(dt) }
						c.good = func(column, _ []uint64, got uint64) bool { return got == column[0] }
					}
					if err := r.try(r.plain, c); err != nil {
						return err
					}
				}
			}
		}
		op := dist.Op{Kind: dist.KindAllReduce, Symmetric: true}
		if err := r.window.Can(&op); !errors.Is(err, dist.ErrUnsupported) {
			return fmt.Errorf("windows of one rank: error %w, want ErrUnsupported", err)
		}
		return r.do(r.plain, dist.Op{Kind: dist.KindBarrier})
	})
}
