package machine_test

import (
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// TestReadOfAnInputWithGaps reads inputs whose values are views of others, in more than one run.
func TestReadOfAnInputWithGaps(t *testing.T) {
	transposed := gtensor.New(gtensor.WithShape(2, 3), gtensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	rows := gtensor.New(gtensor.WithShape(3, 4), gtensor.WithBacking([]float32{0, 1, 4, 0, 0, 2, 5, 0, 0, 3, 6, 0}))
	columns, err := rows.Slice(nil, G.S(1, 3))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]G.Value{"transposed": transposed, "columns": columns} {
		t.Run(name, func(t *testing.T) {
			g := G.NewGraph()
			x := G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(3, 2))
			G.Must(G.Sum(x))
			var read G.Value
			G.Read(x, &read)
			if err := G.Let(x, v); err != nil {
				t.Fatal(err)
			}
			m := newMachine(t, g, plain)
			var first G.Value
			for i := range 3 {
				run(t, m)
				if got, ok := read.Data().([]float32); !ok || !slices.Equal(got, []float32{1, 4, 2, 5, 3, 6}) || !read.Shape().Eq(x.Shape()) {
					t.Fatalf("run %d reads %v, %v", i, read.Shape(), read.Data())
				}
				if first == nil {
					first = read
				}
				if read != first {
					t.Errorf("run %d reads into other memory", i)
				}
			}
		})
	}
}
