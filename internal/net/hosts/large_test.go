package hosts_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/tensor"
)

// TestLargeReductionsHaveTheBitsOfOneHost reduces random bits by pairs, in parts and over chains,
// with every type and many lengths, and compares the results with those of one memory.
func TestLargeReductionsHaveTheBitsOfOneHost(t *testing.T) {
	shapes := map[string]struct {
		n      int
		where  func(rank, n int) int
		counts []int
	}{
		"1+1":   {2, layouts["each alone"], []int{32, 346, 3000, 40_002, 70_002, 300_002}},
		"2+2":   {4, layouts["halves"], []int{64, 692, 6000}},
		"1+2+1": {4, func(rank, _ int) int { return (rank + 1) / 2 }, []int{64, 692, 6000}},
		"1*3":   {3, layouts["each alone"], []int{48, 519, 4500}},
		"turns": {4, layouts["in turns"], []int{64, 692, 6000}}, // no chain
	}
	types := []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64, tensor.I8, tensor.U64}
	most := len(shapes["1+1"].counts)
	if invariants.Enabled { // the race detector makes the others slow, and they take the same ways
		types, most = types[1:3], 4
	}
	for name, shape := range shapes {
		for _, cost := range []int{0, 1} { // parts, and chains where there are some
			t.Run(fmt.Sprint(name, " ", cost), func(t *testing.T) {
				cfg := hosts.Config{ChainBytes: 64, SlotBytes: 1 << 10, MessageBytes: cost}
				worlds := open(t, shape.n, shape.where, cfg, fake.Config{Limit: 512})
				defer closeAll(t, worlds)
				rng := rand.New(rand.NewPCG(3, uint64(shape.n)))
				for _, dt := range types {
					for _, count := range shape.counts[:min(len(shape.counts), most)] {
						for _, red := range []dist.RedOp{dist.Sum, dist.Avg, dist.Max, dist.Prod} {
							checkChain(t, worlds, rng, dt, count, red)
						}
					}
				}
			})
		}
	}
}

// checkChain does the three reductions of count elements on all ranks, out of place and in place.
func checkChain(t *testing.T, worlds []*dist.World, rng *rand.Rand, dt tensor.DType, count int, red dist.RedOp) {
	t.Helper()
	n := len(worlds)
	srcs := make([]tensor.Buffer, n)
	for r := range srcs {
		srcs[r] = memory(t, dt, count)
		for i, raw := 0, srcs[r].Raw(); i < len(raw); i++ {
			raw[i] = byte(rng.Uint32())
		}
	}
	want := memory(t, dt, count)
	if err := reduce.Into(want, srcs, red.Kind, nil); err != nil {
		t.Fatal(err)
	}
	part := count / n * dt.Size()
	onAll(t, worlds, func(r int, w *dist.World) error {
		what := fmt.Sprintf("%v %v of %d, rank %d", red, dt, count, r)
		dst, in := memory(t, dt, count), memory(t, dt, count)
		copy(in.Raw(), srcs[r].Raw())
		root := int(count+int(dt)) % n
		g := w.Blocking()
		if _, err := g.AllReduce(dst, srcs[r], red); err != nil {
			return err
		}
		if !bytes.Equal(dst.Raw(), want.Raw()) {
			return fmt.Errorf("allreduce %s: wrong bits", what)
		}
		most := count - 1 // not a multiple of the ranks
		src, _ := srcs[r].Slice(0, most)
		odd, _ := dst.Slice(0, most)
		clear(dst.Raw())
		if _, err := g.AllReduce(odd, src, red); err != nil {
			return err
		}
		if !bytes.Equal(odd.Raw(), want.Raw()[:most*dt.Size()]) {
			return fmt.Errorf("allreduce of one element fewer %s: wrong bits", what)
		}
		if _, err := g.AllReduce(in, in, red); err != nil {
			return err
		}
		if !bytes.Equal(in.Raw(), want.Raw()) {
			return fmt.Errorf("allreduce in place %s: wrong bits", what)
		}
		clear(dst.Raw())
		if _, err := g.Reduce(dst, srcs[r], red, root); err != nil {
			return err
		}
		if r == root && !bytes.Equal(dst.Raw(), want.Raw()) {
			return fmt.Errorf("reduce %s: wrong bits", what)
		}
		one := memory(t, dt, count/n)
		if _, err := g.ReduceScatter(one, srcs[r], red); err != nil {
			return err
		}
		if !bytes.Equal(one.Raw(), want.Raw()[r*part:(r+1)*part]) {
			return fmt.Errorf("reduce-scatter %s: wrong bits", what)
		}
		return nil
	})
}

func onAll(t *testing.T, worlds []*dist.World, body func(r int, w *dist.World) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(worlds))
	for r, w := range worlds {
		wg.Go(func() { errs[r] = body(r, w) })
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

func closeAll(t *testing.T, worlds []*dist.World) {
	t.Helper()
	onAll(t, worlds, func(_ int, w *dist.World) error { return w.Close() })
}

func memory(t *testing.T, dt tensor.DType, n int) tensor.Buffer {
	t.Helper()
	words := make([]uint64, (n*dt.Size()+7)/8)
	b, err := tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(words)), n, dt, tensor.Host)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
