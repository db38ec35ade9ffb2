package cudagen

import (
	"math"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// square is a window of r by r of an image, as far as it goes, with padding on all sides.
func square(n, c, h, w, r, pad, stride, dilation int) program.Window {
	reach := dilation*(r-1) + 1
	return program.Window{
		N: n, C: c, H: h, W: w, R: r, S: r, PadH: pad, PadW: pad, StrideH: stride, StrideW: stride, DilationH: dilation, DilationW: dilation,
		OutH: (h+2*pad-reach)/stride + 1, OutW: (w+2*pad-reach)/stride + 1,
	}
}

// apartCases are windows that do not overlap, with and without elements outside of all windows, on
// numbers of which many are equal.
func apartCases() *builder {
	b := newBuilder("apart")
	wide := square(2, 3, 6, 12, 2, 0, 2, 1)
	wide.R, wide.StrideH, wide.OutH = 3, 3, 2
	early := square(2, 3, 9, 12, 2, 0, 2, 1)
	early.OutH, early.OutW = 3, 4 // ends before it must
	for _, dt := range floats {
		for _, w := range []program.Window{
			square(3, 5, 12, 16, 2, 0, 2, 1), square(3, 5, 14, 14, 2, 0, 2, 1), square(2, 3, 13, 12, 2, 0, 2, 1), square(2, 3, 12, 13, 2, 0, 2, 1),
			square(2, 3, 7, 7, 2, 0, 2, 1), square(2, 3, 9, 12, 3, 0, 3, 1), square(2, 3, 11, 13, 3, 0, 3, 1), square(1, 1, 8, 8, 4, 0, 4, 1),
			square(2, 3, 5, 5, 5, 0, 5, 1), square(2, 2, 3, 8, 1, 0, 1, 1), wide, early,
		} {
			b.maxPools(dt, w, 0)
		}
		b.maxPools(dt, square(2, 3, 12, 16, 2, 0, 2, 1), 1)
	}
	b.maxPools(tensor.F32, square(256, 32, 28, 28, 2, 0, 2, 1), 0)
	b.maxPools(tensor.F32, square(256, 64, 14, 14, 2, 0, 2, 1), 0)
	return b
}

// maxPools adds a MaxPool and its gradient, offset elements after aligned addresses. Among the
// numbers are NaN and both infinities, also in one window.
func (b *builder) maxPools(dt tensor.DType, w program.Window, offset int) {
	behind := func(bound bounds, shape ...int) program.View {
		size := 1
		for _, d := range shape {
			size *= d
		}
		return program.View{Value: b.value(dt, bound, size+offset), Offset: offset, Strides: program.Contiguous(shape)}
	}
	image := behind(bounds{-4, 4}, w.N, w.C, w.H, w.W)
	data := b.memory[image.Value]
	for i := range b.p.Values[image.Value].Len() {
		x := math.Trunc(program.Element(dt, data, i))
		switch {
		case i%89 == 5:
			x = math.NaN()
		case i%7 == 1:
			x = math.Inf(-1)
		case i%13 == 4:
			x = math.Inf(1)
		}
		program.SetElement(dt, data, i, x)
	}
	y := behind(bounds{7, 7}, w.N, w.C, w.OutH, w.OutW)
	b.step(&program.MaxPool{Window: w}, views(image), views(y))
	dy := behind(bounds{-1, 1}, w.N, w.C, w.OutH, w.OutW)
	b.step(&program.MaxPoolGrad{Window: w}, views(image, y, dy), views(behind(bounds{7, 7}, w.N, w.C, w.H, w.W)))
}

// thinCases is convolutions of few channels and their gradients for the filter.
func thinCases() *builder {
	b := newBuilder("thin")
	uneven := square(5, 2, 9, 11, 3, 0, 1, 1)
	uneven.PadH, uneven.PadW, uneven.OutH, uneven.OutW = 2, 1, 12, 11 // more padding before than after, and the other way
	oblong := square(2, 2, 12, 10, 3, 1, 1, 1)
	oblong.S, oblong.StrideW, oblong.PadW, oblong.OutW = 2, 2, 0, 5
	for _, dt := range floats {
		for i, w := range []program.Window{
			square(1, 1, 28, 28, 3, 1, 1, 1), square(7, 3, 16, 16, 3, 1, 1, 1), square(3, 3, 15, 17, 3, 1, 2, 1), square(4, 1, 14, 14, 3, 2, 1, 2),
			uneven, oblong, square(2, 1, 13, 13, 5, 0, 1, 1), square(3, 8, 6, 6, 2, 0, 2, 1), square(130, 1, 12, 12, 3, 1, 1, 1),
			square(9, 32, 4, 8, 1, 0, 1, 1), square(3, 1, 40, 36, 5, 2, 4, 1),
		} {
			k := []int{32, 13, 5, 70, 1, 9, 33, 6, 11, 3, 130}[i]
			b.thinConvs(dt, w, k, bounds{-0.5, 0.5})
		}
	}
	b.thinConvs(tensor.F32, square(256, 1, 28, 28, 3, 1, 1, 1), 32, bounds{-0.05, 0.05})
	return b
}

func (b *builder) thinConvs(dt tensor.DType, w program.Window, k int, bound bounds) {
	x := b.whole(dt, bound, w.N, w.C, w.H, w.W)
	b.step(&program.Conv{Window: w, K: k}, views(x, b.whole(dt, bound, k, w.C, w.R, w.S)), views(b.empty(dt, w.N, k, w.OutH, w.OutW)))
	b.step(&program.ConvGradFilter{Window: w, K: k}, views(x, b.whole(dt, bound, w.N, k, w.OutH, w.OutW)), views(b.empty(dt, k, w.C, w.R, w.S)))
}

// The steps of a CNN's first layers get kernels of their own, with blocks for all multiprocessors.
// Windows that are larger or overlap, or another type of y, do not.
func TestThinAndApartStepsHaveTheirKernels(t *testing.T) {
	f32 := func(b *builder, w *program.Window, k int) (x, filter, y program.View) {
		return b.empty(tensor.F32, w.N, w.C, w.H, w.W), b.empty(tensor.F32, k, w.C, w.R, w.S), b.empty(tensor.F32, w.N, k, w.OutH, w.OutW)
	}
	type chosen struct {
		w             program.Window
		forward, back string
	}
	b := newBare("chosen")
	var want []string
	for _, c := range []chosen{
		{square(256, 1, 28, 28, 3, 1, 1, 1), "thinConv_", "thinGradFilter_"},
		{square(64, 3, 32, 32, 3, 1, 1, 1), "thinConv_", "thinGradFilter_"},
		{square(32, 4, 28, 28, 3, 1, 1, 1), "conv_", "convGradFilter_"},
		{square(32, 2, 28, 28, 3, 2, 1, 2), "conv_", "convGradFilter_"},
	} {
		x, filter, y := f32(b, &c.w, 32)
		b.step(&program.Conv{Window: c.w, K: 32}, views(x, filter), views(y))
		b.step(&program.ConvGradFilter{Window: c.w, K: 32}, views(x, y), views(filter))
		want = append(want, c.forward, c.back)
	}
	for _, c := range []chosen{
		{square(256, 32, 28, 28, 2, 0, 2, 1), "maxPoolApart_", "maxPoolGradApart_"},
		{square(256, 32, 28, 28, 3, 0, 2, 1), "maxPool_", "maxPoolGrad_"},
		{square(256, 32, 28, 28, 2, 1, 2, 1), "maxPool_", "maxPoolGrad_"},
	} {
		x, _, y := f32(b, &c.w, c.w.C)
		b.step(&program.MaxPool{Window: c.w}, views(x), views(y))
		b.step(&program.MaxPoolGrad{Window: c.w}, views(x, y, y), views(x))
		want = append(want, c.forward, c.back)
	}
	_, steps, err := Generate(b.p, b.target())
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range want {
		k := steps[i].Kernels[0]
		if !strings.HasPrefix(k.Name, name) {
			t.Errorf("%s: kernel %s, want %s", caseName(b.p, i), k.Name, name)
		}
		if ours := strings.HasPrefix(name, "thin") || strings.Contains(name, "Apart"); ours && k.Grid[0] < 132 {
			t.Errorf("%s: kernel %s has %d blocks, want 132 at least", caseName(b.p, i), k.Name, k.Grid[0])
		}
		if strings.HasPrefix(name, "thin") != Direct(b.p, i) {
			t.Errorf("%s: Direct is %v", caseName(b.p, i), Direct(b.p, i))
		}
	}
}

func TestDirectIsForNarrowElements(t *testing.T) {
	for dt, want := range map[tensor.DType]bool{tensor.F32: true, tensor.F16: true, tensor.BF16: true, tensor.F64: false} {
		b := newBuilder("direct")
		b.thinConvs(dt, square(2, 1, 8, 8, 3, 1, 1, 1), 4, bounds{})
		for i := range b.p.Steps {
			if Direct(b.p, i) != want {
				t.Errorf("%s: Direct is %v", caseName(b.p, i), !want)
			}
		}
	}
	for _, c := range []struct {
		dt           tensor.DType
		channels, k  int
		forward, bwd bool
	}{
		{tensor.F32, 3, 64, true, true},
		{tensor.F16, 3, 64, false, false},  // 27 products an element, which tensor cores make faster
		{tensor.F32, 30, 192, true, false}, // x would be read 64 times
	} {
		b := newBuilder("many")
		side := 3
		if c.channels > 3 {
			side = 1
		}
		w := square(2, c.channels, 8, 8, side, side/2, 1, 1)
		x, f, y := b.empty(c.dt, 2, c.channels, 8, 8), b.empty(c.dt, c.k, c.channels, side, side), b.empty(c.dt, 2, c.k, 8, 8)
		b.step(&program.Conv{Window: w, K: c.k}, views(x, f), views(y))
		b.step(&program.ConvGradFilter{Window: w, K: c.k}, views(x, y), views(f))
		if forward, bwd := Direct(b.p, 0), Direct(b.p, 1); forward != c.forward || bwd != c.bwd {
			t.Errorf("%v, %d channels, %d filters: Direct is %v and %v", c.dt, c.channels, c.k, forward, bwd)
		}
	}
	b := newBuilder("others")
	w := square(2, 1, 8, 8, 3, 1, 1, 1)
	y, f, x := b.empty(tensor.F32, 2, 4, 8, 8), b.empty(tensor.F32, 4, 1, 3, 3), b.empty(tensor.F32, 2, 1, 8, 8)
	b.step(&program.ConvGradInput{Window: w, K: 4}, views(y, f), views(x))
	b.step(&program.MaxPool{Window: w}, views(x), views(x))
	w.N = 0
	b.step(&program.Conv{Window: w, K: 4}, views(x, f), views(y))
	for i := range b.p.Steps {
		if Direct(b.p, i) {
			t.Errorf("%s: Direct is true", caseName(b.p, i))
		}
	}
}
