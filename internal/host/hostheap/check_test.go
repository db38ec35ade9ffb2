package hostheap

import (
	"errors"
	"math"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

func TestProductIsRefusedByAllOrNone(t *testing.T) {
	for _, c := range []struct{ count, size, want int64 }{
		{0, 8, 0},
		{8, 0, 0},
		{3, 8, 24},
		{-1, 8, -1},
		{8, -1, -1},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64/8 + 1, 8, math.MaxInt64},
		{math.MinInt64, math.MinInt64, -1},
	} {
		if got := Product(c.count, c.size); got != c.want {
			t.Errorf("%d elements of %d B are %d B, want %d", c.count, c.size, got, c.want)
		}
	}
	if err := CheckSize(symmetric.Alignment, Product(-1, 8)); !errors.Is(err, dist.ErrCount) {
		t.Errorf("a negative number of elements: %v, want ErrCount", err)
	}
}

func TestBuffersLieOnTheHostOrOnTheHeapsDevice(t *testing.T) {
	on := func(d tensor.Device) tensor.Buffer {
		b, err := tensor.FromPointer(tensor.Of(make([]uint32, 2)).Pointer(), 2, tensor.U32, d)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		what string
		b    tensor.Buffer
		heap tensor.Device
		want error
	}{
		{"host, host", on(tensor.Host), tensor.Host, nil},
		{"host, GPU", on(tensor.Host), tensor.CUDA(1), nil},
		{"GPU, same GPU", on(tensor.CUDA(1)), tensor.CUDA(1), nil},
		{"GPU, other GPU", on(tensor.CUDA(0)), tensor.CUDA(1), dist.ErrDevice},
		{"GPU, host", on(tensor.CUDA(0)), tensor.Host, dist.ErrDevice},
		{"none", tensor.Buffer{}, tensor.Host, dist.ErrDType},
	} {
		if err := CheckBuffer(c.b, c.heap); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}

func TestWaitThatEndsNamesTheWord(t *testing.T) {
	minus := int64(-2)
	w := symmetric.Watch{Count: 1, DType: tensor.I64, Cmp: symmetric.Ge, Value: 7}
	err := Unmet(w, uint64(minus), dist.ErrTimeout)
	if want := "for >= 7, not -2: " + dist.ErrTimeout.Error(); err.Error() != want || !errors.Is(err, dist.ErrTimeout) {
		t.Errorf("got %q, want %q", err, want)
	}
}
