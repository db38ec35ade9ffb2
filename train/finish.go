package train

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/symgrad/symgrad/internal/tool/plan"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/report"
)

// finish does the work after the last step: test accuracy, a last comparison of the ranks, and the
// result files.
func (t *trainer) finish(ctx context.Context, facts *report.Run, s *report.Summary) error {
	if err := t.whole(); err != nil {
		return err
	}
	if t.job.cfg.Run.Eval {
		began := t.meter.Now()
		result, err := t.evaluate(ctx)
		if err != nil {
			return err
		}
		if err := t.records.tested(t.steps, began, result); err != nil {
			return err
		}
		if result.all > 0 {
			s.Tested(result.right, result.all, result.loss)
			if result.top5 >= 0 {
				s.TestedTop5(result.top5)
			}
		}
	}
	digest, err := t.digest()
	if err != nil {
		return err
	}
	if err := exchange.Same(t.values, "parameters", digest); err != nil {
		return err
	}
	if err := t.judgeLoss(); err != nil {
		return err
	}
	if t.rank0.traceFirst >= 0 {
		s.Trace = filepath.Join(t.job.cfg.OutputDir(), t.job.cfg.Log.Trace)
		line, err := t.profile()
		if err != nil {
			return err
		}
		if line != nil {
			addProfile(t.spans, t.steps-1, false, *line)
		}
		if err := t.spans.Write(t.values, s.Trace); err != nil {
			return err
		}
	}
	times, err := t.times()
	if err != nil || t.w.Rank() != 0 {
		return err
	}
	s.ParamsSHA256 = hex.EncodeToString(digest)
	return t.write(facts, s, times)
}

// write writes and prints the results of rank 0.
func (t *trainer) write(facts *report.Run, s *report.Summary, times report.Times) error {
	s.Measured(t.meter, t.job.problem.Len(), t.rank0.losses)
	s.Memory, s.SkippedSteps, s.Checkpoints = t.costs.memory(), t.skipped(), t.keeper.Written()
	if t.from != nil {
		s.ResumedFrom, s.ResumedStep = t.from.Path(), t.first
	}
	facts.Libraries(s.Versions)
	if file := t.job.timing.file; file != "" {
		if err := facts.WriteTiming(file, s, times); err != nil {
			return err
		}
	}
	if err := s.Write(t.job.cfg.OutputDir()); err != nil {
		return err
	}
	text, err := s.Footer(t.keeper, t.job.cfg.OutputDir())
	if err != nil {
		return err
	}
	if err := t.job.say("%s", text); err != nil || !t.job.plan {
		return err
	}
	p, err := t.costs.expected()
	if err != nil {
		return err
	}
	return t.job.say("\n%s", plan.Compare(p.Figures(0), t.costs.taken(p, t.meter, t.steps-t.first)))
}

// errNotLearned reports a final loss that is not below the bound of --below.
var errNotLearned = errors.New("the model has not learned")

// judgeLoss compares the last loss, which all ranks know, with the bound of --below.
func (t *trainer) judgeLoss() error {
	bound := t.job.below
	if last := t.meter.Loss(); bound > 0 && !(last < bound) {
		return fmt.Errorf("%w: the loss of the last step is %.6f, not below %v", errNotLearned, last, bound)
	}
	return nil
}

// profiledRuns is the number of runs of each kind in a profile.
const profiledRuns = 20

// times returns the step times of the slowest rank. On GPUs it also measures more steps, because
// the weights are no longer needed.
//
// Collective: all ranks. Returns: no profile on the host, without --json, and with data.accum_steps
// above 1.
func (t *trainer) times() (report.Times, error) {
	timing, gpu := t.job.timing, t.job.site.GPU
	times := report.Times{Warmup: timing.warmup, Steps: t.timing.Measured(), Resident: timing.resident}
	if gpu && timing.file != "" {
		between, err := t.vm.compiled.Intervals()
		if err != nil {
			return times, err
		}
		t.timing.SetLaps(between)
	}
	worst, err := t.timing.Worst(t.values)
	if err != nil {
		return times, err
	}
	times.Median, times.Mean, times.P90 = worst[0], worst[1], worst[2]
	if !t.rank0.profile {
		return times, nil
	}
	line, err := t.profile()
	if err != nil || line == nil {
		return times, err
	}
	share := 100 * line.Share()
	times.Profile, times.Exposed = report.NewProfile(line), &share
	return times, nil
}

// profile returns the times of a step on the GPU, for which it makes more steps: the weights are no
// longer needed.
//
// Collective: all ranks. Returns: nil on the host, with data.accum_steps above 1, and after a run
// without steps.
func (t *trainer) profile() (*machine.Timeline, error) {
	if t.profiled != nil || !t.job.site.GPU || t.job.cfg.Data.AccumSteps > 1 || t.first == t.steps {
		return t.profiled, nil
	}
	line, err := t.vm.compiled.Profile(profiledRuns)
	if err != nil {
		return nil, err
	}
	t.profiled = &line
	return t.profiled, nil
}
