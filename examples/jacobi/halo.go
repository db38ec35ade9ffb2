package main

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Where the signals of a strip are in arrived: the newest iteration of which the row of a neighbour has come.
const (
	fromAbove   = 0
	fromBelow   = 8
	signalBytes = 8
)

// exchange puts the first row of iteration k into the lower halo of the rank above, and the last row into the upper
// halo of the rank below. With each row goes its number, which the neighbour waits for: no barrier, no acknowledgement.
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

// news is the signal that a row of iteration k brings, in the place for those from above or from below.
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
