package cudnn

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

func TestResultsAreAsLargeAsTheWindowFits(t *testing.T) {
	for _, c := range []struct {
		d    ConvDesc
		p, q int
	}{
		{ConvDesc{H: 28, W: 28, R: 3, S: 3}, 26, 26},
		{ConvDesc{H: 28, W: 28, R: 3, S: 3, PadH: 1, PadW: 1}, 28, 28},
		{ConvDesc{H: 28, W: 27, R: 5, S: 3, PadH: 2, PadW: 0, StrideH: 2, StrideW: 3}, 14, 9},
		{ConvDesc{H: 7, W: 9, R: 3, S: 3, DilationH: 3, DilationW: 2}, 1, 5},
		{ConvDesc{H: 6, W: 9, R: 3, S: 3, DilationH: 3, DilationW: 2}, 0, 5},
		{ConvDesc{H: 1, W: 1, R: 1, S: 1}, 1, 1},
	} {
		c.d.N, c.d.C, c.d.K = 1, 1, 1
		if p, q := c.d.Out(); p != c.p || q != c.q {
			t.Errorf("%v: %d by %d, want %d by %d", c.d, p, q, c.p, c.q)
		}
	}
	for _, c := range []struct {
		d    PoolDesc
		p, q int
	}{
		{PoolDesc{H: 28, W: 28, R: 2, S: 2, StrideH: 2, StrideW: 2}, 14, 14},
		{PoolDesc{H: 7, W: 8, R: 3, S: 2, PadH: 1, StrideH: 2, StrideW: 3}, 4, 3},
		{PoolDesc{H: 4, W: 4, R: 4, S: 3}, 1, 2},
	} {
		if p, q := c.d.Out(); p != c.p || q != c.q {
			t.Errorf("%v: %d by %d, want %d by %d", c.d, p, q, c.p, c.q)
		}
	}
}

func TestConvolutionsThatCannotBeAreRefused(t *testing.T) {
	good := ConvDesc{DType: F32, N: 2, C: 4, H: 8, W: 9, K: 6, R: 3, S: 3}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(d *ConvDesc)
		why    string
	}{
		"no type":   {func(d *ConvDesc) { d.DType = 0 }, "unknown element type"},
		"math":      {func(d *ConvDesc) { d.DType, d.Math = F16, TF32 }, "math 1 for elements of f16"},
		"new math":  {func(d *ConvDesc) { d.Math = 7 }, "math 7"},
		"no images": {func(d *ConvDesc) { d.N = 0 }, "at least 1"},
		"filter":    {func(d *ConvDesc) { d.R = -1 }, "at least 1"},
		"padding":   {func(d *ConvDesc) { d.PadW = -1 }, "must not be negative"},
		"stride":    {func(d *ConvDesc) { d.StrideH = -2 }, "must not be negative"},
		"dilation":  {func(d *ConvDesc) { d.DilationW = -2 }, "must not be negative"},
		"groups":    {func(d *ConvDesc) { d.Groups = 3 }, "3 groups do not divide 4 and 6"},
		"window":    {func(d *ConvDesc) { d.DilationH = 4 }, "larger than the image"},
		"huge":      {func(d *ConvDesc) { d.N = math.MaxInt32 }, "more than 2147483647 elements"},
		"far":       {func(d *ConvDesc) { d.PadH = math.MaxInt32 }, "at most"},
		"passes":    {func(d *ConvDesc) { d.Passes = 8 }, "passes 0x8"},
		"workspace": {func(d *ConvDesc) { d.MaxWorkspaceBytes = -1 }, "MaxWorkspaceBytes -1"},
	} {
		d := good
		c.change(&d)
		if err := d.Validate(); !errors.Is(err, cuda.ErrInvalid) || !strings.HasPrefix(err.Error(), "cudnn: ") || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: error %v, want ErrInvalid with %q", name, err, c.why)
		}
		if v, err := (&Handle{handle: 1}).NewConv(d); v != nil || !errors.Is(err, cuda.ErrInvalid) {
			t.Errorf("%s: NewConv answers %v", name, err)
		}
	}
}

func TestPoolingsThatCannotBeAreRefused(t *testing.T) {
	good := PoolDesc{DType: F32, N: 2, C: 4, H: 8, W: 9, R: 3, S: 2}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(d *PoolDesc)
		why    string
	}{
		"no type":  {func(d *PoolDesc) { d.DType = 9 }, "unknown element type"},
		"mode":     {func(d *PoolDesc) { d.Mode = 9 }, "mode 9"},
		"channels": {func(d *PoolDesc) { d.C = 0 }, "at least 1"},
		"padding":  {func(d *PoolDesc) { d.PadW = 2 }, "smaller than the window"},
		"stride":   {func(d *PoolDesc) { d.StrideW = -1 }, "must not be negative"},
		"window":   {func(d *PoolDesc) { d.R = 9 }, "larger than the image"},
		"huge":     {func(d *PoolDesc) { d.N = math.MaxInt32 }, "more than 2147483647 elements"},
		"far":      {func(d *PoolDesc) { d.StrideH = math.MaxInt32 }, "at most"},
	} {
		d := good
		c.change(&d)
		if err := d.Validate(); !errors.Is(err, cuda.ErrInvalid) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: error %v, want ErrInvalid with %q", name, err, c.why)
		}
		if v, err := (&Handle{handle: 1}).NewPool(d); v != nil || !errors.Is(err, cuda.ErrInvalid) {
			t.Errorf("%s: NewPool answers %v", name, err)
		}
	}
}

func TestDescriptionsSayWhatTheyAre(t *testing.T) {
	d := ConvDesc{DType: F32, N: 256, C: 1, H: 28, W: 28, K: 32, R: 3, S: 3, PadH: 1, PadW: 1}
	if got := d.String(); got != "conv f32 256x1x28x28 * 32x1x3x3 pad 1x1" {
		t.Error(got)
	}
	d = ConvDesc{DType: F32, Math: TF32, N: 1, C: 4, H: 8, W: 9, K: 6, R: 3, S: 2, StrideH: 2, DilationW: 3, Groups: 2}
	if got := d.String(); got != "conv f32 tf32 1x4x8x9 * 6x2x3x2 stride 2x1 dilation 1x3 groups 2" {
		t.Error(got)
	}
	p := PoolDesc{DType: BF16, Mode: AverageExclude, N: 2, C: 3, H: 8, W: 9, R: 3, S: 2, PadH: 1, StrideH: 2}
	if got := p.String(); got != "average-inside pool bf16 2x3x8x9 window 3x2 pad 1x0 stride 2x1" {
		t.Error(got)
	}
	c := &Conv{desc: d.filled()}
	c.directions[0] = direction{pass: Forward, name: "forward", conv: 1, names: forwardNames[:], candidate: candidate{algo: 1, math: mathFMA, bytes: 64}}
	c.directions[2] = direction{
		pass: BackwardFilter, name: "filter", conv: 1, names: filterNames[:],
		candidate: candidate{algo: 9, math: mathTensorOp, bytes: 1 << 20},
	}
	if got := c.String(); got != d.String()+": forward implicit-precomp-gemm fma 64 B, filter #9 tensor 1048576 B" {
		t.Error(got)
	}
	if c.WorkspaceBytes() != 1<<20 {
		t.Errorf("%d B of workspace", c.WorkspaceBytes())
	}
}

func TestCandidatesAreInTheOrderOfTheirNumbers(t *testing.T) {
	list := inOrder([]candidate{
		{algo: 6, math: mathFMA, ms: 1},
		{algo: 1, math: mathTensorOp, ms: 2},
		{algo: 1, math: mathFMA, ms: 3},
		{algo: 0, math: mathFMA},
		{algo: 1, math: mathFMA, ms: 0},
		{algo: 0, math: mathFMA, ms: 4, bytes: 8},
		{algo: 1, math: mathFMA, ms: 2.5},
		{algo: 3},
	})
	c := &Conv{h: &Handle{handle: 1}, desc: ConvDesc{Passes: Forward}}
	c.directions[0] = direction{pass: Forward, names: forwardNames[:], timed: list}
	names, took := c.Candidates(Forward)
	want := []string{"implicit-gemm math 3", "implicit-precomp-gemm math 1", "implicit-precomp-gemm math 3", "direct math 0", "winograd math 3"}
	if !slices.Equal(names, want) || !slices.Equal(took, []time.Duration{4e6, 2e6, 25e5, 0, 1e6}) || list[0].bytes != 8 {
		t.Errorf("%q took %v", names, took)
	}
	if names, took := c.Candidates(BackwardData); names != nil || took != nil {
		t.Errorf("of a pass that it was not made for: %q, %v", names, took)
	}
	for _, k := range []struct {
		pass Pass
		i    int
		why  string
	}{{Forward, 5, "no candidate 5"}, {Forward, -1, "no candidate -1"}, {Forward, 3, "candidate 3 does not work"}, {BackwardData, 0, "no candidate 0 of pass 2"}} {
		if err := c.Take(k.pass, k.i); !errors.Is(err, cuda.ErrInvalid) || !strings.Contains(err.Error(), k.why) {
			t.Errorf("%+v: error %v", k, err)
		}
	}
	c.closed = true
	if err := c.Take(Forward, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

func TestWhatIsClosedRefuses(t *testing.T) {
	h := &Handle{}
	d := ConvDesc{DType: F32, N: 2, C: 4, H: 8, W: 9, K: 6, R: 3, S: 3}
	pd := PoolDesc{DType: F32, N: 2, C: 4, H: 8, W: 9, R: 3, S: 2}
	c, p := &Conv{h: h, desc: d.filled()}, &Pool{h: h, desc: pd}
	_, conv := h.NewConv(d)
	_, pool := h.NewPool(pd)
	for name, err := range map[string]error{
		"stream": h.SetStream(nil), "conv": conv, "pool": pool, "forward": c.Forward(1, 1, 1, 1), "data": c.BackwardData(1, 1, 1, 1),
		"filter": c.BackwardFilter(1, 1, 1, 1), "pool forward": p.Forward(1, 1), "pool backward": p.Backward(1, 1, 1, 1),
	} {
		if !errors.Is(err, ErrClosed) || !errors.Is(err, cuda.ErrClosed) {
			t.Errorf("%s: error %v, want ErrClosed", name, err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	h.handle = 1
	c.desc.Passes = Forward
	c.directions[0], c.directions[1] = direction{pass: Forward, name: "forward", candidate: candidate{bytes: 64}}, direction{pass: BackwardData, name: "data"}
	for name, f := range map[string]struct {
		err error
		why string
	}{
		"no y":         {c.Forward(1, 1, 0, 1), "forward without memory"},
		"no workspace": {c.Forward(1, 1, 1, 0), "workspace 0x0 of 64 B"},
		"no pass":      {c.BackwardData(1, 1, 1, 1), "made without the pass data"},
		"pool no y":    {p.Forward(1, 0), "without memory"},
		"pool no x":    {p.Backward(1, 1, 0, 1), "without memory"},
	} {
		if !errors.Is(f.err, cuda.ErrInvalid) || !strings.Contains(f.err.Error(), f.why) {
			t.Errorf("%s: error %v, want ErrInvalid with %q", name, f.err, f.why)
		}
	}
}
