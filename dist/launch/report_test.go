package launch

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

func TestExitCodeTellsALostPeerFromAFailure(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("wrong"), 1},
		{fmt.Errorf("step 3: %w", &dist.RankError{Rank: 1, How: "gone"}), ExitPeerLost},
		{fmt.Errorf("step 3: %w", dist.ErrAborted), ExitPeerLost},
		{fmt.Errorf("step 3: %w", dist.ErrClosed), ExitPeerLost},
		{fmt.Errorf("step 3: %w", dist.ErrTimeout), 1},
		{dist.ErrMismatch, 1},
	} {
		if got := ExitCode(tc.err); got != tc.want {
			t.Errorf("ExitCode(%v) = %d, want %d", tc.err, got, tc.want)
		}
	}
}

func TestCulpritIsWhoFailedByItselfFirst(t *testing.T) {
	ok := RankResult{Rank: 0}
	lost := RankResult{Rank: 1, Code: ExitPeerLost}
	failed := RankResult{Rank: 2, Code: 3}
	killed := RankResult{Rank: 3, Code: 137}
	stopped := RankResult{Rank: 4, Code: 143, Stopped: true}
	stoppedLost := RankResult{Rank: 5, Code: ExitPeerLost, Stopped: true}
	for _, tc := range []struct {
		ends []RankResult
		want int
	}{
		{nil, -1},
		{[]RankResult{ok}, -1},
		{[]RankResult{ok, failed, killed}, 2},
		{[]RankResult{killed, failed}, 3},
		{[]RankResult{lost, stopped, failed}, 2},
		{[]RankResult{stopped, lost, ok}, 1},
		{[]RankResult{stoppedLost, lost}, 1},
		{[]RankResult{ok, stopped, stoppedLost}, 4},
	} {
		if got := culprit(tc.ends); got != tc.want {
			t.Errorf("%+v: blamed %d, want %d", tc.ends, got, tc.want)
		}
	}
}

func TestFailureReportBeginsWithTheCulprit(t *testing.T) {
	res := Result{Code: 3, Culprit: 1, Ranks: []RankResult{
		{Rank: 0, PID: 10, Code: ExitPeerLost, How: "exited with code 75"},
		{Rank: 1, PID: 11, Code: 3, How: "exited with code 3"},
		{Rank: 2, PID: 12, Code: 143, How: "was killed by signal: terminated", Stopped: true},
		{Rank: 3, PID: 13, How: "exited with code 0"},
	}}
	others := []string{
		"rank 0 (pid 10) exited with code 75: it lost a peer",
		"rank 2 (pid 12) was killed by signal: terminated, stopped by the launcher",
		"rank 3 (pid 13) exited with code 0",
	}
	for _, tc := range []struct{ last, want []string }{
		{nil, []string{"rank 1 (pid 11) exited with code 3"}},
		{[]string{"a", "b"}, []string{"rank 1 (pid 11) exited with code 3; its last lines:", "  [1] a", "  [1] b"}},
	} {
		if got, want := failureReport(res, tc.last), slices.Concat(tc.want, others); !slices.Equal(got, want) {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
	}
}
