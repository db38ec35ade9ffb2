package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
	"golang.org/x/sys/unix"
)

// link connects a rank to the other ranks of its world. It carries segments and reports deaths.
type link interface {
	// offer sends o to peer without waiting for it. If peer has gone, its groups are broken before
	// offer returns.
	offer(peer int, o offer) error
	// take returns the offer of peer with the given id. While it waits it calls alive, and returns
	// alive's error, or ErrClosed of dist if peer left without the offer.
	take(peer int, id uint64, alive func() error) (offer, error)
	// pid returns the process id of peer as this process sees it; 0 if unknown.
	pid(peer int) int
	// close ends the connections and waits for the link's goroutines. Idempotent.
	close() error
}

// offer is a segment to share, or the error why there is none.
type offer struct {
	id   uint64
	size int64
	seg  segment
	err  string
}

// connectionClosed is the cause of a rank's death that its peers can observe.
const connectionClosed = "its connection closed"

// pollInterval is the interval at which a waiter checks for an abort, and the longest delay to
// notice a death.
const pollInterval = 10 * time.Millisecond

// inbox holds the offers of all peers that have not been taken.
type inbox struct {
	mu      sync.Mutex
	offers  map[inboxKey]offer
	ended   map[int]bool  // peers that send no more; their groups have been notified
	changed chan struct{} // closed and replaced when an offer arrives, or a peer ends
}

type inboxKey struct {
	peer int
	id   uint64
}

func newInbox() *inbox {
	return &inbox{offers: map[inboxKey]offer{}, ended: map[int]bool{}, changed: make(chan struct{})}
}

func (b *inbox) put(peer int, o offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offers[inboxKey{peer, o.id}] = o
	b.stir()
}

// end records that peer sends no more.
func (b *inbox) end(peer int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[peer] = true
	b.stir()
}

// stir makes waiters check again. b.mu is held.
func (b *inbox) stir() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *inbox) take(peer int, id uint64, alive func() error) (offer, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		dead := alive() // called first: offers that a peer sent before it left are here by then
		b.mu.Lock()
		o, ok := b.offers[inboxKey{peer, id}]
		delete(b.offers, inboxKey{peer, id})
		changed, ended := b.changed, b.ended[peer]
		b.mu.Unlock()
		if ok {
			if o.err != "" {
				return offer{}, errors.New(o.err)
			}
			return o, nil
		}
		if dead != nil {
			return offer{}, dead
		}
		if ended {
			return offer{}, fmt.Errorf("%w: rank %d left before it shared its segment", dist.ErrClosed, peer)
		}
		select {
		case <-changed:
		case <-tick.C:
		}
	}
}

// drain closes the segments that were not taken.
func (b *inbox) drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, o := range b.offers {
		if o.seg != nil {
			_ = o.seg.close()
		}
		delete(b.offers, k)
	}
}

// socketLink is a full mesh of unix packet sockets between processes.
type socketLink struct {
	in      *inbox
	conns   []*net.UnixConn // by world rank; nil for the own one
	gone    func(peer int, how string)
	readers sync.WaitGroup
	once    sync.Once
}

// newSocketLink reads from conns until they end. It calls gone when the connection of a peer ends,
// from a goroutine of the link or from an offer to that peer.
func newSocketLink(conns []*net.UnixConn, gone func(peer int, how string)) *socketLink {
	l := &socketLink{in: newInbox(), conns: conns, gone: gone}
	for peer, c := range conns {
		if c != nil {
			l.readers.Go(func() {
				l.receive(peer, c)
				gone(peer, connectionClosed)
				l.in.end(peer)
			})
		}
	}
	return l
}

const maxOfferText = 1024

func (l *socketLink) offer(peer int, o offer) error {
	msg := binary.LittleEndian.AppendUint64(nil, o.id)
	msg = binary.LittleEndian.AppendUint64(msg, uint64(o.size))
	msg = append(msg, o.err[:min(len(o.err), maxOfferText)]...)
	var rights []byte
	if o.seg != nil {
		rights = unix.UnixRights(o.seg.fd())
	}
	_, _, err := l.conns[peer].WriteMsgUnix(msg, rights, nil)
	switch {
	case err == nil:
		return nil
	case otherEndGone(err):
		l.gone(peer, connectionClosed) // the reader may notice it only later
		return fmt.Errorf("share a segment with rank %d: %w: %w", peer, dist.ErrClosed, err)
	}
	return fmt.Errorf("share a segment with rank %d: %w", peer, err)
}

// otherEndGone reports whether err, of a unix socket, says that the peer has gone.
func otherEndGone(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ENOTCONN) ||
		errors.Is(err, unix.ECONNREFUSED)
}

func (l *socketLink) take(peer int, id uint64, alive func() error) (offer, error) {
	return l.in.take(peer, id, alive)
}

// pid asks the kernel for the peer's process id in this process's namespace.
func (l *socketLink) pid(peer int) int {
	if l.conns[peer] == nil {
		return os.Getpid()
	}
	cred, err := credentials(l.conns[peer])
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// receive puts the offers of a peer into the inbox until the connection ends.
func (l *socketLink) receive(peer int, c *net.UnixConn) {
	msg, oob := make([]byte, 16+maxOfferText), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := c.ReadMsgUnix(msg, oob)
		if err != nil || n < 16 {
			return
		}
		o := offer{
			id:   binary.LittleEndian.Uint64(msg),
			size: int64(binary.LittleEndian.Uint64(msg[8:])),
			err:  string(msg[16:n]),
		}
		if o.err == "" {
			if o.seg, err = receivedSegment(oob[:oobn], o.size); err != nil {
				o.err = err.Error()
			}
		}
		l.in.put(peer, o)
	}
}

func receivedSegment(oob []byte, size int64) (segment, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return nil, errors.New("a segment arrived without its descriptor")
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("a segment arrived without its descriptor")
	}
	unix.CloseOnExec(fds[0])
	return mapReceived(fds[0], size)
}

func (l *socketLink) close() error {
	l.once.Do(func() {
		for _, c := range l.conns {
			if c != nil {
				_ = c.Close()
			}
		}
		l.readers.Wait()
		l.in.drain()
	})
	return nil
}

// hub connects goroutine ranks of one process.
type hub struct {
	mu    sync.Mutex
	ranks []*hubLink
}

// hubLink is one rank's end of a hub.
type hubLink struct {
	hub  *hub
	rank int
	in   *inbox
	gone func(peer int, how string)
	once sync.Once
}

func newHub(n int) *hub {
	h := &hub{ranks: make([]*hubLink, n)}
	for r := range h.ranks {
		h.ranks[r] = &hubLink{hub: h, rank: r, in: newInbox(), gone: func(int, string) {}}
	}
	return h
}

func (l *hubLink) offer(peer int, o offer) error {
	if o.seg != nil && o.seg.fd() >= 0 { // the peer maps it at another address, as another process would
		fd, err := unix.FcntlInt(uintptr(o.seg.fd()), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			o.seg, err = mapReceived(fd, o.size)
		}
		if err != nil {
			return fmt.Errorf("share a segment with rank %d: %w", peer, err)
		}
	}
	l.hub.ranks[peer].in.put(l.rank, o)
	return nil
}

func (l *hubLink) take(peer int, id uint64, alive func() error) (offer, error) {
	return l.in.take(peer, id, alive)
}

func (l *hubLink) pid(int) int { return os.Getpid() }

func (l *hubLink) close() error {
	l.once.Do(func() {
		l.hub.notify(l.rank)
		l.in.drain()
	})
	return nil
}

// notify informs every other rank that rank has gone.
func (h *hub) notify(rank int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.ranks {
		if l.rank != rank {
			l.gone(rank, connectionClosed)
			l.in.end(rank)
		}
	}
}
