package ucx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/internal/net/wire/wiretest"
)

func TestWireKeepsTheRulesOfWires(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ranks(t, n, Config{}, nil, func(w *Wire) error { return wiretest.Run(w) })
		})
	}
}

// wantLost makes progress until all requests are done, and returns an error for a request that did
// not end with a loss of peer.
func wantLost(w *Wire, peer int, rs ...*wire.Request) error {
	for i, r := range rs {
		if err := wire.Wait(w, nil, r); !isLost(err, peer, "") {
			return fmt.Errorf("request %d: %v, want the loss of process %d", i, err, peer)
		}
	}
	return nil
}

// meet is a barrier of the ranks of w, by messages to rank 0 and back.
func meet(w *Wire) error {
	const tag = 999
	var out, in wire.Request
	if w.info.Rank != 0 {
		w.Send(&out, 0, tag, nil)
		w.Recv(&in, 0, tag, nil)
		return wire.Wait(w, nil, &out, &in)
	}
	for p := 1; p < w.info.Size; p++ {
		w.Recv(&in, p, tag, nil)
		if err := wire.Wait(w, nil, &in); err != nil {
			return err
		}
	}
	for p := 1; p < w.info.Size; p++ {
		w.Send(&out, p, tag, nil)
		if err := wire.Wait(w, nil, &out); err != nil {
			return err
		}
	}
	return nil
}

func killSelf() error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }

func TestKilledProcessEndsTheRequestsWithIt(t *testing.T) {
	var lost []int
	cfg := Config{OnLost: func(p int, _ string) { lost = append(lost, p) }}
	ranks(t, 3, cfg, []int{2}, func(w *Wire) error {
		var early wire.Request
		if w.info.Rank == 2 {
			w.Send(&early, 0, 5, []byte{42})
			return errors.Join(wire.Wait(w, nil, &early), meet(w), killSelf())
		}
		if err := meet(w); err != nil {
			return err
		}
		var in, out, late, anyone wire.Request
		w.Recv(&in, 2, 1, make([]byte, 8))
		w.Recv(&anyone, wire.AnyPeer, 2, make([]byte, 8))
		w.Send(&out, 2, 3, make([]byte, 8<<20))
		err := wantLost(w, 2, &in, &out)
		w.Send(&late, 2, 3, make([]byte, 8))
		err = errors.Join(err, wantLost(w, 2, &late))
		w.Progress() // the requests may have ended without one
		if len(lost) != 1 || lost[0] != 2 {
			err = errors.Join(err, fmt.Errorf("OnLost for %v, want [2]", lost))
		}
		if w.info.Rank == 0 {
			w.Recv(&late, 2, 5, make([]byte, 1))
			err = errors.Join(err, wire.Wait(w, nil, &late))
		}
		w.Cancel(&anyone)
		if _, _, e := anyone.Result(); !anyone.Done() || !errors.Is(e, wire.ErrCanceled) {
			err = errors.Join(err, fmt.Errorf("canceled receive from any process: %v", e))
		}
		w.info.Size = 2 // the survivors
		return errors.Join(err, meet(w))
	})
}

func TestProcessKilledAmidAMessageEndsIt(t *testing.T) {
	for _, size := range []int{40 << 10, 400 << 10, 64 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			ranks(t, 2, Config{}, []int{1}, func(w *Wire) error {
				rs := make([]wire.Request, min(64<<20/size*4, 400))
				buf := make([]byte, size)
				for i := range rs {
					if w.info.Rank == 0 {
						w.Recv(&rs[i], 1, 1, buf)
					}
				}
				if err := meet(w); err != nil {
					return err
				}
				if w.info.Rank == 1 {
					for i := range rs {
						w.Send(&rs[i], 0, 1, buf)
					}
					for !rs[len(rs)/4].Done() {
						w.Progress()
					}
					return killSelf()
				}
				_ = wire.Wait(w, nil, &rs[0]) // it may have arrived
				for i := range rs {
					if err := wire.Wait(w, nil, &rs[i]); err != nil && !isLost(err, 1, "") {
						return err
					}
				}
				var late wire.Request // UCX moves long messages together: all may have arrived
				w.Recv(&late, 1, 2, make([]byte, 1))
				return wantLost(w, 1, &late)
			})
		})
	}
}

func TestCloseWithAKilledPeerEnds(t *testing.T) {
	ranks(t, 2, Config{}, []int{1}, func(w *Wire) error {
		if err := meet(w); err != nil || w.info.Rank == 1 {
			return errors.Join(err, killSelf())
		}
		var out wire.Request
		w.Send(&out, 1, 1, make([]byte, 8<<20))
		w.Close()
		_, _, err := out.Result()
		if !out.Done() || !isLost(err, 1, "") && !errors.Is(err, wire.ErrClosed) {
			return fmt.Errorf("pending send: %v", err)
		}
		return nil
	})
}

// A wire closes without warnings of the library although messages have come that it never received.
func TestMessagesThatAreNotReceivedAreDropped(t *testing.T) {
	ranks(t, 2, Config{}, nil, func(w *Wire) error {
		var out [9]wire.Request
		if w.info.Rank == 1 {
			for i := range out {
				w.Send(&out[i], 0, 7, make([]byte, 1<<i))
			}
		}
		return meet(w)
	})
}

func TestMissingLibraryNamesItsPackage(t *testing.T) {
	_, err := load(dl.Search{Name: "ucx", Override: "/nowhere/libucp.so.0"})
	if errors.Is(err, dl.ErrUnsupported) {
		t.Skip(err)
	}
	if !errors.Is(err, dl.ErrNotFound) || !strings.HasPrefix(err.Error(), "ucx: no UCX: install package libucx0 ") {
		t.Errorf("got %v", err)
	}
}

func TestFindDescribesTheLibraryOfOpen(t *testing.T) {
	f := needUCX(t)
	w := open(t, 1, nil)[0]
	defer w.Close()
	if i := w.Info(); i.Library != f.String() || !strings.HasPrefix(f.String(), "UCX 1.") || i.Engine != "ucx" || i.Tags < 1<<15 {
		t.Errorf("info %+v, found %+v", i, f)
	}
}

func TestOpenReturnsErrors(t *testing.T) {
	needUCX(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		rank, size int
		store      Store
		cfg        Config
		want       string
	}{
		{2, 2, new(shelf), Config{}, "ucx: rank 2 of 2: want 0 <= rank < size"},
		{0, 1, new(shelf), Config{Interface: "lo", Transports: "nosuch"}, `no transport works with the interface "lo" and the transports "nosuch"`},
		{0, 1, new(shelf), Config{Interface: "nosuch0", Transports: "tcp"}, `the interface "nosuch0"`},
		{0, 2, new(shelf), Config{}, "ucx: wait for the address of rank 1: context canceled"},
		{1, 2, new(shelf), Config{}, "ucx: rank 1 waits for the addresses: context canceled"},
	} {
		if _, err := Open(ctx, c.rank, c.size, c.store, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("rank %d of %d, %+v: got %v, want %s", c.rank, c.size, c.cfg, err, c.want)
		}
	}
	w := &Wire{peers: make([]peer, 2)}
	for _, list := range []string{"", "\x01\x00\x00", "\x01\x00\x00\x00", "\x01\x00\x00\x00a\x01\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00x"} {
		if err := w.peers.setAddresses([]byte(list)); err == nil || !strings.Contains(err.Error(), "do the ranks agree on the size?") {
			t.Errorf("list %q: %v", list, err)
		}
	}
}
