package ops

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// alone is the world of one rank.
func alone(t *testing.T) *dist.Group {
	t.Helper()
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := worlds[0].Close(); err != nil {
			t.Error(err)
		}
	})
	return worlds[0].Group
}

// sumOf is an allreduce of x, a vector, and the op of its node.
func sumOf(t *testing.T, x *gtensor.Dense) *collective {
	t.Helper()
	n := gorgonia.NewTensor(gorgonia.NewGraph(), x.Dtype(), x.Dims(), gorgonia.WithName("x"), gorgonia.WithShape(x.Shape()...), gorgonia.WithValue(x))
	y, err := AllReduce(alone(t), n, dist.Sum)
	if err != nil {
		t.Fatal(err)
	}
	return y.Op().(*collective)
}

func TestThePlacedValueIsUsedIfItFits(t *testing.T) {
	x := gtensor.New(gtensor.WithBacking([]float64{1, 2, 3}))
	c := sumOf(t, x)
	wide := gtensor.New(gtensor.WithShape(3, 2), gtensor.Of(gtensor.Float64))
	column, err := wide.Slice(nil, gtensor.S(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		name  string
		place gorgonia.Value
		used  bool
	}{
		{"fits", gtensor.New(gtensor.WithBacking([]float64{9, 9, 9})), true},
		{"is the input", x, false},
		{"is a header over the input's memory", gtensor.New(gtensor.WithBacking(x.Data().([]float64))), false},
		{"has another shape", gtensor.New(gtensor.WithShape(4), gtensor.Of(gtensor.Float64)), false},
		{"has another dtype", gtensor.New(gtensor.WithShape(3), gtensor.Of(gtensor.Float32)), false},
		{"is not contiguous", column.(*gtensor.Dense), false},
		{"is a scalar", gorgonia.NewF64(0), false},
		{"is nil", nil, false},
	} {
		got, err := c.UsePreallocDo(k.place, x)
		if err != nil {
			t.Errorf("%s: %v", k.name, err)
			continue
		}
		if (got == k.place) != k.used {
			t.Errorf("a place that %s: used %v, want %v", k.name, got == k.place, k.used)
		}
		if v := got.Data().([]float64); !slices.Equal(v, []float64{1, 2, 3}) {
			t.Errorf("a place that %s: %v", k.name, v)
		}
	}
	if v := x.Data().([]float64); !slices.Equal(v, []float64{1, 2, 3}) {
		t.Errorf("the input became %v", v)
	}
}

func TestAPlaceIsZeroedWhereARankHasNoResult(t *testing.T) {
	worlds, err := sim.New(2, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	outs, errs := make([][]float64, 2), make([]error, 2)
	var wg sync.WaitGroup
	for r, w := range worlds {
		wg.Go(func() {
			defer func() { errs[r] = errors.Join(errs[r], w.Close()) }()
			x := gtensor.New(gtensor.WithBacking([]float64{1, 2}))
			n := gorgonia.NewVector(gorgonia.NewGraph(), gtensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(2))
			y, err := Gather(w.Group, n, 1)
			if err != nil {
				errs[r] = err
				return
			}
			place := gtensor.New(gtensor.WithBacking([]float64{9, 9, 9, 9}))
			_, errs[r] = y.Op().(*collective).UsePreallocDo(place, x)
			outs[r] = place.Data().([]float64)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for r, want := range [][]float64{{0, 0, 0, 0}, {1, 2, 1, 2}} {
		if !slices.Equal(outs[r], want) {
			t.Errorf("rank %d: %v, want %v", r, outs[r], want)
		}
	}
}

func TestDoTellsWhatIsWrongWithItsInput(t *testing.T) {
	c := sumOf(t, gtensor.New(gtensor.WithBacking([]float64{1, 2, 3})))
	for name, k := range map[string]struct {
		in   []gorgonia.Value
		want error
	}{
		"none":          {nil, dist.ErrInvalid},
		"nil":           {[]gorgonia.Value{nil}, dist.ErrInvalid},
		"another dtype": {[]gorgonia.Value{gtensor.New(gtensor.WithBacking([]float32{1, 2, 3}))}, dist.ErrDType},
		"another size":  {[]gorgonia.Value{gtensor.New(gtensor.WithBacking([]float64{1, 2}))}, dist.ErrCount},
		"a scalar":      {[]gorgonia.Value{gorgonia.NewF64(1)}, dist.ErrCount},
	} {
		if v, err := c.Do(k.in...); !errors.Is(err, k.want) || v != nil {
			t.Errorf("%s: %v, error %v, want %v", name, v, err, k.want)
		}
	}
	extra := gorgonia.NewF64(5) // hung on for the order
	if _, err := c.Do(gtensor.New(gtensor.WithBacking([]float64{1, 2, 3})), extra); err != nil {
		t.Errorf("an extra input: %v", err)
	}
}

func TestTheTypeIsNewAtEveryCall(t *testing.T) {
	c := sumOf(t, gtensor.New(gtensor.WithBacking([]float64{1, 2, 3})))
	a, b := c.Type().(*hm.FunctionType), c.Type().(*hm.FunctionType)
	if a == b {
		t.Error("two calls gave one type, which gorgonia would recycle twice")
	}
	if got := b.Ret(false); !got.Eq(gorgonia.TensorType{Dims: 1, Of: gtensor.Float64}) {
		t.Errorf("the result's type is %v", got)
	}
}

func TestHashesOfOpsDifferByNumber(t *testing.T) {
	a, b := &collective{kind: dist.KindBarrier, number: 1}, &collective{kind: dist.KindBarrier, number: 2}
	if a.Hashcode() == b.Hashcode() || a.Hashcode() != (&collective{kind: dist.KindBarrier, number: 1}).Hashcode() {
		t.Errorf("hashes %#x and %#x", a.Hashcode(), b.Hashcode())
	}
}

func TestTheAdjointOfTheAdjointIsTheOperation(t *testing.T) {
	half := dist.PreMulSum(0.5)
	vector := form{dt: tensor.F64, gdt: gtensor.Float64, shape: gtensor.Shape{4}}
	block := form{dt: tensor.F64, gdt: gtensor.Float64, shape: gtensor.Shape{2}}
	for kind, dual := range adjoints {
		if dual == dist.KindInvalid {
			continue
		}
		for _, red := range []dist.RedOp{dist.Sum, dist.Avg, half} {
			c := &collective{kind: dist.Kind(kind), g: alone(t), pre: red, peer: 1, in: vector, out: block}
			a, err := c.adjoint()
			if err != nil {
				t.Fatal(err)
			}
			if a.kind != dual || a.peer != 1 || !a.in.shape.Eq(block.shape) || !a.out.shape.Eq(vector.shape) {
				t.Errorf("adjoint of %v is %v %v to %v", c, a, a.in, a.out)
			}
			b, err := a.adjoint()
			if err != nil {
				t.Fatal(err)
			}
			if b.kind != c.kind || b.pre.Kind != c.pre.Kind || b.post.Kind != c.post.Kind || !b.in.shape.Eq(c.in.shape) {
				t.Errorf("%v %v: the adjoint of its adjoint is %v %v %v", c, c.pre, b, b.pre, b.post)
			}
		}
	}
}

func TestScaleGivesEachRankItsWeight(t *testing.T) {
	for _, k := range []struct {
		red  dist.RedOp
		want float64
	}{{dist.Sum, 12}, {dist.Avg, 4}, {dist.PreMulSum(2.5), 30}, {dist.PreMulSumAt(tensor.Of([]float64{-1})), -12}} {
		b := []float64{12}
		scale(tensor.Of(b), k.red, 3)
		if b[0] != k.want {
			t.Errorf("f64 %v: %v, want %v", k.red, b[0], k.want)
		}
	}
	for _, k := range []struct {
		red  dist.RedOp
		want float32
	}{{dist.Sum, 12}, {dist.Avg, 4}, {dist.PreMulSum(float32(2.5)), 30}, {dist.PreMulSumAt(tensor.Of([]float32{-1})), -12}} {
		b := []float32{12}
		scale(tensor.Of(b), k.red, 3)
		if b[0] != k.want {
			t.Errorf("f32 %v: %v, want %v", k.red, b[0], k.want)
		}
	}
}

func TestNamesSayWhatAnOpDoes(t *testing.T) {
	for want, c := range map[string]*collective{
		"allreduce avg":       {kind: dist.KindAllReduce, pre: dist.Avg},
		"reduce sum to 3":     {kind: dist.KindReduce, peer: 3},
		"broadcast from 1":    {kind: dist.KindBroadcast, peer: 1},
		"allgather":           {kind: dist.KindAllGather},
		"allgather scaled":    {kind: dist.KindAllGather, post: dist.Avg},
		"reducescatter sum":   {kind: dist.KindReduceScatter},
		"alltoall":            {kind: dist.KindAllToAll},
		"gather to 0":         {kind: dist.KindGather},
		"scatter from 2":      {kind: dist.KindScatter, peer: 2},
		"send to 1":           {kind: dist.KindSend, peer: 1},
		"recv from 1":         {kind: dist.KindRecv, peer: 1},
		"barrier":             {kind: dist.KindBarrier},
		"allreduce premulsum": {kind: dist.KindAllReduce, pre: dist.PreMulSum(2.0)},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
