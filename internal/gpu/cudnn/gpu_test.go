package cudnn

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
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

// open is cuDNN for v's driver, found as a program finds it. A machine may have GPUs and no cuDNN:
// the test is skipped there, unless the variable SYMGRAD_REQUIRE names cudnn.
func open(t testing.TB, v *cuda.Device) *Library {
	t.Helper()
	l, err := Open(Config{Dirs: v.Driver().Config().Dirs, CUDA: v.Driver().Version()})
	if IsUnavailable(err) && !slices.Contains(strings.Split(os.Getenv("SYMGRAD_REQUIRE"), ","), "cudnn") {
		t.Skipf("no cuDNN: %v", err)
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
	h, err := l.NewHandle(s)
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

// memory is bytes bytes of v's memory with all bits set, freed with the test.
func memory(t testing.TB, v *cuda.Device, bytes int64) uintptr {
	t.Helper()
	p, err := v.Alloc(max(bytes, 1))
	must(t, err, v.Fill(p, 0xff, max(bytes, 1)))
	t.Cleanup(func() { must(t, v.Free(p)) })
	return p
}

// data is numbers on the host and as elements of d on the device.
type data struct {
	at uintptr
	d  DType
	x  []float64
}

// newData is n numbers between -1 and 1.
func newData(t testing.TB, v *cuda.Device, d DType, r *rand.Rand, shape dims) data {
	t.Helper()
	x := make([]float64, shape[0]*shape[1]*shape[2]*shape[3])
	for i := range x {
		x[i] = float64(float32(2*r.Float64() - 1))
	}
	a := data{memory(t, v, int64(len(x)*d.Bytes())), d, x}
	a.set(t, v, x)
	return a
}

// set makes x the numbers, rounded to the type.
func (a data) set(t testing.TB, v *cuda.Device, x []float64) {
	t.Helper()
	raw, rounded := encode(a.d, x)
	must(t, v.CopyFromHost(a.at, unsafe.Pointer(&raw[0]), int64(len(raw))))
	copy(a.x, rounded)
}

// room is memory for a result, full of NaN.
func room(t testing.TB, v *cuda.Device, d DType, shape dims) data {
	t.Helper()
	x := make([]float64, shape[0]*shape[1]*shape[2]*shape[3])
	return data{memory(t, v, int64(len(x)*d.Bytes())), d, x}
}

// raw returns the device's bytes.
func (a data) raw(t testing.TB, v *cuda.Device) []byte {
	t.Helper()
	b := make([]byte, len(a.x)*a.d.Bytes())
	must(t, v.CopyToHost(unsafe.Pointer(&b[0]), a.at, int64(len(b))))
	return b
}

// eps is half a unit in the last place of d, relative.
func eps(d DType) float64 {
	return [...]float64{F32: 0x1p-24, F64: 0x1p-53, F16: 0x1p-11, BF16: 0x1p-8}[d]
}

// result is the expected sum of terms products, and the sum of their absolute values, for each
// element.
type result struct {
	value, sum []float64
	terms      int
}

// judge compares the device's data got with want. slack is the factor by which the algorithm may
// round worse than a plain sum.
func (want result) judge(t testing.TB, v *cuda.Device, got data, m Math, slack float64, what string) {
	t.Helper()
	acc, narrow := eps(F32), 0.0
	if got.d == F64 {
		acc = eps(F64)
	}
	if m == TF32 {
		narrow = 4 * 0x1p-11
	}
	if got.d == F16 || got.d == BF16 {
		narrow += eps(got.d) // parts of a sum that is split may meet in the result's type
	}
	for i, x := range decode(got.d, got.raw(t, v)) {
		limit := slack*want.sum[i]*(float64(want.terms+4)*acc+narrow) + 2*eps(got.d)*math.Abs(want.value[i]) + 0x1p-24*eps(got.d)
		if off := math.Abs(x - want.value[i]); !(off <= limit) {
			t.Fatalf("%s: element %d is %v, want %v; off by %g, at most %g", what, i, x, want.value[i], off, limit)
		}
	}
}
