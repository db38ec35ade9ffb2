package cudagen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// rowsOf is a view of value v, with one number for each row of a space whose last dim is that of a
// row's elements.
func (b *builder) rowsOf(v program.ID, space []int) program.View {
	strides := program.Contiguous(space[:len(space)-1])
	return program.View{Value: v, Strides: append(strides, 0)}
}

// normalize adds a layer normalization of x over the last dim: five steps, of which the fourth is
// over rows alone. It returns the result.
func (b *builder) normalize(x program.View, dt tensor.DType, space ...int) program.View {
	axis := space[len(space)-1]
	rows := space[:len(space)-1]
	over := make([]bool, len(space))
	over[len(over)-1] = true
	stat := dt
	if dt.Size() == 2 {
		stat = tensor.F32
	}
	of := func() program.ID { return b.value(stat, bounds{7, 7}, rows...) }
	sums, squares, deviation := of(), of(), of()
	centred, squared, y := b.empty(dt, space...), b.empty(stat, space...), b.empty(dt, space...)
	each := constant64(1 / float64(axis))

	b.step(&program.Reduce{Space: space, Reduced: over, Code: []program.Instr{load(0)}}, views(x), views(b.rowsOf(sums, space)))
	b.step(&program.Map{Space: space, Code: []program.Instr{
		load(0), load(1), each, apply(program.Mul, 1, 2), apply(program.Sub, 0, 3), apply(program.Square, 4),
	}, Stores: []int{4, 5}}, views(x, b.rowsOf(sums, space)), views(centred, squared))
	b.step(&program.Reduce{Space: space, Reduced: over, Code: []program.Instr{load(0)}}, views(squared), views(b.rowsOf(squares, space)))
	b.step(&program.Map{Space: rows, Code: []program.Instr{
		load(0), each, apply(program.Mul, 0, 1), constant64(1e-3), apply(program.Add, 2, 3), apply(program.Sqrt, 4),
	}, Stores: []int{5}}, views(b.p.Whole(squares)), views(b.p.Whole(deviation)))
	b.step(&program.Map{Space: space, Code: []program.Instr{
		load(0), load(1), load(2), load(3), apply(program.Div, 0, 1), apply(program.Mul, 4, 2), apply(program.Add, 5, 3),
	}, Stores: []int{6}}, views(centred, b.rowsOf(deviation, space), b.broadcast(dt, bounds{0.5, 1}, space, len(space)-1),
		b.broadcast(dt, bounds{-1, 1}, space, len(space)-1)), views(y))
	return y
}

// alongCases are chains: normalizations, and scaled and masked softmaxes with the steps after them.
// Their rows are short and long, in odd numbers, and do or do not fill warps.
func alongCases() *builder {
	b := newBuilder("along")
	b.clock(3, 70)
	one := bounds{-1, 1}
	for _, dt := range floats {
		for _, space := range some(dt, 3, [][]int{{300, 256}, {6, 40, 77}, {35, 1500}, {2, 3}, {3, 9000}, {2048, 44}, {5, 6, 7, 8}}) {
			x := b.whole(dt, one, space...)
			y := b.normalize(x, dt, space...)
			b.step(&program.Map{Space: space, Code: []program.Instr{ // dropout
				{Op: program.Rand, Key: 11, PerUnit: space[len(space)-1]}, constant64(0.25), apply(program.Greater, 0, 1), load(0), apply(program.Mul, 2, 3),
			}, Stores: []int{4}}, views(y), views(y))

			rows, axis := b.p.Values[x.Value].Len()/space[len(space)-1], space[len(space)-1]
			flat, scaled, soft := []int{rows * axis}, b.empty(dt, rows, axis, 1), b.empty(dt, rows, axis, 1)
			line := func(v program.View) program.View {
				return program.View{Value: v.Value, Offset: v.Offset, Strides: []int{1}}
			}
			b.step(&program.Map{Space: flat, Code: []program.Instr{load(0), constant64(0.7), apply(program.Mul, 0, 1)}, Stores: []int{2}},
				views(line(y)), views(line(scaled)))
			b.step(&program.Softmax{Outer: rows, Axis: axis, Inner: 1, Log: rows%2 == 0}, views(scaled), views(soft))
			most := b.value(dt, bounds{7, 7}, rows)
			b.step(&program.Reduce{Space: []int{rows, axis}, Reduced: []bool{false, true}, Red: program.Max, Code: []program.Instr{load(0)}},
				views(program.View{Value: soft.Value, Strides: []int{axis, 1}}), views(program.View{Value: most, Strides: []int{1, 0}}))

			if len(space) == 3 { // the result has its rows in another order
				turned := program.View{Value: b.value(dt, bounds{7, 7}, rows*axis), Strides: []int{axis, space[0] * axis, 1}}
				b.step(&program.Map{Space: space, Code: []program.Instr{
					load(0), load(1), apply(program.Sub, 0, 1), constant64(0.25), apply(program.Mul, 2, 3),
				}, Stores: []int{4}},
					views(program.View{Value: soft.Value, Strides: program.Contiguous(space)}, b.rowsOf(most, space)), views(turned))
			}
			dy, dx := b.whole(dt, one, rows, axis, 1), b.empty(dt, rows, axis, 1)
			b.step(&program.SoftmaxGrad{Outer: rows, Axis: axis, Inner: 1, Log: rows%2 == 0}, views(soft, dy), views(dx))
			b.step(&program.Map{Space: flat, Code: []program.Instr{load(0), load(1), apply(program.Sub, 0, 1)}, Stores: []int{2}},
				views(line(dx), line(x)), views(line(dx)))
		}
	}
	return b
}

// chainCases are random steps along rows. Most read results of earlier ones: the same view, another
// one, or in place.
func chainCases() *builder {
	b := newBuilder("chains")
	for range 40 {
		rows, axis := 2*(1+b.r.IntN(40)), []int{2, 5, 16, 64, 96, 300, 1024}[b.r.IntN(7)]
		space := []int{2, rows / 2, axis}
		if b.r.IntN(2) == 0 {
			space = []int{rows, axis}
		}
		last := len(space) - 1
		dt := []tensor.DType{tensor.F32, tensor.F64}[b.r.IntN(2)] // of all, else errors of one would be far from another
		var wholes, ofRows []program.View
		// pick is one of those views, or a new one of a value that is some way scattered.
		pick := func(earlier []program.View, kept int) program.View {
			if len(earlier) > 0 && b.r.IntN(4) > 0 {
				return earlier[b.r.IntN(len(earlier))]
			}
			v := b.whole(dt, bounds{-1, 1}, space[:kept]...)
			if b.r.IntN(4) == 0 {
				v = b.scattered(dt, space[:kept])
			}
			for len(v.Strides) < len(space) {
				v.Strides = append(v.Strides, 0)
			}
			return v
		}
		to := func(earlier *[]program.View, kept int) program.View {
			v := pick(nil, kept)
			if len(*earlier) > 0 && b.r.IntN(4) == 0 {
				v = (*earlier)[b.r.IntN(len(*earlier))] // again, perhaps in place
			}
			*earlier = append(*earlier, v)
			return v
		}
		for range 2 + b.r.IntN(5) {
			b.chainStep(space, pick(wholes, last+1), pick(ofRows, last), func() program.View { return to(&wholes, last+1) },
				func() program.View { return to(&ofRows, last) })
		}
	}
	return b
}

// chainStep adds a step of a random kind of a matrix and a number for each row.
func (b *builder) chainStep(space []int, x, row program.View, whole, ofRow func() program.View) {
	last := len(space) - 1
	over := make([]bool, len(space))
	over[last] = true
	switch b.r.IntN(5) {
	case 0, 1:
		code := []program.Instr{load(0), constant64(1 / float64(space[last])), apply(program.Mul, 0, 1)}
		b.step(&program.Reduce{Space: space, Reduced: over, Red: program.Reduction(b.r.IntN(2)), Code: code}, views(x), views(ofRow()))
	case 2:
		in, out := row, ofRow()
		in.Strides, out.Strides = in.Strides[:last], out.Strides[:last]
		b.step(&program.Map{Space: space[:last], Code: []program.Instr{load(0), apply(program.Sin, 0)}, Stores: []int{1}}, views(in), views(out))
	default:
		code := []program.Instr{load(0), load(1), apply(program.Mul, 0, 1), apply(program.Minimum, 0, 1)}
		out := views(whole(), whole())
		if out[0].Value == out[1].Value {
			out = out[:1]
		}
		b.step(&program.Map{Space: space, Code: code, Stores: []int{3, 2}[:len(out)]}, views(x, row), out)
	}
}

// launches returns the number of kernels of each step.
func launches(steps []Step) []int {
	n := make([]int, len(steps))
	for i := range steps {
		n[i] = len(steps[i].Kernels)
	}
	return n
}

func TestANormalizationIsOneLaunch(t *testing.T) {
	for _, space := range [][]int{{2048, 256}, {16, 128, 256}, {100, 6000}} {
		b := newBare("one")
		b.normalize(b.whole(tensor.F32, bounds{-1, 1}, space...), tensor.F32, space...)
		_, steps, err := Generate(b.p, b.target())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := launches(steps), []int{1, 0, 0, 0, 0}; !slices.Equal(got, want) {
			t.Errorf("%v: steps have %v launches, want %v", space, got, want)
		}
		apart := b.target()
		apart.Apart = true
		if _, steps, _ = Generate(b.p, apart); slices.Contains(launches(steps), 0) {
			t.Errorf("%v: apart, a step has no launch of its own: %v", space, launches(steps))
		}
	}
}

// A step is in another launch if it waits for others, or shares arena memory with another row.
func TestChainsEndWhereRowsMeet(t *testing.T) {
	const rows, axis = 2000, 256
	arena := func(p *program.Program, at ...int64) {
		for i, offset := range at {
			if offset >= 0 {
				p.Values[i].Place, p.Values[i].Offset = program.Arena, offset
			}
		}
		p.Arena = 1 << 24
	}
	const large = 4 * rows * axis
	for _, c := range []struct {
		name   string
		change func(b *builder)
		want   []int
	}{
		{"as they are", func(*builder) {}, []int{1, 0, 0}},
		{"in place of what was read", func(b *builder) { arena(b.p, 0, large, -1, 0) }, []int{1, 0, 0}},
		{"a row further than what was read", func(b *builder) { arena(b.p, 0, -1, -1, 4*axis) }, []int{1, 0, 1}},
		{"within a row of what was read", func(b *builder) { arena(b.p, 0, -1, -1, 512) }, []int{1, 0, 1}},
		{"numbers of rows where elements of rows were read", func(b *builder) { arena(b.p, 0, -1, 1024) }, []int{1, 1, 1}},
		{"numbers of rows behind what was read", func(b *builder) { arena(b.p, 0, -1, large) }, []int{1, 0, 0}},
		{"half as wide where elements were read", func(b *builder) {
			b.p.Values[3].DType = tensor.F16
			arena(b.p, 0, -1, -1, 0)
		}, []int{1, 0, 1}},
		{"rows backwards", func(b *builder) {
			b.p.Steps[2].In[1] = program.View{Value: 2, Offset: rows - 1, Strides: []int{-1, 0}}
		}, []int{1, 0, 1}},
		{"the first row for all", func(b *builder) { b.p.Steps[2].In[1].Strides = []int{0, 0} }, []int{1, 0, 1}},
		{"what the first has not written", func(b *builder) { b.p.Steps[1].In[0].Value = b.value(tensor.F32, bounds{}, rows) }, []int{1, 1, 1}},
		{"another stream", func(b *builder) { b.p.Steps[1].Stream = program.Comm }, []int{1, 1, 1}},
		{"other rows", func(b *builder) {
			b.p.Steps[2].Op.(*program.Map).Space = []int{rows / 2, 2 * axis}
			b.p.Steps[2].In[0].Strides, b.p.Steps[2].Out[0].Strides = []int{2 * axis, 1}, []int{2 * axis, 1}
			b.p.Steps[2].In[1].Strides = []int{1, 0}
		}, []int{1, 0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBare(c.name)
			x := b.whole(tensor.F32, bounds{}, rows, axis)                                          // value 0
			sums, roots := b.value(tensor.F32, bounds{}, rows), b.value(tensor.F32, bounds{}, rows) // 1, 2
			y := b.empty(tensor.F32, rows, axis)                                                    // 3
			b.step(&program.Reduce{Space: []int{rows, axis}, Reduced: []bool{false, true}, Code: []program.Instr{load(0)}}, views(x),
				views(program.View{Value: sums, Strides: []int{1, 0}}))
			b.step(&program.Map{Space: []int{rows}, Code: []program.Instr{load(0), apply(program.Sqrt, 0)}, Stores: []int{1}}, views(b.p.Whole(sums)),
				views(b.p.Whole(roots)))
			b.step(&program.Map{Space: []int{rows, axis}, Code: []program.Instr{load(0), load(1), apply(program.Div, 0, 1)}, Stores: []int{2}},
				views(x, program.View{Value: roots, Strides: []int{1, 0}}), views(y))
			c.change(b)
			_, steps, err := Generate(b.p, b.target())
			if err != nil {
				t.Fatal(err)
			}
			if got := launches(steps); !slices.Equal(got, c.want) {
				t.Errorf("steps have %v launches, want %v", got, c.want)
			}
		})
	}
}

// Values that only the chain uses stay in registers.
func TestWhatNobodyElseReadsIsNotWritten(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(p *program.Program, squared program.ID)
		written bool
	}{
		{"the program's own", func(*program.Program, program.ID) {}, false},
		{"read by a later step", func(p *program.Program, squared program.ID) { p.Steps[5].In[0] = p.Whole(squared) }, true},
		{"written by a later step, perhaps in part", func(p *program.Program, squared program.ID) { p.Steps[5].Out[0] = p.Whole(squared) }, true},
		{"looked at after the run", func(p *program.Program, squared program.ID) { p.Values[squared].Role = program.Output }, true},
		{"outside", func(p *program.Program, squared program.ID) { p.Values[squared].Place = program.Outside }, true},
		{"read otherwise by the chain", func(p *program.Program, squared program.ID) {
			p.Steps[2].In[0].Offset, p.Steps[2].In[0].Strides = 255, []int{256, -1}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBare("dead")
			b.normalize(b.whole(tensor.F32, bounds{}, 300, 256), tensor.F32, 300, 256)
			z := b.whole(tensor.F32, bounds{}, 256, 300)
			b.step(&program.Map{Space: []int{256, 300}, Code: []program.Instr{load(0)}, Stores: []int{0}}, views(z), views(b.empty(tensor.F32, 256, 300)))
			squared := b.p.Steps[1].Out[1].Value
			b.p.Values[squared].Place = program.Arena
			c.change(b.p, squared)
			_, steps, err := Generate(b.p, b.target())
			if err != nil {
				t.Fatal(err)
			}
			if got, want := launches(steps), []int{1, 0, 0, 0, 0, 1}; !slices.Equal(got, want) {
				t.Fatalf("steps have %v launches, want %v", got, want)
			}
			of := func(a Arg) bool { return a.Kind == Out && a.Step == 1 && a.Index == 1 }
			if got := slices.ContainsFunc(steps[0].Kernels[0].Args, of); got != c.written {
				t.Errorf("it is written: %v, want %v", got, c.written)
			}
		})
	}
}

// One thread of a row overwrites a number that all of them read: it is read again from memory,
// after a synchronization.
func TestWhatIsWrittenInPlaceForARowIsReadAgain(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		b := newBare("place")
		const rows, axis = 300, 1024
		x, y, roots := b.whole(tensor.F32, bounds{}, rows, axis), b.empty(tensor.F32, rows, axis), b.whole(tensor.F32, bounds{}, rows)
		from := roots
		if !inPlace {
			from = b.whole(tensor.F32, bounds{}, rows)
		}
		b.step(&program.Map{Space: []int{rows}, Code: []program.Instr{load(0), apply(program.Sqrt, 0)}, Stores: []int{1}}, views(from), views(roots))
		b.step(&program.Map{Space: []int{rows, axis}, Code: []program.Instr{load(0), load(1), apply(program.Div, 0, 1)}, Stores: []int{2}},
			views(x, program.View{Value: roots.Value, Strides: []int{1, 0}}), views(y))
		b.step(&program.Reduce{Space: []int{rows, axis}, Reduced: []bool{false, true}, Code: []program.Instr{load(0)}}, views(y),
			views(program.View{Value: b.value(tensor.F32, bounds{}, rows), Strides: []int{1, 0}}))
		text, steps, err := Generate(b.p, b.target())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := launches(steps), []int{1, 0, 0}; !slices.Equal(got, want) {
			t.Fatalf("steps have %v launches, want %v", got, want)
		}
		if kept := strings.Contains(text, "q1 = f0_0;"); kept == inPlace {
			t.Errorf("in place %t: taken from registers: %t", inPlace, kept)
		}
	}
}

// Few long rows leave most of a device idle.
func TestFewLongRowsAreNoChain(t *testing.T) {
	for _, c := range []struct {
		rows, axis int
		want       bool
	}{{1, 256, false}, {2, 256, true}, {2, 8192, true}, {2, 8193, false}, {132, 8193, true}, {2, 1, false}} {
		t.Run(fmt.Sprint(c.rows, c.axis), func(t *testing.T) {
			b := newBare("few")
			x, y := b.whole(tensor.F32, bounds{}, c.rows, c.axis, 1), b.empty(tensor.F32, c.rows, c.axis, 1)
			b.step(&program.Softmax{Outer: c.rows, Axis: c.axis, Inner: 1}, views(x), views(y))
			b.step(&program.SoftmaxGrad{Outer: c.rows, Axis: c.axis, Inner: 1}, views(y, x), views(b.empty(tensor.F32, c.rows, c.axis, 1)))
			_, steps, err := Generate(b.p, b.target())
			if err != nil {
				t.Fatal(err)
			}
			if got := len(steps[1].Kernels) == 0; got != c.want {
				t.Errorf("one launch: %v, want %v", got, c.want)
			}
		})
	}
}

// With Program.Rows, Plan places values so that steps along rows can be one launch.
func TestWhatIsPlannedForRowsIsOneLaunch(t *testing.T) {
	const rows, axis = 300, 128
	for _, along := range []bool{false, true} {
		b := newBare("planned")
		arena := func(dt tensor.DType, shape ...int) program.View {
			return b.p.Whole(b.p.Add(program.Value{DType: dt, Shape: shape, Place: program.Arena}))
		}
		w := b.whole(tensor.F32, bounds{}, 1, 4, axis)
		dy, dx, narrow := arena(tensor.F32, 1, rows, axis), arena(tensor.F32, rows, axis, 1), arena(tensor.BF16, 1, rows, axis)
		b.step(&program.MatMul{Batch: 1, M: rows, N: axis, K: 4, Alpha: 1}, views(b.whole(tensor.F32, bounds{}, 1, rows, 4), w), views(dy))
		b.step(&program.SoftmaxGrad{Outer: rows, Axis: axis, Inner: 1},
			views(b.whole(tensor.F32, bounds{}, rows, axis, 1), program.View{Value: dy.Value, Strides: []int{axis, 1, 1}}), views(dx))
		b.step(&program.Map{Space: []int{rows * axis}, Code: []program.Instr{load(0), constant64(0.5), apply(program.Mul, 0, 1)}, Stores: []int{2}},
			views(program.View{Value: dx.Value, Strides: []int{1}}), views(program.View{Value: narrow.Value, Strides: []int{1}}))
		b.step(&program.MatMul{Batch: 1, M: rows, N: 4, K: axis, Alpha: 1}, views(narrow, b.whole(tensor.BF16, bounds{}, 1, axis, 4)),
			views(b.empty(tensor.F32, 1, rows, 4)))
		b.p.Rows = along
		if err := program.Plan(b.p); err != nil {
			t.Fatal(err)
		}
		_, steps, err := Generate(b.p, Target{SMs: 132})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(steps[2].Kernels) == 0; got != along {
			t.Errorf("rows %t: one launch: %t", along, got)
		}
	}
}
