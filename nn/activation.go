package nn

import (
	"math"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/nnop"
)

// GELU returns x * (1 + erf(x/√2)) / 2 of each element: torch.nn.GELU() (Hendrycks and Gimpel,
// Gaussian Error Linear Units, 2016).
//
// Shapes: any of up to 4 axes. Errors: as for Linear.
func GELU(x *G.Node) (*G.Node, error) {
	l := start("GELU", x, 1, maxAxes)
	y := l.of(nnop.NewErf, l.with(G.HadamardProd, x, math.Sqrt2/2))
	y = l.with(G.HadamardProd, l.with(G.Add, y, 1), 0.5)
	return l.both(G.HadamardProd, x, y), l.err
}

// GELUTanh returns x * (1 + tanh(√(2/π) * (x + 0.044715*x³))) / 2 of each element, the form of
// GPT-2: torch.nn.GELU(approximate="tanh").
//
// Shapes: any of up to 4 axes. Errors: as for Linear.
func GELUTanh(x *G.Node) (*G.Node, error) {
	l := start("GELUTanh", x, 1, maxAxes)
	y := l.both(G.Add, x, l.with(G.HadamardProd, l.of(G.Cube, x), 0.044715))
	y = l.of(G.Tanh, l.with(G.HadamardProd, y, math.Sqrt(2/math.Pi)))
	y = l.with(G.HadamardProd, l.with(G.Add, y, 1), 0.5)
	return l.both(G.HadamardProd, x, y), l.err
}

// SiLU returns x * sigmoid(x) of each element: torch.nn.SiLU.
//
// Shapes: any of up to 4 axes. Errors: as for Linear.
func SiLU(x *G.Node) (*G.Node, error) {
	l := start("SiLU", x, 1, maxAxes)
	return l.both(G.HadamardProd, x, l.of(G.Sigmoid, x)), l.err
}

// SwiGLU returns SiLU(gate) * up of each element, the activation of Llama's perceptron (Shazeer,
// GLU Variants Improve Transformer, 2020; LlamaMLP of Hugging Face's transformers).
//
// Shapes: gate and up have one shape of up to 4 axes. Errors: as for Linear.
func SwiGLU(gate, up *G.Node) (*G.Node, error) {
	l := start("SwiGLU", gate, 1, maxAxes)
	if l.err == nil {
		l.needs("up", up, gate.Shape()...)
	}
	y := l.both(G.HadamardProd, gate, l.of(G.Sigmoid, gate))
	return l.both(G.HadamardProd, y, up), l.err
}
