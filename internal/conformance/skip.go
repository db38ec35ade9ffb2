package conformance

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
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

// skips reports whether err is ErrUnsupported for a case that Skip has a reason for. The error
// contains the case; a group call is skipped if one of its operations is.
func (o Options) skips(err error) bool {
	if o.Skip == nil || !errors.Is(err, dist.ErrUnsupported) {
		return false
	}
	switch e := err.(type) {
	case *dist.OpError:
		for i := range e.Op.Ops {
			if o.Skip(caseOf(&e.Op.Ops[i])) != "" {
				return true
			}
		}
		return o.Skip(caseOf(&e.Op)) != ""
	case *symmetric.AccessError:
		return o.Skip(Case{Call: e.Call, Bytes: e.Bytes}) != ""
	case interface{ Unwrap() error }:
		return o.skips(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			if !o.skips(each) {
				return false
			}
		}
		return true
	}
	return false
}

// skipsKind is skips for calls whose errors do not contain the case.
func (o Options) skipsKind(kind dist.Kind, err error) bool {
	return o.skips(err) || o.Skip != nil && errors.Is(err, dist.ErrUnsupported) && o.Skip(Case{Kind: kind}) != ""
}

// allowed returns err, or nil if its case is skipped.
func (s *suite) allowed(err error) error {
	if s.opt.skips(err) {
		return nil
	}
	return err
}
