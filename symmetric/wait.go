package symmetric

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/tensor"
)

// Comparison is the operator of a wait, between a word and a value: word Cmp value.
type Comparison uint8

// The comparisons. The zero Comparison is invalid.
const (
	CmpInvalid Comparison = iota
	Eq                    // ==
	Ne                    // !=
	Gt                    // >
	Ge                    // >=
	Lt                    // <
	Le                    // <=
)

// String returns the operator, such as ">=".
func (c Comparison) String() string {
	if c.Valid() {
		return [...]string{"==", "!=", ">", ">=", "<", "<="}[c-1]
	}
	return fmt.Sprintf("comparison(%d)", uint8(c))
}

// Valid reports whether c is one of the six comparisons.
func (c Comparison) Valid() bool { return c > CmpInvalid && c <= Le }

// Holds reports whether "word c value" is true; both are bits of the integer type dt.
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

// Watch is the condition of a Wait: consecutive words of this rank's own part, and a comparison.
type Watch struct {
	At    int64        // offset of the first word, a multiple of its size
	Count int          // number of words
	DType tensor.DType // i32, i64, u32, u64
	Cmp   Comparison
	Value uint64 // bits to compare with
	All   bool   // all words must satisfy it, not any
}

// Hit is the result of a Wait or Test.
type Hit struct {
	Index int    // of the first word that satisfies the Watch; of the last one checked for All; -1 for a Test without one
	Bits  uint64 // value of the word
}

func watch[T Integer](at int64, count int, c Comparison, v T, all bool) Watch {
	return Watch{At: at, Count: count, DType: tensor.TypeOf[T](), Cmp: c, Value: bitsOf(v), All: all}
}

// WaitUntil returns when "word c v" is true for the word at offset at of this rank's part. Returns:
// the word's value at that time.
func WaitUntil[T Integer](ctx context.Context, r Region, at int64, c Comparison, v T) (T, error) {
	hit, err := r.Wait(ctx, watch(at, 1, c, v, false))
	return fromBits[T](hit.Bits), err
}

// WaitUntilAny returns when "word c v" is true for one of count words from offset at of this rank's
// part. Returns: the index of the first such word.
func WaitUntilAny[T Integer](ctx context.Context, r Region, at int64, count int, c Comparison, v T) (int, error) {
	hit, err := r.Wait(ctx, watch(at, count, c, v, false))
	return hit.Index, err
}

// WaitUntilAll returns when "word c v" is true for all of count words from offset at of this rank's
// part.
func WaitUntilAll[T Integer](ctx context.Context, r Region, at int64, count int, c Comparison, v T) error {
	_, err := r.Wait(ctx, watch(at, count, c, v, true))
	return err
}

// WaitUntilSome is WaitUntilAny that returns the indices of all words for which "word c v" is true,
// appended to found.
func WaitUntilSome[T Integer](ctx context.Context, r Region, at int64, count int, c Comparison, v T, found []int) ([]int, error) {
	hit, err := r.Wait(ctx, watch(at, count, c, v, false))
	if err != nil {
		return found, err
	}
	return testFrom(r, watch(at, count, c, v, false), hit.Index+1, append(found, hit.Index))
}

// Test reports whether "word c v" is true for the word at offset at of this rank's part.
func Test[T Integer](r Region, at int64, c Comparison, v T) (bool, error) {
	hit, err := r.Test(watch(at, 1, c, v, false))
	return hit.Index >= 0, err
}

// TestAny returns the index of the first of count words from offset at of this rank's part for
// which "word c v" is true; -1 for none.
func TestAny[T Integer](r Region, at int64, count int, c Comparison, v T) (int, error) {
	hit, err := r.Test(watch(at, count, c, v, false))
	return hit.Index, err
}

// TestAll reports whether "word c v" is true for all of count words from offset at of this rank's
// part.
func TestAll[T Integer](r Region, at int64, count int, c Comparison, v T) (bool, error) {
	hit, err := r.Test(watch(at, count, c, v, true))
	return hit.Index >= 0, err
}

// TestSome returns the indices of those of count words from offset at of this rank's part for which
// "word c v" is true, appended to found.
func TestSome[T Integer](r Region, at int64, count int, c Comparison, v T, found []int) ([]int, error) {
	w := watch(at, count, c, v, false)
	hit, err := r.Test(w)
	if err != nil || hit.Index < 0 {
		return found, err
	}
	return testFrom(r, w, hit.Index+1, append(found, hit.Index))
}

// testFrom appends the indices, from index from on, of the words that satisfy w.
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

// SignalWait returns when "signal c v" is true for the signal at offset at of this rank's part.
// Returns: its value at that time.
func SignalWait(ctx context.Context, r Region, at int64, c Comparison, v uint64) (uint64, error) {
	return WaitUntil(ctx, r, at, c, v)
}

// SignalFetch returns the value of the signal at offset at of rank's part.
func SignalFetch(r Region, rank int, at int64) (uint64, error) {
	return AtomicFetch[uint64](r, rank, at)
}
