package conformance

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Case is the argument of Options.Skip: an operation of a group, or a call on a symmetric heap.
type Case struct {
	Kind     dist.Kind    // of the operation, also KindSplit and KindHeap; KindInvalid for a call on a heap
	Call     string       // on a heap, as in symmetric.AccessError: "iput", "atomic add"
	DType    tensor.DType // of the buffers; Invalid without buffers, and for a call on a heap
	Red      dist.RedKind // of a reduction
	InMemory bool         // the scalar of premulsum is in memory
	InPlace  bool
	Count    int // as dist.Op counts
	Bytes    int64
}

// String returns a text such as "allreduce i16[13] max in place" or "iput".
func (c Case) String() string {
	if c.Kind == dist.KindInvalid {
		return c.Call
	}
	text := c.Kind.String()
	if c.DType.Valid() {
		text += fmt.Sprintf(" %v[%d]", c.DType, c.Count)
	}
	if c.Kind.Reduces() {
		text += " " + c.Red.String()
	}
	if c.InMemory {
		text += " (scalar in memory)"
	}
	if c.InPlace {
		text += " in place"
	}
	return text
}

// caseOf returns the Case of an operation.
func caseOf(op *dist.Op) Case {
	c := Case{Kind: op.Kind, DType: op.DType(), Count: op.Count, Bytes: max(op.Src.Bytes(), op.Dst.Bytes())}
	if op.Kind.Reduces() {
		c.Red = op.Red.Kind
		c.InMemory = op.Red.Kind == dist.RedPreMulSum && !op.Red.Scalar.At.IsZero()
	}
	c.InPlace = tensor.Overlap(op.Src, op.Dst)
	return c
}

// allowed returns err, or nil if its case is skipped.
func (s *suite) allowed(err error) error {
	if s.opt.skips(err) {
		return nil
	}
	return err
}
