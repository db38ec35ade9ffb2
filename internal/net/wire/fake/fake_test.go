package fake_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/internal/net/wire/wiretest"
)

func TestFakeKeepsTheRulesOfWires(t *testing.T) {
	random := func(from, to, bytes int) time.Duration {
		return time.Duration((from*7+to*13+bytes)%50) * time.Microsecond
	}
	for _, n := range []int{2, 3, 5} {
		for name, cfg := range map[string]fake.Config{"at once": {}, "delayed": {Delay: random, Limit: 100}} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				_, ends := fake.New(n, cfg)
				var all sync.WaitGroup
				for _, e := range ends {
					all.Go(func() {
						if err := errors.Join(wiretest.Run(e), e.Close()); err != nil {
							t.Errorf("process %d: %v", e.Info().Rank, err)
						}
					})
				}
				all.Wait()
			})
		}
	}
}

// wants checks the error of r, which must end soon.
func wants(t *testing.T, w wire.Wire, r *wire.Request, ok func(error) bool) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for !r.Done() && time.Now().Before(end) {
		w.Progress()
	}
	_, _, err := r.Result()
	if !r.Done() || !ok(err) {
		t.Errorf("done %v, error %v", r.Done(), err)
	}
}

func isPeer(rank int) func(error) bool {
	return func(err error) bool {
		var p *wire.PeerError
		return errors.As(err, &p) && p.Peer == rank
	}
}

func TestKilledProcessEndsTheRequestsWithIt(t *testing.T) {
	lost := make(chan int, 10)
	net, ends := fake.New(3, fake.Config{OnLost: func(int) func(int, string) { return func(p int, _ string) { lost <- p } }})
	var in, out, late, early wire.Request
	ends[1].Send(&early, 0, 5, []byte{42})
	ends[0].Recv(&in, 1, 7, make([]byte, 8))
	ends[0].Send(&out, 1, 7, make([]byte, 100<<10))
	net.Kill(1)
	wants(t, ends[0], &in, isPeer(1))
	wants(t, ends[0], &out, isPeer(1))
	ends[0].Send(&late, 1, 7, nil)
	wants(t, ends[0], &late, isPeer(1))
	if p := <-lost; p != 1 {
		t.Errorf("OnLost of process %d, want 1", p)
	}
	var last wire.Request // a message that was sent before the death still arrives
	ends[0].Recv(&last, 1, 5, make([]byte, 1))
	wants(t, ends[0], &last, func(err error) bool { return err == nil })
}

func TestCutLinkDropsMessagesInSilence(t *testing.T) {
	net, ends := fake.New(2, fake.Config{})
	net.Cut(0, 1)
	var lost, in, again wire.Request
	ends[0].Send(&lost, 1, 1, []byte{1})
	ends[1].Recv(&in, 0, 1, make([]byte, 1))
	if ends[1].Progress() || in.Done() || !lost.Done() {
		t.Error("a message crossed a cut link, or its sender knows")
	}
	net.Heal(0, 1)
	ends[0].Send(&again, 1, 1, []byte{2})
	wants(t, ends[1], &in, func(err error) bool { return err == nil })
	ends[1].Recv(&in, 0, 1, make([]byte, 1))
	ends[1].Lose(0, "no heartbeat")
	wants(t, ends[1], &in, isPeer(0))
}

func TestClosedEndRefusesRequests(t *testing.T) {
	_, ends := fake.New(2, fake.Config{})
	var r wire.Request
	ends[0].Recv(&r, 1, 1, nil)
	if err := errors.Join(ends[0].Close(), ends[0].Close()); err != nil {
		t.Fatal(err)
	}
	closed := func(err error) bool { return errors.Is(err, wire.ErrClosed) }
	wants(t, ends[0], &r, closed)
	ends[0].Send(&r, 1, 1, nil)
	wants(t, ends[0], &r, closed)
}
