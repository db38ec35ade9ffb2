package shm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"golang.org/x/sys/unix"
)

// handOver shares a segment of rank 0 among ranks, while one of them dies.
type handOver struct {
	victim int
	call   func(w *dist.World) error
}

// handOvers are roles, as those in roles, but of ranks that end by themselves.
var handOvers = map[string]handOver{
	"heap, its maker dies":            {0, newHeapOf},
	"heap, the first receiver dies":   {1, newHeapOf},
	"heap, the second receiver dies":  {2, newHeapOf},
	"split, its maker dies":           {0, splitAll},
	"split, the first receiver dies":  {1, splitAll},
	"split, the second receiver dies": {2, splitAll},
}

func newHeapOf(w *dist.World) error {
	_, err := w.Heap(1 << 16)
	return err
}

func splitAll(w *dist.World) error {
	g, err := w.Split(0, 0)
	if err != nil {
		return err
	}
	return errors.Join(done(g.Barrier()), g.Close())
}

// stage lets rank 0 kill the victim when all have agreed to the call and none has the segment yet.
// Should that not be rank 0 itself, then its reader of the victim's connection is kept from seeing
// the end before the segment is offered.
func (h handOver) stage(nd *node) func(w *dist.World) error {
	if nd.rank == 0 {
		l := nd.link.(*socketLink)
		if h.victim != 0 {
			l.in.mu.Lock()
			nd.link = heldLink{l, h.victim}
		}
		nd.maker = killer{nd.maker, func() error { return l.kill(h.victim) }}
	}
	return func(w *dist.World) error {
		if err := done(w.Barrier()); err != nil {
			return err
		}
		if nd.rank == h.victim && nd.rank != 0 {
			// The reader of rank 0 stays with this message, which it cannot put into the locked
			// inbox.
			if err := nd.link.offer(0, offer{id: 1 << 62, err: "nobody takes this"}); err != nil {
				return err
			}
		}
		return h.call(w)
	}
}

// heldLink is a link whose inbox is locked until a segment has been offered to peer.
type heldLink struct {
	*socketLink
	peer int
}

func (l heldLink) offer(peer int, o offer) error {
	err := l.socketLink.offer(peer, o)
	if peer == l.peer {
		l.in.mu.Unlock()
	}
	return err
}

// killer is a maker that kills a rank first.
type killer struct {
	maker
	kill func() error
}

func (k killer) make(purpose string, size int64) (segment, error) {
	if err := k.kill(); err != nil {
		return nil, err
	}
	return k.maker.make(purpose, size)
}

// kill ends the process of a rank and returns when its end of the connection is closed.
func (l *socketLink) kill(rank int) error {
	if l.conns[rank] == nil {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	raw, err := l.conns[rank].SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var peer *unix.Ucred
		if peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed != nil {
			return
		}
		if failed = syscall.Kill(int(peer.Pid), syscall.SIGKILL); failed != nil {
			return
		}
		for fds := []unix.PollFd{{Fd: int32(fd)}}; fds[0].Revents&unix.POLLHUP == 0; {
			if _, failed = unix.Poll(fds, -1); failed != nil && !errors.Is(failed, unix.EINTR) {
				return
			}
		}
		failed = nil
	})
	return errors.Join(err, failed)
}

// TestRankKilledAtAHandOver: who makes the segment, and who waits for it, name the rank that died.
func TestRankKilledAtAHandOver(t *testing.T) {
	for role, h := range handOvers {
		t.Run(role, func(t *testing.T) {
			for r, p := range startRanks(t, 3, role) {
				code := p.code()
				if r == h.victim {
					continue
				}
				if code != exitAborted || !strings.Contains(p.text, fmt.Sprintf("rank %d died: %s", h.victim, connectionClosed)) {
					t.Errorf("rank %d ended with code %d and %q, want code %d and the death of rank %d", r, code, p.text, exitAborted, h.victim)
				}
			}
		})
	}
}

// socketPair is two connected ends, closed when the test ends.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

// An offer to a rank that has gone says so to its groups before it returns, also when there is
// unread data.
func TestOfferToARankThatHasGone(t *testing.T) {
	for _, unread := range []bool{false, true} {
		here, there := socketPair(t)
		var told []int
		l := &socketLink{ // without readers
			in: newInbox(), conns: []*net.UnixConn{nil, here},
			gone: func(peer int, how string) {
				if told = append(told, peer); how != connectionClosed {
					t.Errorf("rank %d is gone because %q", peer, how)
				}
			},
		}
		if err := l.offer(1, offer{id: 7}); err != nil || len(told) != 0 {
			t.Fatalf("while the rank is there: %v, told of %v", err, told)
		}
		if !unread {
			if _, err := there.Read(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
		}
		if err := there.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.offer(1, offer{id: 8}); !errors.Is(err, dist.ErrClosed) || len(told) != 1 || told[0] != 1 {
			t.Errorf("unread data %v: error %v, told of %v; want ErrClosed and rank 1", unread, err, told)
		}
	}
}

// A rank that leaves in good order without an offer blocks no peer; an offer that it made remains.
func TestTakeFromARankThatHasLeft(t *testing.T) {
	here, there := socketPair(t)
	l := newSocketLink([]*net.UnixConn{nil, here}, func(int, string) {})
	other := &socketLink{conns: []*net.UnixConn{there}}
	if err := errors.Join(other.offer(0, offer{id: 7, err: "no memory"}), there.Close()); err != nil {
		t.Fatal(err)
	}
	whole := func() error { return nil }
	if _, err := l.take(1, 8, whole); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("an offer that was not made: %v, want ErrClosed", err)
	}
	if _, err := l.take(1, 7, whole); err == nil || err.Error() != "no memory" {
		t.Errorf("an offer that was made: %v", err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

// An offer that arrives together with the end of its rank is taken.
func TestTakeFromARankThatLeavesMeanwhile(t *testing.T) {
	in := newInbox()
	alive := func() error { // as the reader of the connection does, right after the look at the inbox
		in.put(1, offer{id: 7, size: 4096})
		return &dist.RankError{Rank: 1, How: connectionClosed}
	}
	if o, err := in.take(1, 7, alive); err != nil || o.size != 4096 {
		t.Errorf("an offer that was made: %+v, %v", o, err)
	}
	gone := func() error { return &dist.RankError{Rank: 1, How: connectionClosed} }
	if _, err := in.take(1, 8, gone); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("an offer that was not made: %v, want the death of rank 1", err)
	}
}

// A rank that has published its contact but does not listen has died.
func TestOpenNamesARankThatDiedBefore(t *testing.T) {
	c, err := newContact(Config{}.withDefaults().ChunkBytes)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	store := newMemStore()
	if err := store.Set(t.Context(), "shm/1/card/0", raw); err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), 1, 2, store, Config{InitTimeout: time.Minute})
	var dead *dist.RankError
	if !errors.As(err, &dead) || dead.Rank != 0 || !errors.Is(err, dist.ErrAborted) {
		t.Errorf("error %v, want the death of rank 0", err)
	}
}
