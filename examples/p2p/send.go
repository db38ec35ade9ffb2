package main

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/symmetric"
)

// putBarrier is the first method: a put, and a barrier that completes it. All ranks wait for all
// others once per message.
//
// Two slots are enough: a put after barrier m+1 overwrites message m-1 at the earliest, and the
// receiver reached that barrier after it had finished m.
func putBarrier(_ context.Context, p *pipe) (bad int, err error) {
	for m := range p.messages {
		if p.sends() {
			_, at := p.place(m)
			if err := p.data.Put(p.peer(), at, p.message(m)); err != nil {
				return bad, fmt.Errorf("message %d: %w", m, err)
			}
		}
		if err := rank.Done(p.w.Barrier()); err != nil {
			return bad, err
		}
		if !p.sends() {
			bad += p.arrived(m)
		}
	}
	return bad, nil
}

// putSignal is the second method: each message carries a signal, and the receiver's
// acknowledgements tell which slots are free.
func putSignal(ctx context.Context, p *pipe) (bad int, err error) {
	if p.sends() {
		return 0, send(ctx, p)
	}
	return receive(ctx, p)
}

// send sends all messages and returns when the receiver has finished the last one.
func send(ctx context.Context, p *pipe) error {
	for m := range p.messages {
		if err := sendOne(ctx, p, m); err != nil {
			return fmt.Errorf("message %d to rank %d: %w", m, p.peer(), err)
		}
	}
	if err := waitAtLeast(ctx, p.acks, 0, p.messages); err != nil {
		return fmt.Errorf("last acknowledgement of rank %d: %w", p.peer(), err)
	}
	return nil
}

// sendOne sends message m. It uses the slot of message m-slots, which the receiver must have
// finished.
func sendOne(ctx context.Context, p *pipe, m int) error {
	if err := waitAtLeast(ctx, p.acks, 0, m-p.slots+1); err != nil {
		return fmt.Errorf("free slot: %w", err)
	}
	slot, at := p.place(m)
	news := symmetric.Signal{In: p.news, At: int64(slot) * signalBytes, Op: symmetric.SignalSet, Value: uint64(m + 1)}
	return p.data.PutSignal(p.peer(), at, p.message(m), news)
}

// receive receives all messages. Puts are unordered, so each slot has its own signal: the signal of
// message m says nothing about message m-1.
func receive(ctx context.Context, p *pipe) (bad int, err error) {
	for m := range p.messages {
		slot, _ := p.place(m)
		if err := waitAtLeast(ctx, p.news, int64(slot)*signalBytes, m+1); err != nil {
			return bad, fmt.Errorf("message %d of rank %d: %w", m, p.peer(), err)
		}
		bad += p.arrived(m)
		if err := p.acks.Signal(p.peer(), 0, symmetric.SignalAdd, 1); err != nil {
			return bad, fmt.Errorf("acknowledgement of message %d to rank %d: %w", m, p.peer(), err)
		}
	}
	return bad, nil
}

// waitAtLeast waits until a signal is at least n; n <= 0 does not wait.
func waitAtLeast(ctx context.Context, signal symmetric.Region, at int64, n int) error {
	_, err := symmetric.SignalWait(ctx, signal, at, symmetric.Ge, uint64(max(0, n)))
	return err
}
