package reduce

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Kernel reduces n elements of every source, in order, and stores the result to every destination.
// It is Into without checks, on addresses, and for many destinations in one pass.
//
// Shapes: dsts and srcs are addresses of n elements of the dtype that the kernel is for, aligned to
// it; a destination is one of the sources or disjoint from all, and from the other destinations.
// scalars is as in Into.
type Kernel func(dsts, srcs []unsafe.Pointer, n int, scalars []uint64, how How)

// How has flags for memory access of a kernel or copy. It never changes the result.
type How uint8

const (
	// NonTemporal stores past the caches, for results larger than these. A fence follows the last
	// store.
	NonTemporal How = 1 << iota
	// Dirty stores one word of every cache line of the sources back after it is read. If DirtyPays,
	// another core then refills a source faster, since its lines are modified here instead of
	// shared by both cores. Meanwhile no other write may change the sources.
	Dirty
	// Claim requests the lines of the destinations for writing while the sources are read, if other
	// cores have read them. It is useless with NonTemporal.
	Claim
)

// fewest is the number of bytes from which a copy uses vectors, if the runtime's copy is REP MOVSQ.
// That is as fast or a little faster while both sides are in the L2 cache, and takes twice the time
// beyond it. REP MOVSB (movsb) is as fast or faster at all sizes.
const fewest = 384 << 10

// Copy copies bytes from src to dst, which do not overlap. A large copy is the sum of one source.
func Copy(dst, src unsafe.Pointer, bytes int, how How) {
	to, from := unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes)
	if columns == nil || how&NonTemporal == 0 && (bytes < fewest || movsb) {
		copy(to, from)
		if how&Dirty != 0 {
			touch(src, bytes)
		}
		return
	}
	head := 0
	if how&NonTemporal != 0 {
		head = min(bytes, int(-uintptr(dst)&63))
		copy(to[:head], from)
	}
	whole := (bytes - head) &^ (columnBytes - 1)
	d, s := unsafe.Add(dst, head), unsafe.Add(src, head)
	columns(&d, 1, &s, 1, whole, int(how))
	copy(to[head+whole:], from[head+whole:])
}

// Touch stores one word of every cache line at p back, as Dirty does, after another kind of read.
func Touch(p unsafe.Pointer, bytes int) { touch(p, bytes) }

// columns is the sum that Copy uses, and columnBytes the width of its narrowest column; nil without
// vectors.
var columns, columnBytes = vectors()

func vectors() (columns sum, step int) {
	for i := range levels {
		if l := &levels[i]; l.has {
			return l.sums[tensor.U64], l.step
		}
	}
	return nil, 0
}

// sum adds the columns of the sources into the destinations, for as many whole columns as bytes
// has.
type sum func(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

// weighted is a sum of sources times scalars.
type weighted func(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)

// level has the kernels of one instruction set, by dtype; missing ones are nil. step is the
// narrowest column in bytes of the sources. Plain Go handles the rest.
type level struct {
	name     string
	has      bool
	sums     map[tensor.DType]sum
	averages map[tensor.DType]sum
	premuls  map[tensor.DType]weighted
	step     int
}

// For returns the fastest kernel of this machine for a dtype and a reduction. Call it once and keep
// the result.
func For(dt tensor.DType, red dist.RedKind) Kernel {
	for i := range levels {
		if levels[i].has {
			return levels[i].kernel(dt, red)
		}
	}
	return plain(dt, red)
}

// kernel returns the kernel of one instruction set, or the plain one.
func (l *level) kernel(dt tensor.DType, red dist.RedKind) Kernel {
	step := l.step
	if dt == tensor.F16 || dt == tensor.BF16 {
		step = 32
	}
	switch {
	case red == dist.RedSum && l.sums[dt] != nil:
		return withTail(dt, red, l.sums[dt], step)
	case red == dist.RedAvg && l.averages[dt] != nil:
		return withTail(dt, red, l.averages[dt], step)
	case red == dist.RedPreMulSum && l.premuls[dt] != nil:
		return weightedWithTail(dt, l.premuls[dt], step)
	}
	return plain(dt, red)
}

// withTail returns a kernel for sum or an average, with plain Go after the last whole column. One
// source is copied bit for bit.
func withTail(dt tensor.DType, red dist.RedKind, sum sum, step int) Kernel {
	size, tail := dt.Size(), tails(dt)
	return func(dsts, srcs []unsafe.Pointer, n int, _ []uint64, how How) {
		bytes := n * size
		if len(srcs) == 1 {
			copies(dsts, srcs[0], bytes, how)
			return
		}
		whole := bytes &^ (step - 1)
		if whole != 0 {
			sum(unsafe.SliceData(dsts), len(dsts), unsafe.SliceData(srcs), len(srcs), whole, int(storing(how, dsts)))
		}
		if whole != bytes {
			tail(dsts, srcs, whole/size, n, red, nil)
		}
	}
}

// weightedWithTail is withTail for a premulsum.
func weightedWithTail(dt tensor.DType, sum weighted, step int) Kernel {
	size, tail := dt.Size(), tails(dt)
	return func(dsts, srcs []unsafe.Pointer, n int, scalars []uint64, how How) {
		bytes := n * size
		whole := bytes &^ (step - 1)
		if whole != 0 {
			sum(unsafe.SliceData(dsts), len(dsts), unsafe.SliceData(srcs), len(srcs), whole, int(storing(how, dsts)),
				unsafe.SliceData(scalars))
		}
		if whole != bytes {
			tail(dsts, srcs, whole/size, n, dist.RedPreMulSum, scalars)
		}
	}
}

// storing returns how, without NonTemporal if dsts are not aligned for it.
func storing(how How, dsts []unsafe.Pointer) How {
	if how&NonTemporal != 0 && !aligned(dsts) {
		how &^= NonTemporal
	}
	return how
}

// aligned reports whether all dsts allow non-temporal stores of any width.
func aligned(dsts []unsafe.Pointer) bool {
	for _, p := range dsts {
		if uintptr(p)&63 != 0 {
			return false
		}
	}
	return true
}

// copies is the kernel for one source.
func copies(dsts []unsafe.Pointer, src unsafe.Pointer, bytes int, how How) {
	for _, d := range dsts {
		if d != src {
			Copy(d, src, bytes, how)
		}
	}
}

// tails returns the plain sum, average (of floats) or premulsum of a few elements, lo to hi.
func tails(dt tensor.DType) func(dsts, srcs []unsafe.Pointer, lo, hi int, red dist.RedKind, scalars []uint64) {
	switch dt {
	case tensor.F32:
		return tail[float32]
	case tensor.F64:
		return tail[float64]
	case tensor.F16:
		return halfTail[tensor.Float16]
	case tensor.BF16:
		return halfTail[tensor.BFloat16]
	}
	switch dt.Size() { // signed and unsigned sums have the same bits
	case 1:
		return tail[uint8]
	case 2:
		return tail[uint16]
	case 4:
		return tail[uint32]
	}
	return tail[uint64]
}

func tail[T number](dsts, srcs []unsafe.Pointer, lo, hi int, red dist.RedKind, scalars []uint64) {
	at := func(p unsafe.Pointer, i int) *T { return (*T)(unsafe.Add(p, i*int(unsafe.Sizeof(T(0))))) }
	for i := lo; i < hi; i++ {
		var acc T
		for r, s := range srcs {
			v := *at(s, i)
			if red == dist.RedPreMulSum {
				v = T(fromBits[T](scalars[r]) * v)
			}
			if acc += v; r == 0 {
				acc = v // keep -0, which 0 + -0 would lose
			}
		}
		if red == dist.RedAvg {
			acc /= T(len(srcs))
		}
		for _, d := range dsts {
			*at(d, i) = acc
		}
	}
}

func halfTail[T half16](dsts, srcs []unsafe.Pointer, lo, hi int, red dist.RedKind, scalars []uint64) {
	at := func(p unsafe.Pointer, i int) *T { return (*T)(unsafe.Add(p, i*2)) }
	var out [1]T
	var acc [1]float32
	for i := lo; i < hi; i++ {
		for r, s := range srcs {
			v := (*at(s, i)).Float32()
			if red == dist.RedPreMulSum {
				v = float32(T(scalars[r]).Float32() * v)
			}
			if acc[0] += v; r == 0 {
				acc[0] = v
			}
		}
		if red == dist.RedAvg {
			divide(acc[:], len(srcs))
		}
		round(out[:], acc[:])
		for _, d := range dsts {
			*at(d, i) = out[0]
		}
	}
}

// blockBytes is the block of each array that a kernel of several passes handles at a time, so that
// it stays in the L1 cache between the passes.
const blockBytes = 4 << 10

// mostInPlace is the number of addresses that a kernel in plain Go takes without an allocation.
const mostInPlace = 64

// plain returns the kernel in plain Go, block by block. It calls no function value, which would
// make its arrays escape to the heap in each call.
func plain(dt tensor.DType, red dist.RedKind) Kernel {
	size := dt.Size()
	return func(dsts, srcs []unsafe.Pointer, n int, scalars []uint64, how How) {
		if len(srcs) == 1 && red != dist.RedPreMulSum {
			copies(dsts, srcs[0], n*size, how)
			return
		}
		var ds, ss [mostInPlace]unsafe.Pointer
		d, s := append(ds[:0], dsts...), append(ss[:0], srcs...)
		for per := blockBytes / size; n > 0; n -= per {
			plainBlock(dt, d, s, min(per, n), red, scalars)
			if n <= per {
				return // an address past the end may be another object's
			}
			for i := range d {
				d[i] = unsafe.Add(d[i], per*size)
			}
			for i := range s {
				s[i] = unsafe.Add(s[i], per*size)
			}
		}
	}
}

// plainBlock reduces n elements of every source into the first destination and copies them to the
// others.
func plainBlock(dt tensor.DType, dsts, srcs []unsafe.Pointer, n int, red dist.RedKind, scalars []uint64) {
	var bs [16]tensor.Buffer
	bufs := bs[:0]
	for _, p := range srcs {
		bufs = append(bufs, buffer(p, n, dt))
	}
	// The caller has checked these, so typed cannot fail.
	_ = typed(buffer(dsts[0], n, dt), bufs, red, scalars)
	copies(dsts[1:], dsts[0], n*dt.Size(), 0)
}

func buffer(p unsafe.Pointer, n int, dt tensor.DType) tensor.Buffer {
	b, _ := tensor.FromPointer(p, n, dt, tensor.Host)
	return b
}
