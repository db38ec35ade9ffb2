package dist_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestSentinels(t *testing.T) {
	all := []error{
		dist.ErrInvalid, dist.ErrDType, dist.ErrCount, dist.ErrRoot, dist.ErrDevice, dist.ErrAlias,
		dist.ErrMismatch, dist.ErrAborted, dist.ErrTimeout, dist.ErrClosed, dist.ErrUnsupported,
	}
	for i, a := range all {
		for j, b := range all {
			want := i == j || j == 0 && i >= 1 && i <= 5 // the kinds of ErrInvalid
			if got := errors.Is(a, b); got != want {
				t.Errorf("errors.Is(%v, %v) = %v, want %v", a, b, got, want)
			}
		}
	}
}

func TestOpErrorSaysWhichOperationAndWhy(t *testing.T) {
	f := tensor.Of(make([]float32, 128))
	for _, tt := range []struct {
		err  dist.OpError
		want string
	}{
		{
			dist.OpError{Op: dist.Op{Kind: dist.KindAllReduce, Count: 128, Src: f, Dst: f, Seq: 7, Name: "fc1.weight"}, Rank: 1, Size: 4, Err: errTest},
			`allreduce #7 rank 1/4 "fc1.weight" (f32[128] sum, 512 B): made for the test`,
		},
		{
			dist.OpError{Op: dist.Op{Kind: dist.KindBroadcast, Count: 128, Dst: f, Seq: 1, Root: 3}, Rank: 0, Size: 8, Err: dist.ErrAborted},
			`broadcast #1 rank 0/8 (f32[128] root 3, 512 B): group aborted`,
		},
		{dist.OpError{Op: dist.Op{Kind: dist.KindBarrier, Seq: 2}, Size: 1, Err: dist.ErrTimeout}, `barrier #2 rank 0/1 (no data): timed out`},
		{
			dist.OpError{Op: dist.Op{Kind: dist.KindBatch, Seq: 3, Ops: make([]dist.Op, 5)}, Rank: 2, Size: 3, Err: dist.ErrClosed},
			`group call #3 rank 2/3 (5 operations): group closed`,
		},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		if !errors.Is(&tt.err, tt.err.Err) {
			t.Errorf("%v does not wrap its cause", tt.want)
		}
	}
}

func TestRankErrorIsAnAbort(t *testing.T) {
	var err error = &dist.OpError{Op: dist.Op{Kind: dist.KindSync}, Err: fmt.Errorf("in it: %w", &dist.RankError{Rank: 2, How: "connection closed"})}
	if !errors.Is(err, dist.ErrAborted) || errors.Is(err, dist.ErrTimeout) {
		t.Errorf("%v: aborted %v, timeout %v", err, errors.Is(err, dist.ErrAborted), errors.Is(err, dist.ErrTimeout))
	}
	var dead *dist.RankError
	if !errors.As(err, &dead) || dead.Rank != 2 || dead.Error() != "rank 2 died: connection closed" {
		t.Errorf("rank error %v", dead)
	}
}
