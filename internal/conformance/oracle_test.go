package conformance

import (
	"math"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestOracleOnKnownValues(t *testing.T) {
	f32 := func(v float32) uint64 { return uint64(math.Float32bits(v)) }
	f64 := math.Float64bits
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name    string
		dt      tensor.DType
		red     dist.RedKind
		column  []uint64
		scalars []uint64
		want    uint64
	}{
		{"i8 sum wraps", tensor.I8, dist.RedSum, []uint64{127, 1}, nil, 0x80},
		{"i16 avg truncates", tensor.I16, dist.RedAvg, []uint64{0xfffd, 0xfffe}, nil, 0xfffe},
		{"u16 avg of a wrapped sum", tensor.U16, dist.RedAvg, []uint64{0xffff, 3}, nil, 1},
		{"i8 min", tensor.I8, dist.RedMin, []uint64{1, 0xff, 0}, nil, 0xff},
		{"i8 and", tensor.I8, dist.RedAnd, []uint64{0xf3, 0x7e, 0xff}, nil, 0x72},
		{"u16 or", tensor.U16, dist.RedOr, []uint64{0x8001, 0x0100, 0}, nil, 0x8101},
		{"u64 xor", tensor.U64, dist.RedXor, []uint64{1 << 63, 1<<63 | 5, 3}, nil, 6},
		{"u8 max", tensor.U8, dist.RedMax, []uint64{1, 0xff, 0}, nil, 0xff},
		{"i32 premulsum", tensor.I32, dist.RedPreMulSum, []uint64{2, 3}, []uint64{0xffffffff, 4}, 10},
		{"u64 prod wraps", tensor.U64, dist.RedProd, []uint64{1 << 63, 2}, nil, 0},
		{"one source", tensor.F32, dist.RedAvg, []uint64{f32(0.1)}, nil, f32(0.1)},
		{"f32 sum in order", tensor.F32, dist.RedSum, []uint64{f32(1 << 24), f32(1), f32(1)}, nil, f32(1 << 24)},
		{"f64 sum in order", tensor.F64, dist.RedSum, []uint64{f64(1 << 53), f64(1), f64(1)}, nil, f64(1 << 53)},
		{"f32 prod rounds", tensor.F32, dist.RedProd, []uint64{f32(0.1), f32(0.1)}, nil, f32(float32(0.1) * float32(0.1))},
		{"f32 avg rounds", tensor.F32, dist.RedAvg, []uint64{f32(1), f32(0), f32(0)}, nil, f32(1.0 / 3)},
		{"min keeps NaN", tensor.F64, dist.RedMin, []uint64{f64(-inf), f64(nan)}, nil, f64(nan)},
		{"max keeps NaN", tensor.F32, dist.RedMax, []uint64{f32(float32(nan)), f32(float32(inf))}, nil, f32(float32(nan))},
		{"min of zeros", tensor.F32, dist.RedMin, []uint64{0, 1 << 31}, nil, 1 << 31},
		{"max of zeros", tensor.F32, dist.RedMax, []uint64{1 << 31, 0}, nil, 0},
		{"f16 in f32", tensor.F16, dist.RedSum, []uint64{0x6800, 0x3c00, 0x3c00}, nil, 0x6801},           // 2048+1+1
		{"f16 overflow", tensor.F16, dist.RedSum, []uint64{0x7bff, 0x4c00}, nil, 0x7c00},                 // 65504+16
		{"bf16 tie to even", tensor.BF16, dist.RedSum, []uint64{0x4380, 0x3f80}, nil, 0x4380},            // 256+1
		{"bf16 premulsum", tensor.BF16, dist.RedPreMulSum, []uint64{0x4000}, []uint64{0x4040}, 0x40c0},   // 2*3
		{"f16 subnormals", tensor.F16, dist.RedSum, []uint64{0x0001, 0x8003}, nil, 0x8002},               // -2 steps
		{"f16 to normal", tensor.F16, dist.RedSum, []uint64{0x03ff, 0x0001}, nil, 0x0400},                // carries
		{"f16 prod underflows", tensor.F16, dist.RedProd, []uint64{0x0001, 0x3800}, nil, 0},              // 2^-25 ties to 0
		{"f16 prod underflows upwards", tensor.F16, dist.RedProd, []uint64{0x0003, 0x3800}, nil, 0x0002}, // 1.5 steps
	} {
		if got := combine(tt.dt, tt.red, tt.column, tt.scalars); !sameBits(tt.dt, got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, format(tt.dt, got), format(tt.dt, tt.want))
		}
	}
}

// The conversions of package tensor were written from another description of the formats.
func TestHalfConversionsAgreeWithTensor(t *testing.T) {
	for bits := range 1 << 16 {
		f, b := tensor.Float16(bits), tensor.BFloat16(bits)
		for _, c := range []struct {
			dt   tensor.DType
			want float32
		}{{tensor.F16, f.Float32()}, {tensor.BF16, b.Float32()}} {
			got := asFloat(c.dt, uint64(bits))
			if got != float64(c.want) && !(math.IsNaN(got) && c.want != c.want) {
				t.Fatalf("%v %#x: %v, tensor has %v", c.dt, bits, got, c.want)
			}
			if back := fromFloat(c.dt, got); !sameBits(c.dt, back, uint64(bits)) {
				t.Fatalf("%v %#x: comes back as %#x", c.dt, bits, back)
			}
		}
	}
	for i := range 200000 {
		x := math.Float32frombits(uint32(hash(0, i, 3)))
		if got, want := fromFloat(tensor.F16, float64(x)), uint64(tensor.ToFloat16(x)); !sameBits(tensor.F16, got, want) {
			t.Fatalf("f16 of %v: %#x, tensor has %#x", x, got, want)
		}
		if got, want := fromFloat(tensor.BF16, float64(x)), uint64(tensor.ToBFloat16(x)); !sameBits(tensor.BF16, got, want) {
			t.Fatalf("bf16 of %v: %#x, tensor has %#x", x, got, want)
		}
	}
}

// Exact inputs are exact: their combination, computed without rounding, is a number of the type.
func TestExactInputsDoNotRound(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64} {
		for _, red := range redsOf(dt) {
			for i := range 300 {
				const n = 7
				var column, scalars []uint64
				var total, product float64 = 0, 1
				for r := range n {
					column = append(column, input(exact, dt, red, n, r, i))
					scalars = append(scalars, scalar(exact, dt, n, r))
					v := asFloat(dt, column[r])
					if red == dist.RedPreMulSum {
						v *= asFloat(dt, scalars[r])
					}
					total, product = total+v, product*v
				}
				want := map[dist.RedKind]float64{dist.RedSum: total, dist.RedAvg: total / n, dist.RedProd: product, dist.RedPreMulSum: total}
				if w, ok := want[red]; ok && asFloat(dt, combine(dt, red, column, scalars)) != w {
					t.Fatalf("%v %v of element %d: %v, want %v", dt, red, i, asFloat(dt, combine(dt, red, column, scalars)), w)
				}
			}
		}
	}
}

func TestInputsDifferBetweenRanksAndIndexes(t *testing.T) {
	seen := map[uint64]bool{}
	for r := range 7 {
		for i := range 1000 {
			seen[input(anyBits, tensor.U64, dist.RedSum, 7, r, i)] = true
		}
	}
	if len(seen) != 7000 {
		t.Errorf("%d different values of 7000", len(seen))
	}
}
