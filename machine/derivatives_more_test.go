package machine_test

import (
	"math"
	"math/rand/v2"
	"slices"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/ops"
)

// function is a function of the inputs of a row.
type function = func(x []*G.Node) (*G.Node, error)

// row is a row of inputs of the given shapes.
func row(name string, at func(*rand.Rand) float64, apply function, shapes ...[]int) derived {
	return derived{name: name, shapes: shapes, at: at, apply: apply}
}

// failing returns d with the errors of byWhom.
func (d derived) failing(by byWhom) derived {
	d.bad = by
	return d
}

// asCost returns d with its result as the cost.
func (d derived) asCost() derived {
	d.name, d.bare = d.name+" as the cost", true
	return d
}

// norms are rows of Sparsemax, GroupNorm and Upsample2D.
func norms() []derived {
	const last = "along the last axis of vectors and matrices only"
	sparse := func(name, tape string, shape []int, axes ...int) derived {
		d := row("Sparsemax"+name, anywhere, along(G.Sparsemax, axes...), shape)
		return d.failing(byWhom{tape: tape})
	}
	group := func(name string, groups int, tape string, shape ...int) derived {
		rest := slices.Repeat([]int{1}, len(shape))
		rest[1] = shape[1]
		return row("GroupNorm"+name, positive, func(x []*G.Node) (*G.Node, error) {
			return G.GroupNorm(x[0], x[1], x[2], groups, shape[1], 1e-3)
		}, shape, rest, rest).failing(byWhom{tape: tape})
	}
	larger := func(name string, scale int) derived {
		return row("Upsample2D"+name, anywhere, unary(func(x *G.Node) (*G.Node, error) {
			return G.Upsample2D(x, scale)
		}), dims(2, 2, 2, 3))
	}
	return []derived{
		sparse("", "", dims(3, 4)),
		sparse(" of a vector", "", dims(4)),
		sparse(" of a column", "", dims(4, 1)),
		sparse(" of a row", "", dims(1, 4)),
		sparse(" of the last axis", "", dims(3, 4), 1),
		sparse(" of the first axis", last, dims(3, 4), 0),
		sparse(" of the first axis of a square", last, dims(3, 3), 0),
		sparse(" of three axes", "SparsemaxDiff", dims(2, 3, 4)),
		sparse(" in the middle", "tranposing", dims(2, 3, 4), 1), // so spelled in the forward pass
		group("", 2, "", 2, 4, 2, 3),
		group(" of one group", 1, "", 2, 4, 2, 3),
		group(" of each channel", 4, "", 2, 4, 2, 3),
		group(" without images", 2, "", 3, 4),
		group(" of 263 elements", 1, "", 1, 1, 1, 263),
		group(" of 264 elements", 1, "moments of 264 elements", 1, 1, 1, 264),
		larger("", 3),
		larger(" by 1", 1),
	}
}

func integers(g *G.ExprGraph, name string, v []int, shape ...int) *G.Node {
	value := gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v))
	return G.NewTensor(g, G.Int, len(shape), G.WithName(name), G.WithShape(shape...),
		G.WithValue(value))
}

// ctc is a CTCLoss of two sequences. The first repeats a label. The second is shorter and has fewer
// labels.
func ctc(red G.Reduction, flat, normal bool) function {
	return unary(func(x *G.Node) (*G.Node, error) {
		g := x.Graph()
		labels := integers(g, "labels", []int{2, 2, 3, 1, 0, 0}, 2, 3)
		if flat {
			labels = integers(g, "labels", []int{2, 2, 3, 1}, 4)
		}
		if normal {
			x = G.Must(G.LogSoftMax(x, 2))
		}
		steps, lengths := integers(g, "steps", []int{6, 4}, 2), integers(g, "lengths", []int{3, 1}, 2)
		return G.CTCLoss(x, labels, steps, lengths, red)
	})
}

// boxes is a YOLOv3, which is of float32 only.
func boxes(targets ...float32) function {
	return unary(func(x *G.Node) (*G.Node, error) {
		var nodes []*G.Node
		if len(targets) > 0 {
			v := make([]float32, 16)
			copy(v, targets)
			value := gtensor.New(gtensor.WithShape(1, 1, 4, 4), gtensor.WithBacking(v))
			nodes = append(nodes, G.NodeFromAny(x.Graph(), value, G.WithName("boxes")))
		}
		anchors := []float32{10, 13, 16, 30, 33, 23}
		x = G.Must(G.ConvType(x, G.Float64, G.Float32))
		y, err := G.YOLOv3(x, anchors, []int{0, 1, 2}, 32, 2, 0.7, nodes...)
		if err != nil {
			return nil, err
		}
		return G.ConvType(y, G.Float32, G.Float64)
	})
}

// losses are rows of CTCLoss and YOLOv3.
func losses() []derived {
	var all []derived
	for mean, red := range map[string]G.Reduction{"": G.ReductionSum, " with the mean": G.ReductionMean} {
		for before, normal := range map[string]bool{"": true, " alone": false} {
			for labels, flat := range map[string]bool{"": false, " of labels in a row": true} {
				d := row("CTCLoss"+before+mean+labels, anywhere, ctc(red, flat, normal), dims(6, 2, 4))
				all = append(all, d, d.asCost())
			}
		}
	}
	const none = "yoloOp has no symbolic derivative"
	bad := byWhom{plain: "gorgonia: ", ours: none, attach: none}
	one := []float32{5, 1, 0.4, 0.6, 0.5, 0.5} // 5 numbers: a class, a place and a size
	return append(all,
		row("YOLOv3", anywhere, boxes(), dims(1, 21, 4, 4)).failing(bad),
		row("YOLOv3 in training", anywhere, boxes(one...), dims(1, 21, 4, 4)).failing(bad),
	)
}

// binaryFraction is a number of few bits: differences of it are exact in float32.
func binaryFraction(r *rand.Rand) float64 { return math.Round(r.NormFloat64()*1024) / 1024 }

// whole returns x without its fraction, through integers.
func whole(x *G.Node) *G.Node {
	return G.Must(G.ConvType(G.Must(G.ConvType(x, G.Float64, G.Int)), G.Int, G.Float64))
}

// conversions are rows of ConvType and DiagFlat.
func conversions() []derived {
	single := row("ConvType to float32 and back", binaryFraction, unary(func(x *G.Node) (*G.Node, error) {
		return G.ConvType(G.Must(G.ConvType(x, G.Float64, G.Float32)), G.Float32, G.Float64)
	}), dims(2, 3)).failing(byWhom{tape: "Cannot do conversion"})
	single.step = 1. / 1024
	steps := func(name string, f func(*G.Node) (*G.Node, error)) derived {
		d := row("ConvType to integers"+name, anywhere, unary(f), dims(2, 3))
		return d.failing(byWhom{plain: "ops.Grad"})
	}
	alone := steps(" and back", func(x *G.Node) (*G.Node, error) { return whole(x), nil })
	alone.bad.ours = "Non Differentiable WRTs"
	alone.bad.attach = "depends on none of the 1 learnables"
	diagonal := func(name string, f func(*G.Node) (*G.Node, error), shape ...int) derived {
		return row("DiagFlat"+name, anywhere, unary(f), shape).failing(byWhom{plain: "gorgonia: "})
	}
	return []derived{
		single,
		alone,
		steps(" in a product", func(x *G.Node) (*G.Node, error) { return G.HadamardProd(x, whole(x)) }),
		steps(" of a result", func(x *G.Node) (*G.Node, error) {
			y := G.Must(G.Exp(x))
			return G.HadamardProd(y, whole(y))
		}),
		diagonal("", ops.DiagFlat, 3),
		diagonal(" of a matrix", ops.DiagFlat, 2, 3),
		diagonal(" in a product", func(x *G.Node) (*G.Node, error) {
			return G.Mul(G.Must(ops.DiagFlat(G.Must(G.Square(x)))), x)
		}, 3),
	}
}

// costs has rows whose op returns the cost itself.
func costs() []derived {
	overOne := func(r *rand.Rand) float64 { return 2 + r.Float64() }
	twice := func(x *G.Node) (*G.Node, error) { return G.Log2(G.Must(G.Log2(x))) }
	all := []derived{
		row("Log2", positive, unary(G.Log2), dims()),
		row("InverseSqrt", positive, unary(G.InverseSqrt), dims()),
		row("Log2 of Log2", overOne, unary(twice), dims()),
	}
	for i, d := range all {
		all[i] = d.asCost().failing(byWhom{plain: "ops.Grad"})
	}
	return all
}
