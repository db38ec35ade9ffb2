package hosts_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/internal/sim"
)

// spied is a wire that notes the peers that get messages with the first tag, of control messages.
type spied struct {
	wire.Wire
	sent chan int
}

func (s *spied) Send(r *wire.Request, peer int, tag uint32, data []byte) {
	if tag == 0 && len(data) > 4 && data[4] == deathKind {
		s.sent <- peer
	}
	s.Wire.Send(r, peer, tag, data)
}

// deathKind is the kind of the control message about a death.
const deathKind = 6

// TestDeathIsReportedByItsFinder has three hosts. Rank 2 is found dead by rank 0, which reports it.
// Rank 1 learns of it by the report, and is silent.
func TestDeathIsReportedByItsFinder(t *testing.T) {
	const n = 3
	_, ends := fake.New(n, fake.Config{})
	where, names := []int{0, 1, 2}, []string{"a", "b", "c"}
	worlds, losses, spies := make([]*dist.World, n), make([]*hosts.Losses, n), make([]*spied, n)
	var all sync.WaitGroup
	for r := range n {
		losses[r], spies[r] = new(hosts.Losses), &spied{ends[r], make(chan int, 100)}
		all.Go(func() {
			inner, err := sim.Transports(1, sim.Config{})
			var tr dist.Transport
			if err == nil {
				tr, err = hosts.Open(hosts.Party{Wire: spies[r], Inner: inner[0], Hosts: where, Names: names, Losses: losses[r]}, hosts.Config{})
			}
			if err == nil {
				worlds[r], err = dist.NewWorld(tr, dist.LocalInfo{Launcher: "none", Job: "hosts"}, 0, nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	if all.Wait(); t.Failed() {
		return
	}
	losses[0].Lost(2, "found")
	for r := range 2 {
		ctx, release := worlds[r].Context(context.Background())
		<-ctx.Done()
		var dead *dist.RankError
		if err := context.Cause(ctx); !errors.As(err, &dead) || dead.Rank != 2 || dead.Error() != "rank 2 died on c: found" {
			t.Errorf("rank %d: error %v, want the death of rank 2", r, err)
		}
		release()
	}
	if got := len(spies[0].sent); got != 1 { // rank 2 gets none
		t.Errorf("the finder sent %d reports, want 1", got)
	}
	if got := len(spies[1].sent); got != 0 {
		t.Errorf("the other rank sent %d reports", got)
	}
	for _, w := range worlds {
		_ = w.Close() // two are broken
	}
}
