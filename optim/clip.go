package optim

import (
	"fmt"
	"math"
	"slices"

	gtensor "gorgonia.org/tensor"
)

// clipFactor returns the factor that reduces gradients of the given norm to at most limit, or 1 for
// a smaller norm or an infinite limit. It is the rule of torch.nn.utils.clip_grad_norm_.
func clipFactor(limit, norm float64) float64 {
	return min(limit/(norm+1e-6), 1)
}

// measure sets e.norm to the global norm of the scaled gradients. If the rule needs the norms of
// weights, it sums their squares too. Errors: those of the exchange.
func (e *engine) measure() error {
	if err := e.sum(e.passes.squares, len(e.sums)); err != nil {
		return fmt.Errorf("sum of squared gradients: %w", err)
	}
	e.norm = e.scale * math.Sqrt(total(e.sums[:e.blocks]))
	return nil
}

// sum calls fill for each span, which writes the sums of the span's blocks to the first n of
// e.sums, and adds the sums of all ranks.
func (e *engine) sum(fill func(worker, span int), n int) error {
	clear(e.sums[:n]) // other ranks' blocks
	e.crew.run(len(e.spans), fill)
	if e.exchange == nil {
		return nil
	}
	return e.exchange(e.sums[:n])
}

// total adds the sums of blocks in order.
func total(blocks []float64) (sum float64) {
	for _, s := range blocks {
		sum += s
	}
	return sum
}

// squaresOfSpan sums the squared gradients of a span by block. If the rule adapts, it also sums the
// squared weights, at e.sums[e.blocks:].
func (e *engine) squaresOfSpan(_, i int) {
	sp, p, at := e.span(i)
	if p.dtype == gtensor.Float32 {
		squares32(p.f32.grad[sp.lo:sp.hi], e.sums[at:])
	} else {
		squares(p.f64.grad[sp.lo:sp.hi], e.sums[at:])
	}
	if e.adapts {
		e.squaresOfWeights(sp, p, at)
	}
}

func (e *engine) squaresOfWeights(sp span, p *param, at int) {
	if p.dtype == gtensor.Float32 {
		squares32(p.f32.weight[sp.lo:sp.hi], e.sums[e.blocks+at:])
	} else {
		squares(p.f64.weight[sp.lo:sp.hi], e.sums[e.blocks+at:])
	}
}

// squares writes the sum of the squares of each block of x to sums.
func squares[T float](x []T, sums []float64) {
	for k := 0; len(x) > 0; k++ {
		n := min(Block, len(x))
		sums[k] = sumSquares(x[:n], [4]float64{})
		x = x[n:]
	}
}

// squares32 is squares for float32, with assembly if the processor has it.
func squares32(x []float32, sums []float64) {
	for k := 0; len(x) > 0; k++ {
		n := min(Block, len(x))
		var four [4]float64
		done := vectorLen(n)
		if done > 0 {
			squaresF32(&four, &x[0], done)
		}
		sums[k] = sumSquares(x[done:n], four)
		x = x[n:]
	}
}

// sumSquares uses four sums, because each addition to one sum would wait for the previous addition.
func sumSquares[T float](x []T, four [4]float64) float64 {
	a, b, c, d := four[0], four[1], four[2], four[3]
	for len(x) >= 4 {
		x0, x1, x2, x3 := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		a += float64(x0 * x0)
		b += float64(x1 * x1)
		c += float64(x2 * x2)
		d += float64(x3 * x3)
		x = x[4:]
	}
	for _, v := range x {
		a += float64(float64(v) * float64(v))
	}
	return (a + b) + (c + d)
}

// clampPass32 is clampPass for float32, with assembly if the processor has it.
func clampPass32(scale, bound float32, to, grad []float32) []float32 {
	n := vectorLen(len(grad))
	if n > 0 {
		clampF32(scale, bound, &to[0], &grad[0], n)
	}
	clampPass(scale, bound, to[n:], grad[n:])
	return to[:len(grad)]
}

// clampPass writes the gradients, scaled and bounded, to to. NaN stays NaN.
func clampPass[T float](scale, bound T, to, grad []T) []T {
	to = to[:len(grad)]
	for i, g := range grad {
		to[i] = min(max(T(scale*g), -bound), bound)
	}
	return to
}

// blame returns the error for a norm that is not finite. It names the first such gradient element,
// or its block if another rank has it.
func (e *engine) blame() error {
	block := firstNonFinite(e.sums[:e.blocks])
	for i := range e.params {
		p := &e.params[i]
		size := shapeSize(p.shape)
		if block < 0 || block >= p.block+blocksOf(size) {
			continue
		}
		lo := (block - p.block) * Block
		if lo < p.first || lo >= p.first+p.count {
			return fmt.Errorf("parameter %d%v: one of gradient elements %d to %d is NaN or infinite, or its square is: %w",
				i, p, lo, min(lo+Block, size)-1, ErrNonFinite)
		}
		if at := max(firstNonFinite(p.f32.grad), firstNonFinite(p.f64.grad)); at >= 0 {
			return fmt.Errorf("parameter %d%v: gradient element %d is NaN or infinite: %w", i, p, p.first+at, ErrNonFinite)
		}
		break
	}
	return fmt.Errorf("squared gradients overflow, norm %v: %w", e.norm, ErrNonFinite)
}

// firstNonFinite returns the index of the first NaN or infinity of x, or -1.
func firstNonFinite[T float](x []T) int {
	return slices.IndexFunc(x, func(v T) bool { return v-v != 0 })
}
