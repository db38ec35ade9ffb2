package hostexec

import (
	"math/bits"
	"unsafe"
)

const (
	philoxM0, philoxM1 = 0xD2511F53, 0xCD9E8D57
	philoxW0, philoxW1 = 0x9E3779B9, 0xBB67AE85
)

// philox returns the first word of Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", 2011) with counter (index, step), each of 64 bits, low word first.
func philox(key, index, step uint64) uint32 {
	c0, c1, c2, c3 := uint32(index), uint32(index>>32), uint32(step), uint32(step>>32)
	k0, k1 := uint32(key), uint32(key>>32)
	for range 10 {
		hi0, lo0 := bits.Mul32(philoxM0, c0)
		hi1, lo1 := bits.Mul32(philoxM1, c2)
		c0, c1, c2, c3 = hi1^c1^k0, lo1, hi0^c3^k1, lo0
		k0 += philoxW0
		k1 += philoxW1
	}
	return c0
}

// uniform converts 24 bits of a word to a number in [0, 1).
func uniform[T real](word uint32) T { return T(word>>8) * (1.0 / (1 << 24)) }

// wordsOf returns the argument of a level's uniform.
func wordsOf(key, index, step uint64) [6]uint32 {
	return [6]uint32{uint32(key), uint32(key >> 32), uint32(index), uint32(index >> 32), uint32(step), uint32(step >> 32)}
}

// draw sets dst to the random numbers of the space's elements from lo on.
func (c *code[T]) draw(w *worker, o *operand, dst []T, lo int) {
	clock := unsafe.Slice((*uint64)(w.mem.at(w.mem.p.Clock, 0)), 2)
	step, first := clock[0], clock[1]*uint64(o.random.PerUnit)
	last := len(c.sp.dims) - 1
	at, stride := c.seek(w, o, lo), o.strides[last]
	for len(dst) > 0 {
		n := min(len(dst), c.sp.dims[last]-w.index[last])
		index := first + uint64(at)
		if stride == 1 && size[T]() == 4 && c.level != nil && uint64(uint32(index))+uint64(n) <= 1<<32 {
			w.words = wordsOf(o.random.Key, index, step)
			c.level.uniform(unsafe.Pointer(unsafe.SliceData(dst)), n, &w.words)
		} else {
			for i := range dst[:n] {
				dst[i] = uniform[T](philox(o.random.Key, index+uint64(i*stride), step))
			}
		}
		at = c.step(w, o, at, n)
		dst = dst[n:]
	}
}
