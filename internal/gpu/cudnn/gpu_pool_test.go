package cudnn

import (
	"math"
	"math/rand/v2"
	"testing"
)

// windows calls f for each element of y with the elements of x in its window, and the size of the
// window.
func windows(d PoolDesc, f func(y int, in []int, size int)) {
	p, q := d.Out()
	y := 0
	for image := range d.N * d.C {
		for i := range p {
			for j := range q {
				var in []int
				for r := range d.R {
					for s := range d.S {
						h, w := i*max(d.StrideH, 1)+r-d.PadH, j*max(d.StrideW, 1)+s-d.PadW
						if h >= 0 && h < d.H && w >= 0 && w < d.W {
							in = append(in, (image*d.H+h)*d.W+w)
						}
					}
				}
				f(y, in, d.R*d.S)
				y++
			}
		}
	}
}

// pooled returns the expected results of Forward and Backward for x and dy.
func pooled(d PoolDesc, x, dy []float64) (y, dx result) {
	p, q := d.Out()
	y, dx = sums(d.N*d.C*p*q, d.R*d.S), sums(len(x), d.R*d.S)
	windows(d, func(i int, in []int, size int) {
		if d.Mode == Max {
			best := in[0]
			for _, j := range in {
				if x[j] > x[best] {
					best = j
				}
			}
			y.add(i, x[best])
			dx.add(best, dy[i])
			return
		}
		if d.Mode == AverageExclude {
			size = len(in)
		}
		for _, j := range in {
			y.add(i, x[j]/float64(size))
			dx.add(j, dy[i]/float64(size))
		}
	})
	return y, dx
}

// distinct is images of integers, all different in an image, so that each window has one maximum in
// all types.
func distinct(r *rand.Rand, d PoolDesc) []float64 {
	var x []float64
	for range d.N * d.C {
		for _, k := range r.Perm(d.H * d.W) {
			x = append(x, float64(k-d.H*d.W/2))
		}
	}
	return x
}

func TestPoolingIsOfWindows(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, dtype := range []DType{F32, F64, F16, BF16} {
		for _, mode := range []PoolMode{Max, AverageInclude, AverageExclude} {
			for _, d := range []PoolDesc{
				{N: 3, C: 2, H: 8, W: 10, R: 2, S: 2, StrideH: 2, StrideW: 2},
				{N: 2, C: 3, H: 9, W: 7, R: 3, S: 3, PadH: 1, PadW: 1},
				{N: 2, C: 3, H: 11, W: 8, R: 3, S: 2, PadH: 2, PadW: 0, StrideH: 2, StrideW: 3},
				{N: 1, C: 1, H: 4, W: 4, R: 4, S: 4},
			} {
				d.DType, d.Mode = dtype, mode
				p, err := h.NewPool(d)
				must(t, err)
				height, width := d.Out()
				in, out := dims{d.N, d.C, d.H, d.W}, dims{d.N, d.C, height, width}
				x, dy := newData(t, v, dtype, r, in), newData(t, v, dtype, r, out)
				x.set(t, v, distinct(r, d))
				y, dx := room(t, v, dtype, out), room(t, v, dtype, in)
				if err := p.Forward(x.at, y.at); IsUnavailable(err) && dtype == BF16 {
					t.Logf("not here: %v", err)
					must(t, p.Close())
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				must(t, p.Backward(y.at, dy.at, x.at, dx.at), s.Synchronize(), p.Close(), p.Close())
				isY, isDX := pooled(d, x.x, dy.x)
				isY.judge(t, v, y, Full, 1, d.String()+" forward")
				judgeGradient(t, isDX, decode(dtype, dx.raw(t, v)), dtype, d)
			}
		}
	}
}

// judgeGradient is judge for gradients, which may be rounded to the type at each term.
func judgeGradient(t testing.TB, want result, got []float64, dtype DType, d PoolDesc) {
	t.Helper()
	for i := range got {
		limit := want.sum[i]*float64(want.terms+4)*eps(dtype) + 0x1p-24*eps(dtype)
		if off := math.Abs(got[i] - want.value[i]); !(off <= limit) {
			t.Fatalf("%v backward: element %d is %v, want %v; off by %g, at most %g", d, i, got[i], want.value[i], off, limit)
		}
	}
}
