package hosts_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/tensor"
)

// TestLargeCopiesArrive moves blocks that are longer than the chunks of a broadcast, by every
// collective that copies, in every layout.
func TestLargeCopiesArrive(t *testing.T) {
	const n, count = 4, 1<<20 + 3 // elements of a block; 1 MiB and a little
	blocks := make([][]byte, n*n) // from rank to rank
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range blocks {
		blocks[i] = make([]byte, count)
		for k := 0; k < count; k += 61 {
			blocks[i][k] = byte(rng.Uint32())
		}
	}
	for name, layout := range layouts {
		t.Run(name, func(t *testing.T) {
			worlds := open(t, n, layout, hosts.Config{}, fake.Config{})
			defer closeAll(t, worlds)
			onAll(t, worlds, func(r int, w *dist.World) error { return copyLarge(t, r, w, blocks) })
		})
	}
}

// copyLarge does the collectives as rank r and compares the results.
func copyLarge(t *testing.T, r int, w *dist.World, blocks [][]byte) error {
	g, n, count := w.Blocking(), w.Size(), len(blocks[0])
	all, from, one, own := memory(t, tensor.U8, n*count), memory(t, tensor.U8, n*count), memory(t, tensor.U8, count), memory(t, tensor.U8, count)
	for to := range n {
		copy(from.Raw()[to*count:], blocks[r*n+to])
	}
	copy(own.Raw(), blocks[r*n])
	check := func(what string, got tensor.Buffer, want ...[]byte) error {
		if !bytes.Equal(got.Raw(), bytes.Join(want, nil)) {
			return fmt.Errorf("%s: wrong bytes on rank %d", what, r)
		}
		clear(got.Raw())
		return nil
	}
	var column, first [][]byte // blocks to this rank, and to rank 0
	for s := range n {
		column, first = append(column, blocks[s*n+r]), append(first, blocks[s*n])
	}
	const root = 2
	steps := []func() error{
		func() error { _, err := g.AllToAll(all, from); return err },
		func() error { return check("alltoall", all, column...) },
		func() error { _, err := g.AllGather(all, own); return err },
		func() error { return check("allgather", all, first...) },
		func() error { _, err := g.Scatter(one, from, root); return err },
		func() error { return check("scatter", one, blocks[root*n+r]) },
		func() error { _, err := g.Gather(all, own, root); return err },
		func() error {
			if r != root {
				return nil
			}
			return check("gather", all, first...)
		},
		func() error { _, err := g.Broadcast(one, own, root); return err },
		func() error { return check("broadcast", one, blocks[root*n]) },
	}
	for _, do := range steps {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
