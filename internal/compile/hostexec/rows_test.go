package hostexec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// middles is spaces (outer, axis, inner): short and long rows, columns, one element, nothing.
var middles = [][3]int{
	{1, 1, 1},
	{4, 10, 1},
	{128, 10, 1},
	{3, 32, 1},
	{3, 33, 1},
	{5, 64, 1},
	{2, 1000, 1},
	{700, 40, 1},
	{2, 5, 3},
	{1, 7, 256},
	{2, 3, 300},
	{0, 4, 1},
	{3, 0, 2},
	{2, 4, 0},
	{1, 50, 17},
}

var floats = []tensor.DType{tensor.F32, tensor.F64, tensor.BF16}

// eachMiddle runs a program of one step for each of middles and floats.
func eachMiddle(t *testing.T, f func(b *build, dt tensor.DType, s [3]int)) {
	for _, s := range middles {
		for _, dt := range floats {
			t.Run(fmt.Sprint(s, dt), func(t *testing.T) {
				b := newBuild()
				f(b, dt, s)
				r := rand.New(rand.NewPCG(3, 4))
				agree(t, t, &b.Program, contents(&b.Program, normal(r)), 2e-6)
			})
		}
	}
}

func TestSoftmaxEqualsTheOracle(t *testing.T) {
	for _, log := range []bool{false, true} {
		eachMiddle(t, func(b *build, dt tensor.DType, s [3]int) {
			x, y := b.value("x", dt, s[:]...), b.value("y", dt, s[:]...)
			b.step(&program.Softmax{Outer: s[0], Axis: s[1], Inner: s[2], Log: log}, views(x), views(y))
		})
		eachMiddle(t, func(b *build, dt tensor.DType, s [3]int) {
			x, y := b.value("x", dt, s[:]...), b.value("y", dt, s[:]...)
			dy, dx := b.value("dy", dt, s[:]...), b.value("dx", dt, s[:]...)
			b.step(&program.Softmax{Outer: s[0], Axis: s[1], Inner: s[2], Log: log}, views(x), views(y))
			b.step(&program.SoftmaxGrad{Outer: s[0], Axis: s[1], Inner: s[2], Log: log}, views(y, dy), views(dx))
		})
	}
}

func TestSoftmaxOfLargeNumbersStaysFinite(t *testing.T) {
	for _, log := range []bool{false, true} {
		for _, n := range []int{5, 100} {
			b := newBuild()
			b.step(&program.Softmax{Outer: 2, Axis: n, Inner: 1, Log: log}, views(b.value("x", tensor.F32, 2, n, 1)), views(b.value("y", tensor.F32, 2, n, 1)))
			i := 0
			agree(t, t, &b.Program, contents(&b.Program, func() float64 { i++; return 1000 - 7*float64(i%13) }), 1e-6)
		}
	}
}

func TestCrossEntropyEqualsTheOracle(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {128, 10}, {3, 257}, {7, 1000}, {500, 33}} {
		for _, dt := range floats {
			for _, graded := range []bool{false, true} {
				t.Run(fmt.Sprint(s, dt, graded), func(t *testing.T) {
					b := newBuild()
					out := views(b.value("loss", dt), b.value("dx", dt, s[0], s[1]))
					if !graded {
						out = out[:1]
					}
					b.step(&program.CrossEntropy{Rows: s[0], Classes: s[1]}, views(b.value("x", dt, s[0], s[1]), b.value("t", dt, s[0], s[1])), out)
					r := rand.New(rand.NewPCG(3, 4))
					memory := contents(&b.Program, normal(r))
					targets := memory[b.Steps[0].In[1].Value]
					clear(targets)
					for i := range s[0] {
						program.SetElement(dt, targets, i*s[1]+r.IntN(s[1]), 1/float64(s[0]))
						program.SetElement(dt, targets, i*s[1]+r.IntN(s[1]), 0.25/float64(s[0]))
					}
					agree(t, t, &b.Program, memory, 2e-6)
				})
			}
		}
	}
}

// A class that cannot be and is not asked for costs nothing.
func TestCrossEntropyOfAnImpossibleClassIsFinite(t *testing.T) {
	b := newBuild()
	b.step(&program.CrossEntropy{Rows: 1, Classes: 9}, views(b.value("x", tensor.F32, 1, 9), b.value("t", tensor.F32, 1, 9)), views(b.value("loss", tensor.F32), b.value("dx", tensor.F32, 1, 9)))
	memory := contents(&b.Program, func() float64 { return 0 })
	program.SetElement(tensor.F32, memory[b.Steps[0].In[0].Value], 3, math.Inf(-1))
	program.SetElement(tensor.F32, memory[b.Steps[0].In[1].Value], 5, 1)
	agree(t, t, &b.Program, memory, 1e-6)
}

func TestGatherEqualsTheOracle(t *testing.T) {
	for _, s := range [][4]int{{1, 10, 4, 6}, {3, 7, 5, 20}, {1, 1000, 64, 300}, {2, 50, 1, 9}, {1, 5, 700, 3}, {1, 4, 3, 0}, {1, 4, 0, 3}} {
		for _, index := range []tensor.DType{tensor.F32, tensor.I64, tensor.U8, tensor.F64} {
			for _, dt := range floats {
				b := newBuild()
				b.step(&program.Gather{Outer: s[0], Axis: s[1], Inner: s[2], Count: s[3]},
					views(b.value("x", dt, s[0], s[1], s[2]), b.value("i", index, s[3])), views(b.value("y", dt, s[0], s[3], s[2])))
				b.step(&program.GatherGrad{Outer: s[0], Axis: s[1], Inner: s[2], Count: s[3]},
					views(b.value("dy", dt, s[0], s[3], s[2]), b.Steps[0].In[1]), views(b.value("dx", dt, s[0], s[1], s[2])))
				r := rand.New(rand.NewPCG(3, 4))
				memory := contents(&b.Program, normal(r))
				numbers(index, memory[b.Steps[0].In[1].Value], func() float64 { return float64(r.IntN(min(s[1], 200))) })
				agree(t, t, &b.Program, memory, 1e-6)
			}
		}
	}
}

func TestGatherNamesAnIndexOutOfRange(t *testing.T) {
	for _, bad := range []float64{-1, 4, math.NaN()} {
		b := newBuild()
		b.step(&program.Gather{Outer: 1, Axis: 4, Inner: 2, Count: 3}, views(b.value("x", tensor.F32, 1, 4, 2), b.value("i", tensor.F32, 3)), views(b.value("y", tensor.F32, 1, 3, 2)))
		memory := contents(&b.Program, func() float64 { return 1 })
		program.SetElement(tensor.F32, memory[b.Steps[0].In[1].Value], 2, bad)
		r, err := New(&b.Program, Config{Threads: 2}, program.Env{})
		if err != nil {
			t.Fatal(err)
		}
		bindAll(t, r, &b.Program, memory)
		err = r.Run()
		if err == nil || !strings.Contains(err.Error(), `step 0 "s0"`) || !strings.Contains(err.Error(), fmt.Sprintf("index 2 is %g; there are 4 rows", bad)) {
			t.Errorf("index %v: %v", bad, err)
		}
		program.SetElement(tensor.F32, memory[b.Steps[0].In[1].Value], 2, 3)
		if err := r.Run(); err != nil {
			t.Errorf("after the index was mended: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
