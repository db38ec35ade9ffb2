package ddp

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

func nan() float64 { return math.NaN() }

func TestDepositRoundsProductsBeforeItAdds(t *testing.T) {
	src := []float64{1, -2, math.NaN(), 1 + 0x1p-52}
	for _, c := range []struct {
		how    manner
		weight float64
		want   []float64
	}{
		{zero, 0, []float64{0, 0, 0, 0}},
		{overwrite, 3, src},
		{scale, 3, []float64{3, -6, math.NaN(), 3 * (1 + 0x1p-52)}},
		{add, 3, []float64{13, 14, math.NaN(), 40 + float64(3*(1+0x1p-52))}},
		{keep, 0, []float64{10, 20, 30, 40}},
	} {
		dst := []float64{10, 20, 30, 40}
		if err := deposit(tensor.Of(dst), tensor.Of(src), c.how, c.weight); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(dst, c.want, func(a, b float64) bool { return a == b || (a != a && b != b) }) {
			t.Errorf("manner %d: %v, want %v", c.how, dst, c.want)
		}
	}
	// (1+e)(1-e) - 1 is -e^2 when the product is not rounded, and 0 when it is.
	const e = 0x1p-20
	dst, one := []float32{-1}, []float32{1 + e}
	if err := deposit(tensor.Of(dst), tensor.Of(one), add, 1-e); err != nil {
		t.Fatal(err)
	}
	if dst[0] != 0 {
		t.Errorf("the product was not rounded: %g", dst[0])
	}
	if err := deposit(tensor.Of(dst), tensor.Of(src), scale, 1); err == nil {
		t.Error("no error for a gradient of another dtype")
	}
}

func TestRunsGoIntoSlotsByWeightAndPlace(t *testing.T) {
	for _, c := range []struct {
		r    run
		want manner
	}{
		{run{weight: 2}, overwrite},
		{run{weight: 0}, zero},
		{run{weight: 2, local: true}, scale},
		{run{weight: 0, local: true}, zero},
		{run{weight: 2, joins: true}, add},
		{run{weight: 2, joins: true, local: true}, add},
		{run{weight: 0, joins: true}, keep},
		{run{weight: 0, joins: true, local: true}, keep},
	} {
		if got := c.r.how(); got != c.want {
			t.Errorf("%+v goes in as %d, want %d", c.r, got, c.want)
		}
	}
}

func TestClockCountsWhatIsExposed(t *testing.T) {
	var c clock
	c.begin(100)
	c.join(150)
	c.block(20)
	c.end(180)
	c.block(5)
	c.end(190)
	if c.exposed != 25 || c.period() != 90 {
		t.Errorf("the first step has %v exposed of %v, want 25 of 90", c.exposed, c.period())
	}
	c.begin(300)
	c.join(350)
	c.end(390)
	if c.exposed != 0 || c.period() != 200 {
		t.Errorf("the second step has %v exposed of %v, want 0 of 200", c.exposed, c.period())
	}
	d := &DDP{clock: c}
	d.clock.block(50)
	if exposed, part := d.ExposedComm(); exposed != 50 || part != 0.25 {
		t.Errorf("ExposedComm is %v, %v, want 50ns, 0.25", exposed, part)
	}
	if _, part := new(DDP).ExposedComm(); part != 0 {
		t.Errorf("before the first step ExposedComm is %v of the time", part)
	}
}

func TestFirstDifferenceIsTheFirstLineThatDiffers(t *testing.T) {
	for _, c := range []struct{ a, b, x, y string }{
		{"p q r", "p s r", "q", "s"},
		{"p q", "p", "q", "nothing more"},
		{"p", "p q", "nothing more", "q"},
		{"p", "p", "", ""},
	} {
		if x, y := firstDifference(strings.Fields(c.a), strings.Fields(c.b)); x != c.x || y != c.y {
			t.Errorf("%q and %q differ in %q and %q, want %q and %q", c.a, c.b, x, y, c.x, c.y)
		}
	}
}

// tiny is a graph with one parameter and its cost, mean((w - x)^2).
func tiny(rank int) (cost, x *gorgonia.Node, params gorgonia.Nodes) {
	g := gorgonia.NewGraph()
	w := gorgonia.NewVector(g, gorgonia.Float64, gorgonia.WithName("w"), gorgonia.WithShape(4),
		gorgonia.WithValue(gtensor.New(gtensor.WithBacking([]float64{1, 2, 3, float64(4 + rank)}))))
	x = gorgonia.NewVector(g, gorgonia.Float64, gorgonia.WithName("x"), gorgonia.WithShape(4),
		gorgonia.WithValue(gtensor.New(gtensor.WithBacking([]float64{float64(rank), 0, 0, 0}))))
	cost = gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(w, x))))))
	return cost, x, gorgonia.Nodes{w}
}

// TestAStreamThatRunsNoHostCodeGivesTheSameGradient takes the way of a device's stream.
func TestAStreamThatRunsNoHostCodeGivesTheSameGradient(t *testing.T) {
	worlds, err := sim.New(2, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, len(worlds))
	for _, w := range worlds {
		go func() {
			errs <- errors.Join(func() error {
				cost, _, params := tiny(w.Rank())
				d, err := Attach(w, cost, params, Config{})
				if err != nil {
					return err
				}
				defer d.Close()
				d.team.queue = nil
				if err := d.SetWeight(float64(1 + 2*w.Rank())); err != nil {
					return err
				}
				vm := gorgonia.NewTapeMachine(cost.Graph())
				defer vm.Close()
				if err := vm.RunAll(); err != nil {
					return err
				}
				g, err := params[0].Grad()
				if err != nil {
					return err
				}
				// rank 0: (w - 0)/2, weight 1; rank 1: w - (1 0 0 0) over 2, weight 3
				if want := []float64{0.25*0.5 + 0.75*0, 1, 1.5, 2}; !slices.Equal(g.Data().([]float64), want) {
					return fmt.Errorf("gradient %v, want %v", g, want)
				}
				return nil
			}(), w.Close())
		}()
	}
	for range worlds {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// loner is the transport of a world of one rank whose backend has no symmetric heap.
type loner struct{ device tensor.Device }

func (l loner) Info() dist.Info {
	return dist.Info{Size: 1, Device: l.device, Backend: "loner", Ranks: []int{0}}
}

func (l loner) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	return s.(*dist.HostStream).Submit(l, op, 0)
}

func (l loner) Run(op *dist.Op, _ uint64) error {
	copy(op.Dst.Raw(), op.Src.Raw()) // premulsum's scalar is 1 here
	return nil
}
func (l loner) Split(int, int) (dist.Transport, error) { return nil, dist.ErrUnsupported }
func (l loner) Heap(int64) (symmetric.Heap, error)     { return nil, dist.ErrUnsupported }
func (l loner) Abort(error) error                      { return nil }
func (l loner) Close() error                           { return nil }

func TestWithoutASymmetricHeapBucketsLieInProcessMemory(t *testing.T) {
	w, err := dist.NewWorld(loner{}, dist.LocalInfo{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cost, _, params := tiny(0)
	d, err := Attach(w, cost, params, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got := d.Plan().Memory; got != "process memory (loner has no symmetric heap)" {
		t.Errorf("the buckets are in %s", got)
	}
	vm := gorgonia.NewTapeMachine(cost.Graph())
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	g, err := params[0].Grad()
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{0.5, 1, 1.5, 2}; !slices.Equal(g.Data().([]float64), want) {
		t.Errorf("gradient %v, want %v", g, want)
	}
	onDevice, err := dist.NewWorld(loner{tensor.CUDA(0)}, dist.LocalInfo{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer onDevice.Close()
	if _, err := newMemory(onDevice.Group, &d.plan); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("a device without a heap: %v, want ErrUnsupported", err)
	}
}

// TestScalarsHaveTheDTypeOfTheirBucket is a rule of premulsum.
func TestScalarsHaveTheDTypeOfTheirBucket(t *testing.T) {
	w, err := dist.NewWorld(loner{}, dist.LocalInfo{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := small(f64s("b", 3), f32s("a", 7))
	d := &DDP{team: newTeam(w.Group, nil), plan: *p}
	d.stage = newStage(d)
	if d.mem, err = newMemory(w.Group, p); err != nil {
		t.Fatal(err)
	}
	params := make(gorgonia.Nodes, 2)
	if err := place(d, params, params); err != nil {
		t.Fatal(err)
	}
	for i, b := range d.buckets {
		if s := b.red.Scalar; s.DType != b.buf.DType() || s.At.Len() != 1 || s.DType != p.Buckets[i].DType {
			t.Errorf("bucket %d of %v has the scalar %v at %v", i, b.buf, s.DType, s.At)
		}
		if at := uintptr(b.buf.Pointer()); at%8 != 0 {
			t.Errorf("bucket %d is at %#x", i, at)
		}
	}
}

// TestSlotsNeverGiveTheirOwnHeaderAway is the trap of two machines that share one tensor: products
// transpose headers in place (gorgonia issue 549).
func TestSlotsNeverGiveTheirOwnHeaderAway(t *testing.T) {
	w, err := dist.NewWorld(loner{}, dist.LocalInfo{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cost, _, params := tiny(0)
	d, err := Attach(w, cost, params, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	vm := gorgonia.NewTapeMachine(cost.Graph())
	defer vm.Close()
	seen := map[gorgonia.Value]bool{d.slots[0].view: true, d.slots[0].zeros: true}
	for range 3 {
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		g := params[0].Deriv().Value()
		if seen[g] {
			t.Error("a gradient has a header that was given away before")
		}
		seen[g] = true
		if g.Uintptr() != uintptr(d.slots[0].buf.Pointer()) {
			t.Error("the gradient is not the bucket's memory")
		}
		if err := g.(*gtensor.Dense).Reshape(2, 2); err != nil { // as a careless op does
			t.Fatal(err)
		}
		vm.Reset()
	}
}

func TestTimelineBeforeTheFirstStepIsEmpty(t *testing.T) {
	w, err := dist.NewWorld(loner{}, dist.LocalInfo{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cost, _, params := tiny(0)
	d, err := Attach(w, cost, params, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if line := d.Timeline(); line.Step != 0 || len(line.Buckets) != 0 || line.Period != time.Duration(0) {
		t.Errorf("the timeline is %+v", line)
	}
}
