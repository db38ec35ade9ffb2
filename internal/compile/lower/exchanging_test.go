package lower

import (
	"errors"
	"flag"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// rankGraph is a graph of one rank: two layers on its own samples.
type rankGraph struct {
	g      *G.ExprGraph
	cost   *G.Node
	params G.Nodes
	d      *ddp.DDP
	grads  [][]float32 // of the tape machine
}

var buildingRanks sync.Mutex

func newRankGraph(rows, first int) (*rankGraph, error) {
	buildingRanks.Lock()
	defer buildingRanks.Unlock()
	r := &rankGraph{g: G.NewGraph()}
	next := 0.0
	tensorOf := func(from float64, shape ...int) *gtensor.Dense {
		v := make([]float32, gtensor.Shape(shape).TotalSize())
		for i := range v {
			v[i] = float32(math.Sin(from + float64(i)))
		}
		return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v))
	}
	node := func(name string, v *gtensor.Dense) *G.Node {
		return G.NewTensor(r.g, gtensor.Float32, v.Dims(), G.WithName(name), G.WithShape(v.Shape()...), G.WithValue(v))
	}
	param := func(name string, shape ...int) *G.Node {
		next += 100
		n := node(name, tensorOf(next, shape...))
		r.params = append(r.params, n)
		return n
	}
	x, y := node("x", tensorOf(float64(6*first), rows, 6)), node("y", tensorOf(float64(1000+3*first), rows, 3))
	h := G.Must(G.Tanh(G.Must(G.BroadcastAdd(G.Must(G.Mul(x, param("w0", 6, 50))), param("b0", 1, 50), nil, []byte{0}))))
	out := G.Must(G.BroadcastAdd(G.Must(G.Mul(h, param("w1", 50, 3))), param("b1", 1, 3), nil, []byte{0}))
	r.cost = G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(out, y))))))
	return r, nil
}

// attach attaches the graph to ddp, and records the gradients of the tape machine.
func (r *rankGraph) attach(w *dist.World, weight float64, cfg ddp.Config) error {
	var err error
	if r.d, err = ddp.Attach(w, r.cost, r.params, cfg); err != nil {
		return err
	}
	if err := r.d.SetWeight(weight); err != nil {
		return err
	}
	vm := G.NewTapeMachine(r.g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return err
	}
	for _, p := range r.params {
		v, err := p.Grad()
		if err != nil {
			return err
		}
		r.grads = append(r.grads, append([]float32(nil), v.Data().([]float32)...))
	}
	return nil
}

// forDevice returns the settings for a program of g on a device, whose gradients d exchanges.
func forDevice(o Options, g *Parts, d *ddp.DDP) Options {
	o.OnGPU, o.Aside, o.DDP, o.Shapes = true, cudaexec.Aside, d, map[*G.Node][]int{}
	for _, n := range g.Nodes {
		if n.IsVar() {
			o.Shapes[n] = n.Shape()
		}
	}
	return o
}

// lower makes the program for a device, with memory on the host.
func (r *rankGraph) lower(cfg Options) (*Lowered, oracle.Rank, error) {
	g := Collect(r.g, nil)
	l, err := Graph(g, forDevice(cfg, g, r.d))
	if err == nil {
		err = program.Validate(l.Program)
	}
	if err != nil {
		return nil, oracle.Rank{}, err
	}
	rank := oracle.Rank{Program: l.Program, Memory: map[program.ID][]byte{}}
	for _, f := range l.Fixed {
		rank.Memory[f.ID] = f.At.Raw()
	}
	for _, b := range l.Inputs {
		at, err := values.Memory(b.Node.Value(), tensor.F32)
		if err != nil {
			return nil, rank, err
		}
		rank.Memory[b.ID] = at.Raw()
	}
	for _, b := range l.Outputs {
		if !b.Slot {
			at, err := values.New(tensor.F32, l.Program.Values[b.ID].Len())
			if err != nil {
				return nil, rank, err
			}
			rank.Memory[b.ID] = at.Raw()
		}
	}
	run, err := r.d.Machine().Next()
	for i, at := range r.d.Machine().Layout().Weights {
		program.SetElement(tensor.F64, at.Raw(), 0, run.Weights[i])
	}
	return l, rank, err
}

// inWorld builds the graph of each rank of a world, on all ranks at once.
func inWorld(t *testing.T, n int, body func(w *dist.World) error) {
	t.Helper()
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for i, w := range worlds {
		t.Cleanup(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		ranks.Go(func() {
			if errs[i] = body(w); errs[i] != nil {
				_ = w.Abort(errs[i])
			}
		})
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestExchangeBySteps runs the device programs on all ranks, and compares gradients with the tape
// machine's.
func TestExchangeBySteps(t *testing.T) {
	few := ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}
	for name, c := range map[string]struct {
		n   int
		ddp ddp.Config
		cfg Options
	}{
		"one bucket":          {3, ddp.Config{}, Options{}},
		"many buckets":        {3, few, Options{}},
		"no overlap":          {3, ddp.Config{NoOverlap: true, BucketMB: 1.0 / 1024}, Options{}},
		"plain":               {3, ddp.Config{}, Options{NoOptimize: true}},
		"aside":               {2, ddp.Config{}, Options{}}, // among so few ranks gradients have a stream of their own
		"many buckets, aside": {2, few, Options{}},
		"many buckets, again": {3, few, Options{Recompute: program.RecomputeMost}},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.n
			graphs := make([]*rankGraph, n)
			inWorld(t, n, func(w *dist.World) error {
				r, err := newRankGraph(2+w.Rank(), 10*w.Rank())
				if err != nil {
					return err
				}
				graphs[w.Rank()] = r
				return r.attach(w, float64(2+w.Rank()), c.ddp)
			})
			all, ranks := make([]*Lowered, n), make([]oracle.Rank, n)
			for i, r := range graphs {
				var err error
				if all[i], ranks[i], err = r.lower(c.cfg); err != nil {
					t.Fatal(err)
				}
			}
			if err := oracle.RunRanks(ranks); err != nil {
				t.Fatal(err)
			}
			for i, r := range graphs {
				r.compare(t, i, all[i], ranks[i])
			}
		})
	}
}

// compare checks the gradients of all parameters after a run.
func (r *rankGraph) compare(t *testing.T, rank int, l *Lowered, run oracle.Rank) {
	t.Helper()
	seen := 0
	for _, b := range l.Outputs {
		for k, p := range r.params {
			if p.Deriv() != b.Node {
				continue
			}
			if seen++; !b.Slot {
				t.Errorf("rank %d: the gradient of %s is not in its bucket", rank, p.Name())
			}
			for i, want := range r.grads[k] {
				got := program.Element(tensor.F32, run.Memory[b.ID], b.Offset+i)
				if !(math.Abs(got-float64(want)) <= 1e-6) {
					t.Errorf("rank %d: gradient of %s, element %d: %v, want %v", rank, p.Name(), i, got, want)
					break
				}
			}
		}
	}
	if seen != len(r.params) {
		t.Errorf("rank %d: %d gradients, want %d", rank, seen, len(r.params))
	}
}

// TestExchangeOverlapsTheBackwardPass checks the order of steps: sums of buckets start before the
// last gradient is computed, the factor precedes them, and no gradient is copied.
func TestExchangeOverlapsTheBackwardPass(t *testing.T) {
	var r *rankGraph
	inWorld(t, 2, func(w *dist.World) error {
		own, err := newRankGraph(4, 4*w.Rank())
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			r = own
		}
		return own.attach(w, 4, ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024})
	})
	l, _, err := r.lower(Options{Name: "exchange"})
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/exchange.golden"
	got := l.Program.String() + "\n"
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the program is\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(got, "copy") {
		t.Errorf("a gradient is copied:\n%s", got)
	}
}

// TestCostAloneExchangesNothing makes a program of an attached graph that computes no gradients, as
// one that validates does.
func TestCostAloneExchangesNothing(t *testing.T) {
	var r *rankGraph
	inWorld(t, 1, func(w *dist.World) (err error) {
		if r, err = newRankGraph(4, 0); err != nil {
			return err
		}
		return r.attach(w, 4, ddp.Config{})
	})
	for _, c := range []struct {
		outputs G.Nodes
		want    bool
	}{{G.Nodes{r.cost}, false}, {append(G.Nodes{r.cost}, r.d.Grads()...), true}} {
		g := Collect(r.g, c.outputs)
		l, err := Graph(g, forDevice(Options{}, g, r.d))
		if err != nil {
			t.Fatal(err)
		}
		if has := l.Exchange.Sum != program.None; has != c.want || has != (len(l.Groups) > 0) {
			t.Errorf("%d outputs: an exchange: %v, %d groups", len(c.outputs), has, len(l.Groups))
		}
	}
}

// TestCostAloneLeavesBucketsOfWeights checks the use of ddp's memory by a program without
// gradients, since a machine that trains has it. With Stages 1 and 2 it uses none, so that values
// of nodes are not copied there; with Stage 3 it uses the gathered parts.
func TestCostAloneLeavesBucketsOfWeights(t *testing.T) {
	for stage := range 4 {
		var r *rankGraph
		inWorld(t, 1, func(w *dist.World) (err error) {
			if r, err = newRankGraph(4, 0); err == nil {
				r.d, err = ddp.Attach(w, r.cost, r.params, ddp.Config{Stage: stage, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024})
			}
			return err
		})
		g := Collect(r.g, G.Nodes{r.cost})
		l, err := Graph(g, Options{DDP: r.d})
		if err != nil {
			t.Fatal(err)
		}
		fixed, inputs := 0, 2+len(r.params)
		if stage == 3 {
			fixed, inputs = len(r.d.Plan().Buckets), 2
		}
		if len(l.Fixed) != fixed || len(l.Inputs) != inputs {
			t.Errorf("stage %d: %d values of ddp's and %d inputs, want %d and %d", stage, len(l.Fixed), len(l.Inputs), fixed, inputs)
		}
		for _, b := range l.Inputs {
			if v := l.Program.Values[b.ID]; b.Slot || v.Role != program.Input {
				t.Errorf("stage %d: input %q is a %v, in a bucket: %v", stage, v.Name, v.Role, b.Slot)
			}
		}
	}
}

// TestGradientThatIsANumberGoesToItsSlot has a cost whose derivative is 1, or a product of numbers.
func TestGradientThatIsANumberGoesToItsSlot(t *testing.T) {
	r := &rankGraph{g: G.NewGraph()}
	inWorld(t, 1, func(w *dist.World) error {
		p := G.NewVector(r.g, gtensor.Float32, G.WithName("w"), G.WithShape(5),
			G.WithValue(gtensor.New(gtensor.WithShape(5), gtensor.WithBacking([]float32{1, 2, 3, 4, 5}))))
		r.params = G.Nodes{p}
		r.cost = G.Must(G.Sum(p))
		return r.attach(w, 3, ddp.Config{})
	})
	l, rank, err := r.lower(Options{})
	if err == nil {
		err = oracle.RunRanks([]oracle.Rank{rank})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.compare(t, 0, l, rank)
}
