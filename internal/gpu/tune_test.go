package gpu

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// borrowing is a column that does all but allreduces in the way of another.
type borrowing struct{ column }

func (b *borrowing) Native(kind dist.Kind) bool { return kind == dist.KindAllReduce }

func TestEnginesThatGoTheWayOfOthersHaveNoTimes(t *testing.T) {
	sum := allReduceOp(1024)
	gather := sum
	gather.Kind = dist.KindAllGather
	for _, c := range []struct {
		what string
		e    Engine
		op   dist.Op
		want bool
	}{
		{"one that says nothing of it", &column{"nccl", nil}, gather, true},
		{"one that cannot", &column{"ll", sumsOfFloats}, gather, false},
		{"its own way", &borrowing{column{"tiles", nil}}, sum, true},
		{"the way of another", &borrowing{column{"tiles", nil}}, gather, false},
		{"its own way, which it cannot go", &borrowing{column{"tiles", func(*dist.Op) bool { return false }}}, sum, false},
	} {
		if got := measures(c.e, &c.op); got != c.want {
			t.Errorf("%s: measured %v, want %v", c.what, got, c.want)
		}
	}
}
