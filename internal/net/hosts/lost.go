package hosts

import (
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// lost breaks all groups of a rank of the world that is gone. The ranks that found it themselves
// report it to all, once; the others do not repeat the report. It first applies the messages that
// have arrived, because a rank that leaves ends its connections too.
//
// Returns: whether it is news.
func (p *process) lost(rank int, how string, found bool) bool {
	p.settle()
	return p.bury(rank, how, found)
}

// bury is lost for a caller that has settled, or applies a message.
func (p *process) bury(rank int, how string, found bool) bool {
	p.mu.Lock()
	_, known := p.dead[rank]
	if known || p.left[rank] || rank == p.rank {
		p.mu.Unlock()
		return false
	}
	p.dead[rank] = how
	groups := make([]*Transport, 0, len(p.groups))
	for _, t := range p.groups {
		groups = append(groups, t)
	}
	locals := slices.Clone(p.locals)
	p.mu.Unlock()
	for _, l := range locals {
		l.lose(rank, how)
	}
	p.w.Lose(rank, how)
	if s := p.heaps.service.Load(); s != nil {
		s.Lost(rank, how)
	}
	for _, t := range groups {
		t.failFor(rank, how)
	}
	for r := range p.hosts {
		if found && r != p.rank {
			p.post(r, control{kind: controlDied, rank: rank, text: how})
		}
	}
	return true
}

// lostHost is lost for the other ranks on the host of rank, whose death no rank has found: then the
// whole host does not answer.
func (p *process) lostHost(rank int, how string) {
	for r, host := range p.hosts {
		if r != rank && host == p.hosts[rank] && host != p.hosts[p.rank] {
			p.lost(r, how, false)
		}
	}
}

// failFor breaks t if a rank of the world that is gone is one of its ranks and has not closed its
// end.
func (t *Transport) failFor(rank int, how string) {
	r := slices.Index(t.ranks, rank)
	if r < 0 || t.peers.closed(r) {
		return
	}
	e := &dist.RankError{Rank: r, How: how}
	if t.p.names != nil {
		e.Host = t.p.names[rank]
	}
	t.spans.last.Store(0) // its data may be missing
	t.fail(e)
}

// patience is the longest wait of stop. After the loss of a rank the job has failed, and its
// launcher waits.
func (p *process) patience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.dead) > 0 {
		return 300 * time.Millisecond
	}
	return 2 * time.Second
}
