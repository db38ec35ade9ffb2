package symmetric

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/tensor"
	"pgregory.net/rapid"
)

func TestComparisonsAreThoseOfTheType(t *testing.T) {
	compareAs(t, []int32{math.MinInt32, -1, 0, 1, math.MaxInt32})
	compareAs(t, []uint32{0, 1, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32})
	compareAs(t, []int64{math.MinInt64, -1, 0, 1, math.MaxInt64})
	compareAs(t, []uint64{0, 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64})
}

// compareAs compares every pair of values by every comparison, and by the operators of Go.
func compareAs[T Integer](t *testing.T, values []T) {
	t.Helper()
	dt := tensor.TypeOf[T]()
	for _, a := range values {
		for _, b := range values {
			for c, want := range map[Comparison]bool{
				Eq: a == b, Ne: a != b, Gt: a > b, Ge: a >= b, Lt: a < b, Le: a <= b,
				CmpInvalid: false, Le + 1: false,
			} {
				if got := c.Holds(dt, bitsOf(a), bitsOf(b)); got != want {
					t.Errorf("%v: %v %v %v is %v", dt, a, c, b, got)
				}
			}
		}
	}
}

// The high half of the bits of a 32-bit word is ignored.
func TestComparisonOfShortWordsIgnoresTheHighHalf(t *testing.T) {
	const noise = 0xdead << 32
	for _, dt := range []tensor.DType{tensor.I32, tensor.U32} {
		if !Eq.Holds(dt, 5|noise, 5) || !Eq.Holds(dt, 5, 5|noise) || Ne.Holds(dt, 5|noise, 5) || Gt.Holds(dt, 4|noise, 5) {
			t.Errorf("%v: the high half counts", dt)
		}
	}
}

func TestNamesOfValues(t *testing.T) {
	for _, c := range []struct {
		v    fmt.Stringer
		want string
	}{
		{Eq, "=="},
		{Ne, "!="},
		{Gt, ">"},
		{Ge, ">="},
		{Lt, "<"},
		{Le, "<="},
		{CmpInvalid, "comparison(0)"},
		{Comparison(9), "comparison(9)"},
		{OpFetch, "atomic fetch"},
		{OpSet, "atomic set"},
		{OpAdd, "atomic add"},
		{OpAnd, "atomic and"},
		{OpOr, "atomic or"},
		{OpXor, "atomic xor"},
		{OpCompareSwap, "atomic compare-swap"},
		{AtomicInvalid, "atomic(0)"},
		{AtomicOp(77), "atomic(77)"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestBitsKeepEveryValue(t *testing.T) {
	bitsKeep(t, int8(-128), 127, -1)
	bitsKeep(t, int16(math.MinInt16), -1, 77)
	bitsKeep(t, int32(math.MinInt32), -1, 77)
	bitsKeep(t, int64(math.MinInt64), -1, 77)
	bitsKeep(t, uint8(255), 0)
	bitsKeep(t, uint16(65535), 0)
	bitsKeep(t, uint32(math.MaxUint32), 0)
	bitsKeep(t, uint64(math.MaxUint64), 0)
	bitsKeep(t, float32(-0.5), math.MaxFloat32)
	bitsKeep(t, -0.5, math.Inf(1), math.SmallestNonzeroFloat64)
	bitsKeep(t, tensor.Float16(0xfbff), 1)
	bitsKeep(t, tensor.BFloat16(0xff7f), 1)
}

func bitsKeep[T tensor.Element](t *testing.T, values ...T) {
	t.Helper()
	for _, v := range values {
		bits := bitsOf(v)
		if got := fromBits[T](bits); got != v {
			t.Errorf("%v became %v", v, got)
		}
		if size := 8 * tensor.TypeOf[T]().Size(); size < 64 && bits>>size != 0 {
			t.Errorf("%v: bits %#x, more than %d", v, bits, size)
		}
		if got := fromBits[T](bits | ^uint64(0)<<(8*tensor.TypeOf[T]().Size()-1)<<1); got != v {
			t.Errorf("%v with noise above its bits became %v", v, got)
		}
	}
}

// A signalling NaN passes unchanged, as any other pattern.
func TestBitsKeepEveryPattern(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.Uint64().Draw(t, "bits")
		if got := bitsOf(fromBits[float64](bits)); got != bits {
			t.Fatalf("f64 %#x became %#x", bits, got)
		}
		if got := bitsOf(fromBits[float32](bits)); got != bits&math.MaxUint32 {
			t.Fatalf("f32 %#x became %#x", bits, got)
		}
	})
}

func TestAccessErrorTellsWhoWhereAndWhy(t *testing.T) {
	cause := errors.New("the cause")
	err := error(&AccessError{Call: "put", Rank: 1, Size: 4, Peer: 2, Offset: 512, Extent: 16, At: 12, Bytes: 8, Err: cause})
	want := "put rank 1/4: 8 B at 12 of the region of 16 B at offset 512 on rank 2: the cause"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	var access *AccessError
	if wrapped := fmt.Errorf("step 3: %w", err); !errors.As(wrapped, &access) || !errors.Is(wrapped, cause) || access.At != 12 {
		t.Errorf("wrapped: %+v", access)
	}
	if !strings.HasSuffix(err.Error(), access.Unwrap().Error()) {
		t.Errorf("unwrapped: %v", access.Unwrap())
	}
}
