package symmetric

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

// tape is a Region that records the calls on it and returns bits, or err.
type tape struct {
	Region
	calls []string
	bits  uint64
	err   error
}

func (p *tape) note(format string, args ...any) {
	p.calls = append(p.calls, fmt.Sprintf(format, args...))
}

func (p *tape) PutWord(rank int, at int64, dt tensor.DType, bits uint64) error {
	p.note("put %d %d %v %#x", rank, at, dt, bits)
	return p.err
}

func (p *tape) GetWord(rank int, at int64, dt tensor.DType) (uint64, error) {
	p.note("get %d %d %v", rank, at, dt)
	return p.bits, p.err
}

func (p *tape) Atomic(rank int, at int64, a Atomic) (uint64, error) {
	p.note("%v %d %d %v %#x %#x", a.Op, rank, at, a.DType, a.Value, a.Compare)
	return p.bits, p.err
}

func (p *tape) Wait(_ context.Context, w Watch) (Hit, error) {
	p.note("wait %v %d at %d %v %#x all %v", w.DType, w.Count, w.At, w.Cmp, w.Value, w.All)
	return Hit{Index: 0, Bits: p.bits}, p.err
}

// one is the result of a call that returns only an error.
func one(err error) (any, error) { return nil, err }

// some is the result of a call that returns a value.
func some[T any](v T, err error) (any, error) { return v, err }

func TestTypedCallsPassBits(t *testing.T) {
	const all = math.MaxUint64
	ctx := context.Background()
	for _, c := range []struct {
		call string // on the region
		bits uint64 // it answers
		do   func(r Region) (any, error)
		want any
	}{
		{"put 2 8 i16 0xffff", 0, func(r Region) (any, error) { return one(P(r, 2, 8, int16(-1))) }, nil},
		{"put 0 3 f32 0x3f800000", 0, func(r Region) (any, error) { return one(P(r, 0, 3, float32(1))) }, nil},
		{"put 0 3 bf16 0x3f80", 0, func(r Region) (any, error) { return one(P(r, 0, 3, tensor.BFloat16(0x3f80))) }, nil},
		{"get 1 4 i8", 0x80, func(r Region) (any, error) { return some(G[int8](r, 1, 4)) }, int8(-128)},
		{"get 1 4 f64", 0x3ff0000000000000, func(r Region) (any, error) { return some(G[float64](r, 1, 4)) }, 1.0},
		{"atomic fetch 1 8 u32 0x0 0x0", all, func(r Region) (any, error) { return some(AtomicFetch[uint32](r, 1, 8)) }, uint32(math.MaxUint32)},
		{"atomic fetch 1 8 f32 0x0 0x0", 0xbf800000, func(r Region) (any, error) { return some(AtomicFetch[float32](r, 1, 8)) }, float32(-1)},
		{"atomic set 1 8 i32 0xffffffff 0x0", 5, func(r Region) (any, error) { return one(AtomicSet(r, 1, 8, int32(-1))) }, nil},
		{"atomic set 1 8 f64 0x4000000000000000 0x0", 0, func(r Region) (any, error) { return some(Swap(r, 1, 8, 2.0)) }, 0.0},
		{"atomic compare-swap 1 8 i64 0x7 0xfffffffffffffffd", 9, func(r Region) (any, error) { return some(CompareSwap(r, 1, 8, int64(-3), 7)) }, int64(9)},
		{"atomic add 3 16 u64 0x5 0x0", 1, func(r Region) (any, error) { return one(Add(r, 3, 16, uint64(5))) }, nil},
		{"atomic add 3 16 i32 0xfffffffe 0x0", 1, func(r Region) (any, error) { return some(FetchAdd(r, 3, 16, int32(-2))) }, int32(1)},
		{"atomic add 3 16 u32 0x1 0x0", 1, func(r Region) (any, error) { return one(Inc[uint32](r, 3, 16)) }, nil},
		{"atomic add 3 16 i64 0x1 0x0", all, func(r Region) (any, error) { return some(FetchInc[int64](r, 3, 16)) }, int64(-1)},
		{"atomic and 0 0 u32 0xf0 0x0", 1, func(r Region) (any, error) { return one(And(r, 0, 0, uint32(0xf0))) }, nil},
		{"atomic and 0 0 u64 0xf0 0x0", 3, func(r Region) (any, error) { return some(FetchAnd(r, 0, 0, uint64(0xf0))) }, uint64(3)},
		{"atomic or 0 0 i32 0xf 0x0", 1, func(r Region) (any, error) { return one(Or(r, 0, 0, int32(0xf))) }, nil},
		{"atomic or 0 0 i64 0xf 0x0", 4, func(r Region) (any, error) { return some(FetchOr(r, 0, 0, int64(0xf))) }, int64(4)},
		{"atomic xor 0 0 u64 0x1 0x0", 1, func(r Region) (any, error) { return one(Xor(r, 0, 0, uint64(1))) }, nil},
		{"atomic xor 0 0 u32 0x1 0x0", 6, func(r Region) (any, error) { return some(FetchXor(r, 0, 0, uint32(1))) }, uint32(6)},
		{"atomic fetch 1 24 u64 0x0 0x0", 8, func(r Region) (any, error) { return some(SignalFetch(r, 1, 24)) }, uint64(8)},
		{"wait i32 1 at 4 < 0xffffffff all false", 0x80000000, func(r Region) (any, error) { return some(WaitUntil(ctx, r, 4, Lt, int32(-1))) }, int32(math.MinInt32)},
		{"wait u64 1 at 8 >= 0x2 all false", 3, func(r Region) (any, error) { return some(SignalWait(ctx, r, 8, Ge, 2)) }, uint64(3)},
		{"wait u32 5 at 8 == 0x2 all false", 2, func(r Region) (any, error) { return some(WaitUntilAny(ctx, r, 8, 5, Eq, uint32(2))) }, 0},
		{"wait i64 5 at 8 != 0x2 all true", 3, func(r Region) (any, error) { return one(WaitUntilAll(ctx, r, 8, 5, Ne, int64(2))) }, nil},
	} {
		p := &tape{bits: c.bits}
		got, err := c.do(p)
		if err != nil || !slices.Equal(p.calls, []string{c.call}) || !reflect.DeepEqual(got, c.want) {
			t.Errorf("calls %q, result %v, %v; want %q, %v", p.calls, got, err, c.call, c.want)
		}
		p.err = errors.New("refused")
		if _, err := c.do(p); !errors.Is(err, p.err) {
			t.Errorf("%s: error %v, want that of the region", c.call, err)
		}
	}
}

// row is a Region whose own part is a row of words, with a simple Test.
type row struct {
	Region
	words []int32
	err   error
}

func (r *row) Test(w Watch) (Hit, error) {
	if r.err != nil {
		return Hit{Index: -1}, r.err
	}
	first := int(w.At) / 4
	hit := Hit{Index: -1}
	for i, v := range r.words[first : first+w.Count] {
		holds := w.Cmp.Holds(w.DType, bitsOf(v), w.Value)
		switch {
		case holds && !w.All:
			return Hit{Index: i, Bits: bitsOf(v)}, nil
		case !holds && w.All:
			return Hit{Index: -1}, nil
		case holds:
			hit = Hit{Index: i, Bits: bitsOf(v)}
		}
	}
	return hit, nil
}

func (r *row) Wait(_ context.Context, w Watch) (Hit, error) {
	hit, err := r.Test(w)
	if err == nil && hit.Index < 0 {
		err = errors.New("it would wait for ever")
	}
	return hit, err
}

func TestSomeFindsEveryWordOnce(t *testing.T) {
	r := &row{words: []int32{9, 5, -1, 5, 5, 0, 5}}
	found := make([]int, 0, 8)
	for _, c := range []struct {
		at    int64
		count int
		cmp   Comparison
		v     int32
		want  []int
	}{
		{0, 7, Eq, 5, []int{1, 3, 4, 6}},
		{4, 6, Eq, 5, []int{0, 2, 3, 5}},
		{4, 3, Eq, 5, []int{0, 2}},
		{0, 7, Lt, 0, []int{2}},
		{0, 7, Ge, -1, []int{0, 1, 2, 3, 4, 5, 6}},
		{0, 1, Ne, 0, []int{0}},
	} {
		got, err := TestSome(r, c.at, c.count, c.cmp, c.v, found)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("test %v %d in %d from %d: %v, %v, want %v", c.cmp, c.v, c.count, c.at, got, err, c.want)
		}
		got, err = WaitUntilSome(context.Background(), r, c.at, c.count, c.cmp, c.v, found)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("wait %v %d in %d from %d: %v, %v, want %v", c.cmp, c.v, c.count, c.at, got, err, c.want)
		}
		if any, err := TestAny(r, c.at, c.count, c.cmp, c.v); err != nil || any != c.want[0] {
			t.Errorf("any %v %d in %d from %d: %v, %v, want %v", c.cmp, c.v, c.count, c.at, any, err, c.want[0])
		}
		if all, err := TestAll(r, c.at, c.count, c.cmp, c.v); err != nil || all != (len(c.want) == c.count) {
			t.Errorf("all %v %d in %d from %d: %v, %v", c.cmp, c.v, c.count, c.at, all, err)
		}
	}
}

func TestSomeKeepsWhatWasFoundBefore(t *testing.T) {
	r := &row{words: []int32{1, 2, 1}}
	got, err := TestSome(r, 0, 3, Eq, int32(1), []int{40})
	if err != nil || !slices.Equal(got, []int{40, 0, 2}) {
		t.Errorf("%v, %v", got, err)
	}
	got, err = TestSome(r, 0, 3, Eq, int32(7), got)
	if err != nil || !slices.Equal(got, []int{40, 0, 2}) {
		t.Errorf("none more: %v, %v", got, err)
	}
	r.err = errors.New("refused")
	if got, err = WaitUntilSome(context.Background(), r, 0, 3, Eq, int32(1), got); !errors.Is(err, r.err) || len(got) != 3 {
		t.Errorf("refused: %v, %v", got, err)
	}
	if ok, err := Test(r, 0, Eq, int32(1)); ok || !errors.Is(err, r.err) {
		t.Errorf("refused test: %v, %v", ok, err)
	}
}
