package dist

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/tensor"
)

// Kind is which collective or point-to-point operation an Op is. The numbering is part of the wire
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
	KindBatch // several operations of one group call

	// Calls that are collective but move no tensor; ranks check them like the rest.
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

// String is the lower-case name: "allreduce".
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

// Op is one operation as a value: the recorder keeps it, ranks compare it and a backend runs it. A
// Group makes it; its fields are exact and checked when a Transport sees it.
type Op struct {
	Kind  Kind
	Red   RedOp         // for kinds that reduce
	Root  int           // for rooted kinds; rank in the group
	Peer  int           // for Send and Recv; rank in the group
	Count int           // elements of the block one rank contributes or receives; see the table in the package comment
	Dst   tensor.Buffer // cut to the length the operation writes; zero where this rank writes nothing
	Src   tensor.Buffer // cut to the length the operation reads; zero where this rank reads nothing
	Seq   uint64        // number of the operation in its group, from 1
	Name  string        // of the tensor, for errors and traces; may be empty
	Ops   []Op          // the members of a KindBatch

	// Symmetric is the caller's promise of Group.Symmetric.
	Symmetric bool
	// Beside is the hint of Group.Beside.
	Beside bool
	// Along is the caller's promise of Group.Along.
	Along bool

	// Timed asks for the time of the operation: see Group.Timed. Ranks need not agree on it.
	Timed bool

	// Memo is a word for the backend: 0 at first; when the same call is repeated, the word that the
	// backend left there.
	Memo uint64

	sig   Signature // known, as bytes is, once hash is
	hash  uint32    // of sig
	bytes int64
	rec   *Recorder // where the stream notes begin and end
	now   *inline   // of an operation that runs on its caller
}

// DType is the element type that moves; Invalid for Barrier and Sync.
func (o *Op) DType() tensor.DType {
	if !o.Src.IsZero() {
		return o.Src.DType()
	}
	return o.Dst.DType()
}

// Bytes is the number of bytes of the larger buffer of this rank.
func (o *Op) Bytes() int64 { return max(o.Src.Bytes(), o.Dst.Bytes()) }

// Signature returns the part of the operation on which all ranks must agree.
func (o *Op) Signature() Signature {
	if o.hash == 0 {
		o.sign()
	}
	return o.sig
}

// Hash is 24 bits of the Signature: operations that differ in it have different signatures.
// Backends send it along with the first word of an operation, and compare signatures only where
// hashes differ.
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

// RedKind is how elements are combined. The numbering is part of the wire format.
type RedKind uint8

// The reductions.
const (
	RedSum RedKind = iota
	RedProd
	RedMin
	RedMax
	RedAvg
	RedPreMulSum
	RedAnd // bit by bit, of integers and untyped bytes, as are Or and Xor
	RedOr
	RedXor
)

// RedKinds is every RedKind in the order of its number.
func RedKinds() []RedKind {
	return []RedKind{RedSum, RedProd, RedMin, RedMax, RedAvg, RedPreMulSum, RedAnd, RedOr, RedXor}
}

var redNames = [...]string{"sum", "prod", "min", "max", "avg", "premulsum", "and", "or", "xor"}

// Bitwise reports whether k combines bits, and so has no meaning for floating-point numbers.
func (k RedKind) Bitwise() bool { return k >= RedAnd && k <= RedXor }

// String is the lower-case name: "premulsum".
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

// same is r == o; the scalar counts only where it is used.
func (r *RedOp) same(o *RedOp) bool {
	return r.Kind == o.Kind && (r.Kind != RedPreMulSum || r.Scalar == o.Scalar)
}

// The reductions without a scalar. Avg is the sum divided by the number of ranks, in the
// accumulator's type; for integers it truncates toward zero. Min and Max of a NaN are NaN, except
// on backend nvshmem, whose library prefers the number to the NaN (fmin and fmax of C); backends
// cuda and nccl keep the NaN, unless the engine nvshmem does the operation. And, Or and Xor combine
// bits, of integers and of untyped bytes; NCCL has none of them, so that backend nccl gives
// ErrUnsupported.
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

// String is the name of the reduction.
func (r RedOp) String() string { return r.Kind.String() }

// Scalar is this rank's factor of a premulsum: a value, or a place in memory that is read when the
// collective runs.
type Scalar struct {
	DType tensor.DType
	Bits  uint64        // the value's bits, in the low bytes, when At is zero
	At    tensor.Buffer // one element on the group's device; kept alive by the caller until the collective is done
}

// PreMulSum is the reduction sum over ranks of scalar_r * in_r, each rank giving its own scalar.
// The product is rounded to the element type before it is added (to float32 for f16 and bf16).
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
