package reduce

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

var dtypes = []tensor.DType{
	tensor.F16, tensor.BF16, tensor.F32, tensor.F64, tensor.I8, tensor.I16, tensor.I32, tensor.I64,
	tensor.U8, tensor.U16, tensor.U32, tensor.U64,
}

// kernels returns every implementation that this machine has for a reduction, by name.
func kernels(dt tensor.DType, red dist.RedKind) map[string]Kernel {
	out := map[string]Kernel{"plain": plain(dt, red)}
	if red == dist.RedSum {
		out["chosen"] = For(dt, red)
	}
	for i := range levels {
		if levels[i].has {
			out[levels[i].name] = levels[i].kernel(dt, red)
		}
	}
	return out
}

// arena is memory with a mark before and after the range that a kernel may touch.
type arena struct {
	mem     []byte
	lo, len int
}

const margin = 256

func newArena(r *rand.Rand, bytes, shift int) arena {
	words := make([]uint64, (bytes+2*margin+128)/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	lo := margin + int(-uintptr(unsafe.Pointer(&mem[margin]))&63) + shift
	return arena{mem, lo, bytes}
}

func (a arena) data() []byte            { return a.mem[a.lo : a.lo+a.len] }
func (a arena) pointer() unsafe.Pointer { return unsafe.Pointer(&a.mem[a.lo]) }

// fill writes ordinary numbers and some arbitrary bit patterns of a dtype.
func (a arena) fill(r *rand.Rand, dt tensor.DType) {
	if dt == tensor.F32 || dt == tensor.F64 {
		// A NaN of two NaNs depends on the order of a commutative instruction, so floats have only
		// infinities here.
		for i := 0; i+dt.Size() <= a.len; i += dt.Size() {
			v := float32(r.NormFloat64())
			if r.IntN(50) == 0 {
				v *= 1e38
			}
			if dt == tensor.F32 {
				*(*float32)(unsafe.Pointer(&a.data()[i])) = v
			} else {
				*(*float64)(unsafe.Pointer(&a.data()[i])) = float64(v) * 1e200
			}
		}
		return
	}
	for i := range a.data() {
		a.data()[i] = byte(r.Uint32())
	}
	if dt != tensor.F16 && dt != tensor.BF16 || r.IntN(4) == 0 {
		return // one time in four; halves then have NaNs
	}
	for i := 0; i+2 <= a.len; i += 2 {
		if x := *(*uint16)(unsafe.Pointer(&a.data()[i])); dt == tensor.F16 && x&0x7c00 == 0x7c00 || x&0x7f80 == 0x7f80 {
			*(*uint16)(unsafe.Pointer(&a.data()[i])) = x & 0x3fff
		}
	}
}

// Every kernel gives the bits of Into, in every destination, for all lengths, alignments and
// aliases, and leaves the memory around unchanged.
func TestKernelsEqualInto(t *testing.T) {
	lengths := []int{0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 511, 1000, 1024, 4099}
	for _, dt := range dtypes {
		for red := dist.RedSum; red <= dist.RedPreMulSum; red++ {
			for name, k := range kernels(dt, red) {
				t.Run(fmt.Sprintf("%v/%v/%s", dt, red, name), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(dt), uint64(red)))
					for _, n := range lengths {
						for range 2 {
							trial(t, r, k, dt, red, n)
						}
					}
				})
			}
		}
	}
}

// scene is the memory of one trial.
type scene struct {
	srcs, dsts []arena
	sp, dp     []unsafe.Pointer
	scalars    []uint64
}

// newScene has up to 9 sources and 4 destinations of n elements, some destinations being sources.
func newScene(r *rand.Rand, dt tensor.DType, n int) scene {
	var s scene
	aligned, inPlace := r.IntN(2) == 0, r.IntN(2) == 0
	fresh := func() arena {
		shift := 0
		if !aligned {
			shift = r.IntN(64/dt.Size()) * dt.Size()
		}
		return newArena(r, n*dt.Size(), shift)
	}
	for range 1 + r.IntN(9) {
		a := fresh()
		a.fill(r, dt)
		s.srcs = append(s.srcs, a)
		s.sp = append(s.sp, a.pointer())
		scalar := uint64(r.IntN(3))
		if dt == tensor.F32 {
			scalar = dist.PreMulSum(float32(r.NormFloat64())).Scalar.Bits
		}
		s.scalars = append(s.scalars, scalar)
	}
	order := r.Perm(len(s.srcs))
	for i := range 1 + r.IntN(4) {
		a := fresh()
		if inPlace && i < len(order) {
			a = s.srcs[order[i]]
		}
		s.dsts = append(s.dsts, a)
		s.dp = append(s.dp, a.pointer())
	}
	return s
}

func trial(t *testing.T, r *rand.Rand, k Kernel, dt tensor.DType, red dist.RedKind, n int) {
	t.Helper()
	s := newScene(r, dt, n)
	room := make([]uint64, (n*dt.Size()+7)/8+1)
	want := buffer(unsafe.Pointer(&room[0]), n, dt)
	var bufs []tensor.Buffer
	for _, p := range s.sp {
		bufs = append(bufs, buffer(p, n, dt))
	}
	if err := Into(want, bufs, red, s.scalars); err != nil {
		t.Fatal(err)
	}
	var around [][]byte
	for _, d := range s.dsts {
		around = append(around, bytes.Clone(d.mem))
	}
	how := How(r.IntN(8))
	k(s.dp, s.sp, n, s.scalars, how)
	for i, d := range s.dsts {
		if !bytes.Equal(sameNaN(dt, d.data()), sameNaN(dt, want.Raw())) {
			t.Fatalf("n %d, %d sources, destination %d of %d, how %d: differs from Into", n, len(s.srcs), i, len(s.dsts), how)
		}
		copy(d.data(), around[i][d.lo:])
		if !bytes.Equal(d.mem, around[i]) {
			t.Fatalf("n %d, destination %d, how %d: memory around it has changed", n, i, how)
		}
	}
}

// sameNaN returns data with one NaN for all: which of two NaNs a sum is depends on the order in
// which a compiler passes them to a commutative instruction.
func sameNaN(dt tensor.DType, data []byte) []byte {
	limit := uint16(0x7c00)
	switch dt {
	case tensor.F16:
	case tensor.BF16:
		limit = 0x7f80
	default:
		return data
	}
	out := bytes.Clone(data)
	for i := 0; i+2 <= len(out); i += 2 {
		if x := uint16(out[i]) | uint16(out[i+1])<<8; x&0x7fff > limit {
			out[i], out[i+1] = 0xff, 0xff
		}
	}
	return out
}

func TestCopyCopies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 700 {
		copiesEveryWay(t, r, n)
	}
}

// Large copies use vectors or the runtime's copy, whichever is faster on this processor. This tests
// both.
func TestLargeCopiesCopy(t *testing.T) {
	defer func(old bool) { movsb = old }(movsb)
	r := rand.New(rand.NewPCG(3, 4))
	for _, movsb = range []bool{false, true} {
		copiesEveryWay(t, r, fewest+r.IntN(1000))
	}
}

// copiesEveryWay copies n bytes anywhere to anywhere.
func copiesEveryWay(t *testing.T, r *rand.Rand, n int) {
	t.Helper()
	for how := How(0); how < 8; how++ {
		src, dst := newArena(r, n, r.IntN(64)), newArena(r, n, r.IntN(64))
		before, around := bytes.Clone(src.mem), bytes.Clone(dst.mem)
		Copy(dst.pointer(), src.pointer(), n, how)
		if !bytes.Equal(dst.data(), src.data()) {
			t.Fatalf("%d bytes, how %d: not copied", n, how)
		}
		copy(dst.data(), around[dst.lo:])
		if !bytes.Equal(dst.mem, around) || !bytes.Equal(src.mem, before) {
			t.Fatalf("%d bytes, how %d: other memory has changed", n, how)
		}
	}
}

func TestKernelsDoNotAllocate(t *testing.T) {
	x, y := newArena(rand.New(rand.NewPCG(1, 2)), 4096, 0), newArena(rand.New(rand.NewPCG(1, 2)), 4096, 0)
	dsts, srcs := []unsafe.Pointer{x.pointer(), y.pointer()}, []unsafe.Pointer{x.pointer(), y.pointer()}
	for _, dt := range dtypes {
		k := For(dt, dist.RedSum)
		if n := testing.AllocsPerRun(10, func() { k(dsts, srcs, 4096/dt.Size()-1, nil, 0) }); n != 0 {
			t.Errorf("%v: %v allocations", dt, n)
		}
	}
}

// One source is copied, even signalling NaNs.
func TestKernelsCopyOneSource(t *testing.T) {
	for dt, nan := range map[tensor.DType]uint64{
		tensor.F16: 0x7c017c017c017c01, tensor.BF16: 0x7f817f817f817f81, tensor.F32: 0x7f8000017f800001, tensor.F64: 0x7ff0000000000001,
	} {
		src := slices.Repeat([]uint64{nan}, 33)
		for red := dist.RedSum; red < dist.RedPreMulSum; red++ {
			for name, k := range kernels(dt, red) {
				dst := make([]uint64, len(src))
				k([]unsafe.Pointer{unsafe.Pointer(&dst[0])}, []unsafe.Pointer{unsafe.Pointer(&src[0])}, 8*len(src)/dt.Size(), nil, 0)
				if !slices.Equal(dst, src) {
					t.Errorf("%v %v %s: %x, want %x", dt, red, name, dst, src)
				}
			}
		}
	}
}
