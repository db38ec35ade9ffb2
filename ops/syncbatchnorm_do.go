package ops

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Do computes the part. Gather and reduce wait for the other ranks.
func (o *batchNorm) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	in, err := o.read(inputs)
	if err != nil {
		return nil, fmt.Errorf("%v, rank %d/%d: %w", o, o.layer.g.Rank(), o.layer.g.Size(), err)
	}
	out, to, err := o.out.place(nil, inputs[0])
	if err != nil {
		return nil, err
	}
	switch {
	case o.part == BatchNormGather || o.part == BatchNormReduce:
		err = o.exchange(to, in[0])
	case o.layer.x.dt == tensor.F64:
		err = compute[float64](o, to, in)
	default:
		err = compute[float32](o, to, in)
	}
	return out, err
}

// read returns the elements of the inputs.
func (o *batchNorm) read(inputs []gorgonia.Value) ([]tensor.Buffer, error) {
	if len(inputs) != len(o.in) {
		return nil, fmt.Errorf("%w: %d inputs, want %d", dist.ErrInvalid, len(inputs), len(o.in))
	}
	in := make([]tensor.Buffer, len(inputs))
	for i, v := range inputs {
		var err error
		if in[i], err = o.in[i].read(v); err != nil {
			return nil, fmt.Errorf("input %d: %w", i, err)
		}
	}
	return in, nil
}

// exchange runs gather or reduce.
func (o *batchNorm) exchange(to, from tensor.Buffer) error {
	if !o.layer.training {
		return nil
	}
	g := o.layer.g.With(dist.Hints{Name: o.label()})
	var w dist.Work
	var err error
	if o.part == BatchNormGather {
		w, err = g.AllGather(to, from)
	} else {
		w, err = g.AllReduce(to, from, dist.Sum)
	}
	if err != nil {
		return err
	}
	return w.Wait()
}

// normed holds the arrays that a part works on; arrays that a part does not use are nil. Samples
// are n rows of c channels of s elements.
type normed[T float32 | float64] struct {
	layer       *BatchNorm
	n, c, s     int
	x, dy, rows []T
	scale, bias []T
	stats       []float64 // the result of BatchNormStatistics
	record      []float64 // moments, sums or totals
	mean, vars  []T       // running
}

// compute runs a part that does not communicate.
func compute[T float32 | float64](o *batchNorm, to tensor.Buffer, in []tensor.Buffer) error {
	b := o.layer
	k := &normed[T]{layer: b, n: b.x.shape[0], c: b.Channels()}
	k.s = b.x.len() / (k.n * k.c)
	l := loader{in: in}
	switch o.part {
	case BatchNormMoments:
		k.x = take[T](&l, true)
		k.rows = take[T](&l, b.has[0])
	case BatchNormStatistics:
		k.record = take[float64](&l, true)
		k.mean, k.vars = data[T](&l, b.mean), data[T](&l, b.variance)
	case BatchNormApply:
		k.x, k.stats = take[T](&l, true), take[float64](&l, true)
		k.rows, k.scale, k.bias = take[T](&l, b.has[0]), take[T](&l, b.has[1]), take[T](&l, b.has[2])
	case BatchNormSums:
		k.dy, k.x, k.stats = take[T](&l, true), take[T](&l, true), take[float64](&l, true)
		k.rows = take[T](&l, b.has[0])
	case BatchNormInputGrad:
		k.dy, k.x, k.stats, k.record = take[T](&l, true), take[T](&l, true), take[float64](&l, true), take[float64](&l, true)
		k.rows, k.scale = take[T](&l, b.has[0]), take[T](&l, b.has[1])
	default:
		k.record, k.stats = take[float64](&l, true), take[float64](&l, true)
	}
	if l.err != nil {
		return l.err
	}
	return k.run(o.part, to)
}

// loader returns the inputs of a part in order.
type loader struct {
	in  []tensor.Buffer
	err error
}

// take returns the next input, or nil if the part does not have it.
func take[T float32 | float64](l *loader, has bool) []T {
	if !has || l.err != nil {
		return nil
	}
	if len(l.in) == 0 {
		l.err = fmt.Errorf("%w: an input is missing", dist.ErrInvalid)
		return nil
	}
	var d []T
	d, l.err = tensor.Data[T](l.in[0])
	l.in = l.in[1:]
	return d
}

// data returns the elements of a tensor of the layer.
func data[T float32 | float64](l *loader, v gorgonia.Value) []T {
	b, err := alias(v)
	var d []T
	if err == nil {
		d, err = tensor.Data[T](b)
	}
	if l.err == nil {
		l.err = err
	}
	return d
}

func (k *normed[T]) run(part BatchNormPart, to tensor.Buffer) error {
	if part == BatchNormMoments || part == BatchNormStatistics || part == BatchNormSums {
		out, err := tensor.Data[float64](to)
		if err != nil {
			return err
		}
		switch {
		case part == BatchNormStatistics && k.layer.training:
			k.statistics(out)
			k.move(out)
		case part == BatchNormStatistics:
			k.running(out)
		case part == BatchNormSums:
			k.sums(out)
		case k.layer.training:
			k.moments(out)
		}
		return nil
	}
	out, err := tensor.Data[T](to)
	if err != nil {
		return err
	}
	switch part {
	case BatchNormApply:
		k.apply(out)
	case BatchNormInputGrad:
		k.inputGrad(out)
	case BatchNormScaleGrad:
		k.own(out, k.record[k.c:])
	case BatchNormBiasGrad:
		k.own(out, k.record[:k.c])
	}
	return nil
}

// weight returns the weight of a row. A weight that is not above 0, including NaN, counts as 0.
func (k *normed[T]) weight(row int) float64 {
	if k.rows == nil {
		return 1
	}
	if w := float64(k.rows[row]); w > 0 {
		return w
	}
	return 0
}

// each calls f for every channel of every row with a weight. The channel's elements are from to
// from+s.
func (k *normed[T]) each(f func(w float64, c, from int)) {
	for row := range k.n {
		w := k.weight(row)
		if w == 0 {
			continue
		}
		for c := range k.c {
			f(w, c, (row*k.c+c)*k.s)
		}
	}
}

// moments computes weight, means and sums of squared distances of this rank's rows: first the
// means, then the distances from them.
func (k *normed[T]) moments(out []float64) {
	mean, m2 := out[1:1+k.c], out[1+k.c:]
	for row := range k.n {
		out[0] += k.weight(row) * float64(k.s)
	}
	if out[0] == 0 {
		return
	}
	k.each(func(w float64, c, from int) {
		for _, x := range k.x[from : from+k.s] {
			mean[c] += float64(w * float64(x))
		}
	})
	for c := range mean {
		mean[c] /= out[0]
	}
	k.each(func(w float64, c, from int) {
		for _, x := range k.x[from : from+k.s] {
			d := float64(x) - mean[c]
			m2[c] += float64(w * d * d)
		}
	})
}

// statistics combines the moments of the ranks, in rank order. Two sets of n and m elements
// together have the sum of squared distances a + b + delta^2 nm/(n+m), where delta is the
// difference of their means. Products are rounded before they are added, so that all ranks get
// equal bits.
func (k *normed[T]) statistics(out []float64) {
	mean, rstd := out[2:2+k.c], out[2+k.c:]
	n := 0.0
	for r := 0; r < len(k.record); r += 1 + 2*k.c {
		m, means, squares := k.record[r], k.record[r+1:r+1+k.c], k.record[r+1+k.c:r+1+2*k.c]
		if m == 0 {
			continue
		}
		for c := range mean {
			delta := means[c] - mean[c]
			mean[c] += float64(delta * (m / (n + m)))
			rstd[c] += squares[c] + float64(float64(delta*delta)*(n*m/(n+m)))
		}
		n += m
	}
	out[0], out[1] = n, 1
	if !k.layer.cfg.SumOfCosts {
		out[1] = k.record[k.layer.g.Rank()*(1+2*k.c)]
	}
}

// move moves the running statistics toward those of the batch, and turns the sums of squared
// distances into 1/sqrt(variance+epsilon). A batch without weight moves nothing.
func (k *normed[T]) move(out []float64) {
	n, mean, rstd := out[0], out[2:2+k.c], out[2+k.c:]
	m := k.layer.cfg.Momentum
	for c := range mean {
		variance := 0.0
		if n > 0 {
			variance = rstd[c] / n
			unbiased := variance
			if n >= 2 {
				unbiased = rstd[c] / (n - 1)
			}
			k.mean[c] = T(float64((1-m)*float64(k.mean[c])) + float64(m*mean[c]))
			k.vars[c] = T(float64((1-m)*float64(k.vars[c])) + float64(m*unbiased))
		}
		rstd[c] = 1 / math.Sqrt(variance+k.layer.cfg.Epsilon)
	}
}

// running writes the running statistics in the form of the batch's.
func (k *normed[T]) running(out []float64) {
	out[0], out[1] = 1, 1
	for c := range k.c {
		out[2+c] = float64(k.mean[c])
		out[2+k.c+c] = 1 / math.Sqrt(float64(k.vars[c])+k.layer.cfg.Epsilon)
	}
}

// channel returns the mean, 1/sqrt(variance+epsilon) and scale of a channel.
func (k *normed[T]) channel(c int) (mean, rstd, scale float64) {
	scale = 1
	if k.scale != nil {
		scale = float64(k.scale[c])
	}
	return k.stats[2+c], k.stats[2+k.c+c], scale
}

// apply computes the layer's output. Rows without weight stay 0.
func (k *normed[T]) apply(out []T) {
	k.each(func(_ float64, c, from int) {
		mean, rstd, scale := k.channel(c)
		bias := 0.0
		if k.bias != nil {
			bias = float64(k.bias[c])
		}
		for i, x := range k.x[from : from+k.s] {
			out[from+i] = T(float64((float64(x)-mean)*rstd*scale) + bias)
		}
	})
}

// sums computes this rank's sum(dy) and sum(dy*xhat), times the weight of its cost.
func (k *normed[T]) sums(out []float64) {
	k.each(func(_ float64, c, from int) {
		mean, rstd, _ := k.channel(c)
		for i, dy := range k.dy[from : from+k.s] {
			xhat := (float64(k.x[from+i]) - mean) * rstd
			out[c] += float64(dy)
			out[k.c+c] += float64(float64(dy) * xhat)
		}
	})
	for i := range out {
		out[i] *= k.stats[1]
	}
}

// inputGrad computes dx = scale*rstd*(dy - w*(sum(dy) + xhat*sum(dy*xhat))/n), where the sums are
// those of all ranks and w is the weight of the row. Outside training the sums are 0.
func (k *normed[T]) inputGrad(out []T) {
	share := 0.0 // 1/n, without the weight of this rank's cost: ddp applies that weight later
	if d := k.stats[0] * k.stats[1]; d > 0 {
		share = 1 / d
	}
	k.each(func(w float64, c, from int) {
		mean, rstd, scale := k.channel(c)
		a, b := w*share*k.record[c], w*share*k.record[k.c+c]
		for i, dy := range k.dy[from : from+k.s] {
			xhat := (float64(k.x[from+i]) - mean) * rstd
			out[from+i] = T(scale * rstd * (float64(dy) - a - float64(b*xhat)))
		}
	})
}

// own copies this rank's sums without the weight of its cost.
func (k *normed[T]) own(out []T, sums []float64) {
	for c := range out {
		if k.stats[1] > 0 {
			out[c] = T(sums[c] / k.stats[1])
		}
	}
}
