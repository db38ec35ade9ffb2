package perf

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// period is the length of a pattern in elements. It is a prime, so that blocks, chunks or pages of
// a power of two begin at different phases.
const period = 1021

// pattern is an endless periodic sequence of elements.
type pattern struct {
	twice []byte // two periods, so that a whole one begins at every phase
	size  int    // of an element
}

// newPattern returns the pattern whose element i has the bits of(i).
func newPattern(dt tensor.DType, of func(i int) uint64) pattern {
	p := pattern{twice: make([]byte, 0, 2*period*dt.Size()), size: dt.Size()}
	for i := range 2 * period {
		p.twice = appendBits(p.twice, dt, of(i%period))
	}
	return p
}

// at returns the period that begins with element phase.
func (p pattern) at(phase int) []byte {
	begin := phase % period * p.size
	return p.twice[begin : begin+period*p.size]
}

// fill writes to dst the elements from phase on.
func (p pattern) fill(dst []byte, phase int) {
	block := p.at(phase)
	for len(dst) > 0 {
		dst = dst[copy(dst, block):]
	}
}

// wrong returns how many elements of got differ from those from phase on. It reads all of got.
func (p pattern) wrong(got []byte, phase int) int64 {
	var n int64
	block := p.at(phase)
	for len(got) > 0 {
		part := got[:min(len(got), len(block))]
		if !bytes.Equal(part, block[:len(part)]) {
			for i := 0; i < len(part); i += p.size {
				if !bytes.Equal(part[i:i+p.size], block[i:i+p.size]) {
					n++
				}
			}
		}
		got = got[len(part):]
	}
	return n
}

// inputPattern returns the input of rank in a case among n ranks.
func inputPattern(c Case, n, rank int) pattern {
	return newPattern(c.DType, func(i int) uint64 {
		if !c.Op.trait().reduces {
			return hash(rank, i)
		}
		return bitsOf(c.DType, float64(term(c.Red, n, rank, i)))
	})
}

// reducedPattern returns the reduction of the inputs of n ranks.
func reducedPattern(c Case, n int) pattern {
	terms := make([]int64, n)
	return newPattern(c.DType, func(i int) uint64 {
		for r := range terms {
			terms[r] = term(c.Red, n, r, i)
		}
		if c.DType.IsFloat() {
			return bitsOf(c.DType, combineFloats(c.Red, terms))
		}
		return combineInts(c.DType, c.Red, terms)
	})
}

// term returns element i of rank's input in a reduction of n ranks: a small whole number, so that
// no order rounds. The sum of an average is a multiple of n.
func term(red dist.RedKind, n, rank, i int) int64 {
	h := hash(rank, i)
	switch red {
	case dist.RedProd:
		if h%8 == 0 {
			return 2
		}
		return 1
	case dist.RedAvg:
		v := 1 + int64(hash(0, i)%3)
		switch {
		case rank == n-1 && n%2 == 1:
			return v
		case rank%2 == 0:
			return v + 1
		}
		return v - 1
	}
	return int64(h % 5)
}

// scalar returns the factor of rank in a premulsum, as in nccl-tests' mulsum.
func scalar(rank int) int64 { return 1 + int64(rank%2) }

func combineFloats(red dist.RedKind, terms []int64) float64 {
	acc := float64(terms[0]) // the factor of rank 0 is 1
	for r, v := range terms[1:] {
		x := float64(v)
		switch red {
		case dist.RedProd:
			acc *= x
		case dist.RedMin:
			acc = min(acc, x)
		case dist.RedMax:
			acc = max(acc, x)
		case dist.RedPreMulSum:
			acc += x * float64(scalar(r+1))
		default:
			acc += x
		}
	}
	if red == dist.RedAvg {
		acc /= float64(len(terms))
	}
	return acc
}

// combineInts wraps around as dt does: every integer type is a remainder of 64 bits.
func combineInts(dt tensor.DType, red dist.RedKind, terms []int64) uint64 {
	acc := terms[0]
	for r, v := range terms[1:] {
		switch red {
		case dist.RedProd:
			acc *= v
		case dist.RedMin:
			acc = min(acc, v)
		case dist.RedMax:
			acc = max(acc, v)
		case dist.RedPreMulSum:
			acc += v * scalar(r+1)
		case dist.RedAnd:
			acc &= v
		case dist.RedOr:
			acc |= v
		case dist.RedXor:
			acc ^= v
		default:
			acc += v
		}
	}
	if red == dist.RedAvg {
		return uint64(wrapped(dt, acc) / int64(len(terms)))
	}
	return uint64(acc)
}

// wrapped returns the small number v after conversion to dt.
func wrapped(dt tensor.DType, v int64) int64 {
	shift := 64 - 8*dt.Size()
	if dt >= tensor.U8 {
		return int64(uint64(v) << shift >> shift)
	}
	return v << shift >> shift
}

// bitsOf returns the whole number v as an element of dt; exact if dt can represent it.
func bitsOf(dt tensor.DType, v float64) uint64 {
	switch dt {
	case tensor.F16:
		return uint64(tensor.ToFloat16(float32(v)))
	case tensor.BF16:
		return uint64(tensor.ToBFloat16(float32(v)))
	case tensor.F32:
		return uint64(math.Float32bits(float32(v)))
	case tensor.F64:
		return math.Float64bits(v)
	}
	return uint64(int64(v))
}

// appendBits appends one element, the low bytes of bits.
func appendBits(raw []byte, dt tensor.DType, bits uint64) []byte {
	switch dt.Size() {
	case 1:
		return append(raw, byte(bits))
	case 2:
		return binary.NativeEndian.AppendUint16(raw, uint16(bits))
	case 4:
		return binary.NativeEndian.AppendUint32(raw, uint32(bits))
	}
	return binary.NativeEndian.AppendUint64(raw, bits)
}

// hash returns a number that depends on all of rank and i (splitmix64; Steele, Lea and Flood,
// 2014).
func hash(rank, i int) uint64 {
	x := uint64(rank)<<32 + uint64(i) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
