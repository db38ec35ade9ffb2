package lower

import (
	"errors"
	"fmt"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/optim"
)

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
	n, err := newLane(r, Options{}, &optim.Config{Name: optim.SGD, LearningRate: 0.1})
	if err != nil {
		return err
	}
	all := len(r.d.Plan().Buckets)
	for as, want := range map[Manner]int{WholeBatch: all, FirstPart: all, LaterPart: 0, LastPart: 0} {
		p, err := n.load(as)
		if err != nil {
			return err
		}
		if early, others := gatherings(p.Program); early != want || others != 0 {
			return fmt.Errorf("the program of a %v gathers %d buckets early, and %d others, want %d:\n%v", as, early, others, want, p.Program)
		}
	}
	alone := Collect(r.g, G.Nodes{r.cost})
	l, err := Graph(alone, Options{DDP: r.d, Shapes: n.opt.Shapes})
	if err != nil {
		return err
	}
	if early, others := gatherings(l.Program); early+others != 0 {
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
