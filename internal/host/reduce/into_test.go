package reduce_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// reductions returns the reductions of a type.
func reductions(dt tensor.DType) []dist.RedKind {
	return slices.DeleteFunc(dist.RedKinds(), func(red dist.RedKind) bool { return red.Bitwise() && dt.IsFloat() })
}

// buffer returns bits as elements of dt, in new memory.
func buffer(t testing.TB, dt tensor.DType, bits []uint64) tensor.Buffer {
	t.Helper()
	words := make([]uint64, len(bits)*dt.Size()/8+1) // aligned for every type
	b, err := tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(words)), len(bits), dt, tensor.Host)
	if err != nil {
		t.Fatal(err)
	}
	raw := b.Raw()
	for i, v := range bits {
		switch dt.Size() {
		case 1:
			raw[i] = byte(v)
		case 2:
			binary.NativeEndian.PutUint16(raw[2*i:], uint16(v))
		case 4:
			binary.NativeEndian.PutUint32(raw[4*i:], uint32(v))
		case 8:
			binary.NativeEndian.PutUint64(raw[8*i:], v)
		}
	}
	return b
}

// bitsIn is the inverse of buffer.
func bitsIn(b tensor.Buffer) []uint64 {
	out := make([]uint64, b.Len())
	raw := b.Raw()
	for i := range out {
		switch b.DType().Size() {
		case 1:
			out[i] = uint64(raw[i])
		case 2:
			out[i] = uint64(binary.NativeEndian.Uint16(raw[2*i:]))
		case 4:
			out[i] = uint64(binary.NativeEndian.Uint32(raw[4*i:]))
		case 8:
			out[i] = binary.NativeEndian.Uint64(raw[8*i:])
		}
	}
	return out
}

// random returns n elements of dt. Floats are mostly of moderate size, with some arbitrary bit
// patterns.
func random(rng *rand.Rand, dt tensor.DType, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		v := rng.Uint64()
		if dt.IsFloat() && i%8 != 0 {
			v = fromFloat(dt, rng.NormFloat64()*4)
		}
		out[i] = v & (1<<(8*dt.Size()-1)<<1 - 1)
	}
	return out
}

func TestIntoMatchesOracleForEveryTypeAndReduction(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		for _, red := range reductions(dt) {
			t.Run(fmt.Sprintf("%v/%v", dt, red), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(dt), uint64(red)))
				for _, ranks := range []int{1, 2, 3, 7} {
					for _, n := range []int{0, 1, 8, 61, 1024, 2100} {
						in, srcs := sources(t, rng, dt, ranks, n)
						scalars := random(rng, dt, ranks)
						dst := buffer(t, dt, random(rng, dt, n))
						if err := reduce.Into(dst, srcs, red, scalars); err != nil {
							t.Fatal(err)
						}
						if err := diff(dt, bitsIn(dst), oracle(dt, in, red, scalars)); err != nil {
							t.Fatalf("%d sources of %d: %v", ranks, n, err)
						}
						for r := range srcs {
							if err := diff(dt, bitsIn(srcs[r]), in[r]); err != nil {
								t.Fatalf("%d sources of %d: source %d was changed: %v", ranks, n, r, err)
							}
						}
					}
				}
			})
		}
	}
}

func sources(t testing.TB, rng *rand.Rand, dt tensor.DType, ranks, n int) ([][]uint64, []tensor.Buffer) {
	in, srcs := make([][]uint64, ranks), make([]tensor.Buffer, ranks)
	for r := range in {
		in[r] = random(rng, dt, n)
		srcs[r] = buffer(t, dt, in[r])
	}
	return in, srcs
}

func TestIntoAllowsTheDestinationToBeAnySource(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, dt := range []tensor.DType{tensor.F16, tensor.F32, tensor.I8} {
		for _, red := range reductions(dt) {
			for at := range 4 {
				in, srcs := sources(t, rng, dt, 4, 2100)
				scalars := random(rng, dt, 4)
				want := oracle(dt, in, red, scalars)
				if err := reduce.Into(srcs[at], srcs, red, scalars); err != nil {
					t.Fatal(err)
				}
				if err := diff(dt, bitsIn(srcs[at]), want); err != nil {
					t.Errorf("%v %v into source %d: %v", dt, red, at, err)
				}
			}
			// Several sources, and the destination, are one buffer.
			b := buffer(t, dt, random(rng, dt, 1500))
			in := [][]uint64{bitsIn(b), bitsIn(b), bitsIn(b)}
			scalars := random(rng, dt, 3)
			if err := reduce.Into(b, []tensor.Buffer{b, b, b}, red, scalars); err != nil {
				t.Fatal(err)
			}
			if err := diff(dt, bitsIn(b), oracle(dt, in, red, scalars)); err != nil {
				t.Errorf("%v %v of one buffer three times: %v", dt, red, err)
			}
		}
	}
}

func TestIntoEdgeValues(t *testing.T) {
	f32 := func(v float32) uint64 { return uint64(math.Float32bits(v)) }
	f16 := func(v float32) uint64 { return uint64(tensor.ToFloat16(v)) }
	bf16 := func(v float32) uint64 { return uint64(tensor.ToBFloat16(v)) }
	nan := float32(math.NaN())
	negZero := float32(math.Copysign(0, -1))
	inf := float32(math.Inf(1))
	for _, tt := range []struct {
		name    string
		dt      tensor.DType
		red     dist.RedKind
		in      []uint64 // one element from each source
		scalars []uint64
		want    uint64
	}{
		{"i8 sum wraps", tensor.I8, dist.RedSum, []uint64{127, 1}, nil, 0x80},
		{"u8 sum wraps", tensor.U8, dist.RedSum, []uint64{255, 255}, nil, 254},
		{"i16 prod wraps", tensor.I16, dist.RedProd, []uint64{0x4000, 2}, nil, 0x8000},
		{"u64 prod wraps", tensor.U64, dist.RedProd, []uint64{1 << 63, 3}, nil, 1 << 63},
		{"i8 avg truncates toward zero from below", tensor.I8, dist.RedAvg, []uint64{0xfd, 0xfe}, nil, 0xfe}, // -5/2 = -2
		{"i8 avg truncates toward zero from above", tensor.I8, dist.RedAvg, []uint64{3, 2}, nil, 2},
		{"i8 avg divides the wrapped sum", tensor.I8, dist.RedAvg, []uint64{100, 100}, nil, 0xe4}, // 200 is -56
		{"u8 min is unsigned", tensor.U8, dist.RedMin, []uint64{0x80, 0x7f}, nil, 0x7f},
		{"i8 min is signed", tensor.I8, dist.RedMin, []uint64{0x80, 0x7f}, nil, 0x80},
		{"f32 min of NaN first", tensor.F32, dist.RedMin, []uint64{f32(nan), f32(1)}, nil, f32(nan)},
		{"f32 max of NaN last", tensor.F32, dist.RedMax, []uint64{f32(1), f32(2), f32(nan)}, nil, f32(nan)},
		{"f16 max of NaN in the middle", tensor.F16, dist.RedMax, []uint64{f16(1), f16(nan), f16(2)}, nil, f16(nan)},
		{"f32 min of NaN and -Inf", tensor.F32, dist.RedMin, []uint64{f32(-inf), f32(nan)}, nil, f32(nan)},
		{"f32 max of NaN and +Inf", tensor.F32, dist.RedMax, []uint64{f32(nan), f32(inf)}, nil, f32(nan)},
		{"f32 min puts -0 below +0", tensor.F32, dist.RedMin, []uint64{f32(0), f32(negZero)}, nil, f32(negZero)},
		{"f32 max puts +0 above -0", tensor.F32, dist.RedMax, []uint64{f32(negZero), f32(0)}, nil, f32(0)},
		{"f32 sum of -0 stays -0", tensor.F32, dist.RedSum, []uint64{f32(negZero), f32(negZero)}, nil, f32(negZero)},
		{"f32 sum in rank order loses the small ones", tensor.F32, dist.RedSum, []uint64{f32(1 << 24), f32(1), f32(1)}, nil, f32(1 << 24)},
		{"f32 sum in rank order keeps the small ones", tensor.F32, dist.RedSum, []uint64{f32(1), f32(1), f32(1 << 24)}, nil, f32(1<<24 + 2)},
		{"f16 accumulates in f32", tensor.F16, dist.RedSum, []uint64{f16(2048), f16(1), f16(1)}, nil, f16(2050)},
		{"f16 does not overflow on the way", tensor.F16, dist.RedSum, []uint64{f16(65504), f16(65504), f16(-65504)}, nil, f16(65504)},
		{"f16 overflow is infinity", tensor.F16, dist.RedSum, []uint64{f16(65504), f16(16)}, nil, f16(inf)},
		{"f16 just below the overflow tie", tensor.F16, dist.RedSum, []uint64{f16(65504), f16(15)}, nil, f16(65504)},
		{"f16 tie to even goes down", tensor.F16, dist.RedSum, []uint64{f16(2048), f16(1)}, nil, f16(2048)},
		{"f16 tie to even goes up", tensor.F16, dist.RedSum, []uint64{f16(2050), f16(1)}, nil, f16(2052)},
		{"bf16 tie to even goes down", tensor.BF16, dist.RedSum, []uint64{bf16(256), bf16(1)}, nil, bf16(256)},
		{"bf16 tie to even goes up", tensor.BF16, dist.RedSum, []uint64{bf16(258), bf16(1)}, nil, bf16(260)},
		{"bf16 avg keeps more than bf16 on the way", tensor.BF16, dist.RedAvg, []uint64{bf16(256), bf16(1), bf16(1), bf16(2)}, nil, bf16(65)},
		{"f16 subnormals add", tensor.F16, dist.RedSum, []uint64{1, 2}, nil, 3},
		{"one source is copied bit for bit", tensor.F16, dist.RedSum, []uint64{0x7d01}, nil, 0x7d01},
		{"one source is scaled by premulsum", tensor.F32, dist.RedPreMulSum, []uint64{f32(3)}, []uint64{f32(2)}, f32(6)},
		{"premulsum wraps in i8", tensor.I8, dist.RedPreMulSum, []uint64{100, 3}, []uint64{2, 0xff}, 0xc5}, // 200-3 = 197
		// (1+2^-12)^2 = 1 + 2^-11 + 2^-24: rounded to f32 the last term goes, fused it would
		// survive the subtraction.
		{
			"premulsum rounds the product before the sum", tensor.F32, dist.RedPreMulSum,
			[]uint64{f32(-1 - 1.0/2048), f32(1 + 1.0/4096)},
			[]uint64{f32(1), f32(1 + 1.0/4096)},
			f32(0),
		},
		{
			"premulsum of f16 has the product in f32", tensor.F16, dist.RedPreMulSum,
			[]uint64{f16(2049 - 1), f16(60000)},
			[]uint64{f16(2), f16(-1)},
			f16(4096 - 60000),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var srcs []tensor.Buffer
			for _, bits := range tt.in {
				srcs = append(srcs, buffer(t, tt.dt, []uint64{bits}))
			}
			dst := buffer(t, tt.dt, []uint64{0})
			if err := reduce.Into(dst, srcs, tt.red, tt.scalars); err != nil {
				t.Fatal(err)
			}
			if err := diff(tt.dt, bitsIn(dst), []uint64{tt.want}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The divisor may not fit the element type: 200 as an int8 is negative.
func TestAvgOfMoreSourcesThanTheTypeCanCount(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.I8, tensor.U8} {
		var srcs []tensor.Buffer
		var in [][]uint64
		for r := range 300 {
			in = append(in, []uint64{uint64(r) & 0x7f, 1})
			srcs = append(srcs, buffer(t, dt, in[r]))
		}
		dst := buffer(t, dt, []uint64{9, 9})
		if err := reduce.Into(dst, srcs, dist.RedAvg, nil); err != nil {
			t.Fatal(err)
		}
		if err := diff(dt, bitsIn(dst), oracle(dt, in, dist.RedAvg, nil)); err != nil {
			t.Errorf("%v: %v", dt, err)
		}
	}
}

// Any division of the data gives the same bits, so results do not depend on chunks and buckets.
func TestIntoDoesNotDependOnChunks(t *testing.T) {
	const n = 3000
	rng := rand.New(rand.NewPCG(5, 6))
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64} {
		_, srcs := sources(t, rng, dt, 5, n)
		whole := buffer(t, dt, make([]uint64, n))
		if err := reduce.Into(whole, srcs, dist.RedSum, nil); err != nil {
			t.Fatal(err)
		}
		cut := buffer(t, dt, make([]uint64, n))
		for lo := 0; lo < n; {
			hi := min(n, lo+1+rng.IntN(700))
			parts := make([]tensor.Buffer, len(srcs))
			for r := range srcs {
				parts[r], _ = srcs[r].Slice(lo, hi)
			}
			to, _ := cut.Slice(lo, hi)
			if err := reduce.Into(to, parts, dist.RedSum, nil); err != nil {
				t.Fatal(err)
			}
			lo = hi
		}
		if string(whole.Raw()) != string(cut.Raw()) {
			t.Errorf("%v: chunks change the bits", dt)
		}
	}
}

func TestIntoRefusesWrongArguments(t *testing.T) {
	f := tensor.Of([]float32{1, 2})
	gpu, err := tensor.FromPointer(f.Pointer(), 2, tensor.F32, tensor.CUDA(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		dst     tensor.Buffer
		srcs    []tensor.Buffer
		red     dist.RedKind
		scalars []uint64
		want    error
	}{
		{"no destination", tensor.Buffer{}, []tensor.Buffer{f}, dist.RedSum, nil, dist.ErrDType},
		{"no sources", f, nil, dist.RedSum, nil, dist.ErrCount},
		{"another dtype", f, []tensor.Buffer{f, tensor.Of([]int32{1, 2})}, dist.RedSum, nil, dist.ErrDType},
		{"another length", f, []tensor.Buffer{f, tensor.Of([]float32{1})}, dist.RedSum, nil, dist.ErrCount},
		{"source on a device", f, []tensor.Buffer{f, gpu}, dist.RedSum, nil, dist.ErrDevice},
		{"destination on a device", gpu, []tensor.Buffer{f}, dist.RedSum, nil, dist.ErrDevice},
		{"unknown reduction", f, []tensor.Buffer{f}, dist.RedXor + 1, nil, dist.ErrInvalid},
		{"bits of floats", f, []tensor.Buffer{f, f}, dist.RedAnd, nil, dist.ErrDType},
		{"too few scalars", f, []tensor.Buffer{f, f}, dist.RedPreMulSum, []uint64{1}, dist.ErrCount},
	} {
		if err := reduce.Into(tt.dst, tt.srcs, tt.red, tt.scalars); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestScalarBitsReadsMemoryWhenCalled(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		b := buffer(t, dt, []uint64{3})
		s := dist.PreMulSumAt(b).Scalar
		for _, want := range []uint64{3, 0x81} {
			copy(b.Raw(), buffer(t, dt, []uint64{want}).Raw())
			if got, err := reduce.ScalarBits(s); err != nil || got != want {
				t.Errorf("%v: got %#x, %v, want %#x", dt, got, err, want)
			}
		}
	}
	if got, err := reduce.ScalarBits(dist.PreMulSum(float32(1.5)).Scalar); err != nil || got != uint64(math.Float32bits(1.5)) {
		t.Errorf("value: got %#x, %v", got, err)
	}
	if _, err := reduce.ScalarBits(dist.Scalar{At: tensor.Of([]int8{1, 2})}); !errors.Is(err, dist.ErrCount) {
		t.Errorf("two elements: got %v", err)
	}
	one := []float32{1}
	gpu, _ := tensor.FromPointer(unsafe.Pointer(&one[0]), 1, tensor.F32, tensor.CUDA(0))
	if _, err := reduce.ScalarBits(dist.Scalar{At: gpu}); !errors.Is(err, dist.ErrDevice) {
		t.Errorf("device memory: got %v", err)
	}
}

func TestIntoDoesNotAllocate(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		rng := rand.New(rand.NewPCG(1, 1))
		_, srcs := sources(t, rng, dt, 3, 3000)
		scalars := random(rng, dt, 3)
		for _, red := range reductions(dt) {
			dst := srcs[1]
			if n := testing.AllocsPerRun(20, func() {
				if err := reduce.Into(dst, srcs, red, scalars); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("%v %v: %v allocations", dt, red, n)
			}
		}
		at := dist.PreMulSumAt(buffer(t, dt, []uint64{1})).Scalar
		if n := testing.AllocsPerRun(20, func() { _, _ = reduce.ScalarBits(at) }); n != 0 {
			t.Errorf("%v: ScalarBits: %v allocations", dt, n)
		}
	}
}
