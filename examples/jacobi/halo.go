package main

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// The values of --halo: methods to exchange border rows.
const (
	haloPut      = "put"
	haloSendRecv = "sendrecv"
	haloDevice   = "device"
)

// halos returns the values of --halo.
func halos() []string { return []string{haloPut, haloSendRecv, haloDevice} }

// Offsets of a strip's signals in arrived: the newest iteration whose row has arrived from a
// neighbour.
const (
	fromAbove   = 0
	fromBelow   = 8
	signalBytes = 8
)

// swap sends the first and the last row of iteration k to the neighbours and receives theirs, as
// one group call on stream s. A group call cannot deadlock: its sends and receives progress
// together.
//
// Collective: all ranks. Returns: when queued.
func (g *strip) swap(s dist.Stream, k int) (dist.Work, error) {
	return g.w.On(s).With(dist.Hints{Name: "halo"}).Batch(func(b *dist.Group) error {
		return g.pair(b, func(row int) (tensor.Buffer, error) { return tensor.Of(g.row(k, row)), nil })
	})
}

// pair queues the sends and receives of one exchange on b. row returns the memory of a row of this
// rank.
func (g *strip) pair(b *dist.Group, row func(int) (tensor.Buffer, error)) error {
	for _, n := range []struct{ peer, halo, border int }{{g.w.Rank() - 1, 0, 1}, {g.w.Rank() + 1, g.rows + 1, g.rows}} {
		if n.peer < 0 || n.peer >= g.w.Size() {
			continue
		}
		halo, err := row(n.halo)
		if err == nil {
			_, err = b.Recv(halo, n.peer)
		}
		if err != nil {
			return fmt.Errorf("row of rank %d: %w", n.peer, err)
		}
		border, err := row(n.border)
		if err == nil {
			_, err = b.Send(border, n.peer)
		}
		if err != nil {
			return fmt.Errorf("row to rank %d: %w", n.peer, err)
		}
	}
	return nil
}

// reach finds the neighbours' memory, for store.
//
// Errors: ErrUnsupported if a neighbour's memory has no address here.
func (g *strip) reach() error {
	for _, n := range []struct {
		peer int
		grid *[]float64
	}{{g.w.Rank() - 1, &g.above}, {g.w.Rank() + 1, &g.below}} {
		if n.peer < 0 || n.peer >= g.w.Size() {
			continue
		}
		var err error
		if *n.grid, err = symmetric.PeerView[float64](g.cells, n.peer); err != nil {
			return fmt.Errorf("memory of rank %d: %w", n.peer, err)
		}
	}
	return nil
}

// store writes the first and the last row of iteration k directly into the neighbours' halos. A
// barrier must precede it, after the neighbours last read the halos, and another must follow before
// they read them again.
func (g *strip) store(k int) {
	if g.above != nil {
		_, rows := divide(g.inner, g.w.Rank()-1, g.w.Size())
		copy(g.above[g.at(k, rows+1)/pointBytes:], g.row(k, 1))
	}
	if g.below != nil {
		copy(g.below[g.at(k, 0)/pointBytes:], g.row(k, g.rows))
	}
}

// exchange puts the first row of iteration k into the lower halo of the rank above, and the last
// row into the upper halo of the rank below. Each row carries its number as a signal, for which the
// neighbour waits. No barrier or acknowledgement is needed.
func (g *strip) exchange(k int) error {
	if above := g.w.Rank() - 1; above >= 0 {
		_, rows := divide(g.inner, above, g.w.Size())
		err := g.cells.PutSignal(above, g.at(k, rows+1), tensor.Of(g.row(k, 1)), g.news(fromBelow, k))
		if err != nil {
			return fmt.Errorf("first row to rank %d: %w", above, err)
		}
	}
	if below := g.w.Rank() + 1; below < g.w.Size() {
		err := g.cells.PutSignal(below, g.at(k, 0), tensor.Of(g.row(k, g.rows)), g.news(fromAbove, k))
		if err != nil {
			return fmt.Errorf("last row to rank %d: %w", below, err)
		}
	}
	return nil
}

// news returns the signal of a row of iteration k, at the offset for rows from above or from below.
func (g *strip) news(from int64, k int) symmetric.Signal {
	return symmetric.Signal{In: g.arrived, At: from, Op: symmetric.SignalSet, Value: uint64(k)}
}

// receive returns when the neighbours' rows of iteration k are in the halos.
func (g *strip) receive(ctx context.Context, k int) error {
	if above := g.w.Rank() - 1; above >= 0 {
		if _, err := symmetric.SignalWait(ctx, g.arrived, fromAbove, symmetric.Ge, uint64(k)); err != nil {
			return fmt.Errorf("row of rank %d: %w", above, err)
		}
	}
	if below := g.w.Rank() + 1; below < g.w.Size() {
		if _, err := symmetric.SignalWait(ctx, g.arrived, fromBelow, symmetric.Ge, uint64(k)); err != nil {
			return fmt.Errorf("row of rank %d: %w", below, err)
		}
	}
	return nil
}
