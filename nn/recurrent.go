package nn

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// CellWeights holds the weights of a recurrent cell, whose gates are side by side: input, forget,
// cell and output for an LSTM; reset, update and new for a GRU. Matrices are the transposed ones of
// PyTorch: weight_ih_l0ᵀ and weight_hh_l0ᵀ.
type CellWeights struct {
	Input      *G.Node // (in, gates*hidden)
	Hidden     *G.Node // (hidden, gates*hidden)
	InputBias  *G.Node // gates*hidden elements; nil means 0
	HiddenBias *G.Node // gates*hidden elements; nil means 0
}

const lstmGates, gruGates = 4, 3

// LSTMCell returns the next state of an LSTM:
//
//	i, f, g, o = x*Input + InputBias + h*Hidden + HiddenBias
//	next = sigmoid(f)*cell + sigmoid(i)*tanh(g)
//	hNext = sigmoid(o)*tanh(next)
//
// That is torch.nn.LSTMCell (Hochreiter and Schmidhuber, 1997, with forget gates).
//
// Shapes: x is (batch, in), h and cell are (batch, hidden), and so are the results. Errors: as for
// Linear.
func LSTMCell(x, h, cell *G.Node, w CellWeights) (hNext, next *G.Node, err error) {
	l := start("LSTMCell", x, 2, 2)
	hidden := l.cell(x, h, w, lstmGates)
	l.state("cell", cell, x, hidden)
	if l.err != nil {
		return nil, nil, l.err
	}
	hNext, next = l.lstm(l.project(x, w), h, cell, w)
	return hNext, next, l.err
}

// GRUCell returns the next state of a GRU:
//
//	r, z = sigmoid(x*Input + InputBias + h*Hidden + HiddenBias), for these gates
//	n = tanh(x*Input + InputBias + r*(h*Hidden + HiddenBias)), for this gate
//	next = (1-z)*n + z*h
//
// That is torch.nn.GRUCell (Cho et al., 2014).
//
// Shapes: x is (batch, in), h is (batch, hidden), and so is the result. Errors: as for Linear.
func GRUCell(x, h *G.Node, w CellWeights) (*G.Node, error) {
	l := start("GRUCell", x, 2, 2)
	if l.cell(x, h, w, gruGates); l.err != nil {
		return nil, l.err
	}
	return l.gru(l.project(x, w), h, w), l.err
}

// LSTM runs LSTMCell over the tokens of sequences: torch.nn.LSTM of one layer with batch_first.
//
// Shapes: x is (batch, tokens, in), h and cell are the first state (batch, hidden). Returns: the
// states h after each token (batch, tokens, hidden), and the last h and cell. Errors: as for
// Linear.
func LSTM(x, h, cell *G.Node, w CellWeights) (y, hLast, last *G.Node, err error) {
	l := start("LSTM", x, 3, 3)
	hidden := l.cell(x, h, w, lstmGates)
	l.state("cell", cell, x, hidden)
	y, hLast = l.tokens(x, h, w, func(gates, h *G.Node) *G.Node {
		h, cell = l.lstm(gates, h, cell, w)
		return h
	})
	if l.err != nil {
		return nil, nil, nil, l.err
	}
	return y, hLast, cell, nil
}

// GRU runs GRUCell over the tokens of sequences: torch.nn.GRU of one layer with batch_first.
//
// Shapes: x is (batch, tokens, in), h is the first state (batch, hidden). Returns: the states after
// each token (batch, tokens, hidden), and the last one. Errors: as for Linear.
func GRU(x, h *G.Node, w CellWeights) (y, last *G.Node, err error) {
	l := start("GRU", x, 3, 3)
	l.cell(x, h, w, gruGates)
	y, last = l.tokens(x, h, w, func(gates, h *G.Node) *G.Node { return l.gru(gates, h, w) })
	if l.err != nil {
		return nil, nil, l.err
	}
	return y, last, nil
}

// cell checks the weights and the state h of a cell, and returns the number of hidden features.
func (l *layer) cell(x, h *G.Node, w CellWeights, gates int) (hidden int) {
	if l.joins("hidden weight", w.Hidden, l.dt); l.err != nil {
		return 0
	}
	if s := w.Hidden.Shape(); len(s) != 2 || s[1] != gates*s[0] {
		l.fail(dist.ErrCount, "hidden weight %q has shape %v, want (hidden, %d*hidden)", called(w.Hidden), s, gates)
		return 0
	}
	hidden = w.Hidden.Shape()[0]
	l.needs("input weight", w.Input, last(x.Shape()), gates*hidden)
	l.state("state", h, x, hidden)
	return hidden
}

// state checks the state of a cell.
func (l *layer) state(what string, h, x *G.Node, hidden int) {
	if l.err == nil {
		l.needs(what, h, x.Shape()[0], hidden)
	}
}

// project returns the part of the gates that x gives, (rows of x, gates*hidden).
func (l *layer) project(x *G.Node, w CellWeights) *G.Node {
	if l.err != nil {
		return nil
	}
	return l.biased(l.both(G.Mul, l.reshape(x, rows(x.Shape()), last(x.Shape())), w.Input), "input bias", w.InputBias)
}

// recur returns the part of the gates that the state gives.
func (l *layer) recur(h *G.Node, w CellWeights) *G.Node {
	return l.biased(l.both(G.Mul, h, w.Hidden), "hidden bias", w.HiddenBias)
}

func (l *layer) biased(y *G.Node, what string, bias *G.Node) *G.Node {
	if bias == nil || l.err != nil {
		return y
	}
	return l.over(G.BroadcastAdd, y, l.vector(what, bias, last(y.Shape()), 2), 0)
}

// gate returns gate number i of some, (batch, hidden).
func (l *layer) gate(all *G.Node, i, hidden int) *G.Node {
	if l.err != nil {
		return nil
	}
	part := l.do(func() (*G.Node, error) { return G.Slice(all, nil, G.S(i*hidden, (i+1)*hidden)) })
	return l.reshape(part, all.Shape()[0], hidden)
}

// lstm returns the next state from the part of the gates that the input gives.
func (l *layer) lstm(gates, h, cell *G.Node, w CellWeights) (hNext, next *G.Node) {
	all := l.both(G.Add, gates, l.recur(h, w))
	if l.err != nil {
		return nil, nil
	}
	n := last(h.Shape())
	kept := l.both(G.HadamardProd, l.of(G.Sigmoid, l.gate(all, 1, n)), cell)
	made := l.both(G.HadamardProd, l.of(G.Sigmoid, l.gate(all, 0, n)), l.of(G.Tanh, l.gate(all, 2, n)))
	next = l.both(G.Add, kept, made)
	return l.both(G.HadamardProd, l.of(G.Sigmoid, l.gate(all, 3, n)), l.of(G.Tanh, next)), next
}

// gru returns the next state from the part of the gates that the input gives.
func (l *layer) gru(gates, h *G.Node, w CellWeights) *G.Node {
	from := l.recur(h, w)
	if l.err != nil {
		return nil
	}
	n := last(h.Shape())
	sum := func(i int) *G.Node { return l.of(G.Sigmoid, l.both(G.Add, l.gate(gates, i, n), l.gate(from, i, n))) }
	reset, update := sum(0), sum(1)
	made := l.of(G.Tanh, l.both(G.Add, l.gate(gates, 2, n), l.both(G.HadamardProd, reset, l.gate(from, 2, n))))
	// (1-z)*n + z*h is n + z*(h-n)
	return l.both(G.Add, made, l.both(G.HadamardProd, update, l.both(G.Sub, h, made)))
}

// tokens runs a cell over the tokens of x. All tokens share one product of the input.
func (l *layer) tokens(x, h *G.Node, w CellWeights, cell func(gates, h *G.Node) *G.Node) (y, last *G.Node) {
	gates := l.project(x, w)
	if l.err != nil {
		return nil, nil
	}
	batch, length, width := x.Shape()[0], x.Shape()[1], gates.Shape()[1]
	gates = l.transpose(l.reshape(gates, batch, length, width), 1, 0, 2)
	gates = l.reshape(gates, length*batch, width)
	var all G.Nodes
	for t := range length {
		of := l.do(func() (*G.Node, error) { return G.Slice(gates, G.S(t*batch, (t+1)*batch)) })
		if h = cell(l.reshape(of, batch, width), h); l.err != nil {
			return nil, nil
		}
		all = append(all, h)
	}
	y = h
	if length > 1 {
		y = l.do(func() (*G.Node, error) { return G.Concat(0, all...) })
	}
	if l.err != nil {
		return nil, nil
	}
	y = l.transpose(l.reshape(y, length, batch, h.Shape()[1]), 1, 0, 2)
	return l.reshape(y, batch, length, h.Shape()[1]), h
}

// ZeroState returns a constant state of zeros, of a type.
//
// Shapes: (batch, hidden). Errors: dist.ErrInvalid without a graph; dist.ErrDType; dist.ErrCount.
func ZeroState(g *G.ExprGraph, dt gtensor.Dtype, batch, hidden int) (*G.Node, error) {
	l := &layer{name: "ZeroState", g: g, dt: dt}
	switch {
	case g == nil:
		l.fail(dist.ErrInvalid, "no graph")
	case dt != gtensor.Float32 && dt != gtensor.Float64:
		l.fail(dist.ErrDType, "%v, want float32 or float64", dt)
	case batch < 1 || hidden < 1:
		l.fail(dist.ErrCount, "shape (%d, %d)", batch, hidden)
	}
	if l.err != nil {
		return nil, l.err
	}
	return l.constant(fmt.Sprintf("zeros %v %d %d", dt, batch, hidden), gtensor.New(gtensor.Of(dt), gtensor.WithShape(batch, hidden))), nil
}
