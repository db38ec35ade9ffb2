package machine_test

import (
	"fmt"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// TestCoverageShapesAreThoseOfDo compares each op's value with the result of its own Do: kind,
// type, shape and elements. It has scalars and axes of length 1, where Gorgonia's shape rules and
// its ops differ most.
func TestCoverageShapesAreThoseOfDo(t *testing.T) {
	singles := [][]int{{}, {1}, {3}, {1, 1}, {1, 3}, {3, 1}, {1, 1, 1}, {2, 1, 3}}
	for name, f := range shapeFunctions() {
		for _, shape := range singles {
			t.Run(fmt.Sprint(name, shape), func(t *testing.T) {
				build := func() (c *covered, y *G.Node, err error) {
					defer func() {
						if p := recover(); p != nil {
							err = fmt.Errorf("gorgonia: %v", p)
						}
					}()
					c = &covered{g: G.NewGraph(), dt: G.Float64}
					y, err = f(c, shape)
					return c, y, err
				}
				c, y, err := build()
				if err != nil || y.Op() == nil {
					t.Skipf("not built by Gorgonia: %v", err)
				}
				want, err := c.tryDo(y)
				if err != nil {
					t.Skipf("its Do: %v", err)
				}
				c, y, _ = build()
				run(t, newMachine(t, c.g, plain, y))
				equalValues(t, name, y.Value(), want, 1e-12)
			})
		}
	}
}

// tryDo is byDo with an op's error or panic returned as an error.
func (c *covered) tryDo(n *G.Node) (v G.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("gorgonia: %v", p)
		}
	}()
	return c.do(n)
}

// shapeFunctions has ops of one or two inputs of a shape.
func shapeFunctions() map[string]func(c *covered, shape []int) (*G.Node, error) {
	all := map[string]func(c *covered, shape []int) (*G.Node, error){}
	for name, f := range map[string]func(*G.Node) (*G.Node, error){
		"square": G.Square, "tanh": G.Tanh, "sign": G.Sign, "softplus": G.Softplus,
		"transpose":          func(x *G.Node) (*G.Node, error) { return G.Transpose(x) },
		"ravel":              G.Ravel,
		"flat":               func(x *G.Node) (*G.Node, error) { return G.Reshape(x, gtensor.Shape{x.Shape().TotalSize()}) },
		"row":                func(x *G.Node) (*G.Node, error) { return G.Reshape(x, gtensor.Shape{1, x.Shape().TotalSize()}) },
		"sum":                func(x *G.Node) (*G.Node, error) { return G.Sum(x) },
		"sum of axis 0":      func(x *G.Node) (*G.Node, error) { return G.Sum(x, 0) },
		"sum of axis 1":      func(x *G.Node) (*G.Node, error) { return G.Sum(x, 1) },
		"max":                func(x *G.Node) (*G.Node, error) { return G.Max(x) },
		"max of axis 1":      func(x *G.Node) (*G.Node, error) { return G.Max(x, 1) },
		"slice of one":       func(x *G.Node) (*G.Node, error) { return G.Slice(x, G.S(0)) },
		"slice 0:1":          func(x *G.Node) (*G.Node, error) { return G.Slice(x, G.S(0, 1)) },
		"slice all":          func(x *G.Node) (*G.Node, error) { return G.Slice(x, nil) },
		"slice of axis 1":    func(x *G.Node) (*G.Node, error) { return G.Slice(x, nil, G.S(0, 1)) },
		"at":                 func(x *G.Node) (*G.Node, error) { return G.At(x, make([]int, x.Dims())...) },
		"size":               func(x *G.Node) (*G.Node, error) { return G.SizeOf(0, x) },
		"softmax":            func(x *G.Node) (*G.Node, error) { return G.SoftMax(x) },
		"sparsemax":          func(x *G.Node) (*G.Node, error) { return G.Sparsemax(x) },
		"float32":            func(x *G.Node) (*G.Node, error) { return G.ConvType(x, G.Float64, G.Float32) },
		"int":                func(x *G.Node) (*G.Node, error) { return G.ConvType(x, G.Float64, G.Int) },
		"diagonal":           G.DiagFlat,
		"concat with itself": func(x *G.Node) (*G.Node, error) { return G.Concat(0, x, x) },
		"concat alone":       func(x *G.Node) (*G.Node, error) { return G.Concat(0, x) },
	} {
		all[name] = func(c *covered, shape []int) (*G.Node, error) { return f(c.over(shape...)) }
	}
	for name, f := range map[string]func(a, b *G.Node) (*G.Node, error){
		"add": G.Add, "times": G.HadamardProd, "product": G.Mul, "outer": G.OuterProd, "smaller": G.MinBetween, "div": G.Div,
		"less":                func(a, b *G.Node) (*G.Node, error) { return G.Lt(a, b, false) },
		"more":                func(a, b *G.Node) (*G.Node, error) { return G.Gt(a, b, true) },
		"tensordot of axis 0": func(a, b *G.Node) (*G.Node, error) { return G.Tensordot([]int{0}, []int{0}, a, b) },
		"tensordot of axis 1": func(a, b *G.Node) (*G.Node, error) { return G.Tensordot([]int{1}, []int{1}, a, b) },
		"tensordot of both":   func(a, b *G.Node) (*G.Node, error) { return G.Tensordot([]int{0, 1}, []int{0, 1}, a, b) },
	} {
		all[name] = func(c *covered, shape []int) (*G.Node, error) { return f(c.over(shape...), c.over(shape...)) }
		all[name+" a scalar"] = func(c *covered, shape []int) (*G.Node, error) { return f(c.over(shape...), c.over()) }
		all["scalar "+name] = func(c *covered, shape []int) (*G.Node, error) { return f(c.over(), c.over(shape...)) }
	}
	return all
}
