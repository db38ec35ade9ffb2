package conformance

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/symmetric"
)

// messagePassing: data, Fence, flag; a rank that sees the flag sees the data.
func (l *lab) messagePassing(i int) error {
	l.stir()
	err := errors.Join(l.vars.Put(l.next, variable(i, dataAt), l.fresh(i)), l.h.Fence(),
		symmetric.P(l.vars, l.next, variable(i, xAt), l.batch))
	if err != nil {
		return err
	}
	if _, err := symmetric.WaitUntil(l.ctx, l.vars, variable(i, xAt), symmetric.Eq, l.batch); err != nil {
		return err
	}
	return l.stale(i, "after put, fence and flag")
}

// putSignal: data and signal in one call; a rank that sees the signal sees the data.
func (l *lab) putSignal(i int) error {
	l.stir()
	sig := symmetric.Signal{In: l.vars, At: variable(i, xAt), Op: symmetric.SignalAdd, Value: 1}
	if err := l.vars.PutSignal(l.next, variable(i, dataAt), l.fresh(i), sig); err != nil {
		return err
	}
	if _, err := symmetric.SignalWait(l.ctx, l.vars, variable(i, xAt), symmetric.Ge, l.batch); err != nil {
		return err
	}
	return l.stale(i, "after its signal")
}

// causality: a rank puts data to the rank after the next, calls Quiet, and signals the next rank,
// which signals on. The last rank sees the data, because Quiet makes it visible to every rank.
// (WRC)
func (l *lab) causality(i int) error {
	l.stir()
	last := (l.rank + 2) % l.n
	err := errors.Join(l.vars.PutNBI(last, variable(i, dataAt), l.fresh(i)), l.h.Quiet(),
		l.vars.Signal(l.next, variable(i, xAt), symmetric.SignalSet, l.batch))
	if err != nil {
		return err
	}
	if _, err := symmetric.SignalWait(l.ctx, l.vars, variable(i, xAt), symmetric.Ge, l.batch); err != nil {
		return err
	}
	if err := l.vars.Signal(l.next, variable(i, yAt), symmetric.SignalSet, l.batch); err != nil {
		return err
	}
	if _, err := symmetric.SignalWait(l.ctx, l.vars, variable(i, yAt), symmetric.Ge, l.batch); err != nil {
		return err
	}
	return l.stale(i, "after a quiet and two signals")
}

// barrier: non-blocking data to the next rank, then Barrier without Quiet; the rank after reads the
// data.
func (l *lab) barrier(i int) error {
	l.stir()
	if err := l.vars.PutNBI(l.next, variable(i, dataAt), l.fresh(i)); err != nil {
		return err
	}
	if err := finish(l.g.Barrier()); err != nil {
		return err
	}
	there, err := l.opt.peerPart(l.vars, l.rank, (l.next+1)%l.n, variable(i, dataAt), 64)
	if err != nil {
		return err
	}
	return l.staleIn(there.Raw(), i, "after a barrier")
}

// partner returns the other rank of a pair; a rank without one is its own partner.
func (l *lab) partner() int {
	if p := l.rank ^ 1; p < l.n {
		return p
	}
	return l.rank
}

// storeBufferingQuiet: both ranks of a pair write to each other, call Quiet, and read their own
// part.
func (l *lab) storeBufferingQuiet(i int) error {
	p := l.partner()
	if err := l.meet(p); err != nil {
		return err
	}
	err := errors.Join(symmetric.P(l.vars, p, variable(i, xAt), l.batch), l.h.Quiet())
	v, err2 := symmetric.G[uint64](l.vars, l.rank, variable(i, xAt))
	return errors.Join(err, err2, l.record(i, v))
}

// storeBufferingAtomics: the same by atomics that return a value, which are complete when they
// return.
func (l *lab) storeBufferingAtomics(i int) error {
	p := l.partner()
	if err := l.meet(p); err != nil {
		return err
	}
	_, err := symmetric.Swap(l.vars, p, variable(i, xAt), l.batch)
	v, err2 := symmetric.AtomicFetch[uint64](l.vars, l.rank, variable(i, xAt))
	return errors.Join(err, err2, l.record(i, v))
}

// bothOld judges store buffering: one of the two wrote first, so the other must have read the new
// value.
func (l *lab) bothOld(i int) string {
	mine, _ := l.reads(l.rank, i)
	theirs, _ := l.reads(l.partner(), i)
	switch {
	case mine != l.batch && mine != l.batch-1:
		return fmt.Sprintf("read %d, which no rank wrote", mine)
	case mine != l.batch && theirs != l.batch:
		return "both ranks wrote and then read the old value"
	}
	return ""
}

// independentReads: of four ranks two write one variable each, and two read both in opposite
// orders.
func (l *lab) independentReads(i int) error {
	const every = 4 // instances between meetings, because meetings of four ranks on fewer cores are slow
	if l.rank > 3 {
		return nil
	}
	if i%every == 0 {
		if err := l.meet(0, 1, 2, 3); err != nil {
			return err
		}
	}
	l.stir()
	first, second := variable(i, xAt), variable(i, yAt)
	switch l.rank {
	case 0:
		return symmetric.AtomicSet(l.vars, 0, first, l.batch)
	case 1:
		return symmetric.AtomicSet(l.vars, 1, second, l.batch)
	case 2:
		a, err := symmetric.AtomicFetch[uint64](l.vars, 0, first)
		b, err2 := symmetric.AtomicFetch[uint64](l.vars, 1, second)
		return errors.Join(err, err2, l.record(i, a, b))
	}
	a, err := symmetric.AtomicFetch[uint64](l.vars, 1, second)
	b, err2 := symmetric.AtomicFetch[uint64](l.vars, 0, first)
	return errors.Join(err, err2, l.record(i, a, b))
}

// contraryReads judges independent reads: the readers must agree on which write came first.
func (l *lab) contraryReads(i int) string {
	x2, y2 := l.reads(2, i)
	y3, x3 := l.reads(3, i)
	if x2 == l.batch && y2 != l.batch && y3 == l.batch && x3 != l.batch {
		return "rank 2 saw x new and y old, rank 3 saw y new and x old"
	}
	return ""
}

// coherence: a word only grows, and no reader sees it shrink.
func (l *lab) coherence(i int) error {
	if l.rank == 0 {
		_, err := symmetric.FetchInc[uint64](l.vars, l.n-1, xAt)
		return err
	}
	l.stir()
	a, err := symmetric.AtomicFetch[uint64](l.vars, l.n-1, xAt)
	b, err2 := symmetric.AtomicFetch[uint64](l.vars, l.n-1, xAt)
	if err == nil && err2 == nil && b < a {
		return fmt.Errorf("forbidden: read %d and then %d of a word that grows, instance %d", a, b, i)
	}
	return errors.Join(err, err2)
}

// total: every rank adds to one word, alternately 32 and 64 bits wide, by every kind of addition.
func (l *lab) total(i int) error {
	at := int64(xAt)
	if i%2 == 0 {
		if err := symmetric.Add(l.vars, 0, at, uint64(3)); err != nil {
			return err
		}
		return l.vars.Signal(0, at, symmetric.SignalAdd, 4)
	}
	if err := symmetric.Inc[int32](l.vars, 0, yAt); err != nil {
		return err
	}
	for {
		old, err := symmetric.AtomicFetch[uint32](l.vars, 0, yAt)
		if err != nil {
			return err
		}
		if held, err := symmetric.CompareSwap(l.vars, 0, yAt, old, old+2); err != nil || held == old {
			return err
		}
	}
}

// exactTotal judges the sums once per batch, which must be complete: later batches would hide a
// loss.
func (l *lab) exactTotal(i int) string {
	if i != instances-1 {
		return ""
	}
	added := l.batch * instances / 2 * uint64(l.n)
	x, err := symmetric.G[uint64](l.vars, 0, xAt)
	y, err2 := symmetric.G[uint32](l.vars, 0, yAt)
	if err := errors.Join(err, err2); err != nil {
		return err.Error()
	}
	if x != 7*added || y != uint32(3*added) {
		return fmt.Sprintf("sums %d and %d, want %d and %d", x, y, 7*added, uint32(3*added))
	}
	return ""
}
