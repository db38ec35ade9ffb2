package machine

import (
	"errors"
	"fmt"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/internal/values"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// TestWeightsThatAreNotGatheredAreToldApart follows weights that the next run gathers. From the
// update until then, or until Consolidate, no reader that does not gather them may read them.
func TestWeightsThatAreNotGatheredAreToldApart(t *testing.T) {
	for stage := 1; stage <= 2; stage++ {
		cfg := fewKilobytes
		cfg.Stage, cfg.OverlapGather = stage, true
		inWorld(t, 2, func(w *dist.World) error {
			r, err := newRankGraph(2, 0)
			if err != nil {
				return err
			}
			if r.d, err = ddp.Attach(w, r.cost, r.params, cfg); err != nil {
				return err
			}
			m := &Machine{ddp: r.d}
			stale := func(when string, want bool) error {
				if err := m.current(); r.d.Stale() != want || errors.Is(err, ErrStale) != want {
					return fmt.Errorf("stage %d, %s: stale %v, %w", stage, when, r.d.Stale(), err)
				}
				return nil
			}
			errs := []error{stale("attached", false)}
			r.d.Ran(nil)
			errs = append(errs, stale("updated", true))
			errs = append(errs, r.d.NoSync(func() error { r.d.Ran(nil); return nil }), stale("a part, which has gathered", false))
			r.d.Ran(nil)
			errs = append(errs, stale("updated again", true), r.d.Consolidate(), stale("consolidated", false))
			r.d.Ran(nil)
			errs = append(errs, r.d.GatherWeights(), stale("gathered by the machine", false))
			return errors.Join(errs...)
		})
	}
}

// TestMachinesOfOneDDPSetItsWordsAnew alternates two machines on one DDP's graph: each must set
// words that the other has changed.
func TestMachinesOfOneDDPSetItsWordsAnew(t *testing.T) {
	inWorld(t, 1, func(w *dist.World) error {
		r, err := newRankGraph(2, 0)
		if err != nil {
			return err
		}
		if r.d, err = ddp.Attach(w, r.cost, r.params, ddp.Config{}); err != nil {
			return err
		}
		one, other := &Machine{}, &Machine{}
		for i, c := range []struct {
			by   *Machine
			want bool
		}{{one, true}, {one, false}, {other, true}, {one, true}, {one, false}} {
			if got := r.d.Take(c.by); got != c.want {
				return fmt.Errorf("run %d: another machine: %v, want %v", i, got, c.want)
			}
		}
		words := r.d.Layout().Weights
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

// TestOnlyFirstRunsGather counts the gatherings of programs. A run begins with all that the
// previous run updated, except with Stage 1 the last of several buckets, which is gathered by the
// run that updates it.
func TestOnlyFirstRunsGather(t *testing.T) {
	for stage := 1; stage <= 2; stage++ {
		for _, cfg := range []ddp.Config{fewKilobytes, {}} {
			cfg.Stage, cfg.OverlapGather = stage, true
			inWorld(t, 1, func(w *dist.World) error { return onlyFirstRunsGather(w, cfg) })
		}
	}
}

func onlyFirstRunsGather(w *dist.World, cfg ddp.Config) error {
	r, err := newRankGraph(2, 0)
	if err != nil {
		return err
	}
	if r.d, err = ddp.Attach(w, r.cost, r.params, cfg); err != nil {
		return err
	}
	n, err := newLane(r, loweringOptions{}, &optim.Config{Name: optim.SGD, LearningRate: 0.1})
	if err != nil {
		return err
	}
	all := len(r.d.Plan().Buckets)
	for as, want := range map[manner]int{wholeBatch: all, firstPart: all, laterPart: 0, lastPart: 0} {
		p, err := n.load(as)
		if err != nil {
			return err
		}
		if early, others := gatherings(p.p); early != want || others != 0 {
			return fmt.Errorf("the program of a %v gathers %d buckets early, and %d others, want %d:\n%v", as, early, others, want, p.p)
		}
	}
	alone := collect(r.g, G.Nodes{r.cost})
	l, err := lower(alone, loweringOptions{DDP: r.d, Shapes: n.opt.Shapes})
	if err != nil {
		return err
	}
	if early, others := gatherings(l.p); early+others != 0 {
		return fmt.Errorf("a program without gradients gathers %d buckets", early+others)
	}
	return nil
}

func gatherings(p *program.Program) (early, others int) {
	for _, s := range p.Steps {
		switch {
		case !isKind(s, dist.KindAllGather):
		case s.Op.(*program.Collective).Early:
			early++
		default:
			others++
		}
	}
	return early, others
}

// TestOverlapGatherNeedsAStage checks settings that Attach rejects.
func TestOverlapGatherNeedsAStage(t *testing.T) {
	for stage := range 4 {
		err := ddp.Config{Stage: stage, OverlapGather: true}.Validate()
		if (stage == 0) != errors.Is(err, dist.ErrInvalid) {
			t.Errorf("stage %d: %v", stage, err)
		}
	}
}

// lateDDP is a rank whose runs gather the updates of the previous run.
func lateDDP(w *dist.World) (*ddp.DDP, error) {
	r, err := newRankGraph(2, 0)
	if err != nil {
		return nil, err
	}
	cfg := fewKilobytes
	cfg.Stage, cfg.OverlapGather = 1, true
	return ddp.Attach(w, r.cost, r.params, cfg)
}

// TestNobodyReadsWeightsThatAreNotGathered checks readers and writers of a DDP's weights other than
// the machine that updated them.
func TestNobodyReadsWeightsThatAreNotGathered(t *testing.T) {
	inWorld(t, 1, func(w *dist.World) error {
		d, err := lateDDP(w)
		if err != nil {
			return err
		}
		owner := &Machine{g: &graph{}, ddp: d, device: &device{}} // nothing has run on it
		between := &Machine{g: &graph{}, device: &device{from: owner}}
		copies := func() error { _, err := (&compiled{lowered: &lowered{}, m: owner}).bindOnDevice(); return err }
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
		d.Ran(nil)
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
	inWorld(t, 1, func(w *dist.World) error {
		d, err := lateDDP(w)
		if err != nil {
			return err
		}
		m := &Machine{g: &graph{}, ddp: d, device: &device{}, clock: make([]uint64, 2)}
		m.now = &compiled{lowered: &lowered{exchange: &exchange{d: d, begun: true}}, m: m}
		for what, run := range map[string]func(){
			"measured":      func() { m.profiled(2) },
			"have failed":   func() { d.Ran(dist.ErrAborted) },
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
		m.now.exchange.manner = firstPart
		m.profiled(2)
		return m.current()
	})
}
