package dist_test

import (
	"fmt"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// onEachRank runs body on every rank of a simulated world. A real program has one rank and gets its
// world from backend.Open.
func onEachRank(n int, body func(w *dist.World) error) {
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var ranks sync.WaitGroup
	for _, w := range worlds {
		ranks.Go(func() {
			defer w.Close()
			if err := body(w); err != nil {
				fmt.Println(err)
			}
		})
	}
	ranks.Wait()
}

func ExampleGroup_AllReduce() {
	onEachRank(3, func(w *dist.World) error {
		x := []float32{1, float32(w.Rank())}
		work, err := w.AllReduce(tensor.Of(x), tensor.Of(x), dist.Sum) // in place
		if err != nil {
			return err
		}
		if err := work.Wait(); err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	// Output: [3 3]
}

// Each rank gives its own factor: here its share of a batch that the ranks divide unequally.
func ExamplePreMulSum() {
	samples := []float32{3, 1} // on rank 0 and rank 1
	onEachRank(2, func(w *dist.World) error {
		meanLoss := []float32{[]float32{0.5, 0.9}[w.Rank()]}
		share := samples[w.Rank()] / 4
		work, err := w.AllReduce(tensor.Of(meanLoss), tensor.Of(meanLoss), dist.PreMulSum(share))
		if err != nil {
			return err
		}
		if err := work.Wait(); err != nil {
			return err
		}
		if w.Rank() == 1 {
			fmt.Printf("%.1f\n", meanLoss[0])
		}
		return nil
	})
	// Output: 0.6
}

// A ring: in one Batch, sends and receives progress together, so ranks do not wait for each other.
func ExampleGroup_Batch() {
	onEachRank(4, func(w *dist.World) error {
		mine, theirs := []int32{int32(10 * w.Rank())}, []int32{0}
		work, err := w.Batch(func(g *dist.Group) error {
			if _, err := g.Send(tensor.Of(mine), (g.Rank()+1)%g.Size()); err != nil {
				return err
			}
			_, err := g.Recv(tensor.Of(theirs), (g.Rank()+g.Size()-1)%g.Size())
			return err
		})
		if err != nil {
			return err
		}
		if err := work.Wait(); err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Println("rank 0 has", theirs[0])
		}
		return nil
	})
	// Output: rank 0 has 30
}

// Even ranks form one group, odd ranks another, each numbered backwards.
func ExampleGroup_Split() {
	onEachRank(5, func(w *dist.World) error {
		g, err := w.Split(w.Rank()%2, -w.Rank())
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Printf("rank %d of %d, world ranks %v\n", g.Rank(), g.Size(), g.Ranks())
		}
		return nil
	})
	// Output: rank 2 of 3, world ranks [4 2 0]
}

// A collective by its name, on memory of a region, with its time: collective_on_buffer of
// NVSHMEM4Py.
func ExampleGroup_Run() {
	onEachRank(2, func(w *dist.World) error {
		h, err := w.Heap(1 << 12)
		if err != nil {
			return err
		}
		r, err := h.Alloc(8)
		if err != nil {
			return err
		}
		numbers, err := symmetric.View[float32](r)
		if err != nil {
			return err
		}
		copy(numbers, []float32{1.5, float32(w.Rank())})
		ms, err := w.Run(dist.Call{
			Collective: "allreduce", Dst: r.Local(), Src: r.Local(), DType: tensor.F32, Red: dist.Sum, Timing: true,
		})
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Println(numbers, ms > 0)
		}
		return nil
	})
	// Output: [3 1] true
}
