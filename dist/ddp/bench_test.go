package ddp_test

import (
	"fmt"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
)

// wide is a perceptron of 270 thousand parameters, for batches of 32.
var wide = family{name: "wide", in: []int{256}, out: 10, layers: func(b *build, x *G.Node) *G.Node {
	h := G.Must(G.Tanh(affine(b, x, "0", 256, 512)))
	h = G.Must(G.Tanh(affine(b, h, "1", 512, 256)))
	return affine(b, h, "2", 256, 10)
}}

// BenchmarkRun is one run of the graph on a stock tape machine: by itself, and attached to worlds
// of goroutines that share the processor, of which rank 0 counts.
func BenchmarkRun(b *testing.B) {
	const rows = 32
	b.Run("plain", func(b *testing.B) {
		m := wide.make(gtensor.Float32, rows, 1)
		if _, err := G.Grad(m.cost, m.params...); err != nil {
			b.Fatal(err)
		}
		if err := m.let(wide, indices(0, rows)); err != nil {
			b.Fatal(err)
		}
		vm := G.NewTapeMachine(m.cost.Graph())
		defer vm.Close()
		b.ReportAllocs()
		for b.Loop() {
			if err := vm.RunAll(); err != nil {
				b.Fatal(err)
			}
			vm.Reset()
		}
	})
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprintf("ddp/ranks=%d", n), func(b *testing.B) {
			worlds, err := sim.New(n, sim.Config{})
			if err != nil {
				b.Fatal(err)
			}
			steps := make(chan bool) // rank 0 tells the others to take a step; closed at the end
			done := make(chan error, n)
			for _, w := range worlds[1:] {
				go func() {
					done <- benchRank(w, rows, func() bool { return <-steps })
				}()
			}
			b.ReportAllocs()
			err = benchRank(worlds[0], rows, func() bool {
				if !b.Loop() {
					close(steps)
					return false
				}
				for range worlds[1:] {
					steps <- true
				}
				return true
			})
			for range worlds[1:] {
				if e := <-done; err == nil {
					err = e
				}
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// benchRank runs the graph as often as next says.
func benchRank(w *dist.World, rows int, next func() bool) error {
	defer w.Close()
	m := wide.make(gtensor.Float32, rows, 1)
	d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := m.let(wide, indices(0, rows)); err != nil {
		return err
	}
	vm := G.NewTapeMachine(m.cost.Graph())
	defer vm.Close()
	for next() {
		if err := vm.RunAll(); err != nil {
			return err
		}
		vm.Reset()
	}
	return nil
}
