package machine_test

import (
	"math"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/ops"
)

// covered builds the graph of one row: inputs, and the nodes that are compared.
type covered struct {
	g      *G.ExprGraph
	dt     gtensor.Dtype
	inputs G.Nodes // of floating-point numbers: the gradient is taken by them
	n      int
}

// between is an input of numbers from low to high. None are equal or near a kink.
func (c *covered) between(low, high float64, shape ...int) *G.Node {
	c.n++
	name := string(rune('a' + c.n - 1))
	n := gtensor.Shape(shape).TotalSize()
	v := make([]float64, n)
	for i := range v {
		at := math.Mod(0.37+float64(i+1)*0.618033988749895+0.21*float64(c.n), 1)
		v[i] = low + (high-low)*at
	}
	x := c.input(name, v, shape)
	c.inputs = append(c.inputs, x)
	return x
}

// input is an input with given numbers.
func (c *covered) input(name string, v []float64, shape []int) *G.Node {
	if len(shape) == 0 {
		if c.dt == G.Float32 {
			return G.NodeFromAny(c.g, float32(v[0]), G.WithName(name))
		}
		return G.NodeFromAny(c.g, v[0], G.WithName(name))
	}
	var backing any = v
	if c.dt == G.Float32 {
		small := make([]float32, len(v))
		for i := range v {
			small[i] = float32(v[i])
		}
		backing = small
	}
	return G.NodeFromAny(c.g, gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(backing)), G.WithName(name))
}

// x is an input of numbers around 0.
func (c *covered) x(shape ...int) *G.Node { return c.between(-1.3, 1.4, shape...) }

// over is an input of numbers above 0.
func (c *covered) over(shape ...int) *G.Node { return c.between(0.3, 1.7, shape...) }

// ints is an input of integers.
func (c *covered) ints(name string, v []int, shape ...int) *G.Node {
	return G.NodeFromAny(c.g, gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v)), G.WithName(name))
}

// gradient says how the backward pass of a row is tested.
type gradient int

const (
	differences gradient = iota // against central differences of the ops' own Do
	none                        // there is no derivative: ops.Grad is an error
	nothing                     // no number depends on an input by the function
)

// coverage is a public function of Gorgonia that makes a node.
type coverage struct {
	name   string
	build  func(c *covered) []*G.Node
	grad   gradient
	host   bool // on a GPU too the op runs by its own Do on the host
	random bool // each run draws numbers: a test of its own judges its values
	single bool // of float32: Gorgonia's op knows nothing else
}

func one(n *G.Node, err error) []*G.Node { return []*G.Node{G.Must(n, err)} }

// of1 and of2 are rows of functions of one and of two inputs.
func of1(name string, f func(*G.Node) (*G.Node, error), grad gradient) coverage {
	return coverage{name: name, grad: grad, build: func(c *covered) []*G.Node {
		return append(one(f(c.over(2, 3))), one(f(c.over()))...)
	}}
}

func of2(name string, f func(a, b *G.Node) (*G.Node, error), grad gradient) coverage {
	return coverage{name: name, grad: grad, build: func(c *covered) []*G.Node {
		return append(one(f(c.over(2, 3), c.over(2, 3))), one(f(c.over(), c.over()))...)
	}}
}

func compared(name string, f func(a, b *G.Node, same bool) (*G.Node, error)) coverage {
	return coverage{name: name, grad: none, build: func(c *covered) []*G.Node {
		a, b := c.x(5), c.x(5)
		return append(one(f(a, b, true)), one(f(a, b, false))...)
	}}
}

func broadcast(name string, f func(a, b *G.Node, left, right []byte) (*G.Node, error)) coverage {
	return coverage{name: name, build: func(c *covered) []*G.Node {
		return append(one(f(c.over(2, 1), c.over(2, 3), []byte{1}, nil)), one(f(c.over(2, 1), c.over(1, 3), []byte{1}, []byte{0}))...)
	}}
}

func broadcastCompared(name string, f func(a, b *G.Node, same bool, left, right []byte) (*G.Node, error)) coverage {
	return coverage{name: name, grad: none, build: func(c *covered) []*G.Node {
		return append(one(f(c.x(2, 1), c.x(2, 3), true, []byte{1}, nil)), one(f(c.x(2, 1), c.x(2, 3), false, []byte{1}, nil))...)
	}}
}

// rowsOfElements has the elementwise functions.
var rowsOfElements = []coverage{
	of1("Abs", G.Abs, differences), of1("Sign", G.Sign, none), of1("Ceil", G.Ceil, none), of1("Floor", G.Floor, none),
	of1("Sin", G.Sin, differences), of1("Cos", G.Cos, differences), of1("Exp", G.Exp, differences), of1("Log", G.Log, differences),
	of1("Log2", G.Log2, differences), of1("Neg", G.Neg, differences),
	of1("Square", G.Square, differences), of1("Sqrt", G.Sqrt, differences),
	of1("Inverse", G.Inverse, differences), of1("InverseSqrt", G.InverseSqrt, differences),
	of1("Cube", G.Cube, differences),
	of1("Tanh", G.Tanh, differences), of1("Sigmoid", G.Sigmoid, differences), of1("Log1p", G.Log1p, differences),
	of1("Expm1", G.Expm1, differences), of1("Softplus", G.Softplus, differences), of1("Mish", G.Mish, differences),
	of1("Rectify", G.Rectify, differences),
	{name: "LeakyRelu", build: func(c *covered) []*G.Node { return one(G.LeakyRelu(c.x(2, 3), 0.1)) }},
	of2("Add", G.Add, differences), of2("Sub", G.Sub, differences), of2("HadamardProd", G.HadamardProd, differences),
	of2("HadamardDiv", G.HadamardDiv, differences), of2("Pow", G.Pow, differences), of2("Div", G.Div, differences),
	{name: "MinBetween", build: func(c *covered) []*G.Node { return one(G.MinBetween(c.x(2, 3), c.x(2, 3))) }},
	{name: "MaxBetween", build: func(c *covered) []*G.Node { return one(G.MaxBetween(c.x(2, 3), c.x(2, 3))) }},
	compared("Lt", G.Lt), compared("Gt", G.Gt), compared("Lte", G.Lte), compared("Gte", G.Gte), compared("Eq", G.Eq), compared("Ne", G.Ne),
	broadcast("BroadcastAdd", G.BroadcastAdd), broadcast("BroadcastSub", G.BroadcastSub),
	broadcast("BroadcastHadamardProd", G.BroadcastHadamardProd), broadcast("BroadcastHadamardDiv", G.BroadcastHadamardDiv),
	broadcast("BroadcastPow", G.BroadcastPow),
	broadcastCompared("BroadcastLt", G.BroadcastLt), broadcastCompared("BroadcastGt", G.BroadcastGt),
	broadcastCompared("BroadcastLte", G.BroadcastLte), broadcastCompared("BroadcastGte", G.BroadcastGte),
	broadcastCompared("BroadcastEq", G.BroadcastEq), broadcastCompared("BroadcastNe", G.BroadcastNe),
	{name: "Broadcast", build: func(c *covered) []*G.Node {
		a, b, err := G.Broadcast(c.x(2, 1), c.x(2, 3), G.NewBroadcastPattern([]byte{1}, nil))
		G.Must(a, err)
		return one(G.Add(a, b))
	}},
	{name: "Auto", build: func(c *covered) []*G.Node { return one(G.Auto(G.BroadcastAdd, c.x(2, 1), c.x(2, 3))) }},
	{name: "ConvType", build: func(c *covered) []*G.Node {
		x := c.x(2, 3)
		whole := G.Must(G.ConvType(x, G.Float64, G.Int))
		back := G.Must(G.ConvType(whole, G.Int, G.Float64))
		return append([]*G.Node{whole, back}, one(G.HadamardProd(x, back))...)
	}},
	{name: "BinaryXent", build: func(c *covered) []*G.Node {
		return one(G.BinaryXent(c.between(0.1, 0.9, 2, 3), c.between(0.2, 0.8, 2, 3)))
	}},
}

// rowsOfShapes has the functions that move elements, reduce them or multiply matrices.
var rowsOfShapes = []coverage{
	{name: "Mul", build: func(c *covered) []*G.Node {
		s, v, w, m := c.x(), c.x(3), c.x(3), c.x(3, 3)
		var all []*G.Node
		for _, p := range [][2]*G.Node{{s, s}, {s, v}, {s, m}, {v, s}, {v, w}, {v, m}, {m, s}, {m, v}, {m, m}} {
			all = append(all, G.Must(G.Mul(p[0], p[1])))
		}
		return all
	}},
	{name: "BatchedMatMul", build: func(c *covered) []*G.Node {
		return append(one(G.BatchedMatMul(c.x(2, 2, 3), c.x(2, 3, 2))), one(G.BatchedMatMul(c.x(2, 3, 2), c.x(2, 2, 3), true, true))...)
	}},
	{name: "OuterProd", build: func(c *covered) []*G.Node {
		return one(G.OuterProd(c.x(2), c.x(3)))
	}},
	{name: "Tensordot", build: func(c *covered) []*G.Node {
		return append(one(G.Tensordot([]int{1, 2}, []int{1, 0}, c.x(2, 2, 3), c.x(3, 2, 2))), one(G.Tensordot([]int{0}, []int{0}, c.x(3), c.x(3)))...)
	}},
	{name: "Sum", build: func(c *covered) []*G.Node { a := c.x(2, 3); return append(one(G.Sum(a)), one(G.Sum(a, 1))...) }},
	{name: "Mean", build: func(c *covered) []*G.Node { a := c.x(2, 3); return append(one(G.Mean(a)), one(G.Mean(a, 0))...) }},
	{name: "Max", build: func(c *covered) []*G.Node { a := c.x(2, 3); return append(one(G.Max(a)), one(G.Max(a, 1))...) }},
	{name: "Norm", build: func(c *covered) []*G.Node { return one(G.Norm(c.over(2, 3), 1, 2)) }},
	{name: "LogSumExp", build: func(c *covered) []*G.Node { return one(G.LogSumExp(c.x(4), 0)) }},
	{name: "KeepDims", build: func(c *covered) []*G.Node {
		return one(G.KeepDims(c.x(2, 3), false, func(n *G.Node) (*G.Node, error) { return G.Sum(n, 1) }))
	}},
	{name: "ReduceAdd", build: func(c *covered) []*G.Node { return one(G.ReduceAdd(G.Nodes{c.x(2, 3), c.x(2, 3), c.x(2, 3)})) }},
	{name: "ReduceMul", build: func(c *covered) []*G.Node { return one(G.ReduceMul(G.Nodes{c.x(3, 3), c.x(3, 3), c.x(3, 3)})) }},
	{name: "SoftMax", build: func(c *covered) []*G.Node { a := c.x(2, 3); return append(one(G.SoftMax(a)), one(G.SoftMax(a, 0))...) }},
	{name: "LogSoftMax", build: func(c *covered) []*G.Node { return one(G.LogSoftMax(c.x(2, 3), 1)) }},
	{name: "Sparsemax", build: func(c *covered) []*G.Node { return one(G.Sparsemax(c.x(3, 4))) }},
	{name: "Slice", build: func(c *covered) []*G.Node {
		a := c.x(4, 3)
		return append(append(one(G.Slice(a, G.S(1))), one(G.Slice(a, G.S(1, 3), G.S(0, 2)))...), one(G.Slice(a, G.S(0, 4, 2)))...)
	}},
	{name: "Concat", build: func(c *covered) []*G.Node { return one(G.Concat(1, c.x(2, 3), c.x(2, 1))) }},
	{name: "Unconcat", build: func(c *covered) []*G.Node {
		all, err := G.Unconcat(c.x(2, 4), 1, 2)
		G.Must(all[0], err)
		return all
	}},
	{name: "Transpose", build: func(c *covered) []*G.Node { return one(G.Transpose(c.x(2, 3, 2), 2, 0, 1)) }},
	{name: "Reshape", build: func(c *covered) []*G.Node { return one(G.Reshape(c.x(2, 3), gtensor.Shape{3, 2})) }},
	{name: "Ravel", build: func(c *covered) []*G.Node { return one(G.Ravel(c.x(2, 3))) }},
	{name: "SizeOf", build: func(c *covered) []*G.Node { return one(G.SizeOf(1, c.x(2, 3))) }, grad: nothing},
	{name: "At", build: func(c *covered) []*G.Node { return one(G.At(c.x(2, 3), 1, 2)) }, grad: none},
	{name: "ByIndices", build: func(c *covered) []*G.Node { return one(G.ByIndices(c.x(3, 2), c.ints("i", []int{2, 0, 2}, 3), 0)) }},
	{name: "DiagFlat", build: func(c *covered) []*G.Node { return one(ops.DiagFlat(c.x(3))) }},
}

// rowsOfLayers has the functions of neural networks, random nodes and statements.
var rowsOfLayers = []coverage{
	{name: "Conv2d", build: func(c *covered) []*G.Node {
		return one(G.Conv2d(c.x(1, 2, 4, 4), c.x(2, 2, 3, 3), gtensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	}},
	{name: "Conv1d", build: func(c *covered) []*G.Node { return one(G.Conv1d(c.x(1, 2, 1, 6), c.x(2, 2, 1, 3), 3, 1, 1, 1)) }},
	{name: "Im2Col", build: func(c *covered) []*G.Node {
		return one(G.Im2Col(c.x(1, 2, 4, 4), gtensor.Shape{2, 2}, gtensor.Shape{0, 0}, gtensor.Shape{2, 2}, gtensor.Shape{1, 1}))
	}},
	{name: "MaxPool2D", build: func(c *covered) []*G.Node {
		return one(G.MaxPool2D(c.x(1, 2, 4, 4), gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	}},
	{name: "MaxPool1D", build: func(c *covered) []*G.Node { return one(G.MaxPool1D(c.x(1, 2, 1, 6), 2, 0, 2)) }},
	{name: "AveragePool2D", build: func(c *covered) []*G.Node {
		return one(G.AveragePool2D(c.x(1, 2, 4, 4), gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	}},
	{name: "AveragePool1D", build: func(c *covered) []*G.Node {
		return one(G.AveragePool1D(c.x(1, 2, 1, 6), 2, 0, 2))
	}},
	{name: "GlobalAveragePool2D", build: func(c *covered) []*G.Node {
		return one(G.GlobalAveragePool2D(c.x(1, 2, 3, 4)))
	}},
	{name: "BatchNorm", build: func(c *covered) []*G.Node {
		y, _, _, _, err := G.BatchNorm(c.x(3, 2, 2, 2), c.over(1, 2, 1, 1), c.over(1, 2, 1, 1), 0.9, 1e-5)
		return one(y, err)
	}},
	{name: "GroupNorm", build: func(c *covered) []*G.Node {
		return one(G.GroupNorm(c.x(2, 4, 2, 3), c.over(1, 4, 1, 1), c.over(1, 4, 1, 1), 2, 4, 1e-5))
	}},
	{name: "Upsample2D", build: func(c *covered) []*G.Node { return one(G.Upsample2D(c.x(1, 2, 2, 3), 3)) }},
	{name: "CTCLoss", build: func(c *covered) []*G.Node {
		p := G.Must(G.LogSoftMax(c.x(5, 2, 4), 2))
		return one(G.CTCLoss(p, c.ints("labels", []int{1, 2, 3, 1}, 2, 2), c.ints("steps", []int{5, 5}, 2), c.ints("lengths", []int{2, 2}, 2), G.ReductionSum))
	}, host: true},
	{name: "YOLOv3", build: func(c *covered) []*G.Node {
		return one(G.YOLOv3(c.x(1, 21, 4, 4), []float32{10, 13, 16, 30, 33, 23}, []int{0, 1, 2}, 32, 2, 0.7))
	}, grad: none, host: true, single: true},
	{name: "Dropout", build: func(c *covered) []*G.Node {
		return one(G.Dropout(c.over(5, 4), 0.3))
	}, random: true},
	{name: "UniformRandomNode", build: func(c *covered) []*G.Node { return one(G.Neg(G.UniformRandomNode(c.g, c.dt, 2, 3, 4, 5))) }, grad: nothing, random: true},
	{name: "GaussianRandomNode", build: func(c *covered) []*G.Node { return one(G.Neg(G.GaussianRandomNode(c.g, c.dt, 0, 1, 4, 5))) }, grad: nothing, random: true},
	{name: "BinomialRandomNode", build: func(c *covered) []*G.Node { return one(G.Neg(G.BinomialRandomNode(c.g, c.dt, 9, 0.4, 4, 5))) }, grad: nothing, random: true},
	{name: "Read", build: func(c *covered) []*G.Node {
		y := G.Must(G.Square(c.x(3)))
		G.Read(y, new(G.Value))
		return []*G.Node{y}
	}, grad: nothing},
	{name: "Set", build: func(c *covered) []*G.Node {
		w := c.x(3)
		y := G.Must(G.Square(w))
		G.Set(w, y)
		return []*G.Node{y}
	}, grad: nothing},
}

// constructors has exported functions that return nodes but have no row, with the reason.
var constructors = map[string]string{
	"NewConstant": "an input", "NewMatrix": "an input", "NewScalar": "an input", "NewTensor": "an input", "NewVector": "an input",
	"NodeFromAny": "an input", "OneHotVector": "an input", "NewUniqueNode": "the way to any op", "ApplyOp": "the way to any op",
	"ApplyOpWithName": "the way to any op", "Must": "gives what it gets", "Grad": "differentiates", "Backpropagate": "differentiates",
	"NodesFromInputs": "lists nodes", "Sort": "lists nodes", "UnstableSort": "lists nodes",
}
