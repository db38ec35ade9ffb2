package train

import (
	"context"
	"fmt"
	"time"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/measure"
	"github.com/symgrad/symgrad/train/internal/report"
)

// loop runs the remaining steps.
func (t *trainer) loop(ctx context.Context) error {
	if err := exchange.Done(t.w.Barrier()); err != nil {
		return err
	}
	t.meter = measure.New(t.values, t.rule.SkipNonFinite, advice(t.job.cfg, false))
	if t.from != nil {
		t.meter.Resume(t.from.Memory.Samples, t.from.Memory.Losses, t.from.Memory.FirstLoss)
	}
	t.timing = measure.NewSteps(t.job.timing.warmup, t.steps-t.first)
	if err := t.records.open(t); err != nil {
		return err
	}
	var p *report.Progress
	if t.w.Rank() == 0 {
		p = report.NewProgress(t.job.out, t.job.cfg.Log.Progress, t.job.env.Columns)
		defer p.End()
	}
	if err := t.inputs.start(t.learner, t.sampler.Cursor()); err != nil {
		return err
	}
	stops := newStopper(ctx, t.values)
	t.costs.began = newest(t.w)
	for step := t.first; step < t.steps; step++ {
		if err := t.job.marks.Begin(step + 1); err != nil {
			return err
		}
		if err := stops.ask(t.keeper != nil); err != nil {
			return err
		}
		batch := t.sampler.Next()
		t.evaluates = t.evaluatesAfter(step, batch)
		rate := t.solver.LearningRate()
		t.spans.Begin(step, step >= t.rank0.traceFirst && step <= t.rank0.traceLast)
		if err := t.spans.CompareClocks(t.values, t.w.Local()); err != nil {
			return err
		}
		if err := t.step(step, batch); err != nil {
			return fmt.Errorf("step %d: %w", step, plain(err))
		}
		t.records.note(step, rate)
		shared, err := t.after(step, stops)
		if err != nil {
			return err
		}
		if p != nil {
			p.Step(t.status(batch, step, rate), shared)
		}
		if t.evaluates {
			if err := t.test(ctx, step+1, p); err != nil {
				return fmt.Errorf("evaluation after step %d: %w", step, err)
			}
		}
		if cause := context.Cause(ctx); cause != nil && t.keeper == nil {
			return cause
		}
	}
	t.costs.ended = newest(t.w)
	return nil
}

// after is the ranks' common work after a step: they sum losses, save, and stop.
//
// Returns: whether losses have been summed. Errors: saved, when a rank got a signal to stop.
func (t *trainer) after(step int, stops *stopper) (shared bool, err error) {
	shared = t.shared(step)
	stop, err := stops.answer(shared)
	if err != nil {
		return false, err
	}
	shared = shared || stop != nil
	if shared {
		if err := t.meter.Share(); err != nil {
			return true, err
		}
		if err := t.records.shared(); err != nil { // before the checkpoint, so that a resumed run finds the record of its step
			return true, err
		}
	}
	if stop == nil && !t.keeper.Due(step+1, t.steps) {
		return shared, nil
	}
	if err := t.save(step + 1); err != nil || stop == nil {
		return shared, err
	}
	at, err := t.keeper.Last(t.values)
	if err != nil {
		return true, err
	}
	return true, &saved{stop, step + 1, at}
}

// status returns the state after a step, whose batch was b, for the progress.
func (t *trainer) status(b data.Batch, step int, rate float64) report.Status {
	return report.Status{
		First: t.first, Step: step + 1, Steps: t.steps, Epoch: b.Epoch + 1, Epochs: t.job.cfg.Run.Epochs,
		Loss: t.meter.Loss(), LearningRate: rate, SamplesPerSec: t.meter.Rate(),
		ExposedPercent: t.meter.ExposedPercent(), Elapsed: t.meter.Now(),
	}
}

// step is one optimizer step on a global batch, whose part for this rank is b.
func (t *trainer) step(step int, b data.Batch) error {
	if err := t.scaled.set(t.solver); err != nil {
		return err
	}
	loss, err := t.gradients(step, b, t.wanted(step))
	if err != nil {
		return err
	}
	if t.job.site.GPU {
		return t.queued(step, b, loss)
	}
	updating := time.Now()
	if err := t.update(); err != nil {
		return err
	}
	t.spans.Add("compute", "optimizer", updating, time.Now())
	t.spans.Exchange(t.d)
	stood, _ := t.d.ExposedComm()
	t.meter.Step(b.Global, stood)
	t.meter.Note(step, loss/float64(b.Global))
	t.timing.End(t.meter.Now())
	return nil
}

// queued ends a step whose run and update have been queued on a GPU. It waits for the device only
// to read a loss that is shared. The device records when a group of steps ends. parts is the loss
// of a batch in pieces.
func (t *trainer) queued(step int, b data.Batch, parts float64) error {
	if err := t.update(); err != nil {
		return err
	}
	t.spans.Queued()
	t.meter.Step(b.Global, 0)
	wanted := t.wanted(step)
	if t.job.timing.file != "" && t.timing.Edge() {
		if err := t.vm.compiled.Mark(); err != nil {
			return err
		}
	}
	if wanted {
		loss, err := t.vm.scalar(t.model.Cost)
		if err != nil {
			return err
		}
		if loss *= float64(len(b.Indices)); t.cut(len(b.Indices), b.Global).n > 1 {
			loss = parts
		}
		t.meter.Note(step, loss/float64(b.Global))
	}
	t.timing.End(t.meter.Now())
	return nil
}

// wanted reports whether the loss of a step must be known.
func (t *trainer) wanted(step int) bool { return t.rank0.losses || t.shared(step) }

// shared reports whether the ranks sum their losses after a step.
func (t *trainer) shared(step int) bool {
	return (step+1)%t.rank0.every == 0 || step+1 == t.steps || t.evaluates || t.keeper.Due(step+1, t.steps)
}

// evaluatesAfter reports whether the model is evaluated after a step that is not the last one. Its
// batch was b. It is not with --json, which measures the times of consecutive steps.
func (t *trainer) evaluatesAfter(step int, b data.Batch) bool {
	run := t.job.cfg.Run
	switch {
	case !run.Eval || t.job.cfg.DDP.LocalSteps > 1 || t.rank0.profile || step+1 == t.steps:
		return false
	case run.EvalEvery > 0:
		return (step+1)%run.EvalEvery == 0
	}
	return b.Step+1 == t.sampler.Steps()
}

// test evaluates the model after so many steps, and records and prints the result. The meter leaves
// its time out.
//
// Collective: all ranks.
func (t *trainer) test(ctx context.Context, steps int, p *report.Progress) (err error) {
	if t.job.problem.Tests() == nil {
		return nil
	}
	if t.keeper != nil { // a signal ends the run after the next step, on all ranks together
		ctx = context.WithoutCancel(ctx)
	}
	from, began := time.Now(), t.meter.Now()
	defer func() { t.meter.Pause(time.Since(from)) }()
	if err := t.whole(); err != nil {
		return err
	}
	result, err := t.evaluate(ctx)
	if err != nil {
		return err
	}
	if p != nil {
		p.Tested(steps, t.steps, result.loss, result.accuracy())
	}
	return t.records.tested(steps, began, result)
}
