package cublas

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

func TestPlansThatCannotBeAreRefused(t *testing.T) {
	good := PlanDesc{Gemm: Gemm{DType: F32, M: 5, N: 3, K: 7}, Epilogue: Bias}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(d *PlanDesc)
		why    string
	}{
		"gemm":       {func(d *PlanDesc) { d.Gemm.M = 0 }, "at least 1"},
		"epilogue":   {func(d *PlanDesc) { d.Epilogue = 99 }, "epilogue 99"},
		"batch":      {func(d *PlanDesc) { d.Epilogue, d.Gemm.Batch, d.Gemm.StrideC = BiasGradA, 2, 15 }, "biasgrad-a is for one product"},
		"align":      {func(d *PlanDesc) { d.AlignBytes = 24 }, "power of 2"},
		"no align":   {func(d *PlanDesc) { d.AlignBytes = 2 }, "less than an element"},
		"negative":   {func(d *PlanDesc) { d.AlignBytes = -16 }, "power of 2"},
		"workspace":  {func(d *PlanDesc) { d.MaxWorkspaceBytes = -1 }, "MaxWorkspaceBytes is -1"},
		"candidates": {func(d *PlanDesc) { d.Candidates = 65 }, "want 0 to 64"},
	} {
		d := good
		c.change(&d)
		if err := d.Validate(); !errors.Is(err, cuda.ErrInvalid) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: error %v, want ErrInvalid with %q", name, err, c.why)
		}
		if p, err := (&Handle{handle: 1}).NewPlan(d); p != nil || !errors.Is(err, cuda.ErrInvalid) {
			t.Errorf("%s: NewPlan returned %v", name, err)
		}
	}
}

// The library's matrices are column-major: their descriptions are the transposed of the row-major
// ones.
func TestMatricesAreDescribedInColumns(t *testing.T) {
	for _, g := range shapes(F32) {
		q, err := g.columns()
		if err != nil {
			t.Fatal(err)
		}
		a, b, c := g.extents()
		for i, row := range []extent{b, a, c} {
			col := q.shapes()[i]
			if col.rows != row.cols || col.cols != row.rows || col.ld != row.ld || col.stride != row.stride {
				t.Errorf("%v: matrix %d is %+v in columns and %+v in rows", &g, i, col, row)
			}
		}
	}
}

func TestEpiloguesNeedWhatTheyWorkOn(t *testing.T) {
	for _, c := range []struct {
		e    Epilogue
		bias int
		aux  int64
	}{{Plain, 0, 0}, {Bias, 130, 0}, {BiasReLU, 130, 0}, {BiasReLUMask, 130, 5 * 256 / 8}, {MaskBiasGrad, 130, 5 * 256 / 8}, {BiasGradA, 5, 0}, {BiasGradB, 130, 0}} {
		d := PlanDesc{Gemm: Gemm{DType: F32, M: 5, N: 130, K: 7}, Epilogue: c.e}
		if d.BiasLen() != c.bias || d.AuxBytes() != c.aux || d.AuxLD() != 256 {
			t.Errorf("%v: bias of %d, aux of %d B in rows of %d bits; want %d, %d and 256", c.e, d.BiasLen(), d.AuxBytes(), d.AuxLD(), c.bias, c.aux)
		}
		all := Operands{A: 256, B: 512, C: 768, Bias: 1024, Aux: 1280, Workspace: 1536}
		if err := d.fits(all); err != nil {
			t.Errorf("%v: %v", c.e, err)
		}
		for name, change := range map[string]struct {
			do    func(o *Operands)
			wrong bool
		}{
			"no A": {func(o *Operands) { o.A = 0 }, true}, "no B": {func(o *Operands) { o.B = 0 }, true}, "no C": {func(o *Operands) { o.C = 0 }, true},
			"no bias": {func(o *Operands) { o.Bias = 0 }, c.bias > 0}, "no aux": {func(o *Operands) { o.Aux = 0 }, c.aux > 0},
			"askew A": {func(o *Operands) { o.A += 16 }, true}, "askew C": {func(o *Operands) { o.C += 128 }, true},
			"askew bias": {func(o *Operands) { o.Bias += 16 }, c.bias > 0}, "askew aux": {func(o *Operands) { o.Aux += 16 }, c.aux > 0},
			"askew workspace": {func(o *Operands) { o.Workspace += 16 }, true},
		} {
			o := all
			change.do(&o)
			if err := d.fits(o); change.wrong != errors.Is(err, cuda.ErrInvalid) || !change.wrong && err != nil {
				t.Errorf("%v, %s: %v", c.e, name, err)
			}
		}
		d.AlignBytes = 16
		all.A += 16
		all.Bias += 16
		if err := d.fits(all); err != nil {
			t.Errorf("%v with AlignBytes 16: %v", c.e, err)
		}
	}
}

func TestTheFastestThatWorksIsTaken(t *testing.T) {
	for _, c := range []struct {
		times []time.Duration
		want  int
	}{{nil, -1}, {[]time.Duration{0, 0}, -1}, {[]time.Duration{5, 3, 4}, 1}, {[]time.Duration{0, 3, 3}, 1}, {[]time.Duration{2, 0, 3}, 0}} {
		if got := fastest(c.times); got != c.want {
			t.Errorf("%v: %d, want %d", c.times, got, c.want)
		}
	}
	works := usable([]heuristicResult{
		{algo: algo{1}, workspace: 100}, {algo: algo{2}, workspace: 101}, {algo: algo{3}, state: 15}, {algo: algo{4}},
	}, 100)
	var first []uint64
	for _, w := range works {
		first = append(first, w.algo[0])
	}
	if !slices.Equal(first, []uint64{1, 4}) {
		t.Errorf("%v are usable, want 1 and 4", first)
	}
}

func TestCandidatesAreTakenByNumber(t *testing.T) {
	p := &Plan{h: &Handle{handle: 1}, op: 1, timed: []candidate{
		{heuristicResult{algo: algo{7}, workspace: 64}, "algorithm 7", 5},
		{heuristicResult{algo: algo{8}}, "algorithm 8", 0},
		{heuristicResult{algo: algo{9}, workspace: 32}, "algorithm 9", 3},
	}}
	p.desc = PlanDesc{Gemm: Gemm{DType: F32, M: 5, N: 3, K: 7}}
	names, took := p.Candidates()
	if !slices.Equal(names, []string{"algorithm 7", "algorithm 8", "algorithm 9"}) || !slices.Equal(took, []time.Duration{5, 0, 3}) {
		t.Errorf("candidates %q took %v", names, took)
	}
	for i, want := range map[int]string{
		0: "gemm f32 5x3x7 nn plain: algorithm 7; workspace 64 B; number 1 of 3, 5ns",
		2: "gemm f32 5x3x7 nn plain: algorithm 9; workspace 32 B; the fastest of 3, 3ns",
	} {
		c := &p.timed[i]
		if err := p.Take(i); err != nil || p.String() != want || p.algo != c.algo || p.WorkspaceBytes() != int64(c.workspace) || p.Took() != c.took {
			t.Errorf("candidate %d: %v, %v with %v, want %s", i, err, p, p.algo, want)
		}
	}
	before := *p
	for i, why := range map[int]string{-1: "candidate -1 of 3", 1: "algorithm 8, does not work", 3: "candidate 3 of 3"} {
		if err := p.Take(i); !errors.Is(err, cuda.ErrInvalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("candidate %d: error %v, want ErrInvalid with %q", i, err, why)
		}
	}
	if p.algo != before.algo || p.chosen != before.chosen {
		t.Errorf("a refusal has changed %v", p)
	}
	p.op = 0
	if err := p.Take(0); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

func TestClosedPlansRefuse(t *testing.T) {
	p := &Plan{h: &Handle{lib: &Library{name: "cuBLAS 13.0.2 (x)"}}, chosen: "algorithm 1"}
	p.desc = PlanDesc{Gemm: Gemm{DType: F32, M: 5, N: 3, K: 7}, Epilogue: BiasReLU, MaxWorkspaceBytes: 64}
	if err := p.Run(nil, Operands{}); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if p.String() != "gemm f32 5x3x7 nn bias-relu: algorithm 1" {
		t.Error(p)
	}
	if err := p.none(); !errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), "cuBLAS 13.0.2 (x) proposes no algorithm with operands at multiples of 256 B and 64 B of workspace") {
		t.Error(err)
	}
}
