package direct

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// spec is an operation with its data, which every rank makes for all ranks from the same random
// numbers.
type spec struct {
	op      dist.Op
	n       int
	dt      tensor.DType
	srcs    [][]byte // by rank
	scalars []uint64
	inPlace bool
	src     []uintptr // offsets, by rank
	dst     []uintptr
	heap    []bool // whether the offsets are in the slab, by rank
	device  bool   // the scalar is in the device's memory
}

// combo is a dtype and a reduction.
type combo struct {
	dt  tensor.DType
	red dist.RedKind
}

// someCombos has each accumulator and each reduction at least once.
var someCombos = []combo{
	{tensor.F32, dist.RedSum},
	{tensor.BF16, dist.RedSum},
	{tensor.F16, dist.RedPreMulSum},
	{tensor.F64, dist.RedMin},
	{tensor.I8, dist.RedAvg},
	{tensor.U16, dist.RedPreMulSum},
	{tensor.I64, dist.RedProd},
	{tensor.F32, dist.RedMax},
}

// newSpec is an operation of kind with count elements a block.
func newSpec(rng *rand.Rand, n int, kind dist.Kind, c combo, count, root int) *spec {
	s := &spec{n: n, dt: c.dt, scalars: make([]uint64, n), op: dist.Op{Kind: kind, Count: count, Root: root}}
	if kind.Reduces() {
		s.op.Red.Kind = c.red
	}
	if s.length(true) == 0 {
		s.op.Count = 0
	}
	for r := range n {
		s.srcs = append(s.srcs, randomData(rng, s.length(true), c.dt))
		var b [8]byte
		copy(b[:], randomData(rng, 1, c.dt))
		s.scalars[r] = binary.LittleEndian.Uint64(b[:])
	}
	s.device = rng.IntN(2) == 0
	return s
}

// elsewhere has the scalar where it was not: by value or in the device's memory.
func (s *spec) elsewhere() { s.device = !s.device }

// powers makes all factors powers of two, of which floats have halves, too.
func (s *spec) powers() {
	for r := range s.scalars {
		x := math.Ldexp(1, r-1)
		switch s.dt {
		case tensor.F16:
			s.scalars[r] = uint64(tensor.ToFloat16(float32(x)))
		case tensor.BF16:
			s.scalars[r] = uint64(tensor.ToBFloat16(float32(x)))
		case tensor.F32:
			s.scalars[r] = uint64(math.Float32bits(float32(x)))
		case tensor.F64:
			s.scalars[r] = math.Float64bits(x)
		default:
			s.scalars[r] = 1 << r
		}
	}
}

// length is the elements of source or destination.
func (s *spec) length(src bool) int {
	switch s.op.Kind {
	case dist.KindBarrier, dist.KindSync:
		return 0
	case dist.KindReduceScatter, dist.KindScatter:
		if src {
			return s.n * s.op.Count
		}
	case dist.KindAllGather, dist.KindGather:
		if !src {
			return s.n * s.op.Count
		}
	case dist.KindAllToAll:
		return s.n * s.op.Count
	}
	return s.op.Count
}

// lay places the buffers of all ranks from at on. A symmetric operation has equal offsets in the
// slab; others are in the slab or in private memory, at any element.
func (s *spec) lay(rng *rand.Rand, at uintptr, symmetric, inPlace bool) {
	es := uintptr(s.dt.Size())
	s.op.Symmetric = symmetric
	s.inPlace = inPlace && s.op.Kind != dist.KindAllToAll
	alike := at + uintptr(rng.IntN(20))*es
	for range s.n {
		off, heap := alike, true
		if !symmetric {
			off, heap = at+uintptr(rng.IntN(20))*es, rng.IntN(2) == 0
		}
		s.src = append(s.src, off)
		s.dst = append(s.dst, off+s.half()+es*uintptr(rng.IntN(2)*4))
		s.heap = append(s.heap, heap)
		if symmetric {
			s.dst[len(s.dst)-1] = s.dst[0]
		}
	}
}

// half returns the bytes of a buffer with its largest shift.
func (s *spec) half() uintptr {
	return uintptr(max(s.length(true), s.length(false))*s.dt.Size()+1024) &^ 63
}

// room is the bytes that lay needs: two buffers and a scalar.
func (s *spec) room() uintptr { return 2*s.half() + 512 }

// buffers is the operation on this rank, with its data in place and its destination full of
// something else.
func (s *spec) buffers(r *rank) (dist.Op, error) {
	me, op, es := r.Rank, s.op, uintptr(s.dt.Size())
	base := r.private
	if s.heap[me] {
		base = r.heap.Base[me]
	}
	src, dst := base+s.src[me], base+s.dst[me]
	block := uintptr(op.Count) * es
	if s.inPlace {
		switch op.Kind {
		case dist.KindAllReduce, dist.KindReduce, dist.KindBroadcast:
			dst = src
		case dist.KindReduceScatter, dist.KindScatter:
			dst = src + uintptr(me)*block
		default:
			src = dst + uintptr(me)*block
		}
	}
	sp, _ := spanOf(&op, s.n)
	fill := []error{r.Device.Fill(base+s.dst[me], 0xa5, int64(s.length(false))*int64(es))}
	if n := s.length(true); n > 0 && sp.senders>>me&1 != 0 {
		op.Src = deviceBuffer(src, n, s.dt, r)
		fill = append(fill, r.Device.CopyFromHost(src, unsafe.Pointer(unsafe.SliceData(s.srcs[me])), int64(len(s.srcs[me]))))
	}
	if n := s.length(false); n > 0 && sp.receivers>>me&1 != 0 {
		op.Dst = deviceBuffer(dst, n, s.dt, r)
	}
	if op.Red.Kind == dist.RedPreMulSum {
		op.Red.Scalar = dist.Scalar{DType: s.dt, Bits: s.scalars[me]}
		if at := base + s.src[me]&^63 + 2*s.half() + 256; s.device {
			op.Red.Scalar = dist.Scalar{DType: s.dt, At: deviceBuffer(at, 1, s.dt, r)}
			fill = append(fill, r.Device.CopyFromHost(at, unsafe.Pointer(&s.scalars[me]), int64(es)))
		}
	}
	return op, errors.Join(fill...)
}

// want returns the expected destination of a rank; nil without one.
func (s *spec) want(me int) ([]byte, error) {
	sp, _ := spanOf(&s.op, s.n)
	n, es := s.length(true), s.dt.Size()
	block := s.op.Count * es
	if sp.receivers>>me&1 == 0 || n == 0 {
		return nil, nil
	}
	var out []byte
	switch s.op.Kind {
	case dist.KindBroadcast:
		return s.srcs[s.op.Root], nil
	case dist.KindScatter:
		return s.srcs[s.op.Root][me*block : (me+1)*block], nil
	case dist.KindAllGather, dist.KindGather:
		for _, b := range s.srcs {
			out = append(out, b...)
		}
		return out, nil
	case dist.KindAllToAll:
		for _, b := range s.srcs {
			out = append(out, b[me*block:(me+1)*block]...)
		}
		return out, nil
	}
	out = room(n * es)
	srcs := make([]tensor.Buffer, s.n)
	for r, b := range s.srcs {
		srcs[r] = hostBuffer(b, n, s.dt)
	}
	var scalars []uint64
	if s.op.Red.Kind == dist.RedPreMulSum {
		scalars = s.scalars
	}
	err := reduce.Into(hostBuffer(out, n, s.dt), srcs, s.op.Red.Kind, scalars)
	if s.op.Kind == dist.KindReduceScatter {
		out = out[me*block : (me+1)*block]
	}
	return out, err
}

// check compares the destination of op with the expected one.
func (s *spec) check(r *rank, op *dist.Op) error {
	want, err := s.want(r.Rank)
	if err != nil || want == nil {
		return err
	}
	got := make([]byte, len(want))
	if err := r.Device.CopyToHost(unsafe.Pointer(unsafe.SliceData(got)), uintptr(op.Dst.Pointer()), int64(len(got))); err != nil {
		return err
	}
	es := s.dt.Size()
	for i := 0; i < len(want); i += es {
		if g, w := got[i:i+es], want[i:i+es]; string(g) != string(w) && !(nan(g, s.dt) && nan(w, s.dt)) {
			return fmt.Errorf("%v: element %d is %x, want %x", s, i/es, g, w)
		}
	}
	return nil
}

func (s *spec) String() string {
	return fmt.Sprintf("%v %v count %d root %d of %v, symmetric %v, in place %v, in the slab %v, sources at %#x, destinations at %#x",
		s.op.Kind, s.op.Red.Kind, s.op.Count, s.op.Root, s.dt, s.op.Symmetric, s.inPlace, s.heap, s.src, s.dst)
}

// nan reports whether the bits are a NaN: its exact bits are unspecified.
func nan(b []byte, dt tensor.DType) bool {
	switch dt {
	case tensor.F16:
		return binary.LittleEndian.Uint16(b)&0x7fff > 0x7c00
	case tensor.BF16:
		return binary.LittleEndian.Uint16(b)&0x7fff > 0x7f80
	case tensor.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b)) != math.Float32frombits(binary.LittleEndian.Uint32(b))
	case tensor.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)) != math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return false
}

// randomData is n elements. One float in eight is any bits: denormal, infinite, no number.
func randomData(rng *rand.Rand, n int, dt tensor.DType) []byte {
	es := dt.Size()
	b := make([]byte, 0, n*es+8)
	for range n {
		v := rng.Uint64()
		if dt.IsFloat() && v&7 != 0 {
			x := rng.NormFloat64()
			switch dt {
			case tensor.F16:
				v = uint64(tensor.ToFloat16(float32(x)))
			case tensor.BF16:
				v = uint64(tensor.ToBFloat16(float32(x)))
			case tensor.F32:
				v = uint64(math.Float32bits(float32(x)))
			case tensor.F64:
				v = math.Float64bits(x)
			}
		}
		b = binary.LittleEndian.AppendUint64(b, v)[:len(b)+es]
	}
	return b
}

func deviceBuffer(at uintptr, n int, dt tensor.DType, r *rank) tensor.Buffer {
	b, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), n, dt, r.Device.Tensor())
	if err != nil {
		panic(err) // a test that places buffers wrongly
	}
	return b
}

// room is n bytes that begin where any element may.
func room(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, n/8+1)))), n)
}

func hostBuffer(b []byte, n int, dt tensor.DType) tensor.Buffer {
	x, err := tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(b)), n, dt, tensor.Host)
	if err != nil {
		panic(err)
	}
	return x
}
