package rank

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Done waits for an operation that has just been queued: rank.Done(w.Barrier()).
//
// Errors: those of queueing it, those of the operation.
func Done(work dist.Work, err error) error {
	if err != nil {
		return err
	}
	return work.Wait()
}

// Verdict is how a program ends: with nil on every rank when bad is 0 on all of them, so that none
// reports success where another found the result to be wrong. bad is how many things are wrong on
// this rank, what says which things.
//
// Collective: all ranks, same what. Errors: ErrWrong with the numbers; those of the exchange.
func Verdict(w *dist.World, what string, bad int) error {
	all := make([]int64, w.Size())
	if err := Done(w.Named("verdict").AllGather(tensor.Of(all), tensor.Of([]int64{int64(bad)}))); err != nil {
		return err
	}
	for r, n := range all {
		if n != 0 {
			return fmt.Errorf("%w: rank %d has %d %s", ErrWrong, r, n, what)
		}
	}
	return nil
}
