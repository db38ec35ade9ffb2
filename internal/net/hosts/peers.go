package hosts

import (
	"errors"
	"sync"

	"github.com/symgrad/symgrad/dist"
)

// peers is the state of the other ranks, from the messages that they sent to this one.
type peers struct {
	mu     sync.Mutex
	by     []peer
	counts []counts
}

// peer is the last news of a rank.
type peer struct {
	gone  bool   // it has closed its end
	round uint64 // last exchange that it took part in, if gone
	sent  uint64 // messages that it sent to this rank before it left
	hint  *hint  // it waits for this rank
}

// hint says that a rank waits for a message.
type hint struct {
	recv bool   // for one of this rank; else for this rank to receive one
	done uint64 // messages that had passed that way before
}

// counts is the number of messages to and from a rank. Only the running operation changes it, with
// the lock held.
type counts struct{ sent, took uint64 }

func newPeers(n int) *peers { return &peers{by: make([]peer, n), counts: make([]counts, n)} }

// leave notes that rank has closed its end.
func (p *peers) leave(rank int, round, sent uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.by[rank].gone, p.by[rank].round, p.by[rank].sent = true, round, sent
}

// left reports whether rank has closed its end before a can hold.
//
// round is the number of the running exchange.
func (p *peers) left(rank int, a *awaited, round uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &p.by[rank]
	switch {
	case !b.gone:
		return false
	case a.moves != nil:
		return a.moves.sends(rank) || p.counts[rank].took >= b.sent
	}
	return b.round < round
}

// sentTo counts a message to rank and returns its number, from 1.
func (p *peers) sentTo(rank int) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[rank].sent++
	return p.counts[rank].sent
}

// tookFrom counts a message of rank.
func (p *peers) tookFrom(rank int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[rank].took++
}

// count returns the messages to and from rank.
func (p *peers) count(rank int) counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[rank]
}

// wait notes that rank waits for a message.
func (p *peers) wait(rank int, h hint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.by[rank].hint = &h
}

// stuck reports whether rank waits for a message that this rank does not send or receive before
// its present collective ends.
func (p *peers) stuck(rank int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.by[rank].hint
	if h == nil {
		return false
	}
	if h.recv {
		return p.counts[rank].sent <= h.done
	}
	return p.counts[rank].took < h.done
}

// leave tells the other ranks that this one closes its end, and first why the group is broken: the
// rank that found the reason may tell them later.
func (t *Transport) leave() {
	c, ok := reason(t.Broken())
	var dead *dist.RankError
	if errors.As(t.Broken(), &dead) && dead.Rank < len(t.ranks) {
		c, ok = control{kind: controlDied, rank: t.ranks[dead.Rank], text: dead.How}, true
	}
	if ok {
		t.p.spread(t, c)
	}
	for r := range t.ranks {
		if r != t.rank {
			t.p.post(t.ranks[r], control{
				group: t.id, kind: controlLeave, rank: t.rank, a: t.round, b: t.peers.count(r).sent,
			})
		}
	}
}

// news applies a message of another rank to the group.
func (t *Transport) news(c control) {
	switch c.kind {
	case controlAbort, controlMismatch, controlTimeout:
		t.spans.reach(c.a)
	}
	switch c.kind {
	case controlLeave:
		t.peers.leave(c.rank, c.a, c.b)
	case controlHint:
		t.peers.wait(c.rank, hint{recv: c.a == 1, done: c.b})
	case controlAbort:
		t.fail(&remoteError{dist.ErrAborted, c.text})
	case controlMismatch:
		t.fail(&remoteError{dist.ErrMismatch, c.text})
	case controlTimeout:
		t.fail(&remoteError{dist.ErrTimeout, c.text})
	case controlNote:
		t.notes.deliver(c.rank, c.text)
	}
}

// reason returns the message about a broken group. Dead ranks have messages of their own.
func reason(err error) (control, bool) {
	c := control{}
	switch {
	case err == nil:
		return c, false
	case errors.Is(err, dist.ErrMismatch):
		c.kind = controlMismatch
	case errors.Is(err, dist.ErrTimeout):
		c.kind = controlTimeout
	case errors.As(err, new(*dist.RankError)):
		return c, false
	default:
		c.kind = controlAbort
	}
	c.text = err.Error()
	return c, true
}

// remoteError is an error that another rank found.
type remoteError struct {
	of   error
	text string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.of }

// allClosed reports whether all ranks except own have closed their ends.
func (p *peers) allClosed(own int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.by {
		if r != own && !p.by[r].gone {
			return false
		}
	}
	return true
}

// closed reports whether rank has closed its end.
func (p *peers) closed(rank int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.by[rank].gone
}
