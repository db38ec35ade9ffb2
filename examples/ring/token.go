package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

const (
	numberBytes = 8 // size of an int64
	signalBytes = 8 // size of a signal, an unsigned 64-bit number
)

// ring is the symmetric memory of the token.
type ring struct {
	w       *dist.World
	box     symmetric.Region // receives the token
	signal  symmetric.Region // hops of the token in the box
	numbers []int64          // the own box
}

// newRing allocates the boxes. The token, with no hops, is in the box of rank 0.
//
// Collective: all ranks.
func newRing(w *dist.World, heap symmetric.Heap, bytes int64) (*ring, error) {
	g := &ring{w: w}
	var err error
	if g.box, err = heap.Alloc(bytes); err != nil {
		return nil, err
	}
	if g.signal, err = heap.Alloc(signalBytes); err != nil {
		return nil, err
	}
	g.numbers, err = symmetric.View[int64](g.box)
	return g, err
}

// token passes a message round the ring and prints the time of a hop. The message has the number of
// its hops many times, so that every rank can check all of it.
//
// Collective: all ranks.
func (s *settings) token(ctx context.Context, w *dist.World, heap symmetric.Heap, out io.Writer) error {
	g, err := newRing(w, heap, s.bytes)
	if err != nil {
		return err
	}
	if err := rank.Done(w.Barrier()); err != nil {
		return err
	}
	begin := time.Now()
	bad, err := g.pass(ctx, s.rounds)
	if err != nil {
		return err
	}
	took := time.Since(begin) // on rank 0: until the token is back after the last round
	if err := rank.Verdict(w, "numbers in the token that are wrong", bad); err != nil {
		return err
	}
	hops := s.rounds * w.Size()
	fmt.Fprintf(out, "token: %d rounds, %d hops of %d B, %.3g us a hop\n", s.rounds, hops, s.bytes, float64(took.Nanoseconds())/float64(hops)/1e3)
	return nil
}

// pass is this rank's part of so many rounds. It waits for the token, checks its numbers, adds one
// to each and puts them, with a signal, into the box of the next rank. There is only one token, so
// the rank that has it may write to both boxes.
//
// Returns: the number of wrong numbers.
func (g *ring) pass(ctx context.Context, rounds int) (bad int, err error) {
	for round := range rounds {
		hops := round*g.w.Size() + g.w.Rank() // hops before the token is here
		if err := g.receive(ctx, hops); err != nil {
			return bad, err
		}
		bad += wrong(g.numbers, int64(hops))
		for i := range g.numbers {
			g.numbers[i]++
		}
		to, news := next(g.w), symmetric.Signal{In: g.signal, Op: symmetric.SignalSet, Value: uint64(hops + 1)}
		if err := g.box.PutSignal(to, 0, tensor.Of(g.numbers), news); err != nil {
			return bad, fmt.Errorf("hop %d, to rank %d: %w", hops+1, to, err)
		}
	}
	if g.w.Rank() > 0 {
		return bad, nil
	}
	hops := rounds * g.w.Size() // the token ends at its start
	err = g.receive(ctx, hops)
	return bad + wrong(g.numbers, int64(hops)), err
}

// receive waits for the token after so many hops.
func (g *ring) receive(ctx context.Context, hops int) error {
	got, err := symmetric.SignalWait(ctx, g.signal, 0, symmetric.Ge, uint64(hops))
	if err != nil {
		return fmt.Errorf("hop %d, from rank %d: %w", hops, before(g.w), err)
	}
	if got != uint64(hops) {
		return fmt.Errorf("%w: the token has made %d hops, want %d", rank.ErrWrong, got, hops)
	}
	return nil
}

// wrong returns how many of numbers differ from want.
func wrong(numbers []int64, want int64) int {
	n := 0
	for _, v := range numbers {
		if v != want {
			n++
		}
	}
	return n
}
