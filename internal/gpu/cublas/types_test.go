package cublas

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Sizes and offsets as gcc has them for cublasLt.h of CUDA 12.6 on x86-64.
func TestStructsHaveTheLayoutOfC(t *testing.T) {
	var r heuristicResult
	for _, f := range []struct {
		name      string
		got, want uintptr
	}{
		{"cublasLtMatmulAlgo_t", unsafe.Sizeof(algo{}), 64},
		{"cublasLtMatmulHeuristicResult_t", unsafe.Sizeof(r), 96},
		{"algo", unsafe.Offsetof(r.algo), 0},
		{"workspaceSize", unsafe.Offsetof(r.workspace), 64},
		{"state", unsafe.Offsetof(r.state), 72},
		{"wavesCount", unsafe.Offsetof(r.waves), 76},
		{"reserved", unsafe.Offsetof(r.reserved), 80},
	} {
		if f.got != f.want {
			t.Errorf("%s: %d, want %d", f.name, f.got, f.want)
		}
	}
}

// Values that gcc prints for the headers of CUDA 12.6, by their names here.
func TestValuesAreThoseOfTheHeaders(t *testing.T) {
	for _, c := range []struct {
		d              DType
		c              Compute
		dtype, compute int32
		scale          int32
	}{
		{F32, Full, 0, 68, 0},
		{F32, Pedantic, 0, 69, 0},
		{F32, TF32, 0, 77, 0},
		{F32, FastBF16, 0, 75, 0},
		{F64, Full, 1, 70, 1},
		{F64, Pedantic, 1, 71, 1},
		{F16, Full, 2, 68, 0},
		{F16, Pedantic, 2, 69, 0},
		{BF16, Full, 14, 68, 0},
	} {
		compute, scale, err := computeOf(c.d, c.c)
		if err != nil || compute != c.compute || scale != c.scale || dtypes[c.d].code != c.dtype {
			t.Errorf("%v %v: type %d, compute %d, scale %d, error %v; want %d, %d, %d", c.d, c.c, dtypes[c.d].code, compute, scale, err,
				c.dtype, c.compute, c.scale)
		}
	}
	for _, c := range []struct {
		d DType
		c Compute
	}{{0, Full}, {99, Full}, {F64, TF32}, {F64, FastBF16}, {F16, TF32}, {BF16, FastBF16}, {F32, 99}} {
		if _, _, err := computeOf(c.d, c.c); !errors.Is(err, cuda.ErrInvalid) {
			t.Errorf("%v %v: error %v, want ErrInvalid", c.d, c.c, err)
		}
	}
	for e, want := range map[Epilogue]int32{
		Plain: 1, Bias: 4, BiasReLU: 6, BiasReLUMask: 134, MaskBiasGrad: 152,
		BiasGradA: 512, // of the library's B
		BiasGradB: 256, // of the library's A
	} {
		if got := epilogues[e].code; got != want {
			t.Errorf("%v: %d, want %d", e, got, want)
		}
	}
	for m, want := range map[Math]int32{MathDefault: 16, MathPedantic: 2, MathTF32: 19} {
		if got := mathModes[m]; got != want {
			t.Errorf("math mode %d: %d, want %d", m, got, want)
		}
	}
}

func TestTypesHaveNamesAndSizes(t *testing.T) {
	for d, want := range map[DType]struct {
		name  string
		bytes int
	}{F32: {"f32", 4}, F64: {"f64", 8}, F16: {"f16", 2}, BF16: {"bf16", 2}, 0: {"invalid", 0}, 77: {"invalid", 0}} {
		if d.String() != want.name || d.Bytes() != want.bytes {
			t.Errorf("%d: %v of %d B, want %s of %d B", uint8(d), d, d.Bytes(), want.name, want.bytes)
		}
	}
	if Compute(99).String() != "invalid" || Epilogue(99).String() != "invalid" || TF32.String() != "tf32" || BiasReLU.String() != "bias-relu" {
		t.Error("names are wrong")
	}
}
