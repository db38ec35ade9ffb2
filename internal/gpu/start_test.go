package gpu

import (
	"errors"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
)

// repeater is a Keeper that has kept all operations, or none, or fails.
type repeater struct {
	Keeper
	done  bool
	err   error
	calls int
}

func (r *repeater) Again(*dist.Op, *cuda.Stream) (bool, error) {
	r.calls++
	return r.done, r.err
}

func TestEnginesRepeatWhatTheyHaveKept(t *testing.T) {
	failed := errors.New("failed")
	has, none, fails := &repeater{done: true}, &repeater{}, &repeater{err: failed}
	tr := &Transport{keepers: []Keeper{has, none, fails, nil}}
	sum, barrier := &dist.Op{Kind: dist.KindAllReduce}, &dist.Op{Kind: dist.KindBarrier}
	for _, c := range []struct {
		what string
		op   *dist.Op
		w    way
		done bool
		err  error
	}{
		{"kept", sum, way{0, plain}, true, nil},
		{"not kept", sum, way{1, plain}, false, nil},
		{"kept, and lost", sum, way{2, plain}, false, failed},
		{"by an engine that keeps nothing", sum, way{3, plain}, false, nil},
		{"composed", sum, way{0, scaled}, false, nil},
		{"a barrier", barrier, way{0, plain}, false, nil},
	} {
		if done, err := tr.again(c.op, c.w, nil); done != c.done || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v, want %v, %v", c.what, done, err, c.done, c.err)
		}
	}
	if has.calls != 1 || none.calls != 1 || fails.calls != 1 {
		t.Errorf("asked %d, %d and %d times, want once each", has.calls, none.calls, fails.calls)
	}
}
