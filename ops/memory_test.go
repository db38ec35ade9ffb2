package ops_test

import (
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

func TestInPlaceConsumersDoNotReachTheInput(t *testing.T) {
	all, _ := verbs(0, true)
	for _, v := range all {
		onRanks(t, 2, func(w *dist.World) error {
			g := gorgonia.NewGraph()
			x := input(g, gtensor.Float64, "x", []float64{1, 2, 3, 4}, 4)
			y, err := v.apply(w.Group, x)
			if err != nil {
				return err
			}
			ones := make([]float64, size(y.Shape()))
			for i := range ones {
				ones[i] = 100
			}
			z, err := gorgonia.Add(y, input(g, gtensor.Float64, "c", ones, y.Shape()...)) // takes over y's memory
			if err != nil {
				return err
			}
			want := v.want([][]float64{{1, 2, 3, 4}, {1, 2, 3, 4}}, w.Rank())
			for i := range want {
				want[i] += 100
			}
			vm := gorgonia.NewTapeMachine(g)
			defer vm.Close()
			for range 2 {
				if err := vm.RunAll(); err != nil {
					return err
				}
				if err := equal(v.name, z.Value(), want); err != nil {
					return err
				}
				if err := equal(v.name+": x", x.Value(), []float64{1, 2, 3, 4}); err != nil {
					return err
				}
				vm.Reset()
			}
			return nil
		})
	}
}

// views are (3, 2) tensors with the rows 1 2, 3 4, 5 6 whose memory is laid out otherwise.
func views(t *testing.T) map[string]*gtensor.Dense {
	t.Helper()
	transposed := dense(gtensor.Float64, []float64{1, 3, 5, 2, 4, 6}, 2, 3)
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	wide := dense(gtensor.Float64, []float64{1, 2, 0, 3, 4, 0, 5, 6, 0}, 3, 3)
	columns, err := wide.Slice(nil, gtensor.S(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	tall := dense(gtensor.Float64, []float64{0, 0, 1, 2, 3, 4, 5, 6}, 4, 2)
	rows, err := tall.Slice(gtensor.S(1, 4))
	if err != nil {
		t.Fatal(err)
	}
	steps, err := dense(gtensor.Float64, []float64{1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0, 0}, 6, 2).Slice(gtensor.S(0, 6, 2))
	if err != nil {
		t.Fatal(err)
	}
	blocks := dense(gtensor.Float64, []float64{0, 0, 0, 0, 0, 0, 1, 3, 5, 2, 4, 6}, 2, 2, 3)
	if err := blocks.T(0, 2, 1); err != nil {
		t.Fatal(err)
	}
	block, err := blocks.Slice(gtensor.S(1))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*gtensor.Dense{
		"transposed": transposed, "block of a transposed": block.(*gtensor.Dense), "columns": columns.(*gtensor.Dense), "rows": rows.(*gtensor.Dense), "steps": steps.(*gtensor.Dense),
		"column-major": gtensor.New(gtensor.WithShape(3, 2), gtensor.AsFortran([]float64{1, 2, 3, 4, 5, 6})),
	}
}

func TestInputsOfAnyLayoutAreReadInOrder(t *testing.T) {
	for name, view := range views(t) {
		t.Run(name, func(t *testing.T) {
			onRanks(t, 1, func(w *dist.World) error {
				g := gorgonia.NewGraph()
				x := gorgonia.NewMatrix(g, gtensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3, 2), gorgonia.WithValue(view))
				y, err := ops.AllGather(w.Group, x)
				if err != nil {
					return err
				}
				if err := run(g); err != nil {
					return err
				}
				return equal("y", y.Value(), []float64{1, 2, 3, 4, 5, 6})
			})
		})
	}
}

// Gorgonia gives column-major vectors fewer strides than dimensions.
func TestColumnMajorVectorsAreRead(t *testing.T) {
	for _, shape := range [][]int{{3, 1}, {1, 3}, {1, 1}} {
		want := []float64{1, 2, 3}[:gtensor.Shape(shape).TotalSize()]
		view := gtensor.New(gtensor.WithShape(shape...), gtensor.AsFortran(want))
		onRanks(t, 1, func(w *dist.World) error {
			x := gorgonia.NewMatrix(gorgonia.NewGraph(), gtensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(shape...), gorgonia.WithValue(view))
			y, err := ops.AllGather(w.Group, x)
			if err != nil {
				return err
			}
			if err := run(x.Graph()); err != nil {
				return err
			}
			return equal("y", y.Value(), want)
		})
	}
}

func TestGradientThroughASlicedInput(t *testing.T) {
	checkGradient(t, 2, []int{4, 3}, func(w *dist.World, x *gorgonia.Node) (*gorgonia.Node, error) {
		part, err := gorgonia.Slice(x, nil, gorgonia.S(0, 2)) // a view whose rows are not next to each other
		if err != nil {
			return nil, err
		}
		y, err := ops.ReduceScatter(w.Group, part, dist.Sum)
		if err != nil {
			return nil, err
		}
		return curved(w, y)
	})
}

func TestGradientThroughATransposedInput(t *testing.T) {
	checkGradient(t, 2, []int{3, 4}, func(w *dist.World, x *gorgonia.Node) (*gorgonia.Node, error) {
		xt, err := gorgonia.Transpose(x)
		if err != nil {
			return nil, err
		}
		y, err := ops.AllToAll(w.Group, xt)
		if err != nil {
			return nil, err
		}
		return curved(w, y)
	})
}

func TestAScalarNodeMayHoldATensorOfNoDimensions(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		x := gorgonia.NewScalar(g, gtensor.Float32, gorgonia.WithName("x"))
		if err := gorgonia.Let(x, gtensor.New(gtensor.FromScalar(float32(3)))); err != nil {
			return err
		}
		y, err := ops.AllReduce(w.Group, x, dist.Sum)
		if err != nil {
			return err
		}
		if err := run(g); err != nil {
			return err
		}
		return equal("y", y.Value(), []float64{6})
	})
}
