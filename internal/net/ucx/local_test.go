package ucx

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/internal/net/wire/wiretest"
)

// shelf is a Store for wires in one process.
type shelf struct{ values sync.Map }

func (s *shelf) Set(_ context.Context, key string, value []byte) error {
	s.values.Store(key, slices.Clone(value))
	return nil
}

func (s *shelf) Get(ctx context.Context, key string) ([]byte, error) {
	for b := (wire.Backoff{}); ctx.Err() == nil; b.Pause() {
		if v, ok := s.values.Load(key); ok {
			return v.([]byte), nil
		}
	}
	return nil, ctx.Err()
}

// open returns the wires of n processes, all in this one, over TCP on loopback. lost, if not nil,
// gets the losses that rank 0 finds.
func open(t testing.TB, n int, lost func(peer int, how string)) []*Wire {
	t.Helper()
	needUCX(t)
	store, ws := new(shelf), make([]*Wire, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for r := range ws {
		all.Go(func() {
			cfg := Config{Interface: "lo", Transports: "tcp,self"}
			if r == 0 {
				cfg.OnLost = lost
			}
			ws[r], errs[r] = Open(t.Context(), r, n, store, cfg)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ws
}

// closeAll closes the wires at the same time.
func closeAll(t testing.TB, ws []*Wire) {
	var all sync.WaitGroup
	for _, w := range ws {
		all.Go(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// ends makes progress on all wires until r is done.
func ends(t testing.TB, r *wire.Request, ws ...*Wire) error {
	t.Helper()
	for end := time.Now().Add(time.Minute); !r.Done(); {
		for _, w := range ws {
			w.Progress()
		}
		if time.Now().After(end) {
			t.Fatal("the request does not end")
		}
	}
	_, _, err := r.Result()
	return err
}

func isLost(err error, peer int, how string) bool {
	var p *wire.PeerError
	return errors.As(err, &p) && p.Peer == peer && (how == "" || p.How == how)
}

func TestWiresOfOneProcessKeepTheRules(t *testing.T) {
	ws := open(t, 3, nil)
	var all sync.WaitGroup
	for _, w := range ws {
		all.Go(func() {
			if err := wiretest.Run(w); err != nil {
				t.Errorf("process %d: %v", w.Info().Rank, err)
			}
		})
	}
	all.Wait()
	closeAll(t, ws)
}

func TestLoseEndsTheRequestsWithThePeer(t *testing.T) {
	ws := open(t, 3, func(p int, how string) { t.Errorf("OnLost(%d, %q) of a loss that the caller declared", p, how) })
	defer closeAll(t, ws)
	w, big := ws[0], make([]byte, 4<<20)
	var in, out, anyone, early wire.Request
	ws[1].Send(&early, 0, 5, []byte{42})
	if err := ends(t, &early, ws...); err != nil {
		t.Fatal(err)
	}
	var meet, met wire.Request // after it, the early message has arrived
	ws[1].Send(&meet, 0, 6, nil)
	w.Recv(&met, 1, 6, nil)
	if err := errors.Join(ends(t, &meet, ws...), ends(t, &met, ws...)); err != nil {
		t.Fatal(err)
	}
	w.Recv(&in, 1, 1, make([]byte, 8))
	w.Recv(&anyone, wire.AnyPeer, 3, make([]byte, 8))
	w.Send(&out, 1, 2, big)
	w.Lose(1, "no heartbeat")
	w.Lose(1, "again")
	for name, r := range map[string]*wire.Request{"receive": &in, "send": &out} {
		if err := ends(t, r, w); !isLost(err, 1, "no heartbeat") {
			t.Errorf("pending %s: %v", name, err)
		}
	}
	var lateIn, lateOut, first wire.Request
	w.Recv(&lateIn, 1, 1, make([]byte, 8))
	w.Send(&lateOut, 1, 2, big[:1])
	if err := errors.Join(ends(t, &lateIn, w), ends(t, &lateOut, w)); !isLost(err, 1, "no heartbeat") {
		t.Errorf("later requests: %v", err)
	}
	w.Recv(&first, 1, 5, make([]byte, 1))
	if err := ends(t, &first, w); err != nil {
		t.Errorf("a message that had arrived before: %v", err)
	}
	var hello wire.Request
	ws[2].Send(&hello, 0, 3, []byte("hi"))
	if err := ends(t, &anyone, w, ws[2]); err != nil {
		t.Errorf("a receive from any peer, and a message of another one: %v", err)
	}
}

func TestCloseIsNoLoss(t *testing.T) {
	ws := open(t, 2, func(p int, how string) { t.Errorf("OnLost(%d, %q) of an orderly end", p, how) })
	w := ws[0]
	var in, small, large, inSmall, inLarge wire.Request
	data := bytes.Repeat([]byte("abc"), 1<<20)
	got := make([]byte, len(data))
	w.Recv(&in, 1, 9, make([]byte, 1))
	ws[1].Send(&small, 0, 1, data[:10])
	ws[1].Send(&large, 0, 2, data)
	closed := make(chan bool)
	go func() { closeAll(t, ws[1:]); close(closed) }()
	w.Recv(&inLarge, 1, 2, got)
	if err := ends(t, &inLarge, w); err != nil || !bytes.Equal(got, data) {
		t.Errorf("large message that was sent before Close: %v", err)
	}
	if err := ends(t, &in, w); !isLost(err, 1, leftText) {
		t.Errorf("receive of a message that never comes: %v", err)
	}
	<-closed
	w.Recv(&inSmall, 1, 1, got)
	if err := ends(t, &inSmall, w); err != nil {
		t.Errorf("small message that was sent before Close: %v", err)
	}
	if _, _, err := large.Result(); !large.Done() || err != nil {
		t.Errorf("large send: done %t, %v", large.Done(), err)
	}
	for range 1000 {
		w.Progress()
	}
	var late wire.Request
	w.Send(&late, 1, 1, nil)
	if err := ends(t, &late, w); !isLost(err, 1, leftText) {
		t.Errorf("send to a peer that left: %v", err)
	}
	closeAll(t, ws[:1])
}

func TestClosedWireRefusesRequests(t *testing.T) {
	w := open(t, 1, nil)[0]
	var in wire.Request
	w.Recv(&in, 0, 1, make([]byte, 1))
	closeAll(t, []*Wire{w, w})
	if err := ends(t, &in, w); !errors.Is(err, wire.ErrClosed) {
		t.Errorf("receive that was pending: %v", err)
	}
	w.Send(&in, 0, 1, nil)
	if err := ends(t, &in, w); !errors.Is(err, wire.ErrClosed) {
		t.Errorf("later send: %v", err)
	}
	w.Cancel(&in)
	w.Lose(0, "late")
	if w.Progress() {
		t.Error("a closed wire made progress")
	}
}

func TestCloseOfAWireWhosePeerSleepsEnds(t *testing.T) {
	ws := open(t, 2, nil)
	ws[0].patience = 100 * time.Millisecond
	var out wire.Request
	ws[0].Send(&out, 1, 1, make([]byte, 4<<20)) // no receive, no progress
	ws[0].Close()
	if _, _, err := out.Result(); !out.Done() || !errors.Is(err, wire.ErrClosed) {
		t.Errorf("send without a receive: done %t, %v", out.Done(), err)
	}
	ws[1].Close()
}

func TestMessagesOfRequestsThatCannotBegin(t *testing.T) {
	w := open(t, 1, nil)[0]
	defer w.Close()
	var r wire.Request
	for want, begin := range map[string]func(){
		"ucx: no process 1":                              func() { w.Send(&r, 1, 0, nil) },
		"ucx: no process -2":                             func() { w.Recv(&r, -2, 0, nil) },
		"ucx: no process -1":                             func() { w.Send(&r, wire.AnyPeer, 0, nil) },
		"ucx: tag 2147483648: the largest is 2147483647": func() { w.Send(&r, 0, Tags, nil) },
	} {
		begin()
		if _, _, err := r.Result(); !r.Done() || err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestMessagesAllocateNothing(t *testing.T) {
	ws := open(t, 2, nil)
	defer closeAll(t, ws)
	var a, b wire.Request
	data, buf := make([]byte, 64<<10), make([]byte, 64<<10)
	turn := func() {
		ws[1].Recv(&b, 0, 1, buf)
		ws[0].Send(&a, 1, 1, data)
		for !a.Done() || !b.Done() {
			ws[0].Progress()
			ws[1].Progress()
		}
	}
	turn()
	if n := testing.AllocsPerRun(50, turn); n != 0 {
		t.Errorf("%v allocations for each message, want 0", n)
	}
}

// Go frees and reuses memory around the messages, whose buffers only the wire knows.
func TestMessagesSurviveTheCollector(t *testing.T) {
	ws := open(t, 2, nil)
	defer closeAll(t, ws)
	stop := make(chan bool)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = bytes.Repeat([]byte{0xee}, 1<<16)
				runtime.GC()
			}
		}
	})
	for k := range 60 {
		n := []int{1, 300, 9 << 10, 70 << 10, 1 << 20}[k%5]
		a, b := new(wire.Request), new(wire.Request)
		buf := make([]byte, n)
		ws[1].Recv(b, 0, 1, buf)
		ws[0].Send(a, 1, 1, bytes.Repeat([]byte{byte(k)}, n))
		if err := errors.Join(ends(t, a, ws...), ends(t, b, ws...)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buf, bytes.Repeat([]byte{byte(k)}, n)) {
			t.Fatalf("message %d of %d bytes: wrong bytes", k, n)
		}
	}
	close(stop)
	all.Wait()
}
