package oracle

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/internal/compile/program"
)

func softmax(op *program.Softmax, o *operands) {
	x, y := o.in[0], o.out[0]
	indices([]int{op.Outer, op.Inner}, func(at []int, _ int) {
		top, sum := math.Inf(-1), 0.0
		for k := range op.Axis {
			top = math.Max(top, x.at(at[0], k, at[1]))
		}
		for k := range op.Axis {
			sum += math.Exp(x.at(at[0], k, at[1]) - top)
		}
		for k := range op.Axis {
			v := x.at(at[0], k, at[1]) - top
			if op.Log {
				y.set(v-math.Log(sum), at[0], k, at[1])
			} else {
				y.set(math.Exp(v)/sum, at[0], k, at[1])
			}
		}
	})
}

func softmaxGrad(op *program.SoftmaxGrad, o *operands) {
	y, dy, dx := o.in[0], o.in[1], o.out[0]
	indices([]int{op.Outer, op.Inner}, func(at []int, _ int) {
		sum := 0.0
		for k := range op.Axis {
			if op.Log {
				sum += dy.at(at[0], k, at[1])
			} else {
				sum += y.at(at[0], k, at[1]) * dy.at(at[0], k, at[1])
			}
		}
		for k := range op.Axis {
			v, d := y.at(at[0], k, at[1]), dy.at(at[0], k, at[1])
			if op.Log {
				dx.set(d-math.Exp(v)*sum, at[0], k, at[1])
			} else {
				dx.set(v*(d-sum), at[0], k, at[1])
			}
		}
	})
}

func crossEntropy(op *program.CrossEntropy, o *operands) {
	x, t := o.in[0], o.in[1]
	loss := 0.0
	for i := range op.Rows {
		top, sum, weight := math.Inf(-1), 0.0, 0.0
		for k := range op.Classes {
			top = math.Max(top, x.at(i, k))
			weight += t.at(i, k)
		}
		for k := range op.Classes {
			sum += math.Exp(x.at(i, k) - top)
		}
		for k := range op.Classes {
			if w := t.at(i, k); w != 0 { // 0 times -inf counts as 0
				loss -= w * (x.at(i, k) - top - math.Log(sum))
			}
			if len(o.out) > 1 {
				o.out[1].set(math.Exp(x.at(i, k)-top)/sum*weight-t.at(i, k), i, k)
			}
		}
	}
	o.out[0].set(loss)
}

func sparseCrossEntropy(op *program.SparseCrossEntropy, o *operands) error {
	x, weight, loss := o.in[0], o.in[2].at(), 0.0
	for i := range op.Rows {
		label := o.in[1].at(i)
		counts := label != float64(op.Ignore)
		if counts && !(label >= 0 && label < float64(op.Classes)) {
			return op.Wrong(i, label)
		}
		top, sum, mean := math.Inf(-1), 0.0, 0.0
		for k := range op.Classes {
			top = math.Max(top, x.at(i, k))
		}
		for k := range op.Classes {
			sum += math.Exp(x.at(i, k) - top)
			mean += x.at(i, k) / float64(op.Classes)
		}
		lse := top + math.Log(sum)
		if counts {
			loss += (1 - op.Smoothing) * (lse - x.at(i, int(label)))
			if op.Smoothing != 0 {
				loss += op.Smoothing * (lse - mean)
			}
		}
		for k := range op.Classes {
			if len(o.out) < 2 {
				break
			}
			d := math.Exp(x.at(i, k)-lse) - op.Smoothing/float64(op.Classes)
			if float64(k) == label {
				d -= 1 - op.Smoothing
			}
			if !counts {
				d = 0
			}
			o.out[1].set(d*op.Scale*weight, i, k)
		}
	}
	o.out[0].set(weight * loss)
	return nil
}

func gather(op *program.Gather, o *operands) error {
	table, out := o.in[0], o.out[0]
	for k := range op.Count {
		row, err := rowAt(o.in[1], k, op.Axis)
		if err != nil {
			return err
		}
		indices([]int{op.Outer, op.Inner}, func(at []int, _ int) {
			copy(out.bits([]int{at[0], k, at[1]}), table.bits([]int{at[0], row, at[1]}))
		})
	}
	return nil
}

func gatherGrad(op *program.GatherGrad, o *operands) error {
	dy, dx := o.in[0], newSums(o.out[0])
	for k := range op.Count {
		row, err := rowAt(o.in[1], k, op.Axis)
		if err != nil {
			return err
		}
		indices([]int{op.Outer, op.Inner}, func(at []int, _ int) { dx.add(dy.at(at[0], k, at[1]), at[0], row, at[1]) })
	}
	dx.store()
	return nil
}

// rowAt returns index number k.
func rowAt(index *array, k, rows int) (int, error) {
	x := index.at(k)
	if !(x >= 0 && x < float64(rows)) {
		return 0, fmt.Errorf("index %d is %g; there are %d rows", k, x, rows)
	}
	return int(x), nil
}

func batchNorm(op *program.BatchNorm, o *operands) {
	x, y := o.in[0], o.out[0]
	for c := range op.C {
		mean, variance := o.in[1].at(c), o.in[2].at(c)
		if op.Training {
			mean, variance = moments(x, op.N, c, op.Spatial)
		}
		rstd := 1 / math.Sqrt(variance+op.Epsilon)
		indices([]int{op.N, op.Spatial}, func(at []int, _ int) {
			y.set((x.at(at[0], c, at[1])-mean)*rstd, at[0], c, at[1])
		})
		o.out[1].set(mean, c)
		o.out[2].set(rstd, c)
		if op.Training {
			o.out[3].set(op.Momentum*o.in[1].at(c)+(1-op.Momentum)*mean, c)
			o.out[4].set(op.Momentum*o.in[2].at(c)+(1-op.Momentum)*variance*op.Unbias, c)
		}
	}
}

// moments returns the mean and the variance of a channel.
func moments(x *array, n, c, spatial int) (mean, variance float64) {
	count := float64(n * spatial)
	indices([]int{n, spatial}, func(at []int, _ int) { mean += x.at(at[0], c, at[1]) / count })
	indices([]int{n, spatial}, func(at []int, _ int) {
		d := x.at(at[0], c, at[1]) - mean
		variance += d * d / count
	})
	return mean, variance
}

// batchNormGrad computes dx = rstd * (dy - mean(dy) - xhat * mean(dy*xhat)), with means over the
// batch; without Training dy*rstd.
func batchNormGrad(op *program.BatchNormGrad, o *operands) {
	dy, x, dx := o.in[0], o.in[1], o.out[0]
	count := float64(op.N * op.Spatial)
	for c := range op.C {
		mean, rstd := o.in[2].at(c), o.in[3].at(c)
		hat := func(n, s int) float64 { return (x.at(n, c, s) - mean) * rstd }
		d, dhat := 0.0, 0.0
		if op.Training {
			indices([]int{op.N, op.Spatial}, func(at []int, _ int) {
				d += dy.at(at[0], c, at[1]) / count
				dhat += dy.at(at[0], c, at[1]) * hat(at[0], at[1]) / count
			})
		}
		indices([]int{op.N, op.Spatial}, func(at []int, _ int) {
			n, s := at[0], at[1]
			dx.set(rstd*(dy.at(n, c, s)-d-hat(n, s)*dhat), n, c, s)
		})
	}
}
