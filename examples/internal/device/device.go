// Package device has helpers for example programs on GPUs: numbers from every rank, and a common
// verdict, if a group's buffers are not in host memory.
package device

import (
	"errors"
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/kernel"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Patience is how long a kernel waits for a signal of another rank. A kernel that waits without
// limit cannot be ended.
const Patience = 20 * time.Second

// wordBytes is the size of an int64.
const wordBytes = 8

// Board is symmetric memory through which ranks exchange numbers.
type Board struct {
	w     *dist.World
	words tensor.Buffer // one of every rank, followed by one to send
}

// BoardBytes returns the heap bytes that NewBoard needs for so many ranks.
func BoardBytes(ranks int) int64 {
	bytes := int64(ranks+1) * wordBytes
	return (bytes + symmetric.Alignment - 1) / symmetric.Alignment * symmetric.Alignment
}

// NewBoard returns a Board in heap. Closing the heap frees it.
//
// Collective: all ranks.
func NewBoard(w *dist.World, heap symmetric.Heap) (*Board, error) {
	r, err := heap.Alloc(int64(w.Size()+1) * wordBytes)
	if err != nil {
		return nil, err
	}
	words, err := r.Local().As(tensor.I64)
	return &Board{w, words}, err
}

// Gather returns v of every rank, by rank.
//
// Collective: all ranks.
func (b *Board) Gather(v int64) ([]int64, error) {
	n := b.w.Size()
	all, err := b.words.Slice(0, n)
	if err != nil {
		return nil, err
	}
	own, err := b.words.Slice(n, n+1)
	if err != nil {
		return nil, err
	}
	if err := kernel.Copy(b.w.Stream(), own, tensor.Of([]int64{v})); err != nil {
		return nil, err
	}
	if err := rank.Done(b.w.AllGather(all, own)); err != nil {
		return nil, err
	}
	got := make([]int64, n)
	return got, kernel.Copy(b.w.Stream(), tensor.Of(got), all)
}

// Verdict is rank.Verdict with device memory.
//
// Collective: all ranks, same what. Errors: rank.ErrWrong with the numbers; those of the exchange.
func (b *Board) Verdict(what string, bad int64) error {
	all, err := b.Gather(bad)
	if err != nil {
		return err
	}
	for r, n := range all {
		if n != 0 {
			return fmt.Errorf("%w: rank %d has %d %s", rank.ErrWrong, r, n, what)
		}
	}
	return nil
}

// Late returns the error err of a kernel that waited too long for another rank, joined with the
// group's reason, such as a rank that died.
//
// Collective: all ranks, unless they have failed themselves.
func Late(w *dist.World, err error) error {
	return errors.Join(err, rank.Done(w.With(dist.Hints{Name: "late rank"}).Barrier()))
}
