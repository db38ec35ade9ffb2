package perf

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// outcome is one measurement of a case, of all ranks.
type outcome struct {
	times   times
	iters   int
	wrong   int64
	skipped string // reason why the engine cannot do it
}

// session is one rank's part in a measurement: the targets with their buffers, in the order of
// their turns.
type session struct {
	cfg     Config
	ex      *exchange
	clock   clock
	targets []Target
	rigs    []*rig // of the targets; nil for a missing one
}

// open makes the rigs of the targets, for sizes up to bytes. The caller closes the session, also
// after an error.
func (x *session) open(g *dist.Group, dev Device, bytes int64) error {
	x.clock = newClock()
	var first *memory
	for _, t := range x.targets {
		if t.Missing != "" {
			x.rigs = append(x.rigs, nil)
			continue
		}
		own := t.Group
		if own == nil {
			own = g
		}
		m, err := newMemory(own, dev, bytes, x.cfg.Private, first)
		if err != nil {
			return err
		}
		first = m
		r := newRig(x.cfg, own, m, x.clock)
		r.ex = x.ex
		x.rigs = append(x.rigs, r)
		if dev == nil {
			continue
		}
		if err := r.on(dev, x.ex); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	return nil
}

func (x *session) close() error {
	var errs []error
	for i := len(x.rigs) - 1; i >= 0; i-- {
		if x.rigs[i] != nil {
			errs = append(errs, x.rigs[i].close())
		}
	}
	return errors.Join(errs...)
}

// warmUp warms the ranks up, unless the configuration has numbers for it.
func (x *session) warmUp() error {
	r := x.rigs[0]
	if r == nil || r.dev != nil || x.cfg.Iters != 0 || x.cfg.Warmup != 0 {
		return nil
	}
	return r.warmUp()
}

// rows measures cases. It yields together the rows of cases that differ only in InPlace, ordered by
// target. Every case has its round before the next round begins, so that the rounds of a row are
// apart: a disturbance of the machine affects one of them. Each round begins with another target.
// Rows come in the last round.
func (x *session) rows(cases []Case) iter.Seq2[[]Row, error] {
	return func(yield func([]Row, error) bool) {
		groups := together(cases)
		outcomes := make([][][]outcome, len(groups)) // by group, then in the order of turns
		for i, g := range groups {
			outcomes[i] = make([][]outcome, len(x.targets)*len(g))
		}
		for round := range x.cfg.Rounds {
			for i, g := range groups {
				if err := x.turns(g, round, outcomes[i]); err != nil {
					yield(nil, err)
					return
				}
				if round == x.cfg.Rounds-1 && !yield(x.rowsOf(g, outcomes[i]), nil) {
					return
				}
			}
		}
	}
}

// together groups cases that differ only in InPlace.
func together(cases []Case) [][]Case {
	var groups [][]Case
	for len(cases) > 0 {
		n := 1
		for n < len(cases) && sameButPlace(cases[0], cases[n]) {
			n++
		}
		groups = append(groups, cases[:n])
		cases = cases[n:]
	}
	return groups
}

// sameButPlace reports whether a and b differ only in InPlace.
func sameButPlace(a, b Case) bool {
	a.InPlace = b.InPlace
	return a == b
}

// turns measures a group of cases once by each target, and appends the results to outcomes: by
// target, then by case.
func (x *session) turns(cases []Case, round int, outcomes [][]outcome) error {
	for turn := range x.targets {
		i := (round + turn) % len(x.targets)
		for k, c := range cases {
			at := i*len(cases) + k
			if round > 0 && outcomes[at][0].skipped != "" {
				continue
			}
			o, err := x.once(c, i, round == 0)
			if err != nil {
				return fmt.Errorf("bench: %s: %w", x.row(c, x.targets[i], nil).key(), err)
			}
			outcomes[at] = append(outcomes[at], o)
		}
	}
	return nil
}

// rowsOf returns the rows of a group of cases.
func (x *session) rowsOf(cases []Case, outcomes [][]outcome) []Row {
	var rows []Row
	for i, target := range x.targets {
		for k, c := range cases {
			rows = append(rows, x.row(c, target, outcomes[i*len(cases)+k]))
		}
	}
	return rows
}

// once measures c on all ranks, by target i. This rank's own wrong elements count even if the
// exchange of the numbers is wrong too.
func (x *session) once(c Case, i int, checked bool) (outcome, error) {
	r := x.rigs[i]
	if r == nil {
		return outcome{skipped: x.targets[i].Missing}, nil
	}
	own, wrong, err := r.measure(c, checked)
	if errors.Is(err, dist.ErrUnsupported) && x.targets[i].Engine != "" {
		return outcome{skipped: reason(err)}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	const numbers = 6
	all, err := x.ex.floats(own.mean, own.least, own.median, own.most, own.host, float64(wrong))
	if err != nil {
		return outcome{}, err
	}
	ranks := make([]times, r.g.Size())
	total := wrong
	for rank := range ranks {
		t := all[numbers*rank:]
		ranks[rank] = times{t[0], t[1], t[2], t[3], t[4]}
		if rank != r.g.Rank() {
			total += int64(t[5])
		}
	}
	t := c.Op.trait()
	switch {
	case t.oneSide && !t.rate:
		ranks = ranks[:1] // the others waited, or did the same
	case r.dev != nil && r.cfg.Style == BackToBack:
		return outcome{times: slowest(ranks), iters: own.iters, wrong: total}, nil
	}
	return outcome{times: combine(ranks), iters: own.iters, wrong: total}, nil
}

// reason returns the cause of an unsupported operation, without the operation, which the row has.
func reason(err error) string {
	var op *dist.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return err.Error()
}

// row returns the row of the outcomes of c.
func (x *session) row(c Case, target Target, outcomes []outcome) Row {
	row := newRow(c)
	row.Engine = target.Engine
	if len(outcomes) == 0 {
		return row
	}
	if row.Skipped = outcomes[0].skipped; row.Skipped != "" {
		return row
	}
	row.Iters = outcomes[len(outcomes)-1].iters * max(x.cfg.Graph, 1)
	n := float64(x.ex.g.Size())
	bus := 0.0
	if f := c.Op.trait().bus; f != nil {
		bus = f(n)
	}
	row.setTimes(overRounds(outcomes), bus)
	if c.Op.trait().rate && row.TimeUS > 0 {
		row.Rate = round(n / row.TimeUS)
	}
	if x.cfg.Checks > 0 {
		total := int64(0)
		for _, o := range outcomes {
			total += o.wrong
		}
		row.Wrong = &total
	}
	return row
}

// overRounds returns the times of all rounds: the means of means, the medians of medians, the
// extremes of extremes, and the least host time.
func overRounds(outcomes []outcome) times {
	all := times{least: math.Inf(1), host: math.Inf(1)}
	var medians []float64
	for _, o := range outcomes {
		all.mean += o.times.mean / float64(len(outcomes))
		all.least = min(all.least, o.times.least)
		all.most = max(all.most, o.times.most)
		all.host = min(all.host, o.times.host)
		medians = append(medians, o.times.median)
	}
	slices.Sort(medians)
	n := len(medians)
	all.median = (medians[(n-1)/2] + medians[n/2]) / 2
	return all
}
