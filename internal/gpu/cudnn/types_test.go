package cudnn

import (
	"testing"
	"unsafe"
)

// Sizes and offsets as gcc has them for cudnn_cnn.h of cuDNN 9.6 on x86-64: the three structures
// are equal.
func TestStructsHaveTheLayoutOfC(t *testing.T) {
	var p perf
	for _, f := range []struct {
		name      string
		got, want uintptr
	}{
		{"cudnnConvolutionFwdAlgoPerf_t", unsafe.Sizeof(p), 48},
		{"algo", unsafe.Offsetof(p.algo), 0},
		{"status", unsafe.Offsetof(p.status), 4},
		{"time", unsafe.Offsetof(p.ms), 8},
		{"memory", unsafe.Offsetof(p.memory), 16},
		{"determinism", unsafe.Offsetof(p.determinism), 24},
		{"mathType", unsafe.Offsetof(p.math), 28},
		{"reserved", unsafe.Offsetof(p.reserved), 32},
	} {
		if f.got != f.want {
			t.Errorf("%s: %d, want %d", f.name, f.got, f.want)
		}
	}
}

// Values that gcc prints for the headers of cuDNN 9.6, by their names here.
func TestValuesAreThoseOfTheHeaders(t *testing.T) {
	for _, c := range []struct {
		d           DType
		m           Math
		code, sums  int32
		kind, bytes int
		name        string
	}{
		{F32, Full, 0, 0, 3, 4, "f32"},
		{F32, TF32, 0, 0, 0, 4, "f32"},
		{F64, Full, 1, 1, 0, 8, "f64"},
		{F16, Full, 2, 0, 1, 2, "f16"},
		{BF16, Full, 9, 0, 1, 2, "bf16"},
	} {
		e := dtypes[c.d]
		if e.code != c.code || e.sums != c.sums || mathOf(c.d, c.m) != int32(c.kind) || c.d.Bytes() != c.bytes || c.d.String() != c.name {
			t.Errorf("%v %v: type %d, sums %d, math %d, %d B", c.d, c.m, e.code, e.sums, mathOf(c.d, c.m), c.d.Bytes())
		}
	}
	for m, want := range map[PoolMode]int32{Max: 3, AverageInclude: 1, AverageExclude: 2} {
		if got := poolModes[m].code; got != want {
			t.Errorf("%v: %d, want %d", m, got, want)
		}
	}
	if DType(0).String() != "invalid" || DType(99).Bytes() != 0 || PoolMode(99).String() != "invalid" || TF32.String() != "tf32" || Full.String() != "full" {
		t.Error("names are wrong")
	}
	for name, n := range map[string]int{"forward": len(forwardNames), "data": len(dataNames), "filter": len(filterNames)} {
		if want := map[string]int{"forward": 8, "data": 6, "filter": 7}[name]; n != want {
			t.Errorf("%s: %d algorithms, the header has %d", name, n, want)
		}
	}
}

// Full products of float32 never use tensor cores, and no element is rounded without a request.
func TestArithmeticIsThatWhichWasAskedFor(t *testing.T) {
	for _, c := range []struct {
		d        DType
		m        Math
		proposed int32
		want     int32
		ok       bool
	}{
		{F32, Full, mathFMA, mathFMA, true},
		{F32, Full, mathDefault, mathFMA, true},
		{F32, Full, mathTensorOp, 0, false},
		{F32, Full, mathTensorOpConvert, 0, false},
		{F32, TF32, mathTensorOp, mathTensorOp, true},
		{F32, TF32, mathFMA, mathFMA, true},
		{F32, TF32, mathTensorOpConvert, 0, false},
		{BF16, Full, mathTensorOp, mathTensorOp, true},
		{F16, Full, mathDefault, mathDefault, true},
		{F64, Full, mathDefault, mathDefault, true},
	} {
		if got, ok := mathFor(c.d, c.m, c.proposed); ok != c.ok || ok && got != c.want {
			t.Errorf("%v %v, proposed %d: %d, %t; want %d, %t", c.d, c.m, c.proposed, got, ok, c.want, c.ok)
		}
	}
}

func TestAlgorithmsAreTakenAsAskedFor(t *testing.T) {
	good := perf{memory: 100, determinism: deterministic, math: mathFMA}
	d := ConvDesc{DType: F32, MaxWorkspaceBytes: 100}
	for name, c := range map[string]struct {
		change        func(p *perf)
		plain, strict bool
	}{
		"good":            {func(*perf) {}, true, true},
		"failed":          {func(p *perf) { p.status = 3000 }, false, false},
		"large":           {func(p *perf) { p.memory = 101 }, false, false},
		"differing bits":  {func(p *perf) { p.determinism = 0 }, true, false},
		"tensor cores":    {func(p *perf) { p.math = mathTensorOp }, false, false},
		"no workspace":    {func(p *perf) { p.memory = 0 }, true, true},
		"default of math": {func(p *perf) { p.math = mathDefault }, true, true},
	} {
		p := good
		c.change(&p)
		for _, strict := range []bool{false, true} {
			d.Deterministic = strict
			want := c.plain
			if strict {
				want = c.strict
			}
			if _, ok := d.takes(p); ok != want {
				t.Errorf("%s, deterministic %t: taken %t, want %t", name, strict, ok, want)
			}
		}
	}
}
