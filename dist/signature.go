package dist

import (
	"fmt"

	"github.com/symgrad/symgrad/tensor"
)

// Signature is the part of an Op that every rank of the group must have alike. It is comparable and has a fixed size,
// so that backends can exchange it.
type Signature struct {
	Count int64 // Op.Count; the number of members of a group call
	Root  int32 // -1 where there is none
	Kind  Kind
	Red   RedKind
	DType tensor.DType
}

// String is "f32[128] sum root 0, 512 B"; the kind is left out, because the sentence around it has it.
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

// Compare is nil when all signatures are equal, and otherwise an error that matches ErrMismatch and names the first
// field, in the order op, dtype, count, reduction, root, in which two ranks differ, and what each of the two has.
// Index in sigs is the rank.
func Compare(sigs []Signature) error {
	for r, s := range sigs {
		if s == sigs[0] {
			continue
		}
		a, what := sigs[0], "root"
		switch {
		case a.Kind != s.Kind:
			what = "operation"
		case a.DType != s.DType:
			what = "dtype"
		case a.Count != s.Count:
			what = "count"
		case a.Red != s.Red:
			what = "reduction"
		}
		return fmt.Errorf("%w on the %s: rank 0 has %v (%v), rank %d has %v (%v)", ErrMismatch, what, a.Kind, a, r, s.Kind, s)
	}
	return nil
}
