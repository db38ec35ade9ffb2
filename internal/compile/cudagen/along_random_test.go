package cudagen

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// loose makes random programs of steps along rows over memory that they share. Most are invalid,
// but each chain that along finds must be a valid one.
type loose struct {
	*rapid.T
	p          *program.Program
	rows, axis int
	written    [2][]program.View // of a number for each row, of all elements
}

// one is true once in n times.
func (l *loose) one(n int) bool { return rapid.IntRange(1, n).Draw(l.T, "one") == n }

// look returns a view over space, along its first kept dims. If it is read, it is mostly of memory
// that an earlier step has written.
func (l *loose) look(space []int, kept int, read bool) program.View {
	kind := kept - len(space) + 1 // 0 for a number for each row
	v := program.View{Offset: rapid.SampledFrom([]int{0, 0, 0, 1, l.axis, 40}).Draw(l.T, "offset")}
	if earlier := l.written[kind]; read && len(earlier) > 0 && !l.one(4) {
		v = rapid.SampledFrom(earlier).Draw(l.T, "earlier")
	} else {
		dt := rapid.SampledFrom([]tensor.DType{tensor.F32, tensor.F32, tensor.F32, tensor.F64, tensor.F16}).Draw(l.T, "dtype")
		place := program.Outside
		if !l.one(3) {
			place = program.Arena
		}
		v.Value = l.p.Add(program.Value{DType: dt, Shape: []int{200}, Place: place, Offset: 4 * int64(rapid.IntRange(0, 2*l.axis).Draw(l.T, "at"))})
	}
	v.Strides = program.Contiguous(space[:kept])
	if !read {
		l.written[kind] = append(l.written[kind], program.View{Value: v.Value, Offset: v.Offset})
	}
	for range space[kept:] {
		v.Strides = append(v.Strides, 0)
	}
	return v
}

// twist makes another view of v, which is over a space that begins with n.
func (l *loose) twist(v program.View, n int) program.View {
	switch rapid.IntRange(0, 19).Draw(l.T, "twist") {
	case 0:
		v.Strides[0] = 0
	case 1:
		v.Offset += v.Strides[0] * (n - 1)
		v.Strides[0] = -v.Strides[0]
	case 2:
		v.Strides[0]++
	case 3:
		if len(v.Strides) == 3 { // rows in another order
			v.Strides[0], v.Strides[1] = v.Strides[1], v.Strides[0]
		}
	}
	return v
}

// step adds a step.
func (l *loose) step() {
	space := []int{l.rows, l.axis}
	if l.rows%2 == 0 && l.one(3) {
		space = []int{2, l.rows / 2, l.axis}
	}
	last, n := len(space)-1, space[0]
	all := func(read bool) program.View { return l.twist(l.look(space, last+1, read), n) }
	row := func(read bool) program.View { return l.twist(l.look(space, last, read), n) }
	s := program.Step{Name: "step"}
	switch rapid.IntRange(0, 3).Draw(l.T, "kind") {
	case 0:
		over := make([]bool, len(space))
		over[last] = true
		s.Op = &program.Reduce{Space: space, Reduced: over, Code: []program.Instr{load(0)}}
		s.In, s.Out = views(all(true)), views(row(false))
	case 1:
		s.Op = &program.Map{Space: space, Code: []program.Instr{load(0), load(1), apply(program.Add, 0, 1)}, Stores: []int{2}}
		s.In, s.Out = views(all(true), row(true)), views(all(false))
	case 2:
		s.Op = &program.Map{Space: space[:last], Code: []program.Instr{load(0), apply(program.Sqrt, 0)}, Stores: []int{1}}
		space = append(slices.Clone(space[:last]), 1)
		in, out := row(true), row(false)
		in.Strides, out.Strides = in.Strides[:last], out.Strides[:last]
		s.In, s.Out = views(in), views(out)
	case 3:
		s.Op = &program.Softmax{Outer: l.rows, Axis: l.axis, Inner: 1}
		in, out := l.look(space, last+1, true), l.look(space, last+1, false)
		in.Strides, out.Strides = []int{l.axis, 1, 1}, []int{l.axis, 1, 1}
		s.In, s.Out = views(in), views(out)
	}
	l.p.Steps = append(l.p.Steps, s)
}

// touched is the bytes of the arena, or of a value outside, that each row of a step reads or
// writes.
type touched map[program.ID]map[int64]map[int]bool // by memory and byte: the rows

// touch adds the elements that a view covers, each with its row.
func (a touched) touch(p *program.Program, v program.View, space []int, rows int) {
	count := 1
	for _, d := range space {
		count *= d
	}
	val := &p.Values[v.Value]
	memory, base := v.Value, int64(0)
	if val.Place == program.Arena {
		memory, base = program.None, val.Offset
	}
	if a[memory] == nil {
		a[memory] = map[int64]map[int]bool{}
	}
	for e := range count {
		at, rest := v.Offset, e
		for d := len(space) - 1; d >= 0; d-- {
			at += rest % space[d] * v.Strides[d]
			rest /= space[d]
		}
		size := int64(val.DType.Size())
		for b := base + int64(at)*size; b < base+int64(at+1)*size; b++ {
			if a[memory][b] == nil {
				a[memory][b] = map[int]bool{}
			}
			a[memory][b][e/(count/rows)] = true
		}
	}
}

// meet reports whether a row of a and another row of b have a byte in common.
func (a touched) meet(b touched) bool {
	for memory, bytes := range a {
		for at, rows := range bytes {
			for r := range rows {
				for other := range b[memory][at] {
					if r != other {
						return true
					}
				}
			}
		}
	}
	return false
}

func TestRowsOfAChainNeverMeet(t *testing.T) {
	chains := 0
	rapid.Check(t, func(t *rapid.T) {
		p := &program.Program{Name: "loose", Clock: program.None, Arena: 4096}
		l := &loose{T: t, p: p, rows: rapid.IntRange(2, 6).Draw(t, "rows"), axis: rapid.IntRange(2, 6).Draw(t, "axis")}
		for range rapid.IntRange(2, 5).Draw(t, "steps") {
			l.step()
		}
		g := newGenerator(p, Target{})
		c := g.along(0)
		if len(c.phases) < 2 {
			return
		}
		chains++
		g.settle(&c)
		for k := range c.phases {
			n := c.phases[k].n
			kept := slices.IndexFunc(append(slices.Clone(n.dims), dim{1, true}), func(d dim) bool { return d.reduced })
			if stride, ok := linear(n.dims[:kept], n.index.strides[:kept]); !ok || stride != n.count(true) {
				t.Fatalf("rows of step %d have another order: dims %v, strides %v", k, n.dims, n.index.strides)
			}
		}
		reads, writes := make([]touched, len(c.phases)), make([]touched, len(c.phases))
		for k := range c.phases {
			s := &p.Steps[c.phases[k].step]
			reads[k], writes[k] = touched{}, touched{}
			in, out, err := p.Operands(s)
			if err != nil {
				t.Fatal(err)
			}
			for j, v := range s.In {
				reads[k].touch(p, v, in[j].Space, l.rows)
			}
			for j, v := range s.Out {
				writes[k].touch(p, v, out[j].Space, l.rows)
			}
		}
		for k := range c.phases {
			for l := range k {
				if writes[k].meet(reads[l]) || writes[k].meet(writes[l]) || reads[k].meet(writes[l]) {
					t.Fatalf("a row of step %d and another of step %d meet:\n%v", k, l, p)
				}
			}
		}
	})
	if chains == 0 {
		t.Error("no program was a chain")
	}
}
