package shm

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// inside is a world of n ranks of this process, closed at the end of the test.
func inside(t *testing.T, n int, m Memory) []*Transport {
	t.Helper()
	ends, err := Local(n, m, Config{StepTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ranks := make([]*Transport, n)
	for r, end := range ends {
		ranks[r] = end.(*worldTransport).Transport
	}
	t.Cleanup(func() {
		for _, end := range ends {
			if err := end.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return ranks
}

func sendTo(peer, n int) dist.Op {
	return dist.Op{Kind: dist.KindSend, Peer: peer, Count: n, Src: tensor.Of(make([]byte, n))}
}

func recvFrom(peer, n int) dist.Op {
	return dist.Op{Kind: dist.KindRecv, Peer: peer, Count: n, Dst: tensor.Of(make([]byte, n))}
}

func batchOf(ops ...dist.Op) dist.Op { return dist.Op{Kind: dist.KindBatch, Peer: -1, Ops: ops} }

var theBarrier = dist.Op{Kind: dist.KindBarrier}

// All ranks that can never go on get an error before the time limit. It names the ranks of the
// cycle.
func TestRanksThatWaitForEachOtherAreNamed(t *testing.T) {
	const large = 1 << 20 // more than a channel holds
	for _, c := range []struct {
		name string
		ops  []dist.Op // one a rank
		want string
	}{
		{
			"two receive",
			[]dist.Op{recvFrom(1, 8), recvFrom(0, 8)},
			"rank 0 is in recv with rank 1 (its #1), rank 1 is in recv with rank 0 (its #1): they wait for each other; sends and receives that cross belong in one Batch",
		},
		{
			"three receive in a cycle, and one waits for them",
			[]dist.Op{recvFrom(2, 8), recvFrom(0, 8), recvFrom(1, 8), recvFrom(0, 8)},
			"rank 0 is in recv with rank 2 (its #1), rank 1 is in recv with rank 0 (its #1), rank 2 is in recv with rank 1 (its #1): they wait",
		},
		{
			"two send",
			[]dist.Op{sendTo(1, large), sendTo(0, large)},
			"rank 0 is in send with rank 1 (its #1), rank 1 is in send with rank 0 (its #1): they wait for each other; sends",
		},
		{
			"one sends and another receives from a third",
			[]dist.Op{sendTo(1, large), recvFrom(2, 8), recvFrom(0, 8)},
			"rank 0 is in send with rank 1 (its #1), rank 1 is in recv with rank 2 (its #1), rank 2 is in recv with rank 0 (its #1)",
		},
		{
			"group calls without a counterpart",
			[]dist.Op{batchOf(sendTo(1, 8), recvFrom(1, 8)), batchOf(recvFrom(0, 8), recvFrom(0, 8))},
			"rank 0 is in group call (its #1), rank 1 is in group call (its #1): they wait for each other; sends",
		},
		{
			"a receive and a collective",
			[]dist.Op{recvFrom(1, 8), theBarrier},
			"rank 0 is in recv with rank 1 (its #1), rank 1 is in barrier (its #1): they wait for each other",
		},
		{"a message to itself", []dist.Op{recvFrom(0, 8), recvFrom(0, 8)}, "rank 0 is in recv with rank 0 (its #1), a message to itself that has only one half"},
	} {
		for _, m := range []Memory{Mapped, GoMemory} {
			if m == Mapped && memoryOfTests() == GoMemory {
				continue
			}
			t.Run(fmt.Sprint(c.name, "/", m), func(t *testing.T) {
				ranks := inside(t, len(c.ops), m)
				var all sync.WaitGroup
				for r, tr := range ranks {
					all.Go(func() {
						op := c.ops[r]
						op.Seq = 1
						err := tr.do(&op)
						if !errors.Is(err, dist.ErrMismatch) || !strings.Contains(err.Error(), c.want) {
							t.Errorf("rank %d: %v, want %q", r, err, c.want)
						}
					})
				}
				all.Wait()
			})
		}
	}
}

// A rank that is slow to come is waited for, however long: here until the wait for it has been
// posted, and looked at.
func TestASlowRankIsNotBlamed(t *testing.T) {
	ranks := inside(t, 3, memoryOfTests())
	var all sync.WaitGroup
	for r, ops := range [][]dist.Op{{recvFrom(1, 8), theBarrier}, {sendTo(0, 8), recvFrom(2, 8), theBarrier}, {sendTo(1, 8), theBarrier}} {
		all.Go(func() {
			tr := ranks[r]
			for i := range ops {
				if r == 2 { // both others wait, rank 0 for rank 1 at first
					for p := range 2 {
						for atomic.LoadUint64(tr.ctl.posting(p, numberAt))%2 == 0 {
							runtime.Gosched()
						}
					}
				}
				if r == 1 && i == 0 {
					for atomic.LoadUint64(tr.ctl.posting(0, numberAt))%2 == 0 {
						runtime.Gosched()
					}
				}
				ops[i].Seq = uint64(i + 1)
				if err := tr.do(&ops[i]); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
	all.Wait()
}

// waits makes a rank one that has long been in op, as its own goroutine would.
func (t *Transport) waits(op dist.Op) {
	op.Seq = 1
	t.op = &op
	if op.Kind == dist.KindBarrier {
		t.ctl.busy(t.rank, op.Kind, -1, 1)
		t.waitsFor = 1 - t.rank
		t.wait.word, t.wait.want = t.ctl.word(t.waitsFor, t.round+1), t.round+1
	} else {
		t.ctl.busy(t.rank, op.Kind, op.Peer, 1)
		t.moves, t.wait.word = []message{{op: &op}}, nil
	}
	t.postWait()
}

// A rank whose message can go on has only not been given a core, or is stopped by a debugger: the
// wait for it is no deadlock.
func TestARankThatIsStoppedInAMessageIsWaitedFor(t *testing.T) {
	const lent = -1
	for _, c := range []struct {
		what string
		op   dist.Op // of rank 1, with rank 0
		sent int     // chunks sent to the receiver so far; lent stands for a large message that is not read yet
		want error
	}{
		{"receives what has been sent", recvFrom(0, 1), 1, nil},
		{"receives what was never sent", recvFrom(0, 1), 0, dist.ErrMismatch},
		{"sends, and there is room", sendTo(0, 1), ringDepth - 1, nil},
		{"sends, and nobody receives", sendTo(0, 1), ringDepth, dist.ErrMismatch},
		{"lends, and nobody receives", sendTo(0, 1<<20), lent, dist.ErrMismatch},
	} {
		for _, own := range []dist.Op{theBarrier, recvFrom(1, 1)} {
			if own.Kind == dist.KindRecv && c.op.Kind == dist.KindSend {
				continue // it would receive
			}
			ranks := inside(t, 2, memoryOfTests())
			waits, other := ranks[0], ranks[1]
			from := waits
			if c.op.Kind == dist.KindSend {
				from = other
			}
			if c.sent == lent && !from.messages.push(&message{op: &c.op}) {
				t.Fatal("no room for a message")
			}
			for range max(c.sent, 0) {
				if err := from.messages.exchange([]dist.Op{sendTo(1-from.rank, 1)}); err != nil {
					t.Fatal(err)
				}
			}
			other.waits(c.op)
			waits.waits(own)
			if err := waits.deadlock(); err != nil {
				t.Errorf("rank 1 %s: %v at the first look", c.what, err)
			}
			if err := waits.deadlock(); !errors.Is(err, c.want) {
				t.Errorf("rank 1 %s: %v, want %v", c.what, err, c.want)
			}
		}
	}
}

// A cycle that is not the same at the second look was none: a rank of it has gone on in between.
func TestACircleOfOtherWaitsIsLookedAtAgain(t *testing.T) {
	ranks := inside(t, 2, memoryOfTests())
	ranks[1].waits(recvFrom(0, 1))
	ranks[0].waits(recvFrom(1, 1))
	for range 3 {
		if err := ranks[0].deadlock(); err != nil {
			t.Fatal(err)
		}
		ranks[1].retract()
		ranks[1].waits(recvFrom(0, 1))
	}
	if err := errors.Join(ranks[0].deadlock(), ranks[0].deadlock()); !errors.Is(err, dist.ErrMismatch) {
		t.Errorf("got %v, want ErrMismatch of the cycle that stays", err)
	}
}
