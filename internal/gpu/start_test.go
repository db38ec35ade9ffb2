package gpu

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// repeater is a Keeper that has kept one thing of all operations, or nothing.
type repeater struct {
	Keeper
	has   *cuda.Kept
	calls int
}

func (r *repeater) Kept(*dist.Op, *cuda.Stream) *cuda.Kept {
	r.calls++
	return r.has
}

func TestEnginesRepeatWhatTheyHaveKept(t *testing.T) {
	kept := new(cuda.Kept)
	has, none := &repeater{has: kept}, &repeater{}
	x := &engineSet{keepers: []Keeper{has, none, nil}}
	sum, barrier := &dist.Op{Kind: dist.KindAllReduce}, &dist.Op{Kind: dist.KindBarrier}
	idle, captures := new(Stream), new(Stream)
	captures.capturing.Store(true)
	for _, c := range []struct {
		what   string
		op     *dist.Op
		w      route
		timing bool
		stream *Stream
		want   *cuda.Kept
	}{
		{"kept", sum, route{0, plain}, false, idle, kept},
		{"not kept", sum, route{1, plain}, false, idle, nil},
		{"by an engine that keeps nothing", sum, route{2, plain}, false, idle, nil},
		{"composed", sum, route{0, scaled}, false, idle, nil},
		{"a barrier", barrier, route{0, plain}, false, idle, nil},
		{"timed", sum, route{0, plain}, true, idle, nil},
		{"captured", sum, route{0, plain}, false, captures, nil},
	} {
		op := *c.op
		op.Timed = c.timing
		if got := x.cachedLaunch(&op, c.w, c.stream); got != c.want {
			t.Errorf("%s: %p, want %p", c.what, got, c.want)
		}
	}
	if has.calls != 1 || none.calls != 1 {
		t.Errorf("asked %d and %d times, want once each", has.calls, none.calls)
	}
}
