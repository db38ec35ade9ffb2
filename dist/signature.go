package dist

import (
	"fmt"

	"github.com/symgrad/symgrad/tensor"
)

// Signature is the part of an Op that must be equal on all ranks of the group. It is comparable and
// has a fixed size, so that backends can exchange it.
type Signature struct {
	Count int64 // Op.Count; the number of members of a group call
	Root  int32 // -1 without a root
	Kind  Kind
	Red   RedKind
	DType tensor.DType
}

// String returns "f32[128] sum root 0, 512 B". It omits the kind, which the surrounding message
// has.
func (s Signature) String() string {
	switch {
	case s.Kind == KindBatch:
		return fmt.Sprintf("%d operations", s.Count)
	case s.Kind == KindHeap || s.Kind == KindAlloc:
		return fmt.Sprintf("%d B", s.Count)
	case s.Kind == KindFree:
		return fmt.Sprintf("offset %d", s.Count)
	case s.DType == tensor.Invalid:
		return "no data"
	}
	str := fmt.Sprintf("%v[%d]", s.DType, s.Count)
	if s.Kind.Reduces() {
		str += " " + s.Red.String()
	}
	if s.Kind.Rooted() {
		str += fmt.Sprintf(" root %d", s.Root)
	}
	return fmt.Sprintf("%s, %d B", str, s.Count*int64(s.DType.Size()))
}

// hash returns 24 bits of s, never 0. The multipliers are those of MurmurHash3's finalizer.
func (s Signature) hash() uint32 {
	h := uint64(s.Count)*0xff51afd7ed558ccd ^
		(uint64(uint32(s.Root))<<24|uint64(s.Kind)<<16|uint64(s.Red)<<8|uint64(s.DType))*0xc4ceb9fe1a85ec53
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return uint32(h>>40) | 1
}

// Compare returns nil if all signatures are equal, and otherwise Differ of rank 0 and the first
// rank that differs from it. The index in sigs is the rank.
func Compare(sigs []Signature) error {
	for r, s := range sigs {
		if s != sigs[0] {
			return Differ(0, sigs[0], r, s)
		}
	}
	return nil
}

// Differ returns the error of two ranks with different signatures. It matches ErrMismatch and names
// the first differing field, in the order op, dtype, count, reduction, root, with both values.
func Differ(rankA int, a Signature, rankB int, b Signature) error {
	field := "root"
	switch {
	case a.Kind != b.Kind:
		field = "operation"
	case a.DType != b.DType:
		field = "dtype"
	case a.Count != b.Count:
		field = "count"
	case a.Red != b.Red:
		field = "reduction"
	}
	return fmt.Errorf("%w on the %s: rank %d has %v (%v), rank %d has %v (%v)", ErrMismatch, field,
		rankA, a.Kind, a, rankB, b.Kind, b)
}
