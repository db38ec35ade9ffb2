package hosts

import (
	"slices"
	"sync"

	"github.com/symgrad/symgrad/dist"
)

// local is a group whose ranks are all on one host. It is a group of the inner transport, which has
// the same ranks in the same order, and finds their deaths. The process adds two things. A rank
// that the wire finds gone breaks the group, and a barrier completes calls on heaps over hosts.
type local struct {
	dist.Transport // the inner group
	p              *process
	ranks          []int // number in the world of each rank
	world          bool  // it has all ranks of the job
}

// inlined is a local group whose transport runs operations on their callers.
type inlined struct {
	*local
	in dist.Inliner
}

// loser is a transport that can learn of a death from outside.
type loser interface{ Lose(rank int, how string) }

// newLocal returns the group over a part of the inner transport.
func (p *process) newLocal(near dist.Transport, world bool) subgroup {
	l := &local{Transport: near, p: p, world: world}
	var here []int // ranks of the world on this host
	for r, h := range p.hosts {
		if h == p.hosts[p.rank] {
			here = append(here, r)
		}
	}
	for _, r := range near.Info().Ranks {
		l.ranks = append(l.ranks, here[r])
	}
	if in, ok := near.(dist.Inliner); ok {
		return &inlined{l, in}
	}
	return l
}

// enlist implements subgroup.
func (l *local) enlist() {
	l.p.mu.Lock()
	l.p.locals = append(l.p.locals, l)
	dead := make(map[int]string, len(l.p.dead))
	for rank, how := range l.p.dead {
		dead[rank] = how
	}
	l.p.mu.Unlock()
	for rank, how := range dead {
		l.lose(rank, how)
	}
}

// discard implements subgroup.
func (l *local) discard() error { return l.Transport.Close() }

// lose breaks the group of a rank of the world that is gone.
func (l *local) lose(rank int, how string) {
	r := slices.Index(l.ranks, rank)
	if r < 0 {
		return
	}
	if inner, ok := l.Transport.(loser); ok {
		inner.Lose(r, how)
		return
	}
	_ = l.Abort(&dist.RankError{Rank: r, How: how}) // it may be closed
}

// Info implements dist.Transport.
func (l *local) Info() dist.Info {
	info := l.Transport.Info()
	info.Backend, info.Ranks = l.p.w.Info().Engine, slices.Clone(l.ranks)
	info.Timing = info.Timing || l.p.cfg.Timing
	return info
}

// Broken returns why the group is broken; nil while it is whole.
func (l *local) Broken() error {
	if b, ok := l.Transport.(interface{ Broken() error }); ok {
		return b.Broken()
	}
	return nil
}

// Start implements dist.Transport. A barrier waits for the answers to one-sided calls.
func (l *local) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	l.flush(&op)
	return l.Transport.Start(op, s)
}

// flush completes the calls of this process on heaps over hosts before a barrier. Their errors are
// those of other groups.
func (l *local) flush(op *dist.Op) {
	isBarrier := func(op dist.Op) bool { return op.Kind == dist.KindBarrier }
	if l.p.heaps.service.Load() != nil && (isBarrier(*op) || slices.ContainsFunc(op.Ops, isBarrier)) {
		_ = l.p.flush(nil)
	}
}

// Split implements dist.Transport.
func (l *local) Split(color, key int) (dist.Transport, error) {
	near, err := l.Transport.Split(color, key)
	if err != nil || near == nil {
		return nil, err
	}
	sub := l.p.newLocal(near, false)
	sub.enlist()
	return sub, nil
}

// Close implements dist.Transport. That of a world ends the process's part too.
func (l *local) Close() error {
	err := l.Transport.Close()
	l.p.mu.Lock()
	open := slices.Contains(l.p.locals, l)
	l.p.locals = slices.DeleteFunc(l.p.locals, func(o *local) bool { return o == l })
	l.p.mu.Unlock()
	if !l.world || !open {
		return err
	}
	for r := range l.p.hosts { // a wire may close only with those of all
		if r != l.p.rank {
			l.p.post(r, control{group: firstGroup, kind: controlLeave, rank: l.p.rank})
		}
	}
	l.p.stop()
	return err
}

var _ dist.Inliner = (*inlined)(nil)

// Guard implements dist.Inliner.
func (l *inlined) Guard(mu sync.Locker) { l.in.Guard(mu) }

// Inline implements dist.Inliner.
func (l *inlined) Inline(op *dist.Op) error {
	l.flush(op)
	return l.in.Inline(op)
}
