package cublas

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// must fails the test at the first error.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// open is cuBLAS for v's driver, found as a program finds it.
func open(t testing.TB, v *cuda.Device) *Library {
	t.Helper()
	l, err := Open(Config{Dirs: v.Driver().Config().Dirs, CUDA: v.Driver().Version()})
	if IsUnavailable(err) {
		cudatest.Missing(t, "no cuBLAS: %v", err)
	}
	must(t, err)
	return l
}

// onDevice is a stream of the first GPU with a handle.
func onDevice(t testing.TB) (*cuda.Device, *cuda.Stream, *Handle) {
	t.Helper()
	v := cudatest.Devices(t, 1)[0]
	l := open(t, v)
	s, err := v.NewStream(0)
	must(t, err)
	h, err := l.NewHandle(s, HandleConfig{})
	must(t, err)
	t.Cleanup(func() { must(t, h.Close(), h.Close(), s.Close()) })
	return v, s, h
}

// encode returns x as elements of d, rounded, and their values.
func encode(d DType, x []float64) (raw []byte, rounded []float64) {
	rounded = make([]float64, len(x))
	for i, v := range x {
		switch d {
		case F64:
			raw, rounded[i] = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v)), v
		case F32:
			raw, rounded[i] = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(v))), float64(float32(v))
		case F16:
			half := tensor.ToFloat16(float32(v))
			raw, rounded[i] = binary.LittleEndian.AppendUint16(raw, uint16(half)), float64(half.Float32())
		case BF16:
			half := tensor.ToBFloat16(float32(v))
			raw, rounded[i] = binary.LittleEndian.AppendUint16(raw, uint16(half)), float64(half.Float32())
		}
	}
	return raw, rounded
}

// decode is the numbers of elements of d.
func decode(d DType, raw []byte) []float64 {
	x := make([]float64, len(raw)/d.Bytes())
	for i := range x {
		switch at := raw[i*d.Bytes():]; d {
		case F64:
			x[i] = math.Float64frombits(binary.LittleEndian.Uint64(at))
		case F32:
			x[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(at)))
		case F16:
			x[i] = float64(tensor.Float16(binary.LittleEndian.Uint16(at)).Float32())
		case BF16:
			x[i] = float64(tensor.BFloat16(binary.LittleEndian.Uint16(at)).Float32())
		}
	}
	return x
}

// memory is bytes bytes of v's memory, freed with the test.
func memory(t testing.TB, v *cuda.Device, bytes int64) uintptr {
	t.Helper()
	p, err := v.Alloc(max(bytes, 1))
	must(t, err)
	t.Cleanup(func() { must(t, v.Free(p)) })
	return p
}

// upload is raw in v's memory.
func upload(t testing.TB, v *cuda.Device, raw []byte) uintptr {
	t.Helper()
	p := memory(t, v, int64(len(raw)))
	must(t, v.CopyFromHost(p, unsafe.Pointer(&raw[0]), int64(len(raw))))
	return p
}

// download is bytes bytes at p.
func download(t testing.TB, v *cuda.Device, p uintptr, bytes int64) []byte {
	t.Helper()
	raw := make([]byte, bytes)
	must(t, v.CopyToHost(unsafe.Pointer(&raw[0]), p, bytes))
	return raw
}

// fractions is n numbers between -1 and 1 with all bits of a float32.
func fractions(r *rand.Rand, n int64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(float32(2*r.Float64() - 1))
	}
	return x
}

// eps is half a unit in the last place of d, relative.
func eps(d DType) float64 {
	return [...]float64{F32: 0x1p-24, F64: 0x1p-53, F16: 0x1p-11, BF16: 0x1p-8}[d]
}

// bound is how far an element of g may be from its value, where the products' absolute values sum
// up to sum: each rounding of a product or partial sum is eps of the type of sums, those of
// the elements to narrower types are two of theirs a product (the hardware may cut off), and the
// result is rounded once more.
func bound(g *Gemm, sum, value float64) float64 {
	acc := eps(F32)
	if g.DType == F64 {
		acc = eps(F64)
	}
	narrow := map[Compute]float64{TF32: 4 * 0x1p-11, FastBF16: 4 * 0x1p-8}[g.Compute]
	if out := g.out(); out == F16 || out == BF16 {
		narrow += eps(out) // parts of a sum that is split may meet in the result's type
	}
	return sum*(float64(g.K+4)*acc+narrow) + 2*eps(g.out())*math.Abs(value) + 0x1p-24*eps(g.out())
}

// problem is a Gemm with operands on the device and on the host.
type problem struct {
	g          Gemm
	a, b, c    uintptr
	x, y, z    []float64 // A, B and C as the device has them
	value, sum []float64 // of C, and of absolute values
}

// newProblem uploads operands for g. C is NaN where Beta is 0.
func newProblem(t testing.TB, v *cuda.Device, g Gemm, r *rand.Rand) *problem {
	t.Helper()
	p := &problem{g: g}
	na, nb, nc := g.Bytes()
	raw, x := encode(g.DType, fractions(r, na/int64(g.DType.Bytes())))
	p.a, p.x = upload(t, v, raw), x
	raw, p.y = encode(g.DType, fractions(r, nb/int64(g.DType.Bytes())))
	p.b = upload(t, v, raw)
	c := fractions(r, nc/int64(g.out().Bytes()))
	if g.Beta == 0 {
		for i := range c {
			c[i] = math.NaN()
		}
	}
	raw, p.z = encode(g.out(), c)
	p.c = upload(t, v, raw)
	p.expect()
	return p
}

// expect computes what C becomes. Elements in the gaps stay.
func (p *problem) expect() {
	abs := func(x []float64) []float64 {
		y := make([]float64, len(x))
		for i := range x {
			y[i] = math.Abs(x[i])
		}
		return y
	}
	p.value, p.sum = append([]float64(nil), p.z...), abs(p.z)
	byRows(&p.g, p.x, p.y, p.value)
	g := p.g
	g.Alpha, g.Beta = math.Abs(g.Alpha), math.Abs(g.Beta)
	byRows(&g, abs(p.x), abs(p.y), p.sum)
}

// judge compares C with the expected values.
func (p *problem) judge(t testing.TB, v *cuda.Device) {
	t.Helper()
	_, _, n := p.g.Bytes()
	got := decode(p.g.out(), download(t, v, p.c, n))
	_, _, c := p.g.extents()
	inside := make([]bool, len(got))
	for k := range p.g.batch() {
		for i := range c.rows {
			for j := range c.cols {
				inside[int64(k)*c.stride+int64(i*c.ld+j)] = true
			}
		}
	}
	for i := range got {
		if !inside[i] {
			if got[i] != p.z[i] && !(math.IsNaN(got[i]) && math.IsNaN(p.z[i])) {
				t.Fatalf("%v: element %d, between rows, was %v and is %v", &p.g, i, p.z[i], got[i])
			}
			continue
		}
		if d := math.Abs(got[i] - p.value[i]); !(d <= bound(&p.g, p.sum[i], p.value[i])) {
			t.Fatalf("%v: element %d is %v, want %v; off by %g, at most %g", &p.g, i, got[i], p.value[i], d, bound(&p.g, p.sum[i], p.value[i]))
		}
	}
}
