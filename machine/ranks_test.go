package machine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// smallBuckets makes several buckets.
var smallBuckets = ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}

// rank is a graph of two layers that is attached to ddp.
type rank struct {
	g      *G.ExprGraph
	cost   *G.Node
	params G.Nodes
	d      *ddp.DDP
}

var building sync.Mutex

func attachRank(w *dist.World, cfg ddp.Config) (*rank, error) {
	r := &rank{g: G.NewGraph()}
	node := func(name string, shape ...int) *G.Node {
		return G.NewMatrix(r.g, G.Float32, G.WithName(name), G.WithShape(shape...), G.WithInit(G.Ones()))
	}
	building.Lock()
	x := node("x", 2, 6)
	r.params = G.Nodes{node("w0", 6, 50), node("b0", 1, 50), node("w1", 50, 3)}
	h := G.Must(G.Tanh(G.Must(G.BroadcastAdd(G.Must(G.Mul(x, r.params[0])), r.params[1], nil, []byte{0}))))
	r.cost = G.Must(G.Mean(G.Must(G.Mul(h, r.params[2]))))
	building.Unlock()
	var err error
	r.d, err = ddp.Attach(w, r.cost, r.params, cfg)
	return r, err
}

// onRanks runs body on each rank of a world, on all ranks at once.
func onRanks(t *testing.T, n int, body func(w *dist.World) error) {
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

// TestProgramsTakeTurns checks which program a machine selects for a run, and which one it
// discards.
func TestProgramsTakeTurns(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		r, err := attachRank(w, ddp.Config{})
		if err != nil {
			return err
		}
		m := &Machine{device: &device{}}
		m.programs.m = m
		program := func(as lower.Manner, rows int) *compiled {
			c := &compiled{m: m, Lowered: &lower.Lowered{Exchange: &lower.Exchange{DDP: r.d, Manner: as, Begun: true}}, runner: &ended{}, gpu: &onDevice{}}
			c.sources = []source{{Binding: lower.Binding{Node: r.params[0], Shape: []int{rows}}}}
			m.all = append(m.all, c)
			return c
		}
		whole, other, part := program(lower.WholeBatch, 4), program(lower.FirstPart, 5), program(lower.FirstPart, 4)
		m.now = whole
		if err := m.choose(); err != nil || m.now != whole {
			return fmt.Errorf("a run of a whole batch: %w, it gets a %v", err, m.now.manner())
		}
		err = r.d.NoSync(func() error {
			if err := m.choose(); err != nil || m.now != part {
				return fmt.Errorf("a run inside NoSync: %w, it gets a %v for %v", err, m.now.manner(), m.now.sources[0].Shape)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for range maxCompiled - 2 {
			program(lower.FirstPart, 9)
		}
		if err := m.bound(); err != nil || !slices.Contains(m.all, other) {
			return fmt.Errorf("%d programs of a manner: %w, the oldest is gone", maxCompiled, err)
		}
		program(lower.FirstPart, 10)
		if err := m.bound(); err != nil || slices.Contains(m.all, other) || !slices.Contains(m.all, whole) || !slices.Contains(m.all, part) {
			return fmt.Errorf("one more: %w, %d programs are left", err, len(m.all))
		}
		return nil
	})
}

// TestStage1NeedsTheUpdateInTheRun checks rejected settings, and programs that need no update.
func TestStage1NeedsTheUpdateInTheRun(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		r, err := attachRank(w, ddp.Config{Stage: 1})
		if err != nil {
			return err
		}
		g := lower.Collect(r.g, nil)
		if err := needsSolver(r.d, g); !errors.Is(err, ErrSolver) {
			return fmt.Errorf("without a solver: %w", err)
		}
		return needsSolver(r.d, lower.Collect(r.g, G.Nodes{r.cost}))
	})
}

// TestStatesOfPiecesCover checks which states a rank accepts for its piece of a parameter.
func TestStatesOfPiecesCover(t *testing.T) {
	onRanks(t, 3, func(w *dist.World) error {
		r, err := attachRank(w, ddp.Config{Stage: 1})
		if err != nil {
			return err
		}
		g, shapes := lower.Collect(r.g, nil), map[*G.Node][]int{}
		for _, p := range r.params {
			shapes[p] = p.Shape()
		}
		s := &solver{Update: lower.NewUpdate(g, optim.Config{Name: optim.Momentum}, false, shapes, r.d), m: &Machine{shapes: shapes}}
		if err := s.Allocate(g, values.New); err != nil {
			return err
		}
		i := slices.Index(s.Nodes, r.params[0]) // 300 elements; another rank owns 256
		piece := s.Pieces[i]
		name := s.Config.Slots()[0]
		slot := func(n int) []optim.Slot { return []optim.Slot{{Name: name, F32: make([]float32, n)}} }
		for _, c := range []struct {
			offset, n int
			fits      bool
		}{{0, 300, true}, {piece.Offset, piece.Len, true}, {0, 301, false}, {-1, 300, false}, {piece.Offset + 1, max(piece.Len-1, 0), piece.Len == 0}} {
			err := s.fits(i, optim.ParamState{Name: "w0", DType: r.params[0].Dtype(), Offset: c.offset, Slots: slot(c.n)})
			if c.fits != (err == nil) || err != nil && !errors.Is(err, optim.ErrMismatch) {
				return fmt.Errorf("rank %d has %+v, elements %d to %d: %w", w.Rank(), piece, c.offset, c.offset+c.n, err)
			}
		}
		return nil
	})
}

// TestWeightsThatAreNotGatheredAreToldApart follows weights that the next run gathers. From the
// update until then, or until Consolidate, no reader that does not gather them may read them.
func TestWeightsThatAreNotGatheredAreToldApart(t *testing.T) {
	for stage := 1; stage <= 2; stage++ {
		cfg := smallBuckets
		cfg.Stage, cfg.OverlapGather = stage, true
		onRanks(t, 2, func(w *dist.World) error {
			r, err := attachRank(w, cfg)
			if err != nil {
				return err
			}
			m := &Machine{ddp: r.d}
			stale := func(when string, want bool) error {
				if err := m.current(); r.d.Machine().Stale() != want || errors.Is(err, ErrStale) != want {
					return fmt.Errorf("stage %d, %s: stale %v, %w", stage, when, r.d.Machine().Stale(), err)
				}
				return nil
			}
			errs := []error{stale("attached", false)}
			r.d.Machine().Ran(nil)
			errs = append(errs, stale("updated", true))
			errs = append(errs, r.d.NoSync(func() error { r.d.Machine().Ran(nil); return nil }), stale("a part, which has gathered", false))
			r.d.Machine().Ran(nil)
			errs = append(errs, stale("updated again", true), r.d.Consolidate(), stale("consolidated", false))
			r.d.Machine().Ran(nil)
			errs = append(errs, r.d.Machine().GatherWeights(), stale("gathered by the machine", false))
			return errors.Join(errs...)
		})
	}
}

// lateDDP is a rank whose runs gather the updates of the previous run.
func lateDDP(w *dist.World) (*ddp.DDP, error) {
	cfg := smallBuckets
	cfg.Stage, cfg.OverlapGather = 1, true
	r, err := attachRank(w, cfg)
	if err != nil {
		return nil, err
	}
	return r.d, nil
}

// TestNobodyReadsWeightsThatAreNotGathered checks readers and writers of a DDP's weights other than
// the machine that updated them.
func TestNobodyReadsWeightsThatAreNotGathered(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		d, err := lateDDP(w)
		if err != nil {
			return err
		}
		owner := &Machine{g: &lower.Parts{}, ddp: d, device: &device{}} // nothing has run on it
		between := &Machine{g: &lower.Parts{}, device: &device{from: owner}}
		copies := func() error {
			_, err := (&onDevice{compiled: &compiled{Lowered: &lower.Lowered{}, m: owner}}).bind()
			return err
		}
		reads := map[string]func() error{
			"the parameters of a machine that has run nothing":  owner.quiet,
			"the parameters that another machine has from that": between.quiet,
			"Sync of a machine that has run nothing":            owner.Sync,
		}
		for what, read := range reads {
			if err := read(); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		d.Machine().Ran(nil)
		reads["a program without gradients, which copies values of nodes there"] = copies
		for what, read := range reads {
			if err := read(); !errors.Is(err, ErrStale) {
				return fmt.Errorf("%s: %w, want ErrStale", what, err)
			}
		}
		owner.closed = true
		if err := between.quiet(); !errors.Is(err, ErrClosed) {
			return fmt.Errorf("the machine that has the parameters is closed: %w, want ErrClosed", err)
		}
		return nil
	})
}

// TestRunsThatAreMeasuredUpdateToo: runs of Profile leave weights as other runs do, as does a
// failed run, whose effect is unknown.
func TestRunsThatAreMeasuredUpdateToo(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		d, err := lateDDP(w)
		if err != nil {
			return err
		}
		m := &Machine{g: &lower.Parts{}, ddp: d, device: &device{}, clock: make([]uint64, 2)}
		m.now = &compiled{Lowered: &lower.Lowered{Exchange: &lower.Exchange{DDP: d, Begun: true}}, m: m}
		for what, run := range map[string]func(){
			"measured":      func() { m.profiled(2) },
			"have failed":   func() { d.Machine().Ran(dist.ErrAborted) },
			"were not made": func() { m.profiled(0) },
		} {
			if err := errors.Join(d.Consolidate(), m.current()); err != nil {
				return err
			}
			run()
			if err := m.current(); errors.Is(err, ErrStale) != (what != "were not made") {
				return fmt.Errorf("runs that %s: %w", what, err)
			}
		}
		if err := d.Consolidate(); err != nil {
			return err
		}
		m.now.Exchange.Manner = lower.FirstPart
		m.profiled(2)
		return m.current()
	})
}

// TestMachinesOfOneDDPSetItsWordsAnew alternates two machines on one DDP's graph: each must set
// words that the other has changed.
func TestMachinesOfOneDDPSetItsWordsAnew(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		r, err := attachRank(w, ddp.Config{})
		if err != nil {
			return err
		}
		one, other := &Machine{}, &Machine{}
		for i, c := range []struct {
			by   *Machine
			want bool
		}{{one, true}, {one, false}, {other, true}, {one, true}, {one, false}} {
			if got := r.d.Machine().Take(c.by); got != c.want {
				return fmt.Errorf("run %d: another machine: %v, want %v", i, got, c.want)
			}
		}
		words := r.d.Machine().Layout().Weights
		elsewhere, err := values.New(tensor.F64, 1)
		if err != nil {
			return err
		}
		d := &device{words: []word{{at: words[0], known: true}, {at: elsewhere, known: true}, {at: words[3], known: true}}}
		d.forgetWords(words[:])
		for i, want := range []bool{false, true, false} {
			if d.words[i].known != want {
				return fmt.Errorf("word %d is known: %v, want %v", i, d.words[i].known, want)
			}
		}
		return nil
	})
}
