package cudaexec

import (
	"errors"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/gpu/cublas"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// transposed does the work of a kernel with these arguments, in plain loops. Elements that it does
// not write keep a number that no product survives.
func (t *turned) transposed(from []float64) []float64 {
	to := make([]float64, t.bytes()/int64(t.gemm.DType.Bytes()))
	for i := range to {
		to[i] = 1e300
	}
	for r := range t.rows {
		for c := range t.cols {
			to[c*t.to+r] = from[r*t.ld+c]
		}
	}
	return to
}

// With the copy as operand, cuBLAS computes the same product.
func TestTurnsMeanTheSameProduct(t *testing.T) {
	for _, d := range []struct {
		m, n, k, gapA, gapB int
		second              bool
	}{
		{4, 7, 5, 0, 0, false}, {7, 4, 5, 0, 0, true}, {6, 6, 8, 3, 1, false}, {3, 9, 1, 2, 0, false}, {9, 3, 17, 0, 5, true},
	} {
		for _, dt := range []cublas.DType{cublas.F64, cublas.F32, cublas.BF16} {
			g := cublas.Gemm{
				DType: dt, M: d.m, N: d.n, K: d.k, TransA: true, LDA: d.m + d.gapA, LDB: d.n + d.gapB, LDC: d.n + 2, Alpha: 2, Beta: 1,
			}
			turn := newTurn(&g)
			if turn == nil || turn.second != d.second || turn.to < d.k || turn.to*dt.Bytes()%turnRow != 0 || turn.gemm.Validate() != nil {
				t.Fatalf("%v has turn %+v", &g, turn)
			}
			var data [3][]float64
			bytesA, bytesB, bytesC := g.Bytes()
			for i, bytes := range []int64{bytesA, bytesB, bytesC} {
				data[i] = make([]float64, bytes/int64(dt.Bytes()))
				for j := range data[i] {
					data[i][j] = float64((j*7+i*3)%11 - 5)
				}
			}
			want, got := slices.Clone(data[2]), slices.Clone(data[2])
			asked(&g, data[0], data[1], want)
			source, a, b := bytesA, turn.transposed(data[0]), data[1]
			if turn.second {
				source, a, b = bytesB, data[0], turn.transposed(data[1])
			}
			asked(&turn.gemm, a, b, got)
			if !slices.Equal(got, want) {
				t.Errorf("%v by %v: got %v, want %v", &g, &turn.gemm, got, want)
			}
			x, y, z := turn.gemm.Bytes()
			if reach := max(x, y); turn.sourceBytes() != source || turn.bytes() < int64(turn.cols*d.k*dt.Bytes()) || reach == 0 || z != bytesC {
				t.Errorf("%v: an operand of %d B, want %d, and a copy of %d B", &g, turn.sourceBytes(), source, turn.bytes())
			}
		}
	}
	for _, g := range []cublas.Gemm{
		{DType: cublas.F32, M: 4, N: 4, K: 4},
		{DType: cublas.F32, M: 4, N: 4, K: 4, TransB: true},
		{DType: cublas.F32, M: 4, N: 4, K: 4, TransA: true, TransB: true},
		{DType: cublas.F32, M: 4, N: 4, K: 4, TransA: true, Batch: 2},
	} {
		if turn := newTurn(&g); turn != nil {
			t.Errorf("%v has turn %+v", &g, turn)
		}
	}
}

func TestTurnsAreTriedWhereTheyCanPay(t *testing.T) {
	for _, tt := range []struct {
		dt      cublas.DType
		c       cublas.Compute
		m, n, k int
		want    bool
	}{
		{cublas.F32, cublas.TF32, 4096, 4096, 512, true},
		{cublas.F32, cublas.TF32, 512, 4096, 512, true},
		{cublas.F32, cublas.FastBF16, 4096, 512, 512, true},
		{cublas.BF16, cublas.Full, 4096, 4096, 512, true},
		{cublas.F64, cublas.Full, 4096, 4096, 512, true},
		{cublas.F32, cublas.Full, 4096, 4096, 512, false},      // no tensor cores
		{cublas.F32, cublas.TF32, 511, 1 << 20, 512, false},    // side
		{cublas.F32, cublas.TF32, 1023, 1023, 1 << 20, false},  // the longer side
		{cublas.F32, cublas.TF32, 1 << 16, 1 << 16, 63, false}, // depth
		{cublas.F32, cublas.TF32, 4096, 4096, 64, true},
		{cublas.F32, cublas.TF32, 4095, 4096, 64, false}, // products
		{cublas.F32, cublas.TF32, 1<<31 - 1, 1<<31 - 1, 1<<31 - 1, true},
		{cublas.F32, cublas.TF32, 784, 512, 128, false},
	} {
		g := cublas.Gemm{DType: tt.dt, Compute: tt.c, M: tt.m, N: tt.n, K: tt.k, TransA: true}
		if got := canPay(&g); got != tt.want {
			t.Errorf("%v: %t, want %t", &g, got, tt.want)
		}
	}
}

// The arguments are those of transpose in runner.cu, in its order, and the tiles cover the operand.
func TestArgumentsOfTurns(t *testing.T) {
	var k own
	for i := range k.transpose {
		k.transpose[i] = new(cuda.Function)
	}
	g := cublas.Gemm{DType: cublas.BF16, M: 129, N: 65, K: 70, TransA: true, LDA: 140, LDB: 66, LDC: 65}
	turn := newTurn(&g)
	turn.aim(&k, argument{3, 12}, 1<<32)
	want := []argument{{3, 12}, {literal, 1 << 32}, {literal, 70}, {literal, 65}, {literal, 66}, {literal, 72}}
	if !slices.Equal(turn.copy.args, want) || turn.at != 1<<32 || turn.copy.f != k.transpose[2] {
		t.Errorf("%+v, want %v", turn.copy, want)
	}
	if s := turn.copy.shape; s.Grid != [3]uint32{4} || s.Block != [3]uint32{turnThreads} || s.Shared != 0 {
		t.Errorf("launched with %+v", s)
	}
	o := cublas.Operands{A: 1, B: 2, C: 3}
	if *turn.operand(&o) = turn.at; o != (cublas.Operands{A: 1, B: 1 << 32, C: 3}) {
		t.Errorf("operands %+v", o)
	}
	g.M, g.DType = 60, cublas.F32
	turn = newTurn(&g)
	turn.aim(&k, argument{0, 0}, 256)
	want = []argument{{0, 0}, {literal, 256}, {literal, 70}, {literal, 60}, {literal, 140}, {literal, 72}}
	if !slices.Equal(turn.copy.args, want) || turn.copy.f != k.transpose[4] || turn.copy.shape.Grid != [3]uint32{2} {
		t.Errorf("%+v, want %v", turn.copy, want)
	}
	if turn.operand(&o) != &o.A {
		t.Error("the copy of A is in another place")
	}
}

func TestNoProductsNeedNoScratch(t *testing.T) {
	var none *products
	none.choose(turnAlways)
	none.aim(nil)
	short, err := none.place()
	if err = errors.Join(err, none.tune(&Exec{}), none.dropTurns(), none.settle()); err != nil || short || none.scratch() != 0 || none.trials() != nil {
		t.Errorf("short %t, %d B, %v", short, none.scratch(), err)
	}
}

// inTwoWays returns a product for each entry of times: its time as it is and turned, 0 for a form
// that fails everywhere. After them come a product that was timed as it is, one that was not timed,
// and a step that is no product.
func inTwoWays(times ...[2]float32) *products {
	m := &products{}
	for i, t := range times {
		g := cublas.Gemm{DType: cublas.F32, M: 32, N: 64, K: 8 * (i + 1), TransA: true, LDA: 32, LDB: 64, LDC: 64}
		m.steps = append(m.steps, &product{
			gemm: g, gemmVariant: gemmVariant{plan: new(cublas.Plan), trial: &trial{worst: t[0]}},
			spare: gemmVariant{new(cublas.Plan), newTurn(&g), &trial{worst: t[1]}},
		})
	}
	m.steps = append(m.steps, &product{gemmVariant: gemmVariant{plan: new(cublas.Plan), trial: &trial{worst: 1}}}, &product{}, nil)
	return m
}

// plans returns the plans in use and the spare ones, by step.
func (m *products) plans() (used, spare []*cublas.Plan) {
	for _, q := range m.steps {
		if q == nil {
			q = &product{}
		}
		used, spare = append(used, q.plan), append(spare, q.spare.plan)
	}
	return used, spare
}

func TestTheFasterOfTwoWaysIsChosen(t *testing.T) {
	for _, tt := range []struct {
		when  turning
		times [2]float32
		want  bool // turned
	}{
		{turnWhereFaster, [2]float32{5, 4}, true},
		{turnWhereFaster, [2]float32{4, 5}, false},
		{turnWhereFaster, [2]float32{4, 4}, false},
		{turnWhereFaster, [2]float32{0, 4}, true},
		{turnWhereFaster, [2]float32{4, 0}, false},
		{turnWhereFaster, [2]float32{0, 0}, false},
		{turnAlways, [2]float32{4, 5}, true},
	} {
		m := inTwoWays(tt.times)
		used, spare := m.plans()
		m.choose(tt.when)
		now, rest := m.plans()
		if tt.want {
			used[0], spare[0] = spare[0], used[0]
		}
		if got := m.steps[0].turned != nil; got != tt.want || !slices.Equal(now, used) || !slices.Equal(rest, spare) {
			t.Errorf("%v of %v ns as it is and turned: turned is %t", tt.when, tt.times, got)
		}
		if n := len(m.trials()); n != 3 {
			t.Errorf("%d trials of two ways of one product and one of another", n)
		}
	}
}

func TestDroppedTurnsAreDoneAsTheyAre(t *testing.T) {
	m := inTwoWays([2]float32{5, 4}, [2]float32{4, 5})
	used, spare := m.plans()
	m.choose(turnWhereFaster)
	m.room[program.Compute] = m.steps[0].turned.bytes() // place had no memory for these
	if m.steps[0].turned == nil || m.steps[1].turned != nil || m.scratch() == 0 {
		t.Fatalf("turned %+v and %+v", m.steps[0].turned, m.steps[1].turned)
	}
	if err := m.dropTurns(); err != nil {
		t.Fatal(err)
	}
	now, rest := m.plans()
	if !slices.Equal(now, used) || !slices.Equal(rest, spare) || m.scratch() != 0 || m.copies != 0 {
		t.Errorf("plans %v of %v, %d B at %#x", now, used, m.scratch(), m.copies)
	}
	for i, q := range m.steps {
		if q != nil && q.turned != nil {
			t.Errorf("step %d has a turn", i)
		}
	}
	if err := m.dropTurns(); err != nil {
		t.Fatal(err)
	}
	if again, _ := m.plans(); !slices.Equal(again, used) {
		t.Error("turns that are dropped twice come back")
	}
	if short, err := m.place(); short || err != nil || m.scratch() != 0 {
		t.Errorf("products without turns need %d B: short %t, %v", m.scratch(), short, err)
	}
	if err := m.settle(); err != nil {
		t.Fatal(err)
	}
	if now, rest := m.plans(); !slices.Equal(now, used) || slices.ContainsFunc(rest, func(p *cublas.Plan) bool { return p != nil }) {
		t.Errorf("in the end the plans are %v and %v", now, rest)
	}
}

// The operand is copied to the memory that all turned products of a stream share.
func TestTurnsAreAimedAtTheirRoom(t *testing.T) {
	m := inTwoWays([2]float32{5, 4}, [2]float32{5, 4}, [2]float32{4, 5})
	for i, q := range m.steps[:3] {
		q.a, q.b = argument{int32(i), 4}, argument{int32(i + 10), 8}
	}
	m.choose(turnWhereFaster)
	m.steps[1].turned.second = true
	for _, on := range []program.Stream{program.Compute, program.Side} {
		m.steps[1].on = on
		m.copies, m.room = 1<<20, [streams]int64{program.Compute: 512, program.Side: 256}
		m.aim(&own{})
		second := m.copies
		if on == program.Side {
			second += 512
		}
		for i, want := range []argument{{0, 4}, {11, 8}} {
			if c := m.steps[i].turned; c.at != []uintptr{1 << 20, second}[i] || c.copy.args[0] != want {
				t.Errorf("step %d, on %v, copies %v to %#x, want %v", i, on, c.copy.args, c.at, want)
			}
		}
	}
	if c := m.steps[2].spare.turned; c.at != 0 || c.copy.args != nil {
		t.Errorf("a turn that is not taken copies %v", c.copy.args)
	}
}

// The products of the tests on GPUs have turned forms, of either operand, and are exact.
func TestGradientsOfTheTestsHaveTurns(t *testing.T) {
	seconds := 0
	for _, g := range gradients {
		b, ids := g.build(t)
		q, err := newProduct(b.p, 0, TF32)
		if err != nil {
			t.Fatal(err)
		}
		turn := newTurn(&q.gemm)
		if turn == nil {
			t.Fatalf("%+v, %v, has none", g, &q.gemm)
		}
		if turn.second {
			seconds++
		}
		digits(b, ids, 3)
		if err := oracle.Run(b.p, b.memory); err != nil {
			t.Fatal(err)
		}
		for i := range g.m {
			for j := range g.n {
				sum := 0.0
				for l := range g.k {
					sum += program.Element(g.dt, b.memory[ids[0]], g.offset+l*(g.m+g.gapA)+i) * program.Element(g.dt, b.memory[ids[1]], l*(g.n+g.gapB)+j)
				}
				at := i*g.n + j
				if g.columns {
					at = j*g.m + i
				}
				if got := program.Element(g.dt, b.memory[ids[2]], at); got != sum {
					t.Fatalf("%+v: element %d, %d is %v, want %v", g, i, j, got, sum)
				}
			}
		}
	}
	if seconds == 0 || seconds == len(gradients) {
		t.Errorf("%d of %d copy the second operand", seconds, len(gradients))
	}
	b := newBuilder("shared", 12).train(options{batch: 37, dims: []int{65, 34, 50, 9}}).plan(t, true)
	turns := 0
	for i := range b.p.Steps {
		if _, ok := b.p.Steps[i].Op.(*program.MatMul); !ok {
			continue
		}
		q, err := newProduct(b.p, i, TF32)
		if err != nil {
			t.Fatal(err)
		}
		if newTurn(&q.gemm) != nil {
			turns++
		}
	}
	if turns != 3 {
		t.Errorf("a training of three layers has %d turns", turns)
	}
}
