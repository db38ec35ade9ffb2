package symmetric

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/tensor"
)

// Comparison is how a wait compares a word with its value: word Cmp value.
type Comparison uint8

// The comparisons. The zero Comparison is none, and an error.
const (
	CmpInvalid Comparison = iota
	Eq                    // ==
	Ne                    // !=
	Gt                    // >
	Ge                    // >=
	Lt                    // <
	Le                    // <=
)

// String is the operator: ">=".
func (c Comparison) String() string {
	if c.Valid() {
		return [...]string{"==", "!=", ">", ">=", "<", "<="}[c-1]
	}
	return fmt.Sprintf("comparison(%d)", uint8(c))
}

// Valid reports whether c is one of the six.
func (c Comparison) Valid() bool { return c > CmpInvalid && c <= Le }

// Holds reports whether word c value, both bits of an integer type dt.
func (c Comparison) Holds(dt tensor.DType, word, value uint64) bool {
	var less bool
	switch dt {
	case tensor.I64:
		less = int64(word) < int64(value)
	case tensor.I32:
		less = int32(word) < int32(value)
		word, value = uint64(uint32(word)), uint64(uint32(value))
	case tensor.U32:
		word, value = uint64(uint32(word)), uint64(uint32(value))
		less = word < value
	default:
		less = word < value
	}
	switch c {
	case Eq:
		return word == value
	case Ne:
		return word != value
	case Gt:
		return !less && word != value
	case Ge:
		return !less
	case Lt:
		return less
	case Le:
		return less || word == value
	}
	return false
}

// Watch is what a Wait waits for: words of this rank's own part, one after the other, and what they
// shall be.
type Watch struct {
	At    int64        // offset of the first, a multiple of the word's size
	Count int          // of them
	DType tensor.DType // i32, i64, u32, u64
	Cmp   Comparison
	Value uint64 // bits to compare with
	All   bool   // all of them, not any
}

// Hit is how a Wait or Test ended.
type Hit struct {
	Index int    // of the first word that is as it shall; of the last one looked at for All; -1 when a Test finds none
	Bits  uint64 // that the word held
}

func watch[T Integer](at int64, count int, c Comparison, v T, all bool) Watch {
	return Watch{At: at, Count: count, DType: tensor.TypeOf[T](), Cmp: c, Value: bitsOf(v), All: all}
}

// WaitUntil returns when the word at offset at of this rank's part is c v. Returns: what it then
// held.
func WaitUntil[T Integer](ctx context.Context, r Region, at int64, c Comparison, v T) (T, error) {
	hit, err := r.Wait(ctx, watch(at, 1, c, v, false))
	return fromBits[T](hit.Bits), err
}

// WaitUntilAny returns when one of count words from offset at of this rank's part is c v. Returns:
// the index of the first such word.
func WaitUntilAny[T Integer](ctx context.Context, r Region, at int64, count int, c Comparison, v T) (int, error) {
	hit, err := r.Wait(ctx, watch(at, count, c, v, false))
	return hit.Index, err
}

// WaitUntilAll returns when all of count words from offset at of this rank's part are c v.
func WaitUntilAll[T Integer](ctx context.Context, r Region, at int64, count int, c Comparison, v T) error {
	_, err := r.Wait(ctx, watch(at, count, c, v, true))
	return err
}

// WaitUntilSome returns when at least one of count words from offset at of this rank's part is c v.
// Returns: the indices of those that are, appended to found.
func WaitUntilSome[T Integer](ctx context.Context, r Region, at int64, count int, c Comparison, v T, found []int) ([]int, error) {
	hit, err := r.Wait(ctx, watch(at, count, c, v, false))
	if err != nil {
		return found, err
	}
	return testFrom(r, watch(at, count, c, v, false), hit.Index+1, append(found, hit.Index))
}

// Test reports whether the word at offset at of this rank's part is c v.
func Test[T Integer](r Region, at int64, c Comparison, v T) (bool, error) {
	hit, err := r.Test(watch(at, 1, c, v, false))
	return hit.Index >= 0, err
}

// TestAny is the index of the first of count words from offset at of this rank's part that is c v;
// -1 for none.
func TestAny[T Integer](r Region, at int64, count int, c Comparison, v T) (int, error) {
	hit, err := r.Test(watch(at, count, c, v, false))
	return hit.Index, err
}

// TestAll reports whether all of count words from offset at of this rank's part are c v.
func TestAll[T Integer](r Region, at int64, count int, c Comparison, v T) (bool, error) {
	hit, err := r.Test(watch(at, count, c, v, true))
	return hit.Index >= 0, err
}

// TestSome is the indices of those of count words from offset at of this rank's part that are c v,
// appended to found.
func TestSome[T Integer](r Region, at int64, count int, c Comparison, v T, found []int) ([]int, error) {
	w := watch(at, count, c, v, false)
	hit, err := r.Test(w)
	if err != nil || hit.Index < 0 {
		return found, err
	}
	return testFrom(r, w, hit.Index+1, append(found, hit.Index))
}

// testFrom appends the indices, from index from on, of the words that are as w says.
func testFrom(r Region, w Watch, from int, found []int) ([]int, error) {
	whole := w
	for from < whole.Count {
		w.At, w.Count = whole.At+int64(from*w.DType.Size()), whole.Count-from
		hit, err := r.Test(w)
		if err != nil || hit.Index < 0 {
			return found, err
		}
		found = append(found, from+hit.Index)
		from += hit.Index + 1
	}
	return found, nil
}

// SignalWait returns when the signal at offset at of this rank's part is c v. Returns: its value
// then.
func SignalWait(ctx context.Context, r Region, at int64, c Comparison, v uint64) (uint64, error) {
	return WaitUntil(ctx, r, at, c, v)
}

// SignalFetch is the value of the signal at offset at of rank's part.
func SignalFetch(r Region, rank int, at int64) (uint64, error) {
	return AtomicFetch[uint64](r, rank, at)
}
