package optim

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// onDevice is an engine whose memory the host cannot read.
type onDevice struct{ gtensor.StdEng }

func (onDevice) AllocAccessible() bool { return false }

func slicedDense(t *testing.T, d *gtensor.Dense, slices ...gtensor.Slice) *gtensor.Dense {
	t.Helper()
	v, err := d.Slice(slices...)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*gtensor.Dense)
}

func TestFlattenTakesContiguousMemoryWithoutACopy(t *testing.T) {
	data := []float32{0, 1, 2, 3, 4, 5}
	matrix := denseOf(data, 3, 2)
	scalar := gorgonia.NewF64(7)
	for _, c := range []struct {
		name  string
		value gorgonia.Value
		first any
		size  int
	}{
		{"matrix", matrix, &data[0], 6},
		{"second header over the same memory", denseOf(data, 6), &data[0], 6},
		{"rows of a matrix", slicedDense(t, matrix, gorgonia.S(1, 3)), &data[2], 4},
		{"one row", slicedDense(t, matrix, gorgonia.S(1)), &data[2], 2},
		{"column vector", denseOf(data, 6, 1), &data[0], 6},
		{"row vector", denseOf(data, 1, 6), &data[0], 6},
		{"rank 0", gtensor.New(gtensor.FromScalar(float32(3))), nil, 1},
		{"scalar", scalar, (*float64)(scalar), 1},
	} {
		f, err := flatten(c.value)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(f.f32)+len(f.f64) != c.size {
			t.Errorf("%s: %d elements, want %d", c.name, len(f.f32)+len(f.f64), c.size)
		}
		switch first := c.first.(type) {
		case *float32:
			if &f.f32[0] != first {
				t.Errorf("%s: it is a copy", c.name)
			}
		case *float64:
			if &f.f64[0] != first {
				t.Errorf("%s: it is a copy", c.name)
			}
		}
	}
}

func TestFlattenRefusesWhatIsNotFlat(t *testing.T) {
	matrix := func() *gtensor.Dense { return denseOf([]float64{0, 1, 2, 3, 4, 5}, 3, 2) }
	transposed := matrix()
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	square := denseOf([]float64{0, 1, 2, 3}, 2, 2)
	if err := square.T(); err != nil {
		t.Fatal(err)
	}
	var noDense *gtensor.Dense
	var noF32 *gorgonia.F32
	for _, c := range []struct {
		name  string
		value gorgonia.Value
		kind  error
		says  string
	}{
		{"nil", nil, ErrNoGradient, "run the VM"},
		{"nil dense", noDense, ErrNoGradient, "nil *tensor.Dense"},
		{"nil scalar", noF32, ErrNoGradient, "nil *gorgonia.F32"},
		{"transposed", transposed, ErrUnsupported, "shape (2, 3) with strides [1 2] is a view"},
		{"transposed square", square, ErrUnsupported, "Materialize"},
		{"column of a matrix", slicedDense(t, matrix(), nil, gorgonia.S(1)), ErrUnsupported, "strides [2]"},
		{"column major", gtensor.New(gtensor.WithShape(3, 2), gtensor.AsFortran(make([]float64, 6))), ErrUnsupported, "C order"},
		{"integers", gtensor.New(gtensor.Of(gtensor.Int), gtensor.WithShape(2, 2)), ErrUnsupported, "dtype int"},
		{"integer scalar", gorgonia.NewI(3), ErrUnsupported, "*gorgonia.I int"},
		{"masked", gtensor.New(gtensor.WithShape(2), gtensor.WithBacking([]float32{1, 2}, []bool{true, false})), ErrUnsupported, "masked"},
		{"on a device", gtensor.New(gtensor.Of(gtensor.Float32), gtensor.WithShape(2), gtensor.WithEngine(onDevice{})), ErrUnsupported, "on a device"},
	} {
		_, err := flatten(c.value)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want %v saying %q", c.name, err, c.kind, c.says)
		}
	}
}

func TestSameOrderIgnoresOnlyDimsOfOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dims := rapid.SliceOfN(rapid.IntRange(1, 3), 0, 5)
		a, b := dims.Draw(t, "a"), dims.Draw(t, "b")
		if rapid.Bool().Draw(t, "related") {
			b = slices.Insert(slices.Clone(a), rapid.IntRange(0, len(a)).Draw(t, "at"), 1)
		}
		one := func(d int) bool { return d == 1 }
		want := slices.Equal(slices.DeleteFunc(slices.Clone(a), one), slices.DeleteFunc(slices.Clone(b), one))
		if got := sameOrder(a, b); got != want {
			t.Fatalf("%v and %v: %t, want %t", a, b, got, want)
		}
	})
}
