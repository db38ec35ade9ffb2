package symmetric

import (
	"fmt"

	"github.com/symgrad/symgrad/tensor"
)

// Integer lists the types of all atomics. OpenSHMEM's bitwise ones have the same types.
type Integer interface {
	int32 | int64 | uint32 | uint64
}

// Word lists the types that can be set, fetched and swapped (OpenSHMEM 1.5, "extended AMO types").
type Word interface {
	Integer | float32 | float64
}

// AtomicOp is the operation of an atomic. All of them return the word's previous value.
type AtomicOp uint8

// The atomics.
const (
	AtomicInvalid AtomicOp = iota
	OpFetch                // unchanged
	OpSet                  // = Value; OpenSHMEM's set and swap
	OpAdd                  // += Value, modulo its size
	OpAnd                  // &= Value
	OpOr                   // |= Value
	OpXor                  // ^= Value
	OpCompareSwap          // = Value if it was Compare
)

var atomicNames = [...]string{
	OpFetch: "atomic fetch", OpSet: "atomic set", OpAdd: "atomic add", OpAnd: "atomic and", OpOr: "atomic or",
	OpXor: "atomic xor", OpCompareSwap: "atomic compare-swap",
}

// String returns the word used in errors, such as "atomic add".
func (op AtomicOp) String() string {
	if op > AtomicInvalid && op <= OpCompareSwap {
		return atomicNames[op]
	}
	return fmt.Sprintf("atomic(%d)", uint8(op))
}

// Atomic is an atomic operation as a value. A 32-bit word has the low bits.
type Atomic struct {
	Op      AtomicOp
	DType   tensor.DType // i32, i64, u32, u64; also f32 and f64 for OpFetch and OpSet
	Value   uint64       // bits of the operand
	Compare uint64       // bits, for OpCompareSwap
}

// SignalOp is an update of a signal.
type SignalOp uint8

// The updates of a signal (OpenSHMEM 1.5, section 9.8).
const (
	SignalInvalid SignalOp = iota
	SignalSet              // = value
	SignalAdd              // += value
)

// Signal is the signal update of a PutSignal. A signal is a u64 that only signal operations change.
type Signal struct {
	In    Region // of the same heap as the data
	At    int64  // offset in it, a multiple of 8
	Op    SignalOp
	Value uint64
}

// atomic applies op to a word of type T.
func atomic[T Word](r Region, rank int, at int64, op AtomicOp, value, compare T) (T, error) {
	old, err := r.Atomic(rank, at, Atomic{Op: op, DType: tensor.TypeOf[T](), Value: bitsOf(value), Compare: bitsOf(compare)})
	return fromBits[T](old), err
}

// AtomicFetch returns the word at offset at of rank's part.
func AtomicFetch[T Word](r Region, rank int, at int64) (T, error) {
	return atomic[T](r, rank, at, OpFetch, 0, 0)
}

// AtomicSet sets the word at offset at of rank's part to v.
func AtomicSet[T Word](r Region, rank int, at int64, v T) error {
	_, err := atomic(r, rank, at, OpSet, v, 0)
	return err
}

// Swap sets the word at offset at of rank's part to v. Returns: its previous value.
func Swap[T Word](r Region, rank int, at int64, v T) (T, error) {
	return atomic(r, rank, at, OpSet, v, 0)
}

// CompareSwap sets the word at offset at of rank's part to v if it equals cond. Returns: its
// previous value; the swap took place if that equals cond.
func CompareSwap[T Integer](r Region, rank int, at int64, cond, v T) (T, error) {
	return atomic(r, rank, at, OpCompareSwap, v, cond)
}

// Add adds v to the word at offset at of rank's part.
func Add[T Integer](r Region, rank int, at int64, v T) error {
	_, err := atomic(r, rank, at, OpAdd, v, 0)
	return err
}

// FetchAdd adds v to the word at offset at of rank's part. Returns: its previous value.
func FetchAdd[T Integer](r Region, rank int, at int64, v T) (T, error) {
	return atomic(r, rank, at, OpAdd, v, 0)
}

// Inc adds 1 to the word at offset at of rank's part.
func Inc[T Integer](r Region, rank int, at int64) error { return Add[T](r, rank, at, 1) }

// FetchInc adds 1 to the word at offset at of rank's part. Returns: its previous value.
func FetchInc[T Integer](r Region, rank int, at int64) (T, error) { return FetchAdd[T](r, rank, at, 1) }

// And clears the bits of the word at offset at of rank's part that v does not have.
func And[T Integer](r Region, rank int, at int64, v T) error {
	_, err := atomic(r, rank, at, OpAnd, v, 0)
	return err
}

// FetchAnd is And. Returns: the word's previous value.
func FetchAnd[T Integer](r Region, rank int, at int64, v T) (T, error) {
	return atomic(r, rank, at, OpAnd, v, 0)
}

// Or sets the bits of the word at offset at of rank's part that v has.
func Or[T Integer](r Region, rank int, at int64, v T) error {
	_, err := atomic(r, rank, at, OpOr, v, 0)
	return err
}

// FetchOr is Or. Returns: the word's previous value.
func FetchOr[T Integer](r Region, rank int, at int64, v T) (T, error) {
	return atomic(r, rank, at, OpOr, v, 0)
}

// Xor flips the bits of the word at offset at of rank's part that v has.
func Xor[T Integer](r Region, rank int, at int64, v T) error {
	_, err := atomic(r, rank, at, OpXor, v, 0)
	return err
}

// FetchXor is Xor. Returns: the word's previous value.
func FetchXor[T Integer](r Region, rank int, at int64, v T) (T, error) {
	return atomic(r, rank, at, OpXor, v, 0)
}
