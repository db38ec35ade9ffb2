package kernel_test

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/kernel"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

const shift = `
// simple_shift of the NVSHMEM manual: every rank writes its number into the memory of the next.
extern "C" __global__ void simple_shift(int *const *destination, int mype, int npes) {
    *destination[(mype + 1) % npes] = mype;
}`

// Every rank of a group of GPUs writes its number into the memory of the next. The whole program is
// examples/ring.
func Example() {
	run := func(g *dist.Group, heap symmetric.Heap) (err error) {
		s := g.Stream()
		destination, err := heap.Alloc(4)
		if err != nil {
			return err
		}
		peers, err := kernel.Peers(g, destination)
		if err != nil {
			return err
		}
		m, err := kernel.Compile(s, kernel.Source{Name: "shift.cu", Text: shift})
		if err != nil {
			return errors.Join(err, peers.Close())
		}
		defer func() { err = errors.Join(err, s.Synchronize(), m.Close(), peers.Close(), heap.Free(destination)) }()
		f, err := m.Function("simple_shift")
		if err != nil {
			return err
		}
		if err := f.Launch(s, kernel.Shape{}, peers, int32(g.Rank()), int32(g.Size())); err != nil {
			return err
		}
		if _, err := g.Barrier(); err != nil { // on the same stream: what all ranks have put is there
			return err
		}
		message := make([]int32, 1)
		if err := kernel.Copy(s, tensor.Of(message), destination.Local()); err != nil {
			return err
		}
		fmt.Printf("%d: received message %d\n", g.Rank(), message[0])
		return nil
	}
	_ = run // with a world that backend.Open has opened on GPUs, on every rank
}
