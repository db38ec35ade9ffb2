package program

// FLOP returns the floating-point operations of the products in one run of p: matrix products,
// convolutions and attention, with two for each multiplication and its sum. As in Chowdhery et al.,
// PaLM, 2022, appendix B, elementwise steps do not count, and a masked position of attention does.
// Nor does a gradient of attention count the scores that it computes again, and steps that
// Recompute repeats do not count.
func FLOP(p *Program) int64 {
	n := int64(0)
	for i := range p.Steps {
		if s := &p.Steps[i]; !s.Again {
			n += flop(s.Op)
		}
	}
	return n
}

// flop returns the floating-point operations of the products of an operation.
func flop(op Op) int64 {
	switch o := op.(type) {
	case *MatMul:
		return 2 * times(o.Batch, o.M, o.N, o.K)
	case *Conv:
		return o.flop(o.K)
	case *ConvGradInput:
		return o.flop(o.K)
	case *ConvGradFilter:
		return o.flop(o.K)
	case *Attention:
		return 2 * o.products(2) // scores, and weighted values
	case *AttentionGrad:
		return 2 * o.products(4) // gradients of scores, queries, keys and values
	}
	return 0
}

// flop returns the operations of a convolution with k output channels, or of a gradient of it.
func (w *Window) flop(k int) int64 { return 2 * times(w.N, k, w.OutH, w.OutW, w.C, w.R, w.S) }

// products returns the multiplications of n products of a head's M by N matrix.
func (o *Attention) products(n int) int64 { return times(n, o.Batch, o.Heads, o.M, o.N, o.Depth) }

func times(sizes ...int) int64 {
	n := int64(1)
	for _, s := range sizes {
		n *= int64(s)
	}
	return n
}
