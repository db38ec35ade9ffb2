package train

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/symgrad/symgrad/metrics"
	"github.com/symgrad/symgrad/train/internal/output"
)

// records writes the metrics of a run on rank 0. On other ranks it does nothing.
type records struct {
	t      *trainer
	out    *metrics.Writer // nil on other ranks
	values metrics.Values  // of a record, reused
	points []point         // of steps whose losses are not shared yet
	memory float64         // bytes; 0 if not measured yet
}

// point has the numbers of a step that rank 0 knows at once.
type point struct {
	step, samples       int
	seconds, rate, norm float64
}

// open opens the files of metrics on rank 0. A resumed run continues them.
func (r *records) open(t *trainer) error {
	if t.w.Rank() != 0 {
		return nil
	}
	cfg := t.job.cfg
	c := metrics.Config{
		Resumed: t.first, Every: math.MaxInt, CSV: cfg.Log.CSV, TensorBoard: cfg.Log.TensorBoard, NoRates: true,
		PeakFLOPS: cfg.Log.PeakTFLOPS * 1e12 * float64(t.w.Size()),
	}
	if c.PeakFLOPS == 0 {
		c.PeakFLOPS = metrics.PeakFLOPS(t.report().Device(), cfg.Run.Precision) * float64(t.w.Size())
	}
	if t.vm.compiled != nil { // the tape machine's work is unknown
		c.FLOPPerSample = float64(t.vm.compiled.FLOP()) / float64(t.rows)
	}
	c.TokensPerSample = tokensOf(t.job.problem)
	r.t = t
	err := r.resume()
	if err == nil {
		r.out, err = metrics.Open(cfg.OutputDir(), c)
	}
	if err != nil {
		return fmt.Errorf("run.output_dir: %w", err)
	}
	r.values = metrics.Values{}
	return nil
}

// tokensOf returns the tokens of a sample; 0 if samples are no sequences.
func tokensOf(p Problem) int {
	if t, ok := own(p).(Tokens); ok {
		return t.TokensPerSample()
	}
	return 0
}

// resume copies the metrics of the run that this one resumes, if it ended or had other
// settings, so that its results have a number. The folder may also have those of another training:
// the metrics are of this one if they have the loss of the checkpoint at its step.
func (r *records) resume() error {
	t := r.t
	if t.from == nil || t.claim == nil || len(t.from.Memory.Losses) == 0 {
		return nil
	}
	losses := t.from.Memory.Losses
	for _, name := range t.claim.Kept {
		if !strings.HasPrefix(name, "metrics-") || filepath.Ext(name) != filepath.Ext(metrics.FileName) {
			continue
		}
		dir := t.job.cfg.OutputDir()
		h, err := metrics.Read(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		last, ok := h.Value(metrics.Loss, t.first)
		if want := losses[len(losses)-1]; !ok || last != want && !(math.IsNaN(last) && math.IsNaN(want)) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return output.Replace(filepath.Join(dir, metrics.FileName), text)
	}
	return nil
}

// note notes the numbers of a step whose loss is known. On a GPU these are the wanted ones. rate is
// its learning rate.
func (r *records) note(step int, rate float64) {
	if r.out == nil || r.t.job.site.GPU && !r.t.wanted(step) {
		return
	}
	m := r.t.meter
	r.points = append(r.points, point{
		step: step, samples: m.Samples(), seconds: m.Now().Seconds(), rate: rate, norm: r.t.solver.GradNorm(),
	})
}

// shared writes the noted steps after their losses have been shared. The last has also the numbers
// of all steps since the record before.
func (r *records) shared() error {
	if r.out == nil {
		return nil
	}
	steps, losses := r.t.meter.Recent()
	for i, p := range r.points {
		clear(r.values)
		for len(steps) > 0 && steps[0] < p.step {
			steps, losses = steps[1:], losses[1:]
		}
		if len(steps) > 0 && steps[0] == p.step {
			r.values[metrics.Loss] = losses[0]
		}
		r.values[metrics.Seconds], r.values[metrics.LearningRate], r.values[metrics.Samples] = p.seconds, p.rate, float64(p.samples)
		r.set(metrics.GradNorm, p.norm)
		if i == len(r.points)-1 {
			r.speed()
		}
		if err := r.out.Write(p.step+1, r.values); err != nil {
			return err
		}
	}
	r.points = r.points[:0]
	return r.out.Flush()
}

// speed adds the numbers of all steps since the last share.
func (r *records) speed() {
	t := r.t
	if r.memory == 0 {
		r.memory = float64(t.costs.memory().Total())
	}
	r.values[metrics.Epoch] = float64(t.meter.Samples()) / float64(t.job.problem.Len())
	r.values[metrics.SamplesPerSecond], r.values[metrics.MemoryBytes] = t.meter.Rate(), r.memory
	r.set(metrics.ExposedPercent, t.meter.RecentExposedPercent())
}

// set sets a value that is NaN if it is unknown.
func (r *records) set(name string, x float64) {
	if !math.IsNaN(x) {
		r.values[name] = x
	}
}

// tested writes the result of an evaluation after so many steps, which began at a time of the
// meter.
func (r *records) tested(steps int, began time.Duration, result tested) error {
	if r.out == nil || result.all == 0 {
		return nil
	}
	clear(r.values)
	r.values[metrics.ValAccuracy] = result.accuracy()
	if result.top5 >= 0 {
		r.values[metrics.ValTop5Accuracy] = float64(result.top5) / float64(result.all)
	}
	r.values[metrics.Seconds] = began.Seconds()
	r.set(metrics.ValLoss, result.loss)
	return errors.Join(r.out.Write(steps, r.values), r.out.Flush())
}
