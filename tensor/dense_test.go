package tensor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	gtensor "gorgonia.org/tensor"
	"pgregory.net/rapid"
)

var errNoPeer = errors.New("no such rank")

// fakeRegion is a symmetric allocation of several ranks in one process: part[i] belongs to rank i.
type fakeRegion struct {
	rank  int
	parts []Buffer
}

func newRegion(t *testing.T, ranks, bytes int) *fakeRegion {
	t.Helper()
	r := &fakeRegion{}
	for range ranks {
		words := make([]uint64, (bytes+7)/8+1) // one more, so that bytes == 0 has an address
		b, err := FromPointer(unsafe.Pointer(&words[0]), bytes, U8, Host)
		if err != nil {
			t.Fatal(err)
		}
		r.parts = append(r.parts, b)
	}
	return r
}

func (r *fakeRegion) Local() Buffer { return r.parts[r.rank] }

func (r *fakeRegion) Peer(rank int) (Buffer, error) {
	if rank < 0 || rank >= len(r.parts) {
		return Buffer{}, errNoPeer
	}
	return r.parts[rank], nil
}

func TestNewLiesInTheRegion(t *testing.T) {
	r := newRegion(t, 1, 64)
	x, err := New(r, F32, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	if !x.Shape().Eq(gtensor.Shape{2, 3}) || x.Dtype() != gtensor.Float32 {
		t.Errorf("shape %v, dtype %v", x.Shape(), x.Dtype())
	}
	copy(x.Float32s(), []float32{1, 2, 3, 4, 5, 6})
	got, err := Data[float32](x.Buffer())
	if err != nil || !slices.Equal(got, []float32{1, 2, 3, 4, 5, 6}) {
		t.Errorf("the buffer holds %v, %v", got, err)
	}
	if x.Buffer().Pointer() != r.Local().Pointer() || x.Buffer().Bytes() != 24 {
		t.Errorf("%v at %v, the region is at %v", x.Buffer(), x.Buffer().Pointer(), r.Local().Pointer())
	}
	if _, err := x.Add(x.Dense, gtensor.UseUnsafe()); err != nil { // gorgonia's own arithmetic, in place
		t.Fatal(err)
	}
	if got[5] != 12 {
		t.Errorf("after x += x the heap holds %v", got)
	}
}

func TestNewKeepsItsOwnShape(t *testing.T) {
	shape := []int{2, 3}
	x, err := New(newRegion(t, 1, 24), F32, shape...)
	if err != nil {
		t.Fatal(err)
	}
	shape[0] = 99
	if !x.Shape().Eq(gtensor.Shape{2, 3}) || x.Buffer().Len() != 6 {
		t.Errorf("a change of the caller's slice made it %v, %v", x.Shape(), x.Buffer())
	}
}

func TestNewRefuses(t *testing.T) {
	r := newRegion(t, 1, 64)
	odd := &fakeRegion{parts: []Buffer{Of(Of(make([]uint64, 9)).Raw()[1:65])}}
	onGPU := &fakeRegion{parts: []Buffer{{ptr: r.Local().ptr, n: 64, bits: typeBitsOf(U8, CUDA(0))}}}
	for name, c := range map[string]struct {
		r     Region
		dt    DType
		shape []int
		want  string
	}{
		"no region":         {nil, F32, []int{2}, "no region"},
		"too large":         {r, F32, []int{17}, "needs 17 elements of 4 bytes, the region has 64"},
		"no dimension":      {r, F32, nil, "use (1)"},
		"zero dimension":    {r, F32, []int{2, 0}, "below 1"},
		"negative":          {r, F32, []int{-2, -2}, "below 1"},
		"product overflows": {r, F32, []int{1 << 32, 1 << 32}, "more elements than an int"},
		"bytes overflow":    {r, F64, []int{1 << 31, 1 << 31}, "the region has 64"},
		"no gorgonia type":  {r, BF16, []int{2}, "bf16 has no gorgonia"},
		"no type":           {r, Invalid, []int{2}, "no element type"},
		"unaligned":         {odd, F32, []int{2}, "aligned to 4"},
		"not on the host":   {onGPU, F32, []int{2}, "cuda:0"},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := New(c.r, c.dt, c.shape...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want an error with %q", err, c.want)
			}
			if x != nil {
				t.Error("a tensor with the error")
			}
			if _, err := Zeros(c.r, c.dt, c.shape...); err == nil {
				t.Error("Zeros takes it")
			}
		})
	}
}

func TestZerosClearsOnlyItsElements(t *testing.T) {
	r := newRegion(t, 1, 32)
	raw := r.Local().Raw()
	for i := range raw {
		raw[i] = 0xee
	}
	if _, err := Zeros(r, I16, 3); err != nil {
		t.Fatal(err)
	}
	for i, b := range raw {
		if want := byte(0xee); i < 6 && b != 0 || i >= 6 && b != want {
			t.Errorf("byte %d is %#x", i, b)
		}
	}
}

func TestFromDenseCopies(t *testing.T) {
	d := gtensor.New(gtensor.WithShape(2, 2), gtensor.WithBacking([]float64{1, 2, 3, 4}))
	x, err := FromDense(newRegion(t, 1, 32), d)
	if err != nil {
		t.Fatal(err)
	}
	if !x.Shape().Eq(d.Shape()) || !slices.Equal(x.Float64s(), []float64{1, 2, 3, 4}) {
		t.Errorf("%v of shape %v", x.Float64s(), x.Shape())
	}
	d.Float64s()[0] = 9
	if x.Float64s()[0] != 1 {
		t.Error("it shares memory with its source")
	}
}

func TestFromDenseRefuses(t *testing.T) {
	d := gtensor.New(gtensor.WithShape(2, 2), gtensor.Of(gtensor.Float64))
	for name, c := range map[string]struct {
		bytes int
		d     *gtensor.Dense
		want  string
	}{
		"small region": {31, d, "the region has 31"},
		"nil":          {32, nil, "nil dense"},
		"unset":        {32, new(gtensor.Dense), "not set"},
		"scalar":       {32, gtensor.New(gtensor.FromScalar(1.5)), "use (1)"},
		"strings":      {32, gtensor.New(gtensor.WithShape(2), gtensor.Of(gtensor.String)), "cannot be communicated"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := FromDense(newRegion(t, 1, c.bytes), c.d); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestPeerReadsTheOtherRanksMemory(t *testing.T) {
	r := newRegion(t, 3, 16)
	x, err := New(r, I32, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Data[int32](Buffer{ptr: r.parts[2].ptr, n: 4, bits: typeBitsOf(I32, Host)})
	if err != nil {
		t.Fatal(err)
	}
	copy(other, []int32{5, 6, 7, 8})
	p, err := x.Peer(2)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Shape().Eq(gtensor.Shape{2, 2}) || !slices.Equal(p.Int32s(), []int32{5, 6, 7, 8}) {
		t.Errorf("%v of shape %v", p.Int32s(), p.Shape())
	}
	p.Int32s()[0] = -1
	if other[0] != -1 {
		t.Error("a store to the peer's tensor did not reach the peer")
	}
	if own, err := x.Peer(0); err != nil || &own.Int32s()[0] != &x.Int32s()[0] {
		t.Errorf("the own rank is another memory: %v", err)
	}
	if _, err := x.Peer(3); !errors.Is(err, errNoPeer) {
		t.Errorf("rank 3 of 3: %v", err)
	}
	r.parts[1].n = 15
	if _, err := x.Peer(1); err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("a peer's part that is too small: %v", err)
	}
}

// viewBack returns a gorgonia view over a new slice, and that slice read back through BufferOf.
func viewBack[T Element](t *testing.T) {
	t.Helper()
	s := make([]T, 6)
	d, err := View(Of(s), 2, 3)
	if err != nil {
		t.Fatalf("%v: %v", TypeOf[T](), err)
	}
	b, err := BufferOf(d)
	if err != nil || !Same(b, Of(s)) {
		t.Errorf("%v: BufferOf its view is %v, %v, want the slice's", TypeOf[T](), b, err)
	}
	if want, _ := TypeOf[T]().Gorgonia(); d.Dtype() != want {
		t.Errorf("%v: gorgonia dtype %v", TypeOf[T](), d.Dtype())
	}
}

func TestViewAndBufferOfAreInverse(t *testing.T) {
	viewBack[float32](t)
	viewBack[float64](t)
	viewBack[int8](t)
	viewBack[int16](t)
	viewBack[int32](t)
	viewBack[int64](t)
	viewBack[uint8](t)
	viewBack[uint16](t)
	viewBack[uint32](t)
	viewBack[uint64](t)
}

func TestViewRefuses(t *testing.T) {
	four := Of(make([]float32, 4))
	gpu := four
	gpu.bits = typeBitsOf(F32, CUDA(3))
	for name, c := range map[string]struct {
		b     Buffer
		shape []int
		want  string
	}{
		"too many":       {four, []int{5}, "has 5 elements, the buffer 4"},
		"too few":        {four, []int{3}, "has 3 elements, the buffer 4"},
		"no dimension":   {Of(make([]float32, 1)), nil, "use (1)"},
		"zero dimension": {Of([]float32{}), []int{0, 2}, "below 1"},
		"negative":       {four, []int{-2, -2}, "below 1"},
		"f16":            {Of(make([]Float16, 2)), []int{2}, "f16 has no gorgonia"},
		"device":         {gpu, []int{4}, "cuda:3"},
		"zero buffer":    {Buffer{}, []int{1}, "the buffer 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if d, err := View(c.b, c.shape...); err == nil || d != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// mutate applies a change of shape to a fresh 3x4 matrix of 0 to 11.
func mutated(t *testing.T, change func(m *gtensor.Dense) (gtensor.Tensor, error)) *gtensor.Dense {
	t.Helper()
	m := gtensor.New(gtensor.WithShape(3, 4), gtensor.WithBacking(gtensor.Range(gtensor.Float32, 0, 12)))
	v, err := change(m)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*gtensor.Dense)
}

func sliced(s ...gtensor.Slice) func(m *gtensor.Dense) (gtensor.Tensor, error) {
	return func(m *gtensor.Dense) (gtensor.Tensor, error) { return m.Slice(s...) }
}

func TestBufferOfViews(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *gtensor.Dense) (gtensor.Tensor, error)
		want   []float32 // nil: refused, because the elements are not contiguous in C order
	}{
		"two rows":  {sliced(gtensor.S(1, 3)), []float32{4, 5, 6, 7, 8, 9, 10, 11}},
		"one row":   {sliced(gtensor.S(2)), []float32{8, 9, 10, 11}},
		"element":   {sliced(gtensor.S(1), gtensor.S(2)), []float32{6}},
		"column":    {sliced(nil, gtensor.S(1)), nil},
		"columns":   {sliced(nil, gtensor.S(1, 3)), nil},
		"every 2nd": {sliced(gtensor.S(0, 3, 2)), []float32{0, 1, 2, 3}}, // gorgonia says that it is one row
		"transposed view": {func(m *gtensor.Dense) (gtensor.Tensor, error) {
			return m, m.T()
		}, nil},
		"all rows of a transposed view": {func(m *gtensor.Dense) (gtensor.Tensor, error) {
			if err := m.T(); err != nil {
				return nil, err
			}
			return m.Slice(gtensor.S(0, 4))
		}, nil},
		"block of a transposed view": {func(m *gtensor.Dense) (gtensor.Tensor, error) {
			if err := errors.Join(m.Reshape(3, 2, 2), m.T(0, 2, 1)); err != nil {
				return nil, err
			}
			return m.Slice(gtensor.S(1))
		}, nil},
		"transposed for real": {func(m *gtensor.Dense) (gtensor.Tensor, error) {
			return m, errors.Join(m.T(), m.Transpose())
		}, []float32{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}},
		"reshaped": {func(m *gtensor.Dense) (gtensor.Tensor, error) {
			return m, m.Reshape(2, 6)
		}, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		"columns, cloned": {func(m *gtensor.Dense) (gtensor.Tensor, error) {
			v, err := m.Slice(nil, gtensor.S(1, 3))
			return v.Materialize(), err
		}, []float32{1, 2, 5, 6, 9, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := BufferOf(mutated(t, c.change))
			if c.want == nil {
				if err == nil || !strings.Contains(err.Error(), "clone it first") {
					t.Fatalf("%v, error %v, want one with a remedy", b, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Data[float32](b); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestBufferOfOddTensors(t *testing.T) {
	fortran := gtensor.New(gtensor.WithShape(2, 3), gtensor.AsFortran([]float32{1, 2, 3, 4, 5, 6}))
	masked := gtensor.New(gtensor.WithShape(2), gtensor.WithBacking([]float32{1, 2}, []bool{true, false}))
	for name, d := range map[string]*gtensor.Dense{
		"column order": fortran, "masked": masked, "nil": nil, "unset": new(gtensor.Dense),
		"bool": gtensor.New(gtensor.WithShape(2), gtensor.Of(gtensor.Bool)),
		"int":  gtensor.New(gtensor.WithShape(2), gtensor.Of(gtensor.Int)),
	} {
		if b, err := BufferOf(d); err == nil || !b.IsZero() {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
	scalar := gtensor.New(gtensor.FromScalar(int64(-3)))
	b, err := BufferOf(scalar)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Data[int64](b)
	if err != nil || len(s) != 1 || s[0] != -3 {
		t.Fatalf("a scalar is %v, %v", s, err)
	}
	s[0] = 4
	if scalar.ScalarValue() != int64(4) {
		t.Errorf("the scalar stayed %v", scalar.ScalarValue())
	}
}

func TestStridesOfDimensionsOfLengthOneDoNotMatter(t *testing.T) {
	data := func() []float32 { return []float32{0, 1, 2} }
	turned := func(shape ...int) *gtensor.Dense {
		d := gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(data()))
		if err := d.T(); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for name, d := range map[string]*gtensor.Dense{
		"column-major column":   gtensor.New(gtensor.WithShape(3, 1), gtensor.AsFortran(data())),
		"column-major row":      gtensor.New(gtensor.WithShape(1, 3), gtensor.AsFortran(data())),
		"column-major vector":   gtensor.New(gtensor.WithShape(3), gtensor.AsFortran(data())),
		"column-major with 1s":  gtensor.New(gtensor.WithShape(1, 3, 1, 1), gtensor.AsFortran(data())),
		"transposed row":        turned(1, 3),
		"transposed column":     turned(3, 1),
		"transposed with 1s":    turned(1, 3, 1),
		"slice of a row":        mutated(t, sliced(gtensor.S(0, 1), gtensor.S(0, 3))),
		"column-major, element": gtensor.New(gtensor.WithShape(1, 1), gtensor.AsFortran([]float32{0})),
	} {
		b, err := BufferOf(d)
		if err != nil {
			t.Errorf("%s, shape %v, strides %v: %v", name, d.Shape(), d.Strides(), err)
			continue
		}
		got, err := Data[float32](b)
		if want := data()[:d.Shape().TotalSize()]; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
}

// offsets returns the offset of each element of a tensor, in the order of its coordinates.
func offsets(shape, strides []int) []int {
	all := []int{0}
	for d, n := range shape {
		var next []int
		for _, o := range all {
			for i := range n {
				next = append(next, o+i*strides[d])
			}
		}
		all = next
	}
	return all
}

func TestPackedIsTheOffsetsOfAllElementsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 4).Draw(t, "shape")
		strides := make([]int, len(shape))
		want := 1
		for i := len(shape) - 1; i >= 0; i-- {
			strides[i] = want
			want *= shape[i]
		}
		if len(strides) > 0 && rapid.Bool().Draw(t, "spoil") {
			strides[rapid.IntRange(0, len(strides)-1).Draw(t, "dim")] = rapid.IntRange(0, 9).Draw(t, "stride")
		}
		flat := true
		for i, o := range offsets(shape, strides) {
			flat = flat && o == i
		}
		if got := Packed(shape, strides); got != flat {
			t.Fatalf("shape %v with strides %v: %t, but the offsets are %v", shape, strides, got, offsets(shape, strides))
		}
	})
}
