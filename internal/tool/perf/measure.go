package perf

import (
	"errors"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// times has the times of one operation on one rank, or on all, in nanoseconds.
type times struct{ mean, least, median, most, host float64 }

// timing has the times of one measurement on this rank, and the number of iterations.
type timing struct {
	times
	iters int
}

// rig is one rank's end of a measurement.
type rig struct {
	cfg     Config // with its defaults
	g       *dist.Group
	m       *memory
	ex      *exchange // of the ranks of g
	clock   clock
	barrier verb
	samples []int64 // ticks of each iteration
	whole   times   // of the last back-to-back iterations
	budget  time.Duration

	dev   Device // nil on the host
	timer Timer  // of a device
}

// newRig returns a rig for cases on buffers of m.
func newRig(cfg Config, g *dist.Group, m *memory, ck clock) *rig {
	if !cfg.Queued {
		g = g.Blocking()
	}
	return &rig{cfg: cfg, g: g, m: m, clock: ck, budget: RowBudget, barrier: newVerb(Case{Op: Barrier}, g, &layout{})}
}

// on makes r a rig for a device. Its ranks meet in the group of ex, because not every engine has a
// barrier.
func (r *rig) on(dev Device, ex *exchange) (err error) {
	r.dev = dev
	r.barrier = newVerb(Case{Op: Barrier}, ex.g, &layout{})
	r.timer, err = dev.NewTimer(r.g.Stream())
	return err
}

// close frees the rig and its memory.
func (r *rig) close() error {
	err := r.m.Close()
	if r.timer != nil {
		err = errors.Join(r.timer.Close(), err)
	}
	return err
}

// view returns the group for case c. Unless buffers are private it has the promise of equal
// offsets, which then holds.
func (r *rig) view(c Case) *dist.Group {
	if r.cfg.Symmetric && !r.cfg.Private && !c.Op.trait().oneSide {
		return r.g.With(dist.Hints{Symmetric: true})
	}
	return r.g
}

// measure returns the times of case c on this rank, and the number of wrong elements. With checked
// unset it runs no checked iterations.
//
// Collective.
func (r *rig) measure(c Case, checked bool) (t timing, wrong int64, err error) {
	l, err := newLayout(c, r.m, r.g.Rank(), r.g.Size())
	if err != nil {
		return timing{}, 0, err
	}
	do := newVerb(c, r.view(c), l)
	settle := func() error { return nil }
	if c.Op.trait().oneSide { // the other side does not know by itself when it may read
		settle = newVerb(Case{Op: Barrier}, r.g, l)
	}
	checks := 0
	if checked {
		checks = r.cfg.Checks
	}
	if wrong, err = r.check(l, do, settle, checks); err != nil {
		return timing{}, 0, err
	}
	l.prepare(0)
	if err := settle(); err != nil {
		return timing{}, 0, err
	}
	var late int64
	if r.dev != nil && r.cfg.Style == BackToBack && !c.Op.trait().oneSide {
		t.iters = r.cfg.iters(c)
		t.times, err = r.back(c, l)
	} else {
		t, late, err = r.byClock(c, l, do, settle)
	}
	if err == nil {
		err = settle()
	}
	if err == nil && !r.cfg.Fresh && !l.inPlace() { // in place the result is the input of the next
		late = l.read(0)
	}
	if r.cfg.Checks > 0 {
		wrong += late
	}
	if err == nil && r.dev != nil { // many operations, or a graph, may have left a bad state
		var after int64
		after, err = r.check(l, do, settle, min(checks, 1))
		wrong += after
	}
	t.times = t.of(c.Op.trait().window)
	return t, wrong, errors.Join(err, r.m.fail)
}

// byClock returns the times of the iterations by the clock of the host, with a wait for each.
func (r *rig) byClock(c Case, l *layout, do, settle verb) (t timing, wrong int64, err error) {
	n, early, err := r.pace(c, l, do, settle)
	if err != nil {
		return timing{}, 0, err
	}
	if wrong, err = r.iterate(n, l, do, settle); err != nil {
		return timing{}, 0, err
	}
	if r.cfg.Style != BackToBack {
		r.whole = r.summary()
	}
	return timing{r.whole, n}, early + wrong, nil
}

// of returns the times of one of many operations in an iteration.
func (t times) of(many int) times {
	n := float64(max(many, 1))
	return times{t.mean / n, t.least / n, t.median / n, t.most / n, t.host / n}
}

// check runs the checked iterations. It puts no barrier around two-sided operations, so it detects
// early and late writes. One-sided operations settle by barriers. A barrier precedes the check of
// the source, which a peer may still read.
func (r *rig) check(l *layout, do, settle verb, checks int) (wrong int64, err error) {
	for i := range max(checks, 0) {
		l.prepare(i)
		for _, step := range []verb{settle, do, settle} {
			if err := step(); err != nil {
				return 0, err
			}
		}
		wrong += l.read(i)
		if err := r.barrier(); err != nil {
			return 0, err
		}
		wrong += l.disturbed(i)
	}
	return wrong, nil
}

// apart times each of n iterations by itself, with a barrier before it, into r.samples. With Fresh
// it also checks every iteration.
//
// Returns: the wrong elements of those.
func (r *rig) apart(n int, l *layout, do, settle verb) (wrong int64, err error) {
	r.samples = slices.Grow(r.samples[:0], n)[:n]
	for i := range r.samples {
		if r.cfg.Fresh {
			if err := settle(); err != nil {
				return 0, err
			}
			if i > 0 {
				wrong += l.read(i - 1)
			}
			l.write(i)
		}
		if err := r.barrier(); err != nil {
			return 0, err
		}
		begin := r.clock.read()
		if err := do(); err != nil {
			return 0, err
		}
		r.samples[i] = r.clock.read() - begin
	}
	if r.cfg.Fresh {
		if err := settle(); err != nil {
			return 0, err
		}
		wrong += l.read(n - 1)
	}
	return wrong, nil
}

// backToBack times n iterations at once.
func (r *rig) backToBack(n int, do verb) (times, error) {
	if err := r.barrier(); err != nil {
		return times{}, err
	}
	begin := r.clock.read()
	for range n {
		if err := do(); err != nil {
			return times{}, err
		}
	}
	mean := r.clock.ns(r.clock.read()-begin) / float64(n)
	return times{mean, mean, mean, mean, 0}, nil
}

// summary returns the times of the samples.
func (r *rig) summary() times {
	var sum int64
	for _, s := range r.samples {
		sum += s
	}
	slices.Sort(r.samples)
	n := len(r.samples)
	return times{
		mean:   r.clock.ns(sum) / float64(n),
		least:  r.clock.ns(r.samples[0]),
		median: (r.clock.ns(r.samples[(n-1)/2]) + r.clock.ns(r.samples[n/2])) / 2,
		most:   r.clock.ns(r.samples[n-1]),
	}
}

// combine returns the times of all ranks: the means of means and medians, the extremes of extremes.
func combine(ranks []times) times {
	all := times{least: ranks[0].least}
	for _, t := range ranks {
		all.mean += t.mean / float64(len(ranks))
		all.median += t.median / float64(len(ranks))
		all.least = min(all.least, t.least)
		all.most = max(all.most, t.most)
	}
	return all
}
