// Package fake is a wire in one process, for tests: messages can be delayed, links cut and
// processes killed.
package fake

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// Network connects the ends that New returns.
type Network struct {
	mu    sync.Mutex
	ends  []*End
	delay func(from, to, bytes int) time.Duration
	cut   map[[2]int]bool
	now   func() time.Time
}

// Config has the settings of a Network. The zero value is usable.
type Config struct {
	// Delay returns the time that a message takes; nil means none.
	Delay func(from, to, bytes int) time.Duration
	// Limit is the most bytes that a Send copies; longer messages wait for their receive, as those
	// of libraries do. 0 means 8 KiB.
	Limit int
	// OnLost returns the OnLost of process rank; nil means none.
	OnLost func(rank int) func(peer int, how string)
	// Goodbye means that a Close ends the receives of the others from the process that closes, as
	// those of UCX. Otherwise they stay pending.
	Goodbye bool
}

// End is one process's end. It implements wire.Wire.
type End struct {
	net   *Network
	rank  int
	limit int
	bye   bool
	now   time.Time // of the running Progress
	lost  map[int]string
	news  []wire.PeerError // for onLost

	dead   bool
	closed bool

	arrived []*message // sent to this end, in order
	posted  []*receive // in order

	onLost func(peer int, how string)
}

// message is a message between Send and Recv.
type message struct {
	from, tag int
	due       time.Time
	data      []byte
	send      *wire.Request // pending until received; nil if data is a copy
}

// receive is a pending receive.
type receive struct {
	r    *wire.Request
	peer int
	tag  int
}

// New returns the ends of a network of n processes; the index is the rank.
func New(n int, cfg Config) (*Network, []*End) {
	if cfg.Limit == 0 {
		cfg.Limit = 8 << 10
	}
	net := &Network{delay: cfg.Delay, cut: map[[2]int]bool{}, now: time.Now}
	for rank := range n {
		e := &End{net: net, rank: rank, limit: cfg.Limit, bye: cfg.Goodbye, lost: map[int]string{}}
		if cfg.OnLost != nil {
			e.onLost = cfg.OnLost(rank)
		}
		net.ends = append(net.ends, e)
	}
	return net, net.ends
}

// Kill ends a process as a signal does: its pending requests stay pending, and the others find it
// gone.
func (n *Network) Kill(rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[rank].dead = true
	for _, e := range n.ends {
		if e.rank != rank && !e.dead {
			e.lose(rank, "connection closed")
		}
	}
}

// Cut drops all messages between two processes from now on, without any news of it.
func (n *Network) Cut(a, b int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]int{a, b}], n.cut[[2]int{b, a}] = true, true
}

// Heal ends Cut. Dropped messages stay lost, as those of a connection that was reset.
func (n *Network) Heal(a, b int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, [2]int{a, b})
	delete(n.cut, [2]int{b, a})
}

// Info implements wire.Wire.
func (e *End) Info() wire.Info {
	return wire.Info{Rank: e.rank, Size: len(e.net.ends), Engine: "fake", Tags: 1 << 30, OnLost: e.onLost}
}

// Send implements wire.Wire.
func (e *End) Send(r *wire.Request, peer int, tag uint32, data []byte) {
	n := e.net
	n.mu.Lock()
	defer n.mu.Unlock()
	r.Begin(data)
	switch how, gone := e.lost[peer]; {
	case e.dead:
		return
	case e.closed:
		r.Finish(0, 0, wire.ErrClosed)
		return
	case peer < 0 || peer >= len(n.ends):
		r.Finish(0, 0, fmt.Errorf("fake: no process %d", peer))
		return
	case gone:
		r.Finish(peer, 0, &wire.PeerError{Peer: peer, How: how})
		return
	case n.cut[[2]int{e.rank, peer}]:
		if len(data) <= e.limit { // it is on its way, as far as the sender knows
			r.Finish(peer, len(data), nil)
		}
		return
	}
	m := &message{from: e.rank, tag: int(tag), due: n.now()}
	if n.delay != nil {
		m.due = m.due.Add(n.delay(e.rank, peer, len(data)))
	}
	if len(data) <= e.limit {
		m.data = append([]byte(nil), data...)
		r.Finish(peer, len(data), nil)
	} else {
		m.data, m.send = data, r
	}
	n.ends[peer].arrived = append(n.ends[peer].arrived, m)
}

// Recv implements wire.Wire.
func (e *End) Recv(r *wire.Request, peer int, tag uint32, buf []byte) {
	n := e.net
	n.mu.Lock()
	defer n.mu.Unlock()
	r.Begin(buf)
	if e.closed {
		r.Finish(0, 0, wire.ErrClosed)
		return
	}
	e.posted = append(e.posted, &receive{r, peer, int(tag)})
}

// Progress implements wire.Wire.
func (e *End) Progress() bool {
	n := e.net
	n.mu.Lock()
	if e.dead {
		n.mu.Unlock()
		return false
	}
	moved := false
	if len(e.arrived) > 0 {
		e.now = n.now()
		moved = e.end(e.match)
		e.hearGoodbyes()
	}
	if len(e.lost) > 0 { // after all messages that have arrived
		moved = e.end(e.fail) || moved
	}
	news := e.news
	e.news = nil
	n.mu.Unlock()
	for _, p := range news {
		if e.onLost != nil {
			e.onLost(p.Peer, p.How)
		}
	}
	return moved || len(news) > 0
}

// end removes the receives that f ends, and reports whether there were any. The lock is held.
func (e *End) end(f func(p *receive) bool) bool {
	n := len(e.posted)
	e.posted = slices.DeleteFunc(e.posted, f)
	return len(e.posted) < n
}

// fail ends p if its peer is gone.
func (e *End) fail(p *receive) bool {
	how, gone := e.lost[p.peer]
	if gone {
		p.r.Finish(p.peer, 0, &wire.PeerError{Peer: p.peer, How: how})
	}
	return gone
}

// match ends p if its message has arrived. The lock is held.
func (e *End) match(p *receive) bool {
	var skip map[int]bool // senders whose earlier message with this tag is still on its way
	for i, m := range e.arrived {
		if m.tag != p.tag || p.peer != wire.AnyPeer && m.from != p.peer || skip[m.from] {
			continue
		}
		if m.due.After(e.now) {
			if skip == nil { // most polls find no message, and make no map
				skip = map[int]bool{}
			}
			skip[m.from] = true
			continue
		}
		e.arrived = append(e.arrived[:i], e.arrived[i+1:]...)
		var err error
		if len(m.data) > len(p.r.Data) {
			err = fmt.Errorf("%w: %d bytes, and the message of process %d has %d", wire.ErrTruncated, len(p.r.Data), m.from, len(m.data))
		}
		count := copy(p.r.Data, m.data)
		p.r.Finish(m.from, count, err)
		if m.send != nil && m.send.Pending() {
			m.send.Finish(e.rank, len(m.data), nil)
		}
		return true
	}
	return false
}

// Cancel implements wire.Wire.
func (e *End) Cancel(r *wire.Request) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	for i, p := range e.posted {
		if p.r == r {
			e.posted = append(e.posted[:i], e.posted[i+1:]...)
			r.Finish(0, 0, wire.ErrCanceled)
			return
		}
	}
}

// Lose implements wire.Wire.
func (e *End) Lose(peer int, how string) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.lose(peer, how)
	e.news = slices.DeleteFunc(e.news, func(p wire.PeerError) bool { return p.Peer == peer }) // the caller knows
}

// lose notes that peer is gone, and ends the sends to it. Receives end in Progress, after the
// messages that have arrived. The lock is held.
func (e *End) lose(peer int, how string) {
	if _, known := e.lost[peer]; known {
		return
	}
	e.lost[peer] = how
	e.news = append(e.news, wire.PeerError{Peer: peer, How: how})
	to := e.net.ends[peer]
	kept := to.arrived[:0]
	for _, m := range to.arrived {
		if m.from == e.rank && m.send != nil {
			m.send.Finish(peer, 0, &wire.PeerError{Peer: peer, How: how})
			continue
		}
		kept = append(kept, m)
	}
	to.arrived = kept
}

// goodbye is the tag of the last message of an end. It arrives after all others.
const goodbye = -1

// sayGoodbye sends a goodbye to all others. The lock is held.
func (e *End) sayGoodbye() {
	for _, to := range e.net.ends {
		last := &message{from: e.rank, tag: goodbye, due: e.net.now()}
		for _, m := range to.arrived {
			if m.from == e.rank && m.due.After(last.due) {
				last.due = m.due
			}
		}
		if to != e && !e.net.cut[[2]int{e.rank, to.rank}] {
			to.arrived = append(to.arrived, last)
		}
	}
}

// hearGoodbyes ends the connections to ends that have closed, without news. The lock is held.
func (e *End) hearGoodbyes() {
	for i := 0; i < len(e.arrived); {
		m := e.arrived[i]
		if m.tag != goodbye || m.due.After(e.now) {
			i++
			continue
		}
		e.arrived = append(e.arrived[:i], e.arrived[i+1:]...)
		news := len(e.news)
		e.lose(m.from, "closed its wire")
		e.news = e.news[:news]
	}
}

// Close implements wire.Wire.
func (e *End) Close() error {
	n := e.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.closed || e.dead {
		return nil
	}
	e.closed = true
	for _, p := range e.posted {
		p.r.Finish(0, 0, wire.ErrClosed)
	}
	e.posted = nil
	if e.bye {
		e.sayGoodbye()
	}
	for _, to := range n.ends { // the memory of pending messages goes back to its owner
		for _, m := range to.arrived {
			if m.from == e.rank && m.send != nil {
				m.data = append([]byte(nil), m.data...)
				m.send.Finish(to.rank, len(m.data), nil)
				m.send = nil
			}
		}
	}
	return nil
}
