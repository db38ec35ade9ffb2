package hostexec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
	"pgregory.net/rapid"
)

// outOf is how many windows fit.
func outOf(n, tap, stride, dilation, pad int) int {
	return max(0, (n+2*pad-(tap-1)*dilation-1)/stride+1)
}

func drawWindow(t *rapid.T) program.Window {
	few := rapid.IntRange(1, 4)
	w := program.Window{
		N: rapid.IntRange(1, 5).Draw(t, "n"), C: few.Draw(t, "c"), H: rapid.IntRange(1, 12).Draw(t, "h"), W: rapid.IntRange(1, 20).Draw(t, "w"),
		R: few.Draw(t, "r"), S: few.Draw(t, "s"), StrideH: rapid.IntRange(1, 3).Draw(t, "sh"), StrideW: rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "sw"),
		DilationH: rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "dh"), DilationW: rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "dw"),
	}
	w.PadH, w.PadW = rapid.IntRange(0, w.R).Draw(t, "ph"), rapid.IntRange(0, w.S).Draw(t, "pw")
	if (w.R-1)*w.DilationH >= w.H+2*w.PadH {
		w.R = 1
	}
	if (w.S-1)*w.DilationW >= w.W+2*w.PadW {
		w.S = 1
	}
	w.OutH, w.OutW = outOf(w.H, w.R, w.StrideH, w.DilationH, w.PadH), outOf(w.W, w.S, w.StrideW, w.DilationW, w.PadW)
	return w
}

// windowSteps is all operations with a window, one after the other.
func windowSteps(b *build, w program.Window, k int, dt tensor.DType) {
	image := func(name string) program.View { return b.value(name, dt, w.N, w.C, w.H, w.W) }
	result := func(name string, k int) program.View { return b.value(name, dt, w.N, k, w.OutH, w.OutW) }
	filter := func(name string) program.View { return b.value(name, dt, k, w.C, w.R, w.S) }
	cols := func(name string) program.View { return b.value(name, dt, w.N, w.OutH, w.OutW, w.C*w.R*w.S) }
	x, f := image("x"), filter("f")
	b.step(&program.Conv{Window: w, K: k}, views(x, f), views(result("conv", k)))
	b.step(&program.ConvGradInput{Window: w, K: k}, views(result("dconv", k), f), views(image("dx")))
	b.step(&program.ConvGradFilter{Window: w, K: k}, views(x, result("dconv2", k)), views(filter("df")))
	b.step(&program.Im2Col{Window: w}, views(x), views(cols("cols")))
	b.step(&program.Col2Im{Window: w}, views(cols("dcols")), views(image("dximage")))
	y := result("max", w.C)
	b.step(&program.MaxPool{Window: w}, views(x), views(y))
	b.step(&program.MaxPoolGrad{Window: w}, views(x, y, result("dmax", w.C)), views(image("dxmax")))
	b.step(&program.AvgPool{Window: w}, views(x), views(result("avg", w.C)))
	b.step(&program.AvgPoolGrad{Window: w}, views(result("davg", w.C)), views(image("dxavg")))
}

func TestRandomWindowsEqualTheOracle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBuild()
		w := drawWindow(rt)
		dt := rapid.SampledFrom([]tensor.DType{tensor.F32, tensor.F32, tensor.F32, tensor.F64}).Draw(rt, "dtype")
		windowSteps(b, w, rapid.IntRange(1, 6).Draw(rt, "k"), dt)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		terms := w.N * w.OutH * w.OutW // of an element of the filter's gradient, each of about 1: sums in f32 in another order differ by as many units
		agree(t, rt, &b.Program, contents(&b.Program, normal(r)), max(2e-5, float64(terms)*0x1p-24))
	})
}

func TestHalfWindowsEqualTheOracle(t *testing.T) {
	b := newBuild()
	windowSteps(b, program.Window{N: 2, C: 2, H: 6, W: 7, R: 3, S: 3, PadH: 1, PadW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 6, OutW: 7}, 3, tensor.BF16)
	r := rand.New(rand.NewPCG(1, 1))
	// Gradients are sums of many rounded once by both.
	agree(t, t, &b.Program, contents(&b.Program, normal(r)), 0x1p-7)
}

// Windows that overlap, with padding, and windows that do not, over NaN, infinities, zeros of both
// signs and equal numbers: bit for bit.
func TestMaxPoolsOfNaNEqualTheOracle(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.F32, tensor.F64, tensor.BF16} {
		agreeOnMaxPools(t, dt, program.Window{H: 9, W: 40, R: 2, S: 2, PadH: 1, PadW: 1, StrideH: 1, StrideW: 1})
		for width := 2; width < 42; width++ { // rows of outputs of all lengths up to several vectors
			agreeOnMaxPools(t, dt, program.Window{H: 8 + width/2%2, W: width, R: 2, S: 2, StrideH: 2, StrideW: 2})
		}
	}
}

func agreeOnMaxPools(t *testing.T, dt tensor.DType, w program.Window) {
	t.Helper()
	w.N, w.C, w.DilationH, w.DilationW = 3, 2, 1, 1
	w.OutH, w.OutW = outOf(w.H, w.R, w.StrideH, 1, w.PadH), outOf(w.W, w.S, w.StrideW, 1, w.PadW)
	b := newBuild()
	x, dy := b.value("x", dt, w.N, w.C, w.H, w.W), b.value("dy", dt, w.N, w.C, w.OutH, w.OutW)
	y := b.value("y", dt, w.N, w.C, w.OutH, w.OutW)
	b.step(&program.MaxPool{Window: w}, views(x), views(y))
	b.step(&program.MaxPoolGrad{Window: w}, views(x, y, dy), views(b.value("dx", dt, w.N, w.C, w.H, w.W)))
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Inf(-1), 1, 2, 3, 0, math.Copysign(0, -1)}
	r := rand.New(rand.NewPCG(uint64(dt), uint64(w.W)))
	memory := contents(&b.Program, func() float64 { return odd[r.IntN(len(odd))] })
	numbers(dt, memory[dy.Value], func() float64 { return odd[r.IntN(len(odd))] })
	agree(t, t, &b.Program, memory, 0)
}

// Convolutions of many channels, images and pixels: several blocks, groups and panels. Integers, so
// that sums are exact.
func TestLargeConvolutionsEqualTheOracle(t *testing.T) {
	for _, w := range []program.Window{
		{N: 19, C: 3, H: 10, W: 9, R: 3, S: 3, PadH: 1, PadW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1},
		{N: 2, C: 24, H: 9, W: 40, R: 3, S: 5, PadH: 0, PadW: 2, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1},
		{N: 1, C: 6, H: 44, W: 61, R: 5, S: 5, PadH: 2, PadW: 2, StrideH: 2, StrideW: 1, DilationH: 1, DilationW: 1},
	} {
		if raceEnabled && w.N > 1 {
			continue // the race detector sees the same code in the last one
		}
		w.OutH, w.OutW = outOf(w.H, w.R, w.StrideH, w.DilationH, w.PadH), outOf(w.W, w.S, w.StrideW, w.DilationW, w.PadW)
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			b := newBuild()
			windowSteps(b, w, 17, tensor.F32)
			b.Steps = b.Steps[:3]
			r := rand.New(rand.NewPCG(1, 1))
			agree(t, t, &b.Program, contents(&b.Program, func() float64 { return float64(r.IntN(7) - 3) }), 0)
		})
	}
}

func TestBatchNormEqualsTheOracle(t *testing.T) {
	for _, s := range [][3]int{{1, 1, 1}, {64, 8, 49}, {4, 3, 2500}, {128, 300, 1}, {2, 5, 3}, {9, 1, 1}} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.F64, tensor.BF16} {
			for _, training := range []bool{true, false} {
				t.Run(fmt.Sprint(s, dt, training), func(t *testing.T) {
					b := newBuild()
					stats := dt
					if dt == tensor.BF16 {
						stats = tensor.F32
					}
					x := b.value("x", dt, s[:]...)
					mean, variance := b.value("mean", stats, s[1]), b.value("variance", stats, s[1])
					out := views(b.value("y", dt, s[:]...), b.value("m", stats, s[1]), b.value("rstd", stats, s[1]))
					if training {
						out = append(out, mean, variance)
					}
					b.step(&program.BatchNorm{N: s[0], C: s[1], Spatial: s[2], Momentum: 0.9, Epsilon: 1e-3, Unbias: 1.1, Training: training}, views(x, mean, variance), out)
					b.step(&program.BatchNormGrad{N: s[0], C: s[1], Spatial: s[2], Training: training},
						views(b.value("dy", dt, s[:]...), x, out[1], out[2]), views(b.value("dx", dt, s[:]...)))
					r := rand.New(rand.NewPCG(1, 1))
					memory := contents(&b.Program, normal(r))
					numbers(stats, memory[variance.Value], func() float64 { return 0.5 + r.Float64() })
					agree(t, t, &b.Program, memory, 1e-5)
				})
			}
		}
	}
}
