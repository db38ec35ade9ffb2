package tensor

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// bufferOf returns n elements of type dt, uninitialised except for zeros.
func bufferOf(dt DType, n int) Buffer {
	switch dt {
	case F16:
		return Of(make([]Float16, n))
	case BF16:
		return Of(make([]BFloat16, n))
	case F32:
		return Of(make([]float32, n))
	}
	return Of(make([]float64, n))
}

// at returns element i of b as a float64, exactly.
func at(b Buffer, i int) float64 {
	switch b.DType() {
	case F16:
		return float64(of[Float16](b)[i].Float32())
	case BF16:
		return float64(of[BFloat16](b)[i].Float32())
	case F32:
		return float64(of[float32](b)[i])
	}
	return of[float64](b)[i]
}

func equal(a, b float64) bool {
	return a == b && math.Signbit(a) == math.Signbit(b) || a != a && b != b
}

// TestConvertKeepsAllHalves converts every f16 and bf16 to every wider type and back.
func TestConvertKeepsAllHalves(t *testing.T) {
	for _, narrow := range []DType{F16, BF16} {
		in := bufferOf(narrow, 1<<16)
		for i := range 1 << 16 {
			if narrow == F16 {
				of[Float16](in)[i] = Float16(i)
			} else {
				of[BFloat16](in)[i] = BFloat16(i)
			}
		}
		for _, wide := range []DType{F32, F64, narrow} {
			mid, back := bufferOf(wide, 1<<16), bufferOf(narrow, 1<<16)
			if err := Convert(mid, in); err != nil {
				t.Fatal(err)
			}
			if err := Convert(back, mid); err != nil {
				t.Fatal(err)
			}
			for i := range 1 << 16 {
				if !equal(at(in, i), at(mid, i)) || !equal(at(in, i), at(back, i)) {
					t.Fatalf("%v %#04x is %v, by %v it is %v and then %v", narrow, i, at(in, i), wide, at(mid, i), at(back, i))
				}
			}
		}
	}
}

// TestConvertRoundsOnce has, for each two neighbors of a half type and each sign, their midpoint,
// and float64s so close to it that rounding to float32 first would lose the difference.
func TestConvertRoundsOnce(t *testing.T) {
	for _, f := range formats {
		dt := F16
		if f.name == "bf16" {
			dt = BF16
		}
		var in, want []float64
		for lo := range f.inf {
			a, b := f.value(lo), f.value(lo+1)
			mid, even := (a+b)/2, f.value(lo+lo&1)
			if even == f.value(f.inf) {
				even = math.Inf(1)
			}
			if lo+1 == f.inf {
				b = math.Inf(1)
			}
			for _, sign := range []float64{1, -1} {
				in = append(in, sign*mid, sign*math.Nextafter(mid, 0), sign*math.Nextafter(mid, math.Inf(1)), sign*math.Nextafter(a, math.Inf(1)))
				want = append(want, sign*even, sign*a, sign*b, sign*a)
			}
		}
		got := bufferOf(dt, len(in))
		if err := Convert(got, Of(in)); err != nil {
			t.Fatal(err)
		}
		for i, x := range in {
			if g := at(got, i); !equal(g, want[i]) {
				t.Fatalf("%v: %b becomes %v, want %v", dt, x, g, want[i])
			}
		}
	}
}

func TestConvertIsGoWhereGoHasBothTypes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	in := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64, math.MaxFloat32, 0x1p-149}
	for range 10000 {
		in = append(in, math.Float64frombits(rng.Uint64()))
	}
	single, double := make([]float32, len(in)), make([]float64, len(in))
	if err := Convert(Of(single), Of(in)); err != nil {
		t.Fatal(err)
	}
	if err := Convert(Of(double), Of(single)); err != nil {
		t.Fatal(err)
	}
	for i, x := range in {
		if f := float32(x); !equal(float64(f), float64(single[i])) || !equal(float64(f), double[i]) {
			t.Fatalf("%v becomes %v and %v, want %v", x, single[i], double[i], f)
		}
	}
	bf, half := make([]BFloat16, len(in)), make([]Float16, len(in))
	for _, to := range []Buffer{Of(bf), Of(half)} {
		if err := Convert(to, Of(single)); err != nil {
			t.Fatal(err)
		}
	}
	for i, x := range single {
		if bf[i] != ToBFloat16(x) || half[i] != ToFloat16(x) {
			t.Fatalf("%v becomes %#04x and %#04x", x, bf[i], half[i])
		}
	}
	cross := make([]Float16, len(in))
	if err := Convert(Of(cross), Of(bf)); err != nil {
		t.Fatal(err)
	}
	for i, x := range bf {
		if cross[i] != ToFloat16(x.Float32()) {
			t.Fatalf("bf16 %#04x becomes f16 %#04x", x, cross[i])
		}
	}
	if err := Convert(Of(bf), Of(half)); err != nil {
		t.Fatal(err)
	}
	for i, x := range half {
		if bf[i] != ToBFloat16(x.Float32()) {
			t.Fatalf("f16 %#04x becomes bf16 %#04x", x, bf[i])
		}
	}
}

// TestVectorsAreThePlainLoops has all halves, and float32s of all exponents, for each instruction
// set of this machine.
func TestVectorsAreThePlainLoops(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	single := []float32{0, float32(math.Copysign(0, -1)), 65504, 65519.996, 65520, math.MaxFloat32, 0x1p-24, 0x1p-25, 0x1.000002p-25, 0x1p-149}
	for range 1<<18 + 7 {
		single = append(single, math.Float32frombits(rng.Uint32()))
	}
	for lo := range uint32(1 << 16) { // ties of bf16, NaNs among them
		single = append(single, math.Float32frombits(lo<<16|0x8000), math.Float32frombits(lo<<16|0x7fff), math.Float32frombits(lo<<16|0x8001))
	}
	halves, brains := make([]Float16, 1<<16), make([]BFloat16, 1<<16)
	for i := range halves {
		halves[i], brains[i] = Float16(i), BFloat16(i)
	}
	plain := &vectors{}
	for _, v := range append([]vectors{*plain}, levels...) {
		if v.name != "" && !v.has {
			t.Logf("this machine has no %s", v.name)
			continue
		}
		for _, src := range []Buffer{Of(single), Of(halves), Of(brains)} {
			for _, dt := range []DType{F16, BF16, F32} {
				for _, cut := range []int{0, 1, 15, 16, 17, 40, src.Len()} {
					in, err := src.Slice(src.Len()-cut, src.Len())
					if err != nil {
						t.Fatal(err)
					}
					got, want := bufferOf(dt, cut), bufferOf(dt, cut)
					v.convert(got, in)
					plain.convert(want, in)
					for i := range cut {
						if a, b := at(got, i), at(want, i); !equal(a, b) || dt != F32 && !slices.Equal(got.Raw()[2*i:2*i+2], want.Raw()[2*i:2*i+2]) {
							t.Fatalf("%s: element %d of %d, %v %v, becomes %v %v, want %v", v.name, i, cut, src.DType(), at(in, i), dt, a, b)
						}
					}
				}
			}
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	gpu, err := FromPointer(Of(make([]float32, 2)).Pointer(), 2, F32, CUDA(0))
	if err != nil {
		t.Fatal(err)
	}
	two := Of(make([]float32, 2))
	four := Of(make([]float32, 4))
	part := func(i, j int) Buffer {
		b, err := four.Slice(i, j)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	half, err := FromPointer(four.Pointer(), 4, BF16, Host) // widened in place, it would read its own output
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dst, src Buffer }{
		{Of(make([]float64, 3)), two},
		{Of(make([]int32, 2)), two},
		{two, Of(make([]uint16, 2))},
		{two, Buffer{}},
		{two, gpu},
		{gpu, two},
		{four, half},
		{part(1, 4), part(0, 3)},
	} {
		if err := Convert(c.dst, c.src); err == nil {
			t.Errorf("%v to %v: no error", c.src, c.dst)
		}
	}
	if err := Convert(part(2, 4), part(0, 2)); err != nil {
		t.Errorf("side by side: %v", err)
	}
	if err := Convert(four, four); err != nil {
		t.Errorf("onto itself: %v", err)
	}
	if err := Convert(Of([]float32(nil)), Of([]float64(nil))); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

func TestConvertDoesNotAllocate(t *testing.T) {
	in, out := make([]float32, 4096), make([]BFloat16, 4096)
	if n := testing.AllocsPerRun(10, func() {
		if err := Convert(Of(out), Of(in)); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkConvert(b *testing.B) {
	const n = 4096
	for _, c := range [][2]DType{{BF16, F32}, {F32, BF16}, {F16, F32}, {F32, F16}, {BF16, F64}} {
		b.Run(c[1].String()+" to "+c[0].String(), func(b *testing.B) {
			dst, src, numbers := bufferOf(c[0], n), bufferOf(c[1], n), make([]float64, n)
			for i := range numbers {
				numbers[i] = float64(i%1000)/300 - 1
			}
			if err := Convert(src, Of(numbers)); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(dst.Bytes() + src.Bytes())
			for b.Loop() {
				if err := Convert(dst, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
