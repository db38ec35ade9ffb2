package symmetric_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// onEach runs body on every rank of a world of n ranks in this process, each with its end of a
// heap, and closes the heap when all have returned.
func onEach(n int, body func(rank int, h symmetric.Heap) error) {
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, w := range worlds {
		ranks.Go(func() {
			h, err := w.Heap(1 << 12)
			if err == nil {
				err = body(w.Rank(), h)
			}
			if err == nil {
				_, err = w.Blocking().Barrier() // no part is unmapped while others use it
			}
			if err := errors.Join(err, w.Close()); err != nil {
				log.Print(err)
			}
		})
	}
	ranks.Wait()
}

// Rank 0 puts a row into rank 1's part, followed by a signal. Rank 1 only waits for the signal.
func ExampleRegion() {
	onEach(2, func(rank int, h symmetric.Heap) error {
		row, err := h.Calloc(4, 4)
		if err != nil {
			return err
		}
		arrived, err := h.Alloc(8)
		if err != nil {
			return err
		}
		if rank == 0 {
			signal := symmetric.Signal{In: arrived, Op: symmetric.SignalSet, Value: 1}
			return row.PutSignal(1, 0, tensor.Of([]float32{1, 2, 3, 4}), signal)
		}
		if _, err := symmetric.SignalWait(context.Background(), arrived, 0, symmetric.Eq, 1); err != nil {
			return err
		}
		third, err := symmetric.G[float32](row, 1, 8)
		fmt.Println(third, err)
		return err
	})
	// Output: 3 <nil>
}

// A counter on rank 0 distributes work: every piece is taken by one rank.
func ExampleFetchInc() {
	var mu sync.Mutex
	done := map[int64]int{}
	onEach(3, func(_ int, h symmetric.Heap) error {
		counter, err := h.Alloc(8)
		if err != nil {
			return err
		}
		for {
			piece, err := symmetric.FetchInc[int64](counter, 0, 0)
			if err != nil || piece >= 10 {
				return err
			}
			mu.Lock()
			done[piece]++
			mu.Unlock()
		}
	})
	fmt.Println(len(done), done[0], done[9])
	// Output: 10 1 1
}
