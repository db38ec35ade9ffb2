package cudnn

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

func TestLibraryIsFoundWithAllThatIsCalled(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	l := open(t, v)
	t.Logf("%v; %s", l, l.notes)
	if have, _, _ := l.Version().Parts(); have != major || !strings.Contains(l.String(), l.Path()) || l.CUDA() > v.Driver().Version()/1000 {
		t.Errorf("%v for CUDA %d on a driver for %d", l, l.CUDA(), v.Driver().Version())
	}
	if text := l.failure("call", statusNotSupported, "").Error(); !strings.Contains(text, "CUDNN_STATUS_NOT_SUPPORTED") {
		t.Errorf("the library's name for 3000: %s", text)
	}
}

// each calls f for every product of a convolution, with the indices of its elements.
func each(d ConvDesc, f func(x, w, y int)) {
	d = d.filled()
	xs, ws, ys := d.shapes()
	at := func(s dims, i, j, k, l int) int { return ((i*s[1]+j)*s[2]+k)*s[3] + l }
	for n := range d.N {
		for k := range d.K {
			for p := range ys[2] {
				for q := range ys[3] {
					for c := range ws[1] {
						for r := range d.R {
							for s := range d.S {
								i, j := p*d.StrideH+r*d.DilationH-d.PadH, q*d.StrideW+s*d.DilationW-d.PadW
								if i >= 0 && i < d.H && j >= 0 && j < d.W {
									channel := k/(d.K/d.Groups)*ws[1] + c
									f(at(xs, n, channel, i, j), at(ws, k, c, r, s), at(ys, n, k, p, q))
								}
							}
						}
					}
				}
			}
		}
	}
}

// sums is a result of n elements.
func sums(n int, terms int) result {
	return result{make([]float64, n), make([]float64, n), terms}
}

// add adds a product.
func (want result) add(i int, product float64) {
	want.value[i] += product
	want.sum[i] += math.Abs(product)
}

// trial is a convolution with operands and the expected results of its passes.
type trial struct {
	c               *Conv
	x, w, dy        data
	y, dx, dw       data
	isY, isDX, isDW result
	ws              uintptr
}

func newTrial(t testing.TB, h *Handle, d ConvDesc, r *rand.Rand) *trial {
	t.Helper()
	c, err := h.NewConv(d)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close(), c.Close()) })
	v := h.Device()
	x, w, y := d.shapes()
	a := &trial{
		c: c, x: newData(t, v, d.DType, r, x), w: newData(t, v, d.DType, r, w), dy: newData(t, v, d.DType, r, y),
		y: room(t, v, d.DType, y), dx: room(t, v, d.DType, x), dw: room(t, v, d.DType, w), ws: memory(t, v, c.WorkspaceBytes()),
	}
	a.expect()
	return a
}

// expect computes the three passes from the operands.
func (a *trial) expect() {
	d := a.c.desc
	_, w, y := d.shapes()
	a.isY, a.isDX, a.isDW = sums(len(a.y.x), w[1]*w[2]*w[3]), sums(len(a.dx.x), w[0]*w[2]*w[3]), sums(len(a.dw.x), y[0]*y[2]*y[3])
	each(d, func(x, w, y int) {
		a.isY.add(y, a.x.x[x]*a.w.x[w])
		a.isDX.add(x, a.w.x[w]*a.dy.x[y])
		a.isDW.add(w, a.x.x[x]*a.dy.x[y])
	})
}

// run queues all passes.
func (a *trial) run() error {
	return errors.Join(
		a.c.Forward(a.x.at, a.w.at, a.y.at, a.ws),
		a.c.BackwardData(a.w.at, a.dy.at, a.dx.at, a.ws),
		a.c.BackwardFilter(a.x.at, a.dy.at, a.dw.at, a.ws),
	)
}

// judge compares all passes. Winograd's transform and FFT round sums of more numbers than the
// products that a result has.
func (a *trial) judge(t testing.TB) {
	t.Helper()
	v, d := a.c.h.Device(), a.c.desc
	for i, p := range []struct {
		is  result
		got data
	}{{a.isY, a.y}, {a.isDX, a.dx}, {a.isDW, a.dw}} {
		slack := 1.0
		if name := a.c.directions[i].algorithm(); strings.Contains(name, "winograd") || strings.Contains(name, "fft") {
			slack = 32
			if d.DType == F16 || d.DType == BF16 {
				slack *= eps(d.DType) / eps(F32) // transforms are rounded to the type
			}
		}
		p.is.judge(t, v, p.got, d.Math, slack, a.c.String()+" "+a.c.directions[i].name)
	}
}

// Padding, strides and dilation of all kinds, with lengths that they do not divide, and groups.
func convolutions() []ConvDesc {
	return []ConvDesc{
		{N: 3, C: 2, H: 9, W: 10, K: 4, R: 3, S: 3},
		{N: 3, C: 2, H: 9, W: 10, K: 4, R: 3, S: 3, PadH: 1, PadW: 1},
		{N: 2, C: 3, H: 11, W: 8, K: 5, R: 5, S: 3, PadH: 2, PadW: 0, StrideH: 2, StrideW: 3},
		{N: 2, C: 4, H: 12, W: 13, K: 6, R: 3, S: 2, PadH: 2, PadW: 1, DilationH: 2, DilationW: 3},
		{N: 2, C: 4, H: 12, W: 13, K: 6, R: 3, S: 3, PadH: 1, PadW: 2, StrideH: 2, StrideW: 2, DilationH: 2, DilationW: 2},
		{N: 4, C: 8, H: 6, W: 6, K: 8, R: 1, S: 1},
		{N: 4, C: 8, H: 6, W: 7, K: 12, R: 3, S: 3, PadH: 1, PadW: 1, Groups: 4},
		{N: 1, C: 1, H: 5, W: 5, K: 1, R: 5, S: 5},
		{N: 8, C: 1, H: 28, W: 28, K: 16, R: 3, S: 3, PadH: 1, PadW: 1},
		{N: 8, C: 16, H: 14, W: 14, K: 32, R: 3, S: 3, PadH: 1, PadW: 1},
	}
}

func TestConvolutionsAreSumsOfProducts(t *testing.T) {
	_, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []ConvDesc{{DType: F32}, {DType: F32, Math: TF32}, {DType: F16}, {DType: BF16}, {DType: F64}} {
		done := 0
		for i, d := range convolutions() {
			d.DType, d.Math, d.Deterministic = kind.DType, kind.Math, i%2 == 1
			if c, err := h.NewConv(d); d.DType != F32 && IsUnavailable(err) {
				t.Logf("not here: %v", err) // the library chooses the other types that it supports
				continue
			} else if err == nil {
				must(t, c.Close())
			}
			a := newTrial(t, h, d, r)
			must(t, a.run(), s.Synchronize())
			a.judge(t)
			done++
		}
		if done < len(convolutions())/2 {
			t.Errorf("%v %v: %d convolutions of %d", kind.DType, kind.Math, done, len(convolutions()))
		}
	}
}

// Whatever candidate is taken, the passes are right; another Conv of the same kind has the same
// candidates.
func TestEachCandidateIsRight(t *testing.T) {
	_, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(7, 8))
	d := ConvDesc{DType: F32, N: 4, C: 8, H: 10, W: 10, K: 8, R: 3, S: 3, PadH: 1, PadW: 1, Timed: true}
	a := newTrial(t, h, d, r)
	again, err := h.NewConv(d)
	must(t, err)
	t.Cleanup(func() { must(t, again.Close()) })
	v := h.Device()
	for _, pass := range []Pass{Forward, BackwardData, BackwardFilter} {
		names, took := a.c.Candidates(pass)
		if same, _ := again.Candidates(pass); !slices.Equal(names, same) || len(took) != len(names) {
			t.Errorf("pass %d: candidates %q, then %q", pass, names, same)
		}
		done := 0
		for i := range names {
			if took[i] == 0 {
				continue
			}
			done++
			must(t, a.c.Take(pass, i))
			a.ws = memory(t, v, a.c.WorkspaceBytes())
			must(t, a.run(), s.Synchronize())
			a.judge(t)
		}
		if done == 0 {
			t.Errorf("pass %d: none of %q works", pass, names)
		}
	}
}

func TestConvolutionsThatWereTimed(t *testing.T) {
	_, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, m := range []Math{Full, TF32} {
		d := ConvDesc{DType: F32, Math: m, N: 8, C: 16, H: 14, W: 14, K: 32, R: 3, S: 3, PadH: 1, PadW: 1, Timed: true, MaxWorkspaceBytes: 16 << 20}
		a := newTrial(t, h, d, r)
		t.Log(a.c)
		if text := a.c.String(); strings.Count(text, " ms") != 3 || a.c.WorkspaceBytes() > d.MaxWorkspaceBytes {
			t.Errorf("%s, %d B of workspace", text, a.c.WorkspaceBytes())
		}
		must(t, a.run(), s.Synchronize())
		a.judge(t)
	}
}

// 1 + 2^-20 is a number of float32 and none of TF32.
func TestFullConvolutionsMultiplyFloat32(t *testing.T) {
	v, s, h := onDevice(t)
	d := ConvDesc{DType: F32, N: 8, C: 32, H: 16, W: 16, K: 32, R: 1, S: 1}
	for _, timed := range []bool{false, true} {
		d.Timed = timed
		a := newTrial(t, h, d, rand.New(rand.NewPCG(5, 6)))
		for i := range a.x.x {
			a.x.x[i] = 1 + 0x1p-20
		}
		for i := range a.w.x {
			a.w.x[i] = 0
			if i%33 == 0 {
				a.w.x[i] = 1
			}
		}
		a.x.set(t, v, a.x.x)
		a.w.set(t, v, a.w.x)
		must(t, a.c.Forward(a.x.at, a.w.at, a.y.at, a.ws), s.Synchronize())
		for i, got := range decode(F32, a.y.raw(t, v)) {
			if math.Abs(got-(1+0x1p-20)) > 0x1p-22 {
				t.Fatalf("%v: element %d is 1%+g, want 1%+g", a.c, i, got-1, 0x1p-20)
			}
		}
	}
}

// Captured work reads its operands anew at each launch, and deterministic passes give the same bits
// each time.
func TestConvolutionsAreCaptured(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(7, 8))
	a := newTrial(t, h, ConvDesc{DType: F32, N: 16, C: 8, H: 14, W: 14, K: 16, R: 3, S: 3, PadH: 1, PadW: 1, Deterministic: true}, r)
	must(t, a.run(), s.Synchronize())
	first := a.dw.raw(t, v)
	must(t, s.BeginCapture(), a.run())
	g, err := s.EndCapture()
	must(t, err)
	x, err := g.Instantiate()
	must(t, err, g.Close())
	defer func() { must(t, x.Close()) }()
	for _, o := range []data{a.y, a.dx, a.dw} {
		must(t, v.Fill(o.at, 0xff, int64(len(o.x)*4)))
	}
	must(t, x.Launch(s), s.Synchronize())
	a.judge(t)
	if !bytes.Equal(first, a.dw.raw(t, v)) {
		t.Error("captured work gives other bits")
	}
	shape, _, _ := a.c.desc.shapes()
	a.x.set(t, v, newData(t, v, F32, r, shape).x)
	must(t, x.Launch(s), s.Synchronize())
	a.expect()
	a.judge(t)
}

func TestPassesAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skipf("the race detector allocates")
	}
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(9, 10))
	a := newTrial(t, h, ConvDesc{DType: F32, N: 2, C: 2, H: 8, W: 8, K: 4, R: 3, S: 3}, r)
	pool, err := h.NewPool(PoolDesc{DType: F32, N: 2, C: 2, H: 8, W: 8, R: 2, S: 2, StrideH: 2, StrideW: 2})
	must(t, err)
	defer func() { must(t, pool.Close()) }()
	must(t, a.run(), v.Enter())
	defer v.Leave()
	var bad error
	note := func(err error) {
		if err != nil {
			bad = err
		}
	}
	allocs := testing.AllocsPerRun(100, func() {
		note(a.c.Forward(a.x.at, a.w.at, a.y.at, a.ws))
		note(a.c.BackwardData(a.w.at, a.dy.at, a.dx.at, a.ws))
		note(a.c.BackwardFilter(a.x.at, a.dy.at, a.dw.at, a.ws))
		note(pool.Forward(a.x.at, a.y.at))
		note(pool.Backward(a.y.at, a.dy.at, a.x.at, a.dx.at))
	})
	must(t, bad, s.Synchronize())
	if allocs != 0 {
		t.Errorf("%v allocations for five passes, want 0", allocs)
	}
}

func TestOnlyThePassesThatAreNeededAreMade(t *testing.T) {
	_, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(11, 12))
	a := newTrial(t, h, ConvDesc{DType: F32, N: 2, C: 2, H: 8, W: 8, K: 4, R: 3, S: 3, Passes: Forward | BackwardFilter}, r)
	v := h.Device()
	must(t, a.c.Forward(a.x.at, a.w.at, a.y.at, a.ws), a.c.BackwardFilter(a.x.at, a.dy.at, a.dw.at, a.ws), s.Synchronize())
	a.isY.judge(t, v, a.y, Full, 32, "forward")
	a.isDW.judge(t, v, a.dw, Full, 32, "filter")
	if err := a.c.BackwardData(a.w.at, a.dy.at, a.dx.at, a.ws); err == nil || !strings.Contains(err.Error(), "without the pass data") {
		t.Errorf("the pass that is not there: %v", err)
	}
}
