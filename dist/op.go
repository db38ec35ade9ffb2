package dist

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/tensor"
)

// Kind is the kind of an Op, collective or point-to-point. The numbering is part of the wire
// format.
type Kind uint8

// The operations.
const (
	KindInvalid Kind = iota
	KindAllReduce
	KindReduce
	KindBroadcast
	KindAllGather
	KindReduceScatter
	KindAllToAll
	KindGather
	KindScatter
	KindSend
	KindRecv
	KindBarrier
	KindSync
	KindBatch // the operations of one group call

	// Collective calls that move no tensor; ranks compare them too.
	KindSplit
	KindHeap
	KindAlloc
	KindFree
)

var kindNames = [...]string{
	"invalid", "allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall",
	"gather", "scatter", "send", "recv", "barrier", "sync", "group call",
	"split", "heap", "alloc", "free",
}

// String returns the lower-case name: "allreduce".
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Reduces reports whether k combines elements, so that its Op carries a reduction.
func (k Kind) Reduces() bool {
	return k == KindAllReduce || k == KindReduce || k == KindReduceScatter
}

// Rooted reports whether k has a root.
func (k Kind) Rooted() bool {
	return k == KindReduce || k == KindBroadcast || k == KindGather || k == KindScatter
}

// PointToPoint reports whether k has one peer instead of the whole group.
func (k Kind) PointToPoint() bool { return k == KindSend || k == KindRecv }

// Op is one operation as a value, for the recorder, comparison over ranks and backends. A Group
// makes it and checks its fields before a Transport gets it.
type Op struct {
	Kind  Kind
	Red   RedOp         // for kinds that reduce
	Root  int           // for rooted kinds; rank in the group
	Peer  int           // for Send and Recv; rank in the group
	Count int           // elements that one rank contributes or receives; see the table in the package comment
	Dst   tensor.Buffer // cut to the length the operation writes; zero if this rank writes nothing
	Src   tensor.Buffer // cut to the length the operation reads; zero if this rank reads nothing
	Seq   uint64        // number of the operation in its group, from 1
	Name  string        // of the tensor, for errors and traces; may be empty
	Ops   []Op          // the members of a KindBatch

	// Symmetric and Overlap are the caller's Hints.
	Symmetric, Overlap bool
	// Along is the caller's promise: see package internal/along.
	Along bool

	// Timed requests the time of the operation: see Group.Timed. It may differ between ranks.
	Timed bool

	// Memo is for the backend: 0 at first, and its last value when the same call is repeated.
	Memo uint64

	sig   Signature // valid, as bytes, if hash is not 0
	hash  uint32    // of sig
	bytes int64
	rec   *Recorder // where the stream records begin and end
	now   *inline   // set if the operation runs on its caller
}

// DType returns the element type of the data; Invalid for Barrier and Sync.
func (o *Op) DType() tensor.DType {
	if !o.Src.IsZero() {
		return o.Src.DType()
	}
	return o.Dst.DType()
}

// Bytes returns the size of this rank's larger buffer.
func (o *Op) Bytes() int64 { return max(o.Src.Bytes(), o.Dst.Bytes()) }

// Signature returns the fields that must agree on all ranks.
func (o *Op) Signature() Signature {
	if o.hash == 0 {
		o.sign()
	}
	return o.sig
}

// Hash returns 24 bits of the Signature: if it differs, so do the signatures. Backends send it with
// the first word of an operation, and compare signatures only if hashes differ.
func (o *Op) Hash() uint32 {
	if o.hash == 0 {
		o.sign()
	}
	return o.hash
}

func (o *Op) sign() {
	s := Signature{Kind: o.Kind, DType: o.DType(), Count: int64(o.Count), Root: -1}
	if o.Kind.Reduces() {
		s.Red = o.Red.Kind
	}
	if o.Kind.Rooted() {
		s.Root = int32(o.Root)
	}
	if o.Kind == KindBatch {
		s.Count = int64(len(o.Ops))
	}
	o.sig, o.bytes, o.hash = s, o.Bytes(), s.hash()
}

// RedKind is a method of combining elements. The numbering is part of the wire format.
type RedKind uint8

// The reductions.
const (
	RedSum RedKind = iota
	RedProd
	RedMin
	RedMax
	RedAvg
	RedPreMulSum
	RedAnd // bit by bit, of integers and untyped bytes, as Or and Xor
	RedOr
	RedXor
)

// RedKinds returns every RedKind in the order of its number.
func RedKinds() []RedKind {
	return []RedKind{RedSum, RedProd, RedMin, RedMax, RedAvg, RedPreMulSum, RedAnd, RedOr, RedXor}
}

var redNames = [...]string{"sum", "prod", "min", "max", "avg", "premulsum", "and", "or", "xor"}

// Bitwise reports whether k combines bits, so that floating-point numbers are excluded.
func (k RedKind) Bitwise() bool { return k >= RedAnd && k <= RedXor }

// String returns the lower-case name: "premulsum".
func (k RedKind) String() string {
	if int(k) >= len(redNames) {
		return fmt.Sprintf("red(%d)", uint8(k))
	}
	return redNames[k]
}

// RedOp is a reduction. Elements are combined in rank order, 0 first; f16 and bf16 accumulate in
// float32 and are rounded once. Integers wrap around.
type RedOp struct {
	Kind   RedKind
	Scalar Scalar // of premulsum
}

// same returns r == o; the scalar counts only for premulsum.
func (r *RedOp) same(o *RedOp) bool {
	return r.Kind == o.Kind && (r.Kind != RedPreMulSum || r.Scalar == o.Scalar)
}

// The reductions without a scalar. Avg is the sum divided by the number of ranks, in the
// accumulator's type; for integers it truncates toward zero. Min and Max of a NaN are NaN, except
// on backend nvshmem, whose library prefers the number (fmin and fmax of C); backends cuda and nccl
// keep the NaN, except with engine nvshmem. And, Or and Xor combine bits of integers and of untyped
// bytes; NCCL lacks them, so that backend nccl returns ErrUnsupported.
var (
	Sum  = RedOp{Kind: RedSum}
	Prod = RedOp{Kind: RedProd}
	Min  = RedOp{Kind: RedMin}
	Max  = RedOp{Kind: RedMax}
	Avg  = RedOp{Kind: RedAvg}
	And  = RedOp{Kind: RedAnd}
	Or   = RedOp{Kind: RedOr}
	Xor  = RedOp{Kind: RedXor}
)

// String returns the name of the reduction.
func (r RedOp) String() string { return r.Kind.String() }

// Scalar is this rank's factor of a premulsum: a value, or an address in memory that is read when
// the collective runs.
type Scalar struct {
	DType tensor.DType
	Bits  uint64        // the value's bits, in the low bytes, when At is zero
	At    tensor.Buffer // one element on the group's device, which the caller keeps alive until the collective is done
}

// PreMulSum returns the reduction sum over ranks of scalar_r * in_r, where each rank passes its own
// scalar. The product is rounded to the element type before it is added (to float32 for f16 and
// bf16).
//
// Shapes: the collective must have the scalar's dtype, else ErrDType.
func PreMulSum[T tensor.Element](scalar T) RedOp {
	return RedOp{Kind: RedPreMulSum, Scalar: Scalar{DType: tensor.TypeOf[T](), Bits: bitsOf(scalar)}}
}

// PreMulSumAt is PreMulSum with the scalar in memory. It is read when the collective runs, not when
// it is queued.
//
// Shapes: scalar has one element, on the group's device, outside the destination. Owns: the memory
// belongs to the group until Work.Wait. Errors: the collective's ErrAlias for one in the
// destination.
func PreMulSumAt(scalar tensor.Buffer) RedOp {
	return RedOp{Kind: RedPreMulSum, Scalar: Scalar{DType: scalar.DType(), At: scalar}}
}

func bitsOf[T tensor.Element](v T) uint64 {
	switch x := any(v).(type) {
	case float32:
		return uint64(math.Float32bits(x))
	case float64:
		return math.Float64bits(x)
	case tensor.Float16:
		return uint64(x)
	case tensor.BFloat16:
		return uint64(x)
	case int8:
		return uint64(uint8(x))
	case int16:
		return uint64(uint16(x))
	case int32:
		return uint64(uint32(x))
	case int64:
		return uint64(x)
	case uint8:
		return uint64(x)
	case uint16:
		return uint64(x)
	case uint32:
		return uint64(x)
	case uint64:
		return x
	}
	return 0
}
