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

// Verdict returns nil on every rank if bad is 0 on all ranks. So no rank reports success where
// another found a wrong result. bad is the number of wrong things on this rank, and the text names
// them.
//
// Collective: all ranks, same text. Errors: ErrWrong with the numbers; those of the exchange.
func Verdict(w *dist.World, what string, bad int) error {
	all := make([]int64, w.Size())
	if err := Done(w.With(dist.Hints{Name: "verdict"}).AllGather(tensor.Of(all), tensor.Of([]int64{int64(bad)}))); err != nil {
		return err
	}
	for r, n := range all {
		if n != 0 {
			return fmt.Errorf("%w: rank %d has %d %s", ErrWrong, r, n, what)
		}
	}
	return nil
}
