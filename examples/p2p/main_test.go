package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

// told is the output of rank 0 for the two methods.
var told = []string{"put+barrier  every byte arrived; ", "put-signal   every byte arrived; "}

func TestEveryByteArrivesOnEveryBackend(t *testing.T) {
	for _, n := range []int{2, 4} {
		ranktest.Worlds(t, n, func(t *testing.T, run func(ranktest.Run) (string, error)) {
			for _, s := range []settings{
				{bytes: 8, messages: 1, slots: 2},
				{bytes: 8, messages: 300, slots: 2},
				{bytes: 4096, messages: 50, slots: 3},
				{bytes: 1 << 16, messages: 10, slots: 16},
			} {
				out, err := run(s.run)
				if err != nil {
					t.Fatalf("%+v: %v", s, err)
				}
				for _, want := range told {
					if !strings.Contains(out, want) {
						t.Errorf("%+v: %q is missing in\n%s", s, want, out)
					}
				}
			}
		})
	}
}

func TestProgramStartsItsRanks(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "p2p: 2 ranks on shm, rank 0 to rank 1 and so on; 100 messages of 65536 B, 4 slots"},
		{[]string{"-n", "4", "--bytes", "24"}, "p2p: 4 ranks on shm, rank 0 to rank 1 and so on; 100 messages of 24 B, 4 slots"},
		{[]string{"--backend", "sim", "--slots", "7"}, "p2p: 2 ranks on sim, rank 0 to rank 1 and so on; 100 messages of 65536 B, 7 slots"},
	} {
		o := ranktest.Process(t, append(test.args, "--messages", "100")...)
		o.Want(t, 0, append(told, test.want)...)
		if o.Stderr != "" {
			t.Errorf("%v: stderr %q", test.args, o.Stderr)
		}
	}
}

func TestRanksOfALauncherSend(t *testing.T) {
	args := []string{"--messages", "50", "--bytes", "800"}
	outcomes := ranktest.Launched(t, args, args)
	outcomes[0].Want(t, 0, told...)
	if o := outcomes[1]; o != (ranktest.Outcome{}) {
		t.Errorf("rank 1 ended with %+v", o)
	}
}

func TestOddNumberOfLaunchedRanksIsUsage(t *testing.T) {
	for r, o := range ranktest.Launched(t, nil, nil, nil) {
		if o.Want(t, 2); o.Stderr != "p2p: 3 ranks: want an even number, because every sender has a receiver\n" {
			t.Errorf("rank %d: %q", r, o.Stderr)
		}
	}
}

func TestKilledRankEndsAll(t *testing.T) {
	for victim := range 2 { // the sender, the receiver
		ranktest.WantLost(t, "p2p", victim, ranktest.Kill(t, 2, victim, "--messages", "1000000000"))
	}
}

// transferred runs one way on two ranks of every backend.
func transferred(t *testing.T, s settings, distinct bool, send func(ctx context.Context, p *pipe) (int, error), check func(t *testing.T, err error)) {
	t.Helper()
	ranktest.Worlds(t, 2, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		_, err := run(func(ctx context.Context, w *dist.World, _ io.Writer) error {
			heap, err := w.Heap(s.heapBytes())
			if err != nil {
				return err
			}
			_, err = s.transfer(ctx, w, heap, way{"test", send}, distinct)
			return err
		})
		check(t, err)
	})
}

// The receiver sees a message that is another one, and both ranks fail.
func TestWrongMessagesAreSeen(t *testing.T) {
	s := settings{bytes: 80, messages: 20, slots: 4}
	for _, way := range []way{{"put-signal", putSignal}, {"put+barrier", putBarrier}} {
		for _, test := range []struct {
			name     string
			distinct bool
			spoil    func(p *pipe)
			words    int
		}{
			{"always message 0", true, func(p *pipe) { p.distinct = false }, 19 * 10},
			{"one bit in the last word", false, func(p *pipe) { p.made[9] ^= 1 << 63 }, 20 * 10},
		} {
			send := func(ctx context.Context, p *pipe) (int, error) {
				if p.sends() {
					test.spoil(p)
				}
				return way.send(ctx, p)
			}
			transferred(t, s, test.distinct, send, func(t *testing.T, err error) {
				want := fmt.Sprintf("wrong result: rank 1 has %d words that arrived wrong", test.words)
				if !errors.Is(err, rank.ErrWrong) || strings.Count(err.Error(), want) != 2 {
					t.Errorf("%s, %s: error %v, want %q on both", way.name, test.name, err, want)
				}
			})
		}
	}
}

var errLeft = errors.New("went away")

// Who is gone in the middle leaves the other waiting for news, or for an acknowledgement.
func TestRankThatGoesAwayEndsTheOther(t *testing.T) {
	s := settings{bytes: 64, messages: 1000, slots: 4}
	for leaver := range 2 {
		send := func(ctx context.Context, p *pipe) (int, error) {
			if p.w.Rank() != leaver {
				return putSignal(ctx, p)
			}
			p.messages = 10
			if p.sends() { // without waiting for the last acknowledgements
				for m := range p.messages {
					if err := sendOne(ctx, p, m); err != nil {
						return 0, err
					}
				}
			} else if _, err := receive(ctx, p); err != nil {
				return 0, err
			}
			return 0, errLeft
		}
		transferred(t, s, true, send, func(t *testing.T, err error) {
			if !errors.Is(err, errLeft) || !errors.Is(err, dist.ErrAborted) {
				t.Errorf("rank %d went away: error %v, want the reason there and an abort on the other", leaver, err)
			}
		})
	}
}

func TestMessagesDiffer(t *testing.T) {
	a, b := make([]uint64, 64), make([]uint64, 64)
	fill(a, 3)
	fill(b, 4)
	if n := differences(a, 3); n != 0 {
		t.Errorf("%d words of message 3 are not its own", n)
	}
	if n := differences(a, 4); n != 64 {
		t.Errorf("only %d words of message 3 are not those of message 4", n)
	}
	if sum(a) == sum(b) || sum([]uint64{1, 2, ^uint64(0)}) != 2 {
		t.Errorf("sums %d and %d", sum(a), sum(b))
	}
	seen := map[uint64]bool{}
	for m := range 100 {
		for i := range 100 {
			seen[word(m, i)] = true
		}
	}
	if len(seen) != 100*100 {
		t.Errorf("%d different words of 10000", len(seen))
	}
}

func TestWrongCommandLinesAreOneLineAndCode2(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"-n 3", "p2p: 3 ranks: want an even number"},
		{"--bytes 0", "p2p: --bytes 0: want a multiple of 8, at most 1 GiB"},
		{"--bytes 9", "p2p: --bytes 9: want a multiple of 8"},
		{"--messages 0", "p2p: --messages 0: want 1 or more"},
		{"--slots 1", "p2p: --slots 1: want 2 to 1024"},
		{"--slots 5000", "p2p: --slots 5000: want 2 to 1024"},
		{"file", `p2p: unexpected argument "file"`},
	} {
		o := ranktest.Execute(execute, strings.Fields(test.args)...)
		o.Want(t, 2, test.want)
		if strings.Count(o.Stderr, "\n") != 1 || o.Stdout != "" {
			t.Errorf("%s: %q and %q", test.args, o.Stdout, o.Stderr)
		}
	}
}
