package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/tensor"
)

// ahead is the maximum number of iterations that are queued before the host waits for them.
const ahead = 64

// solver runs the iteration on two streams, or on one with --no-overlap.
type solver struct {
	settings
	*strip
	ctx           context.Context // ends after an error, so that no queued part waits longer
	stop          context.CancelCauseFunc
	push, compute *dist.HostStream
	m             *meter
	queued        [ahead]iteration // by number modulo ahead
}

// iteration is a queued iteration with its results.
type iteration struct {
	edges, interior, moved, sent dist.Work
	times                        times
	change                       [2]float64 // of the edges and of the interior; 0 unless it is checked
}

// solve iterates until no point changes by more than the tolerance, or to the last iteration.
//
// Collective: all ranks. Errors: on a lost rank, an error on every rank that waits for it.
func solve(ctx context.Context, g *strip, s settings, m *meter, out io.Writer) (found solution, err error) {
	v := &solver{settings: s, strip: g, m: m, compute: dist.NewHostStream()}
	v.push = v.compute
	if !s.noOverlap {
		v.push = dist.NewHostStream()
	}
	v.ctx, v.stop = context.WithCancelCause(ctx)
	defer func() {
		v.stop(err)
		if err != nil {
			_ = g.w.Abort(err) // otherwise a queued exchange, and its stream, would wait for the others
		}
		err = errors.Join(err, v.push.Close(), v.compute.Close())
	}()
	if s.halo == haloDevice {
		if err := g.reach(); err != nil {
			return found, err
		}
	}
	if err := rank.Done(g.w.Barrier()); err != nil {
		return found, err
	}
	m.begin = time.Now()
	for k := 0; ; {
		from := k + 1
		k = s.pause(from)
		if err := v.iterate(from, k); err != nil {
			return found, err
		}
		if !s.looks(k) {
			continue
		}
		change, err := v.change(k)
		if err != nil {
			return found, err
		}
		fmt.Fprintf(out, "iteration %6d  largest change %.3g\n", k, change)
		if s.last(k, change) {
			err := rank.Done(g.w.Barrier()) // until all rows have arrived
			m.total = m.now()
			return solution{k, change}, err
		}
	}
}

// pause returns the iteration after which the host waits, if from is the next one: one whose change
// is checked, or the last one that may be queued.
func (s *settings) pause(from int) int {
	look := (from + s.normEvery - 1) / s.normEvery * s.normEvery
	return min(look, from+ahead-1, s.iters)
}

// change returns the largest change of any rank's points in iteration k, which has finished.
//
// Collective: all ranks.
func (v *solver) change(k int) (float64, error) {
	own := v.queued[k%ahead].change
	most := []float64{max(own[0], own[1])}
	err := rank.Done(v.w.With(dist.Hints{Name: "change"}).AllReduce(tensor.Of(most), tensor.Of(most), dist.Max))
	return most[0], err
}

// iterate runs iterations from to last, at most ahead of them.
func (v *solver) iterate(from, last int) error {
	for k := from; k <= last; k++ {
		if err := v.queue(k); err != nil {
			return err
		}
	}
	for k := from; k <= last; k++ {
		q := &v.queued[k%ahead]
		for _, work := range []dist.Work{q.edges, q.interior, q.moved, q.sent} {
			if err := work.Wait(); err != nil {
				return fmt.Errorf("iteration %d: %w", k, err)
			}
		}
		v.m.add(q.times)
	}
	return nil
}

// queue queues iteration k on the streams.
//
// Both parts read the rows computed in iteration k-1, and overwrite the rows read in it.
func (v *solver) queue(k int) (err error) {
	last, q := &v.queued[(k+ahead-1)%ahead], &v.queued[k%ahead]
	if err := errors.Join(v.push.Join(last.interior), v.compute.Join(last.edges)); err != nil {
		return err
	}
	*q = iteration{}
	if q.edges, err = v.do(v.push, func() error { return v.edges(k, q) }); err != nil {
		return err
	}
	if q.interior, err = v.do(v.compute, func() error { return v.interior(k, q) }); err != nil {
		return err
	}
	return v.send(k, q)
}

// send queues on the push stream the transfer of the first and the last row of iteration k to the
// neighbours. With sendrecv and device the neighbours' rows are in the halos when it is done. With
// put the next edges wait for signals.
func (v *solver) send(k int, q *iteration) (err error) {
	var from time.Duration
	begin := func() error { from = v.m.now(); return nil }
	end := func() error { q.times.send = span{from, v.m.now()}; return nil }
	if _, err := v.do(v.push, begin); err != nil {
		return err
	}
	switch v.halo {
	case haloSendRecv:
		q.moved, err = v.swap(v.push, k)
	case haloDevice:
		q.moved, err = v.w.On(v.push).With(dist.Hints{Name: "halo"}).Barrier() // all ranks have stored their rows of iteration k
	default:
		q.moved, err = v.do(v.push, func() error { return v.exchange(k) })
	}
	if err != nil {
		return err
	}
	q.sent, err = v.do(v.push, end)
	return err
}

// do queues part on a stream. After an error, later parts do nothing.
func (v *solver) do(s *dist.HostStream, part func() error) (dist.Work, error) {
	return s.Do(func() error {
		if err := context.Cause(v.ctx); err != nil {
			return err
		}
		err := part()
		if err != nil {
			v.stop(err)
		}
		return err
	})
}

// edges waits for the neighbours' rows of iteration k-1 and computes the first and the last row of
// iteration k. With --halo device it stores them in the neighbours' halos.
func (v *solver) edges(k int, q *iteration) error {
	from := v.m.now()
	if v.halo == haloPut {
		if err := v.receive(v.ctx, k-1); err != nil {
			return err
		}
	}
	q.times.wait = span{from, v.m.now()}
	look := v.looks(k)
	q.change[0] = v.sweep(k, 1, 2, look)
	if v.rows > 1 {
		q.change[0] = max(q.change[0], v.sweep(k, v.rows, v.rows+1, look))
	}
	if v.halo == haloDevice {
		v.store(k)
	}
	return nil
}

// interior computes the rows between the first and the last.
func (v *solver) interior(k int, q *iteration) error {
	from := v.m.now()
	q.change[1] = v.sweep(k, 2, v.rows, v.looks(k))
	q.times.interior = span{from, v.m.now()}
	return nil
}
