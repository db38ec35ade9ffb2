package optim

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/tensor"
)

// featured has every rule, alone and with all additional settings.
func featured() (all []Config, names []string) {
	groups := []Group{
		{Names: []string{"head.*"}, WeightDecay: 0.05, RateScale: 0.5},
		{MaxDims: 1, NoWeightDecay: true},
	}
	for _, c := range torchCases {
		all, names = append(all, c.config), append(names, c.name)
		with := c.config
		with.ClipNorm, with.ClipValue, with.EMADecay, with.SkipNonFinite = 20, 0.3, 0.9, true
		with.Schedule = Schedule{Name: Cosine, WarmupSteps: 10, Steps: 80}
		if with.WeightDecay != 0 {
			with.Groups = groups
		}
		with.Workers = 2
		all, names = append(all, with), append(names, c.name+" with all")
	}
	return all, names
}

// pieceSteps is the number of steps of TestPiecesEqualTheWholeBitByBit; the race detector needs
// few.
func pieceSteps() int {
	if invariants.Enabled {
		return 14
	}
	return 100
}

// TestPiecesEqualTheWholeBitByBit makes 100 steps on 1 to 4 ranks, some with NaN gradients if steps
// are skipped.
func TestPiecesEqualTheWholeBitByBit(t *testing.T) {
	all, names := featured()
	var draws [][][]float32 // of the weights, and of each step
	for seed := range uint64(1 + pieceSteps()) {
		draws = append(draws, draw(seed))
	}
	for n, c := range all {
		t.Run(names[n], func(t *testing.T) {
			whole := newBuckets(1)
			whole.fill(false, draws[0], 0)
			model := whole.model(t)
			single := newSolver(t, c)
			fleets := make([]*fleet, 4)
			for i := range fleets {
				fleets[i] = newFleet(t, c, i+1)
				fleets[i].fill(false, draws[0], 0)
			}
			for step := range pieceSteps() {
				poison := 0.0
				if c.SkipNonFinite && step%9 == 4 {
					poison = math.NaN()
				}
				whole.fill(true, draws[1+step], poison)
				if err := single.Step(model); err != nil {
					t.Fatal(err)
				}
				for _, f := range fleets {
					f.fill(true, draws[1+step], poison)
					if err := f.step(); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, f := range fleets {
				checkFleet(t, c, f, whole, single)
			}
		})
	}
}

// checkFleet compares the ranks with the solver of whole parameters.
func checkFleet(t *testing.T, c Config, f *fleet, whole *buckets, single Solver) {
	t.Helper()
	if err := errors.Join(sameWeights(whole, f.buckets), sameState(single.State(), f.merged())); err != nil {
		t.Errorf("%d ranks: %v", len(f.ranks), err)
	}
	for rank, s := range f.ranks {
		if math.Float64bits(s.GradNorm()) != math.Float64bits(single.GradNorm()) || s.Skipped() != single.Skipped() || s.Steps() != single.Steps() {
			t.Errorf("rank %d of %d: norm %v, %d skipped, %d steps; want %v, %d and %d", rank, len(f.ranks),
				s.GradNorm(), s.Skipped(), s.Steps(), single.GradNorm(), single.Skipped(), single.Steps())
		}
	}
	if want := (pieceSteps() + 4) / 9; c.SkipNonFinite && single.Skipped() != want {
		t.Errorf("%d steps skipped, want %d", single.Skipped(), want)
	}
	sums := 0
	if c.Measures() {
		sums += pieceSteps()
	}
	if c.Name == LAMB {
		sums += single.Steps()
	}
	if len(f.ranks) > 1 && f.ring.calls != sums {
		t.Errorf("%d ranks made %d sums, want %d", len(f.ranks), f.ring.calls, sums)
	}
	for _, x := range [][]float64{f.grad64, {float64(f.grad32[0])}} {
		if slices.ContainsFunc(x, func(v float64) bool { return v != 0 }) {
			t.Errorf("%d ranks: gradients are not zeroed", len(f.ranks))
		}
	}
}

func TestPiecesGoOnFromAnyCut(t *testing.T) {
	for _, c := range []Config{
		{Name: LAMB, WeightDecay: 0.01, ClipNorm: 1},
		{Name: Adam, AMSGrad: true, EMADecay: 0.5},
		{Name: Momentum},
		{Name: SGD, ClipNorm: 1},
	} {
		straight := newFleet(t, c, 1)
		straight.fill(false, draw(1), 0)
		run := func(f *fleet, from, to int) {
			t.Helper()
			for step := from; step < to; step++ {
				f.fill(true, draw(uint64(2+step)), 0)
				if err := f.step(); err != nil {
					t.Fatal(err)
				}
			}
		}
		run(straight, 0, 5)
		at5 := newBuckets(1)
		copy(at5.weight32, straight.weight32)
		copy(at5.weight64, straight.weight64)
		saved := straight.ranks[0].State()
		run(straight, 5, 10)
		for ranks := 1; ranks <= 4; ranks++ {
			f := newFleet(t, c, ranks)
			copy(f.weight32, at5.weight32[:min(len(at5.weight32), len(f.weight32))])
			copy(f.weight64, at5.weight64[:min(len(at5.weight64), len(f.weight64))])
			for _, err := range f.each(func(_ int, s PieceSolver) error { return s.SetState(saved) }) {
				if err != nil {
					t.Fatal(err)
				}
			}
			run(f, 5, 10)
			if err := errors.Join(sameWeights(straight.buckets, f.buckets), sameState(straight.merged(), f.merged())); err != nil {
				t.Errorf("%v restored on %d ranks: %v", c, ranks, err)
			}
			for rank, s := range f.ranks { // a run that is all that the rank owns, and one that is a little more
				own := s.State()
				for _, more := range []int{0, 100} {
					err := errors.Join(s.SetState(State{Name: c.Name}), s.SetState(around(own, f.merged(), more)))
					if err := errors.Join(err, sameState(own, s.State())); err != nil {
						t.Errorf("%v: rank %d of %d, %d elements more: %v", c, rank, ranks, more, err)
					}
				}
			}
			if err := newSolver(t, c).SetState(f.merged()); err != nil {
				t.Errorf("%v: a solver of whole parameters refuses the merged state: %v", c, err)
			}
		}
	}
}

// around returns the runs of own with some more elements of whole on both sides.
func around(own, whole State, more int) State {
	st := State{Name: own.Name, Steps: own.Steps}
	for i, p := range own.Params {
		n := p.len()
		lo, hi := max(p.Offset-more, 0), min(p.Offset+n+more, shapeSize(p.Shape))
		run := p
		run.Offset, run.Slots = lo, nil
		for k, slot := range whole.Params[i].Slots {
			if p.DType == gtensor.Float32 {
				slot.F32 = append(slices.Clone(slot.F32[lo:p.Offset]), append(slices.Clone(p.Slots[k].F32), slot.F32[p.Offset+n:hi]...)...)
			} else {
				slot.F64 = append(slices.Clone(slot.F64[lo:p.Offset]), append(slices.Clone(p.Slots[k].F64), slot.F64[p.Offset+n:hi]...)...)
			}
			run.Slots = append(run.Slots, slot)
		}
		st.Params = append(st.Params, run)
	}
	return st
}

func TestPiecesStartOverFromAFreshState(t *testing.T) {
	f := newFleet(t, Config{Name: Adam}, 1)
	f.fill(true, draw(3), 0)
	if err := f.step(); err != nil {
		t.Fatal(err)
	}
	if err := f.ranks[0].SetState(State{Name: Adam}); err != nil {
		t.Fatal(err)
	}
	st := f.ranks[0].State()
	if st.Steps != 0 || slices.ContainsFunc(st.Params[0].Slots[0].F32, func(v float32) bool { return v != 0 }) {
		t.Errorf("state after a fresh one: %d steps, %v", st.Steps, st.Params[0].Slots[0].F32[:4])
	}
}

func TestPieceStatesThatDoNotFitAreRefused(t *testing.T) {
	f := newFleet(t, Config{Name: Momentum}, 2)
	f.fill(true, draw(3), 0)
	if err := f.step(); err != nil {
		t.Fatal(err)
	}
	s := f.ranks[1]
	unowned := slices.IndexFunc(s.State().Params, func(p ParamState) bool { return p.len() == 0 })
	for _, c := range []struct {
		name  string
		spoil func(st *State)
		says  string
	}{
		{"other rule", func(st *State) { st.Name = SGD }, `the state is of "sgd"`},
		{"too few", func(st *State) { st.Params = st.Params[1:] }, "7 parameters and the model 8"},
		{"another rank's", func(st *State) { *st = f.ranks[0].State() }, "or more"},
		{"shape", func(st *State) { st.Params[0].Shape = []int{21, 33} }, "in the model"},
		{"dtype", func(st *State) { st.Params[3].DType = gtensor.Float32 }, "in the model"},
		{"no dtype", func(st *State) { st.Params[3].DType = gtensor.Dtype{} }, " none is "},
		{"offset", func(st *State) { st.Params[5].Offset += 256 }, "slot 0"},
		{"negative offset", func(st *State) { st.Params[0].Offset = -1 }, "are not in a parameter"},
		{"huge offset", func(st *State) {
			p := &st.Params[unowned]
			p.Offset, p.Slots[0].F32, p.Slots[0].F64 = math.MaxInt-255, make([]float32, 256), make([]float64, 256)
		}, "are not in a parameter"},
		{"beyond the end", func(st *State) {
			slot := &st.Params[5].Slots[0]
			slot.F32 = append(slot.F32, make([]float32, 9000)...)
		}, "are not in a parameter"},
		{"slot missing", func(st *State) { st.Params[2].Slots = nil }, "0 slots"},
		{"slot's name", func(st *State) { st.Params[2].Slots[0].Name = "ema" }, `"ema"`},
	} {
		before := s.State()
		st := s.State()
		c.spoil(&st)
		err := s.SetState(st)
		if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want ErrMismatch saying %q", c.name, err, c.says)
		}
		if err := sameState(before, s.State()); err != nil {
			t.Errorf("%s: the refused state has changed something: %v", c.name, err)
		}
	}
}

func TestPiecesOfAnotherFormAreRefused(t *testing.T) {
	big := ParamShape{"w", []int{1000}, gtensor.Float32}
	of := func(n int) tensor.Buffer { return tensor.Of(make([]float32, n)) }
	shared := of(256)
	for _, c := range []struct {
		name   string
		params []ParamShape
		pieces []Piece
		kind   error
		says   string
	}{
		{"no parameters", nil, nil, ErrMismatch, "no parameters"},
		{"dtype", []ParamShape{{"w", []int{3}, gtensor.Int}}, nil, ErrUnsupported, "dtype int"},
		{"no dtype", []ParamShape{{Name: "w", Shape: []int{3}}}, nil, ErrUnsupported, "dtype none: use float32"},
		{"negative", []ParamShape{{"w", []int{-3}, gtensor.Float32}}, nil, ErrMismatch, "negative"},
		{"huge", []ParamShape{{"w", []int{1 << 40, 1 << 24}, gtensor.Float32}}, nil, ErrMismatch, "more than 1099511627776 elements"},
		{"huge in all", []ParamShape{big, {"v", []int{1 << 20, 1 << 20}, gtensor.Float32}}, nil, ErrMismatch, "elements in all"},
		{"two of a name", []ParamShape{big, big}, nil, ErrMismatch, "both named"},
		{"unknown", []ParamShape{big}, []Piece{{Name: "v"}}, ErrMismatch, "no such parameter"},
		{"shape", []ParamShape{big}, []Piece{{Name: "w", Shape: []int{999}}}, ErrMismatch, "shape"},
		{"two pieces", []ParamShape{big}, []Piece{
			{Name: "w", Shape: big.Shape, Weight: of(256), Grad: of(256)},
			{Name: "w", Shape: big.Shape, Offset: 512, Weight: of(256), Grad: of(256)},
		}, ErrMismatch, "another piece"},
		{"too long", []ParamShape{big}, []Piece{{Name: "w", Shape: big.Shape, Offset: 768, Weight: of(256), Grad: of(256)}}, ErrMismatch, "the parameter has 1000"},
		{"huge offset", []ParamShape{big}, []Piece{{Name: "w", Shape: big.Shape, Offset: math.MaxInt - 255, Weight: of(256), Grad: of(256)}}, ErrMismatch, "the parameter has 1000"},
		{"begins in a block", []ParamShape{big}, []Piece{{Name: "w", Shape: big.Shape, Offset: 100, Weight: of(156), Grad: of(156)}}, ErrMismatch, "between blocks"},
		{"ends in a block", []ParamShape{big}, []Piece{{Name: "w", Shape: big.Shape, Weight: of(100), Grad: of(100)}}, ErrMismatch, "between blocks"},
		{"gradient's length", []ParamShape{big}, []Piece{{Name: "w", Shape: big.Shape, Weight: of(256), Grad: of(255)}}, ErrMismatch, "gradient is"},
		{"memory's dtype", []ParamShape{big}, []Piece{{
			Name: "w", Shape: big.Shape, Weight: tensor.Of(make([]float64, 256)), Grad: tensor.Of(make([]float64, 256)),
		}}, ErrMismatch, "holds f64"},
		{"shared", []ParamShape{big}, []Piece{{Name: "w", Shape: big.Shape, Weight: shared, Grad: shared}}, ErrUnsupported, "share memory"},
	} {
		s, err := NewPieces(Config{Name: Adam}, c.params, c.pieces, nil)
		if s != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "adam pieces: ") {
			t.Errorf("%s: error %v, want %v saying %q", c.name, err, c.kind, c.says)
		}
	}
	if _, err := NewPieces(Config{Name: SGD, Beta1: 0.5}, []ParamShape{big}, nil, nil); !errors.Is(err, ErrConfig) {
		t.Errorf("bad config: error %v", err)
	}
}

func TestAllRanksRefuseAStepAlike(t *testing.T) {
	f := newFleet(t, Config{Name: Adam, ClipNorm: 1}, 4)
	f.fill(false, draw(1), 0)
	f.fill(true, draw(2), math.Inf(1))
	before := slices.Clone(f.weight32)
	for rank, err := range f.each(func(_ int, s PieceSolver) error { return s.Step() }) {
		if !errors.Is(err, ErrNonFinite) || !strings.Contains(err.Error(), "parameter 3 body.weight") {
			t.Errorf("rank %d: error %v", rank, err)
		}
		if f.ranks[rank].Steps() != 0 || f.grad32[0] == 0 {
			t.Errorf("rank %d: the refused step had an effect", rank)
		}
	}
	if !slices.Equal(before, f.weight32) {
		t.Error("weights have changed")
	}
}

func TestASumThatFailsChangesNothing(t *testing.T) {
	broken := errors.New("a peer is gone")
	for _, c := range []Config{
		{Name: LAMB, WeightDecay: 0.1}, {Name: LAMB, WeightDecay: 0.1, ClipNorm: 1}, {Name: Adam, SkipNonFinite: true},
	} {
		f := newFleet(t, c, 2)
		f.fill(false, draw(1), 0)
		f.fill(true, draw(2), 0)
		f.ring.failure = broken
		before, state := slices.Clone(f.weight32), f.merged()
		for rank, err := range f.each(func(_ int, s PieceSolver) error { return s.Step() }) {
			if !errors.Is(err, broken) || !strings.Contains(err.Error(), "sum of squared") {
				t.Errorf("%v: rank %d: error %v", c, rank, err)
			}
		}
		if !slices.Equal(before, f.weight32) || sameState(state, f.merged()) != nil || f.grad32[0] == 0 {
			t.Errorf("%v: the step that failed had an effect", c)
		}
	}
}

func TestARankWithoutPiecesTakesPart(t *testing.T) {
	c := Config{Name: LAMB, WeightDecay: 0.1, ClipNorm: 1, EMADecay: 0.5}
	alone := newFleet(t, c, 1)
	b, r := newBuckets(1), newRing(2)
	f := &fleet{buckets: b, ring: r}
	for rank, pieces := range [][]Piece{b.pieces(t, 0), nil} {
		s, err := NewPieces(c, pieceShapes, pieces, r.of(rank))
		if err != nil {
			t.Fatal(err)
		}
		f.ranks = append(f.ranks, s)
	}
	for _, x := range []*fleet{alone, f} {
		x.fill(false, draw(1), 0)
		x.fill(true, draw(2), 0)
		if err := x.step(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(sameWeights(alone.buckets, f.buckets), sameState(alone.merged(), f.merged())); err != nil {
		t.Error(err)
	}
	if f.ranks[1].GradNorm() != alone.ranks[0].GradNorm() || f.ranks[1].Steps() != 1 {
		t.Errorf("norm %v after %d steps, want %v after 1", f.ranks[1].GradNorm(), f.ranks[1].Steps(), alone.ranks[0].GradNorm())
	}
	for _, p := range f.ranks[1].State().Params {
		for _, slot := range p.Slots {
			if len(slot.F32)+len(slot.F64) != 0 {
				t.Errorf("state of %s has %s of another rank", p.Name, slot.Name)
			}
		}
	}
	if err := f.ranks[1].SetState(f.ranks[0].State()); err != nil {
		t.Errorf("the state of a rank that owns all: %v", err)
	}
	if err := f.ranks[1].SetState(f.ranks[1].State()); err != nil {
		t.Errorf("its own state: %v", err)
	}
}

func TestPieceStepAllocatesNothing(t *testing.T) {
	all, names := featured()
	for n, c := range all {
		f := newFleet(t, c, 1)
		f.fill(false, draw(1), 0)
		allocs := testing.AllocsPerRun(10, func() {
			if err := f.ranks[0].Step(); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations a step", names[n], allocs)
		}
	}
}
