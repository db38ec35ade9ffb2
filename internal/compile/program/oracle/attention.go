package oracle

import (
	"math"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// scores returns the scores of row i of head h of batch b. In[bias], if present, is added to them.
func scores(op *program.Attention, o *operands, bias, b, h, i int) []float64 {
	s := make([]float64, op.N)
	for j := range s {
		for d := range op.Depth {
			s[j] += o.in[0].at(b, h, i, d) * o.in[1].at(b, h, j, d)
		}
		s[j] *= op.Scale
		if bias < len(o.in) {
			if more := o.in[bias].at(i, j); math.IsInf(more, -1) {
				s[j] = more
			} else {
				s[j] += math.Max(more, program.LeastBias)
			}
		}
	}
	return s
}

// attention computes each row by itself in float64.
func attention(op *program.Attention, o *operands) {
	indices([]int{op.Batch, op.Heads, op.M}, func(at []int, _ int) {
		s := scores(op, o, 3, at[0], at[1], at[2])
		top, all := slices.Max(s), 0.0
		for j := range s {
			s[j] = math.Exp(s[j] - top)
			all += s[j]
		}
		for d := range op.Depth {
			sum := 0.0
			for j := range s {
				sum += s[j] * o.in[2].at(at[0], at[1], j, d)
			}
			o.out[0].set(sum/all, at[0], at[1], at[2], d)
		}
		if len(o.out) > 1 {
			o.out[1].set(top+math.Log(all), at...)
		}
	})
}

func attentionGrad(op *program.AttentionGrad, o *operands) {
	q, k, v, g, lse, delta := o.in[0], o.in[1], o.in[2], o.in[3], o.in[4], o.in[5]
	indices([]int{op.Batch, op.Heads}, func(head []int, _ int) {
		b, h := head[0], head[1]
		dq, dk, dv := make([]float64, op.M*op.Depth), make([]float64, op.N*op.Depth), make([]float64, op.N*op.Depth)
		for i := range op.M {
			s := scores(&op.Attention, o, 6, b, h, i)
			for j := range s {
				s[j] = math.Exp(s[j] - lse.at(b, h, i))
				ds := 0.0
				for d := range op.Depth {
					ds += g.at(b, h, i, d) * v.at(b, h, j, d)
				}
				ds = s[j] * (ds - delta.at(b, h, i)) * op.Scale
				for d := range op.Depth {
					dq[i*op.Depth+d] += ds * k.at(b, h, j, d)
					dk[j*op.Depth+d] += ds * q.at(b, h, i, d)
					dv[j*op.Depth+d] += s[j] * g.at(b, h, i, d)
				}
			}
		}
		for n, sums := range [][]float64{dq, dk, dv} {
			for x, sum := range sums {
				o.out[n].set(sum, b, h, x/op.Depth, x%op.Depth)
			}
		}
	})
}
