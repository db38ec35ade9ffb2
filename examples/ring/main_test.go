package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

// received returns the ranks' output of the shift.
func received(n int) string {
	var b strings.Builder
	for r := range n {
		fmt.Fprintf(&b, "%d: received message %d\n", r, (r+n-1)%n)
	}
	return b.String()
}

func TestRingOnEveryBackend(t *testing.T) {
	for n := 1; n <= 5; n++ {
		ranktest.Worlds(t, n, func(t *testing.T, run func(ranktest.Run) (string, error)) {
			for _, s := range []settings{{rounds: 1, bytes: 8}, {rounds: 40, bytes: 8}, {rounds: 7, bytes: 4104}} {
				out, err := run(s.run)
				if err != nil {
					t.Fatalf("%+v: %v", s, err)
				}
				hops := fmt.Sprintf("token: %d rounds, %d hops of %d B, ", s.rounds, s.rounds*n, s.bytes)
				if !strings.Contains(out, received(n)) || !strings.Contains(out, hops) {
					t.Errorf("%+v: %q or %q is missing in\n%s", s, received(n), hops, out)
				}
			}
		})
	}
}

func TestProgramStartsItsRanks(t *testing.T) {
	for _, test := range []struct {
		args    []string
		n, hops int
		backend string
	}{
		{[]string{"--rounds", "20"}, 4, 80, "shm"},
		{[]string{"--rounds", "20", "-n", "1"}, 1, 20, "shm"},
		{[]string{"--rounds", "20", "-n", "3", "--backend", "sim"}, 3, 60, "sim"},
	} {
		o := ranktest.Process(t, test.args...)
		o.Want(t, 0)
		want := fmt.Sprintf("^ring: %d ranks on %s\n%stoken: 20 rounds, %d hops of 8 B, [0-9.e+]+ us a hop\n$",
			test.n, test.backend, received(test.n), test.hops)
		if !regexp.MustCompile(want).MatchString(o.Stdout) || o.Stderr != "" {
			t.Errorf("%v: %q and %q, want %s", test.args, o.Stdout, o.Stderr, want)
		}
	}
}

func TestRanksOfALauncherFormARing(t *testing.T) {
	outcomes := ranktest.Launched(t, []string{"--rounds", "9"}, []string{"--rounds", "9"}, []string{"--rounds", "9"})
	outcomes[0].Want(t, 0, "ring: 3 ranks on shm\n"+received(3)+"token: 9 rounds, 27 hops of 8 B")
	for r, o := range outcomes[1:] {
		if o != (ranktest.Outcome{}) {
			t.Errorf("rank %d ended with %+v", r+1, o)
		}
	}
}

func TestRanksThatWereToldDifferentTokensFail(t *testing.T) {
	for r, o := range ranktest.Launched(t, []string{"--bytes", "8"}, []string{"--bytes", "80000"}) {
		if o.Code == 0 || !strings.Contains(o.Stderr, fmt.Sprintf("ring: rank %d of 2: ", r)) {
			t.Errorf("rank %d: code %d, %s", r, o.Code, o.Stderr)
		}
	}
}

func TestKilledRankEndsAll(t *testing.T) {
	for victim := range 3 {
		ranktest.WantLost(t, "ring", victim, ranktest.Kill(t, 3, victim, "--rounds", "1000000000"))
	}
}

// A message that is not the right one is found by the rank that gets it and told by all.
func TestWrongMessageFailsAllRanks(t *testing.T) {
	ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		_, err := run(func(_ context.Context, w *dist.World, _ io.Writer) error {
			got := before(w)
			if w.Rank() == 2 {
				got = 7
			}
			return verdict(w, int64(got), int64(before(w)))
		})
		if !errors.Is(err, rank.ErrWrong) || strings.Count(err.Error(), "wrong result: rank 2 has 1 message") != 3 {
			t.Errorf("error %v", err)
		}
	})
}

var errLeft = errors.New("left the ring")

func TestRankThatLeavesTheRingEndsTheOthers(t *testing.T) {
	ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		_, err := run(func(ctx context.Context, w *dist.World, _ io.Writer) error {
			heap, err := w.Heap(1 << 12)
			if err != nil {
				return err
			}
			g, err := newRing(w, heap, 64)
			if err != nil {
				return err
			}
			if w.Rank() != 1 {
				_, err := g.pass(ctx, 1<<40)
				return err
			}
			if bad, err := g.pass(ctx, 10); err != nil || bad > 0 {
				return fmt.Errorf("%d numbers are wrong: %w", bad, err)
			}
			return errLeft
		})
		if !errors.Is(err, errLeft) || !errors.Is(err, dist.ErrAborted) {
			t.Errorf("error %v, want the reason on rank 1 and an abort on the others", err)
		}
	})
}

func TestWrongNumberInTheTokenIsSeen(t *testing.T) {
	ranktest.Worlds(t, 2, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		_, err := run(func(ctx context.Context, w *dist.World, _ io.Writer) error {
			heap, err := w.Heap(1 << 12)
			if err != nil {
				return err
			}
			g, err := newRing(w, heap, 64)
			if err != nil {
				return err
			}
			if w.Rank() == 0 { // before it has passed the token on
				g.numbers[3] = 100
			}
			bad, err := g.pass(ctx, 5)
			if want := []int{6, 5}[w.Rank()]; err == nil && bad != want {
				err = fmt.Errorf("%d numbers are wrong, want that one on each of %d hops", bad, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
