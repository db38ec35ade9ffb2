package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// train is a whole run on one rank.
//
// Collective: all ranks. Errors: the failure, on the rank where it happened; on other ranks also
// the number of that rank.
func train(ctx context.Context, w *dist.World, j *job, g *guard) (err error) {
	k := newExchanger(w)
	defer func() { err = errors.Join(err, k.close()) }()
	if err := agree(k, j.facts); err != nil {
		return err
	}
	group, release := w.Context(context.Background())
	defer release()
	t, err := newTrainer(k, j, ends{group: group, signal: ctx})
	if t != nil {
		defer func() { err = errors.Join(err, t.close(err)) }()
	}
	if err != nil {
		return err
	}
	if err := t.claimOnRank0(); err != nil {
		return err
	}
	s := newSummary(t)
	if s.WireBytes, err = t.sent(); err != nil {
		return err
	}
	if w.Rank() == 0 {
		if err := j.cfg.Save(j.cfg.OutputDir(), j.origins); err != nil {
			return err
		}
		if err := t.header(); err != nil {
			return err
		}
	}
	if t.rank0Settings.verify {
		if err := t.verify(s); err != nil {
			return err
		}
	}
	t.filled = false
	if t.keeper != nil {
		g.off() // a signal now ends the loop after a step, without an abort
	}
	if err := t.loop(ctx); err != nil {
		return explained(err, j.cfg)
	}
	if err := t.forgiven(t.keeper.close()); err != nil { // before g.on: a signal must not cost the checkpoint
		return err
	}
	g.on()
	return explained(t.finish(ctx, s), j.cfg)
}

// finish does the work after the last step: test accuracy, a last comparison of the ranks, and the
// result files.
func (t *trainer) finish(ctx context.Context, s *Summary) error {
	if err := t.whole(); err != nil {
		return err
	}
	if t.job.cfg.Run.Eval {
		if err := t.evaluate(ctx, s); err != nil {
			return err
		}
	}
	digest, err := t.digest()
	if err != nil {
		return err
	}
	if err := sameParams(t.exchanger, digest); err != nil {
		return err
	}
	if err := t.judgeLoss(); err != nil {
		return err
	}
	if err := t.writeTrace(s); err != nil {
		return err
	}
	worst, err := t.times()
	if err != nil {
		return err
	}
	if t.w.Rank() == 0 {
		s.measured(t, digest)
	}
	profile, exposed, err := t.profile()
	if err != nil || t.w.Rank() != 0 {
		return err
	}
	t.libraries(s.Versions)
	if err := t.writeTiming(s, worst, profile, exposed); err != nil {
		return err
	}
	if err := s.write(t.job.cfg.OutputDir()); err != nil {
		return err
	}
	if err := t.footer(s); err != nil || !t.job.plan {
		return err
	}
	return t.held()
}

// errNotLearned reports a final loss that is not below the bound of --below.
var errNotLearned = errors.New("the model has not learned")

// judgeLoss compares the last loss, which all ranks know, with the bound of --below.
func (t *trainer) judgeLoss() error {
	bound := t.job.below
	if last := t.meter.loss(); bound > 0 && !(last < bound) {
		return fmt.Errorf("%w: the loss of the last step is %.6f, not below %v", errNotLearned, last, bound)
	}
	return nil
}

// loop runs the remaining steps.
func (t *trainer) loop(ctx context.Context) error {
	if err := rank.Done(t.w.Barrier()); err != nil {
		return err
	}
	t.meter = newMeter(t.exchanger)
	t.meter.wild, t.meter.help = t.rule.SkipNonFinite, advice(t.job.cfg, false)
	t.from.count(t.meter)
	t.timing = newTiming(t.job.timing.warmup, t.steps-t.first)
	var p *progress
	if t.w.Rank() == 0 {
		p = newProgress(t.job.out, t.job.cfg.Log.Progress, t.job.env.Columns)
		defer p.end()
	}
	stops := newStopper(ctx, t.exchanger)
	t.began = newest(t.w)
	for step := t.first; step < t.steps; step++ {
		if err := t.job.marks.Begin(step + 1); err != nil {
			return err
		}
		if err := stops.ask(t.keeper != nil); err != nil {
			return err
		}
		batch := t.sampler.Next()
		rate := t.solver.LearningRate()
		t.spans.on = step >= t.rank0Settings.traceFirst && step <= t.rank0Settings.traceLast
		if err := t.spans.compareClocks(t.exchanger, t.w.Local()); err != nil {
			return err
		}
		if err := t.step(step, batch); err != nil {
			return fmt.Errorf("step %d: %w", step, plain(err))
		}
		shared, err := t.after(step, stops)
		if err != nil {
			return err
		}
		if p != nil {
			p.step(t.status(batch, step, rate), shared)
		}
		if cause := context.Cause(ctx); cause != nil && t.keeper == nil {
			return cause
		}
	}
	t.ended = newest(t.w)
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
		if err := t.meter.share(); err != nil {
			return true, err
		}
	}
	if stop == nil && !t.keeper.due(step+1, t.steps) {
		return shared, nil
	}
	if err := t.save(step + 1); err != nil || stop == nil {
		return shared, err
	}
	at, err := t.last()
	if err != nil {
		return true, err
	}
	return true, &saved{stop, step + 1, at}
}

func (t *trainer) status(b data.Batch, step int, rate float64) status {
	return status{
		First: t.first, Step: step + 1, Steps: t.steps, Epoch: b.Epoch + 1, Epochs: t.job.cfg.Run.Epochs,
		Loss: t.meter.loss(), LearningRate: rate, SamplesPerSec: t.meter.rate,
		ExposedPercent: t.meter.exposedPercent(), Elapsed: t.meter.now(),
	}
}

// step is one optimizer step on a global batch, whose part for this rank is b.
func (t *trainer) step(step int, b data.Batch) error {
	t.spans.begin(step)
	if err := t.scaled.set(t.solver); err != nil {
		return err
	}
	loss, err := t.gradients(step, b.Indices, b.Global)
	if err != nil {
		return err
	}
	if t.job.site.gpu {
		return t.queued(step, b, loss)
	}
	updating := time.Now()
	if err := t.update(); err != nil {
		return err
	}
	t.spans.add("compute", "optimizer", updating, time.Now())
	t.spans.exchange(t.d)
	stood, _ := t.d.ExposedComm()
	t.meter.step(b.Global, stood)
	t.meter.note(step, loss/float64(b.Global))
	t.timing.step(t.meter.now())
	return nil
}

// queued ends a step whose run and update have been queued on a GPU. It waits for the device only
// to read a loss that is shared. The device records when a group of steps ends. parts is the loss
// of a batch in pieces.
func (t *trainer) queued(step int, b data.Batch, parts float64) error {
	if err := t.update(); err != nil {
		return err
	}
	t.spans.queued()
	t.meter.step(b.Global, 0)
	wanted := t.wanted(step)
	if t.job.timing.file != "" && t.timing.edge() {
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
		t.meter.note(step, loss/float64(b.Global))
	}
	t.timing.step(t.meter.now())
	return nil
}

// update runs the solver's step.
func (t *trainer) update() error {
	if err := t.solver.Step(t.d.Model()); err != nil {
		return err
	}
	if err := t.d.ScaleHookState(t.scaled.update(t.solver)); err != nil {
		return err
	}
	if k := t.job.cfg.DDP.LocalSteps; k > 1 {
		t.stepsSinceAverage = (t.stepsSinceAverage + 1) % k // the solver averages every k steps
	}
	return nil
}

// wanted reports whether the loss of a step must be known.
func (t *trainer) wanted(step int) bool { return t.rank0Settings.losses || t.shared(step) }

// shared reports whether the ranks sum their losses after a step.
func (t *trainer) shared(step int) bool {
	return (step+1)%t.rank0Settings.every == 0 || step+1 == t.steps || t.keeper.due(step+1, t.steps)
}

// gradients computes the parameters' gradient of the mean loss over a batch of global samples. This
// rank's part is indices. The graph has a fixed batch size, so the part is cut into pieces of that
// many rows. All pieces except the last run without communication. The last is filled up with rows
// of weight zero. All ranks have equally many pieces; some may be empty.
//
// Collective: all ranks. Returns: the sum of the losses of this rank's samples.
func (t *trainer) gradients(step int, indices []int, global int) (loss float64, err error) {
	cuts := t.cut(len(indices), global)
	if cuts.n > 1 {
		err = t.d.NoSync(func() error {
			for i := range cuts.n - 1 {
				l, err := t.run(step, indices, cuts, i)
				if err != nil {
					return err
				}
				loss += l
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	l, err := t.run(step, indices, cuts, cuts.n-1)
	return loss + l, err
}

// plain removes Gorgonia's details (program counter, registers) from a machine's error if one of
// our ops returned it: our errors name rank, operation and bucket. Gorgonia's own errors stay as
// they are.
func plain(err error) error {
	err = ops.Cause(err)
	root := err
	for {
		wrapped, ok := root.(interface{ Cause() error }) // of github.com/pkg/errors, which Gorgonia wraps with
		if !ok {
			break
		}
		root = wrapped.Cause()
	}
	if errors.Unwrap(root) == nil {
		return err
	}
	return root
}

// run runs the graph on one piece of this rank's part of a batch.
//
// Returns: the sum of the losses of the samples. On a GPU it is 0 unless the loss is wanted and
// there are several pieces.
func (t *trainer) run(step int, indices []int, c cuts, piece int) (loss float64, err error) {
	filling := time.Now()
	lo, hi := c.at(piece), c.at(piece+1)
	t.vm.at(step, c.first+lo)
	indices = indices[lo:hi:hi]
	m, n := t.model, float64(len(indices))
	if !t.filled {
		if err := t.job.problem.Fill(m, indices); err != nil {
			return 0, err
		}
		t.filled = t.job.timing.resident
	}
	if err := t.d.SetWeight(n); err != nil { // Cost is the mean over the samples
		return 0, err
	}
	running := time.Now()
	t.spans.add("compute", "batch", filling, running)
	err = t.vm.RunAll()
	t.spans.ran(running, time.Now())
	if err == nil && (!t.job.site.gpu || c.n > 1 && t.wanted(step)) {
		loss, err = t.vm.scalar(m.Cost)
		loss *= n
	}
	t.vm.Reset() // after an error as well
	return loss, err
}

// digest returns the SHA-256 of the parameters in the order of the layers, as little-endian bytes.
func (t *trainer) digest() ([]byte, error) {
	params, err := t.weights()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	for i, p := range params {
		b, err := tensor.BufferOf(p)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", t.model.Params[i].Name(), err)
		}
		elements, err := tensor.Data[float32](b)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", t.model.Params[i].Name(), err)
		}
		bytes := make([]byte, 0, 4*len(elements))
		for _, e := range elements {
			bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(e))
		}
		h.Write(bytes)
	}
	return h.Sum(nil), nil
}
