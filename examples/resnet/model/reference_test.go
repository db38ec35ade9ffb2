package model

import "math"

// The reference: the layers of a block in plain loops of float64, each with its gradient.

// volume is images of c channels and side x side pixels, one after the other.
type volume struct {
	n, c, side int
	v          []float64
}

func newVolume(n, c, side int) volume { return volume{n, c, side, make([]float64, n*c*side*side)} }

func (a volume) at(i, ch, y, x int) int { return ((i*a.c+ch)*a.side+y)*a.side + x }

// layer is a layer with its results, and the gradients after backward.
type layer interface {
	forward(x volume) volume
	backward(dy volume) volume // returns the gradient of x
}

// convRef is a convolution without bias: weights are (out, in, kernel, kernel).
type convRef struct {
	out, kernel, stride int
	w, dw               []float64
	x                   volume
}

// each calls f for every product: element o of the result gets weight w times element i.
func (k *convRef) each(y volume, f func(o, w, i int)) {
	x, pad := k.x, k.kernel/2
	for n := range y.n {
		for out := range y.c {
			for row := range y.side {
				for col := range y.side {
					for in := range x.c {
						for r := range k.kernel {
							for s := range k.kernel {
								h, w := row*k.stride+r-pad, col*k.stride+s-pad
								if h >= 0 && h < x.side && w >= 0 && w < x.side {
									f(y.at(n, out, row, col), ((out*x.c+in)*k.kernel+r)*k.kernel+s, x.at(n, in, h, w))
								}
							}
						}
					}
				}
			}
		}
	}
}

func (k *convRef) forward(x volume) volume {
	k.x = x
	y := newVolume(x.n, k.out, (x.side+2*(k.kernel/2)-k.kernel)/k.stride+1)
	k.each(y, func(o, w, i int) { y.v[o] += k.w[w] * x.v[i] })
	return y
}

func (k *convRef) backward(dy volume) volume {
	dx := newVolume(k.x.n, k.x.c, k.x.side)
	k.dw = make([]float64, len(k.w))
	k.each(dy, func(o, w, i int) {
		k.dw[w] += dy.v[o] * k.x.v[i]
		dx.v[i] += dy.v[o] * k.w[w]
	})
	return dx
}

// normRef is a batch normalization in training, with its running statistics.
type normRef struct {
	scale, offset, dscale, doffset []float64
	mean, variance                 []float64 // running
	normal                         volume
	rstd                           []float64
}

// channel returns the elements of a channel.
func (a volume) channel(c int) (all []int) {
	for n := range a.n {
		for p := range a.side * a.side {
			all = append(all, (n*a.c+c)*a.side*a.side+p)
		}
	}
	return all
}

func (k *normRef) forward(x volume) volume {
	y := newVolume(x.n, x.c, x.side)
	k.normal, k.rstd = newVolume(x.n, x.c, x.side), make([]float64, x.c)
	k.mean, k.variance = make([]float64, x.c), make([]float64, x.c)
	for c := range x.c {
		all, mean, squares := x.channel(c), 0.0, 0.0
		n := float64(len(all))
		for _, i := range all {
			mean += x.v[i] / n
		}
		for _, i := range all {
			squares += (x.v[i] - mean) * (x.v[i] - mean)
		}
		k.rstd[c] = 1 / math.Sqrt(squares/n+1e-5)
		k.mean[c], k.variance[c] = 0.1*mean, 0.9+0.1*squares/(n-1)
		for _, i := range all {
			k.normal.v[i] = (x.v[i] - mean) * k.rstd[c]
			y.v[i] = k.normal.v[i]*k.scale[c] + k.offset[c]
		}
	}
	return y
}

func (k *normRef) backward(dy volume) volume {
	dx := newVolume(dy.n, dy.c, dy.side)
	k.dscale, k.doffset = make([]float64, dy.c), make([]float64, dy.c)
	for c := range dy.c {
		all := dy.channel(c)
		n := float64(len(all))
		for _, i := range all {
			k.doffset[c] += dy.v[i]
			k.dscale[c] += dy.v[i] * k.normal.v[i]
		}
		for _, i := range all {
			dx.v[i] = k.scale[c] * k.rstd[c] * (dy.v[i] - k.doffset[c]/n - k.normal.v[i]*k.dscale[c]/n)
		}
	}
	return dx
}

// rectifyRef is max(x, 0).
type rectifyRef struct{ x volume }

func (k *rectifyRef) forward(x volume) volume {
	k.x = x
	y := newVolume(x.n, x.c, x.side)
	for i, v := range x.v {
		y.v[i] = math.Max(v, 0)
	}
	return y
}

func (k *rectifyRef) backward(dy volume) volume {
	dx := newVolume(dy.n, dy.c, dy.side)
	for i, v := range k.x.v {
		if v > 0 {
			dx.v[i] = dy.v[i]
		}
	}
	return dx
}

// blockRef is max(main(x) + shortcut(x), 0); a shortcut without layers is x.
type blockRef struct {
	main, shortcut []layer
	end            rectifyRef
}

func (k *blockRef) forward(x volume) volume {
	a, b := x, x
	for _, l := range k.main {
		a = l.forward(a)
	}
	for _, l := range k.shortcut {
		b = l.forward(b)
	}
	sum := newVolume(a.n, a.c, a.side)
	for i := range sum.v {
		sum.v[i] = a.v[i] + b.v[i]
	}
	return k.end.forward(sum)
}

func (k *blockRef) backward(dy volume) volume {
	da := k.end.backward(dy)
	db := da
	for i := len(k.main) - 1; i >= 0; i-- {
		da = k.main[i].backward(da)
	}
	for i := len(k.shortcut) - 1; i >= 0; i-- {
		db = k.shortcut[i].backward(db)
	}
	dx := newVolume(da.n, da.c, da.side)
	for i := range dx.v {
		dx.v[i] = da.v[i] + db.v[i]
	}
	return dx
}
