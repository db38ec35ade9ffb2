package cublas

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// planned is a problem with a bias and a mask.
type planned struct {
	*problem
	plan *Plan
	o    Operands
	bias []float64
}

// newPlanned makes a plan with operands; nil where the library has none.
func newPlanned(t testing.TB, h *Handle, d PlanDesc, r *rand.Rand) *planned {
	t.Helper()
	plan, err := h.NewPlan(d)
	if errors.Is(err, dl.ErrUnsupported) {
		t.Logf("not here: %v", err)
		return nil
	}
	must(t, err)
	t.Cleanup(func() { must(t, plan.Close(), plan.Close()) })
	v := h.Device()
	p := &planned{problem: newProblem(t, v, d.Gemm, r), plan: plan}
	p.o = Operands{A: p.a, B: p.b, C: p.c, Workspace: memory(t, v, plan.WorkspaceBytes())}
	if n := d.BiasLen(); n > 0 {
		raw, bias := encode(d.Gemm.out(), fractions(r, int64(n)))
		p.o.Bias, p.bias = upload(t, v, raw), bias
	}
	if n := d.AuxBytes(); n > 0 {
		p.o.Aux = memory(t, v, n)
	}
	return p
}

// addBias makes value and sum those of a bias for each column, and of the function that cuts off
// below 0.
func (p *planned) addBias(relu bool) {
	_, _, c := p.g.extents()
	for k := range p.g.batch() {
		for i := range c.rows {
			for j := range c.cols {
				at := int64(k)*c.stride + int64(i*c.ld+j)
				p.value[at] += p.bias[j]
				p.sum[at] += math.Abs(p.bias[j])
				if relu {
					p.value[at] = max(p.value[at], 0)
				}
			}
		}
	}
}

func TestPlansAddABias(t *testing.T) {
	_, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(21, 22))
	for _, kind := range []Gemm{{DType: F32}, {DType: F32, Compute: TF32}, {DType: F16}, {DType: BF16}} {
		for _, e := range []Epilogue{Plain, Bias, BiasReLU} {
			for i := range 8 {
				g := kind
				g.M, g.N, g.K, g.Alpha, g.TransA, g.TransB = 48, 64, 96, 1, i&1 != 0, i&2 != 0
				if i&4 != 0 && e == Plain {
					g.Batch, g.StrideA, g.StrideC = 3, 48*96, 48*64
				}
				p := newPlanned(t, h, PlanDesc{Gemm: g, Epilogue: e}, r)
				if p == nil {
					t.Fatalf("no plan for %v %v", &g, e)
				}
				if e != Plain {
					p.addBias(e == BiasReLU)
				}
				must(t, p.plan.Run(s, p.o), s.Synchronize())
				p.judge(t, h.Device())
			}
		}
	}
}

// Training of a layer with ReLU: the mask of the forward pass goes to the backward pass, which sums
// up the bias's gradient.
func TestPlansKeepAMaskForTheGradient(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(23, 24))
	const m, n, k = 64, 96, 128 // batch, this layer, the one before
	const next = 80
	for _, d := range []DType{F32, F16, BF16} {
		forward := newPlanned(t, h, PlanDesc{Gemm: Gemm{DType: d, M: m, N: n, K: k, Alpha: 1}, Epilogue: BiasReLUMask}, r)
		if forward == nil {
			continue // newPlanned has said why
		}
		forward.addBias(true)
		must(t, forward.plan.Run(s, forward.o), s.Synchronize())
		forward.judge(t, v)
		back := newPlanned(t, h, PlanDesc{Gemm: Gemm{DType: d, M: m, N: n, K: next, TransB: true, Alpha: 1}, Epilogue: MaskBiasGrad}, r)
		if back == nil {
			continue
		}
		back.o.Aux = forward.o.Aux
		must(t, back.plan.Run(s, back.o), s.Synchronize())
		y := decode(d, download(t, v, forward.c, int64(m*n*d.Bytes())))
		sums, most := make([]float64, n), make([]float64, n)
		for i := range y {
			if y[i] == 0 {
				back.value[i], back.sum[i] = 0, 0
			}
			sums[i%n] += back.value[i]
			most[i%n] += back.sum[i]
		}
		back.judge(t, v)
		judgeSums(t, v, back, sums, most, m)
	}
}

// judgeSums compares Bias with sums of terms terms, with sums most of absolute values.
func judgeSums(t testing.TB, v *cuda.Device, p *planned, sums, most []float64, terms int) {
	t.Helper()
	d := p.g.out()
	got := decode(d, download(t, v, p.o.Bias, int64(len(sums)*d.Bytes())))
	for i := range sums {
		// Terms may be rounded to the elements' type before they are added.
		limit := most[i]*(float64(terms+p.g.K+4)*eps(F32)+2*eps(d)) + 2*eps(d)*math.Abs(sums[i])
		if off := math.Abs(got[i] - sums[i]); !(off <= limit) {
			t.Fatalf("%v: sum %d is %v, want %v; off by %g, at most %g", p.plan, i, got[i], sums[i], off, limit)
		}
	}
}

// The gradient of weights comes with that of the bias: sums of rows of op(A), or of columns of
// op(B).
func TestPlansSumUpAnOperand(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(25, 26))
	done := 0
	for _, d := range []DType{F32, F16, BF16} {
		for _, e := range []Epilogue{BiasGradA, BiasGradB} {
			for i := range 4 {
				g := Gemm{DType: d, M: 64, N: 96, K: 128, TransA: i&1 != 0, TransB: i&2 != 0, Alpha: 1}
				p := newPlanned(t, h, PlanDesc{Gemm: g, Epilogue: e}, r)
				if p == nil {
					continue
				}
				done++
				must(t, p.plan.Run(s, p.o), s.Synchronize())
				p.judge(t, v)
				sums, most := operandSums(p, e)
				judgeSums(t, v, p, sums, most, g.K)
			}
		}
	}
	if done == 0 {
		t.Error("the library sums up operands for no type and no transposition")
	}
}

// operandSums returns the results of BiasGradA or BiasGradB, and the sums of absolute values.
func operandSums(p *planned, e Epilogue) (sums, most []float64) {
	n := p.plan.desc.BiasLen()
	sums, most = make([]float64, n), make([]float64, n)
	a, b, _ := p.g.extents()
	for i := range n {
		for k := range p.g.K {
			// op(A) has i in its rows, op(B) in its columns.
			x, ext, row, col := p.x, a, i, k
			trans := p.g.TransA
			if e == BiasGradB {
				x, ext, row, col, trans = p.y, b, k, i, p.g.TransB
			}
			if trans {
				row, col = col, row
			}
			v := x[row*ext.ld+col]
			sums[i] += v
			most[i] += math.Abs(v)
		}
	}
	return sums, most
}

// A timed plan is right, does not change, and names its algorithm.
func TestTimedPlansChooseAmongCandidates(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(27, 28))
	d := PlanDesc{Gemm: Gemm{DType: BF16, M: 128, N: 256, K: 512, TransB: true, Alpha: 1}, Epilogue: BiasReLU, Candidates: 8, MaxWorkspaceBytes: 8 << 20}
	p := newPlanned(t, h, d, r)
	if p == nil {
		t.Fatal("no plan for bf16 with a bias")
	}
	t.Log(p.plan)
	if text := p.plan.String(); !strings.Contains(text, "algorithm ") || !strings.Contains(text, "the fastest of ") || !strings.HasPrefix(text, "gemm bf16 128x256x512 nt bias-relu: ") {
		t.Errorf("%s", text)
	}
	if n := p.plan.WorkspaceBytes(); n > 8<<20 {
		t.Errorf("it needs %d B, more than it may", n)
	}
	p.addBias(true)
	_, _, n := p.g.Bytes()
	var first []byte
	for range 3 {
		must(t, v.Fill(p.c, 0xff, n), p.plan.Run(s, p.o), s.Synchronize())
		p.judge(t, v)
		got := download(t, v, p.c, n)
		if first != nil && !bytes.Equal(first, got) {
			t.Error("two runs of a plan differ")
		}
		first = got
	}
}

// Whatever candidate is taken, the product is right, and the same plan proposes the same again.
func TestEachCandidateIsRight(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(31, 32))
	d := PlanDesc{Gemm: Gemm{DType: F32, Compute: TF32, M: 128, N: 256, K: 512, TransA: true, Alpha: 1}, Candidates: 8}
	p, again := newPlanned(t, h, d, r), newPlanned(t, h, d, r)
	if p == nil || again == nil {
		t.Fatal("no plan for f32")
	}
	names, took := p.plan.Candidates()
	if same, _ := again.plan.Candidates(); !slices.Equal(names, same) || len(took) != len(names) {
		t.Errorf("candidates %q, then %q", names, same)
	}
	_, _, n := p.g.Bytes()
	p.o.Workspace = 0 // the handle's, which is enough for all
	done := 0
	for i := range names {
		if took[i] == 0 {
			continue
		}
		done++
		must(t, p.plan.Take(i), v.Fill(p.c, 0xff, n), p.plan.Run(s, p.o), s.Synchronize())
		p.judge(t, v)
	}
	if done == 0 {
		t.Errorf("none of %q works", names)
	}
}

func TestPlansAreCapturedAndAllocateNothing(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(29, 30))
	p := newPlanned(t, h, PlanDesc{Gemm: Gemm{DType: F32, M: 64, N: 96, K: 2048, Alpha: 1}, Epilogue: Bias}, r)
	if p == nil {
		t.Fatal("no plan for f32 with a bias")
	}
	p.addBias(false)
	p.o.Workspace = 0 // the handle's own will do on its stream
	must(t, p.plan.Run(s, p.o), s.Synchronize(), s.BeginCapture(), p.plan.Run(s, p.o))
	g, err := s.EndCapture()
	must(t, err)
	x, err := g.Instantiate()
	must(t, err, g.Close())
	defer func() { must(t, x.Close()) }()
	_, _, n := p.g.Bytes()
	must(t, v.Fill(p.c, 0xff, n), x.Launch(s), s.Synchronize())
	p.judge(t, v)

	must(t, v.Enter())
	defer v.Leave()
	second := p.o
	second.Bias = memory(t, v, int64(96*4)) // a new address, which must reach the library
	var bad error
	allocs := testing.AllocsPerRun(100, func() {
		if err := p.plan.Run(s, p.o); err != nil {
			bad = err
		}
		if err := p.plan.Run(s, second); err != nil {
			bad = err
		}
	})
	must(t, bad, s.Synchronize())
	if allocs != 0 && !raceEnabled {
		t.Errorf("%v allocations for two runs, want 0", allocs)
	}
}

func TestPlansRefuseWhatDoesNotFit(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(31, 32))
	p := newPlanned(t, h, PlanDesc{Gemm: Gemm{DType: F32, M: 64, N: 96, K: 128, Alpha: 1}, Epilogue: Bias}, r)
	if p == nil {
		t.Fatal("no plan for f32 with a bias")
	}
	o := p.o
	o.Bias = 0
	if err := p.plan.Run(s, o); !errors.Is(err, cuda.ErrInvalid) {
		t.Errorf("no bias: %v", err)
	}
	other, err := v.NewStream(0)
	must(t, err)
	o = p.o
	o.Workspace = 0
	err = p.plan.Run(other, o)
	if want := p.plan.WorkspaceBytes() > 0; want != errors.Is(err, cuda.ErrInvalid) || !want && err != nil {
		t.Errorf("another stream with the handle's workspace of %d B: %v", p.plan.WorkspaceBytes(), err)
	}
	must(t, other.Synchronize(), other.Close())
	if err := p.plan.Run(other, p.o); !errors.Is(err, cuda.ErrInvalid) {
		t.Errorf("a closed stream: %v", err)
	}
	must(t, p.plan.Close())
	if err := p.plan.Run(s, p.o); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed plan: %v", err)
	}
}

// NewPlan queues Before before each timed launch, on operands of its own. Run does not.
func TestBeforeIsTimedWithProducts(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(33, 34))
	calls, bad := 0, errors.New("not now")
	d := PlanDesc{Gemm: Gemm{DType: F32, M: 48, N: 64, K: 96, Alpha: 1}, Candidates: 4}
	d.Before = func(on *cuda.Stream, o Operands) error {
		if calls++; on == s || o.A == 0 || o.B == 0 || o.C == 0 {
			return bad
		}
		return on.Fill(o.A, 0, 48*96*4)
	}
	p := newPlanned(t, h, d, r)
	if p == nil {
		t.Fatal("no plan for f32")
	}
	if calls < 10 || p.plan.Took() <= 0 {
		t.Errorf("%d calls, want 10 at least; %v", calls, p.plan)
	}
	calls = 0
	must(t, p.plan.Run(s, p.o), s.Synchronize())
	p.judge(t, v)
	if calls != 0 {
		t.Errorf("a run calls it %d times", calls)
	}
	d.Before = func(*cuda.Stream, Operands) error { return bad }
	if p, err := h.NewPlan(d); p != nil || !errors.Is(err, bad) {
		t.Errorf("what is before it fails: %v, %v", p, err)
	}
	d.Before, d.Candidates = nil, 1
	if q := newPlanned(t, h, d, r); q == nil || q.plan.Took() != 0 {
		t.Errorf("a plan that was not timed: %v", q)
	}
}
