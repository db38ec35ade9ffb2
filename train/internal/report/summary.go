package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/build"
	"github.com/symgrad/symgrad/internal/tool/plan"
	"github.com/symgrad/symgrad/train/internal/measure"
	"github.com/symgrad/symgrad/train/internal/output"
	"github.com/symgrad/symgrad/train/internal/save"
)

// Summary is the result of a run, as in summary.json.
type Summary struct {
	Name       string `json:"name"`
	ConfigHash string `json:"config_hash"`
	Model      string `json:"model"`
	Parameters int    `json:"parameters"` // elements

	WorldSize int    `json:"world_size"`
	Backend   string `json:"backend"`
	Launcher  string `json:"launcher"`
	Device    string `json:"device"`  // "cpu", or the name of rank 0's GPU
	Machine   string `json:"machine"` // run.machine
	Precision string `json:"precision"`
	Threads   int    `json:"threads"` // of a rank
	BLAS      string `json:"blas"`    // library or kernels for matrix products

	Steps              int           `json:"steps"`  // of the optimizer
	Epochs             float64       `json:"epochs"` // passes over the training set; the last may be incomplete
	GlobalBatch        int           `json:"global_batch"`
	Seconds            float64       `json:"seconds"` // from the first step to the last
	SamplesPerSecond   float64       `json:"samples_per_second"`
	ExposedCommPercent *float64      `json:"exposed_comm_percent"`    // time waiting for communication, mean over the ranks; null on GPUs
	FinalLoss          float64       `json:"final_loss"`              // of the last step, before its update
	Losses             measure.Curve `json:"losses,omitempty"`        // of all steps, if log.losses asks for them
	LossesFrom         int           `json:"losses_from,omitempty"`   // step of the first of them; not 0 after resuming a run without log.losses
	SkippedSteps       int           `json:"skipped_steps,omitempty"` // by optim.skip_nonfinite or a dynamic optim.loss_scale
	WireBytes          int64         `json:"wire_bytes"`              // sent by a rank in a step for gradients, weights and norms, counted as a ring algorithm would send them; a mean with ddp.local_steps

	Memory plan.Memory `json:"memory"` // allocated by rank 0 on its device, in bytes

	ResumedFrom string `json:"resumed_from,omitempty"` // the checkpoint; times are those of the steps after it
	ResumedStep int    `json:"resumed_step,omitempty"` // steps made before
	Checkpoints []int  `json:"checkpoints,omitempty"`  // steps of the checkpoints written by this run

	TestAccuracy     *float64 `json:"test_accuracy"` // null without run.eval
	TestCorrect      int64    `json:"test_correct"`
	TestSamples      int64    `json:"test_samples"`
	TestLoss         *float64 `json:"test_loss,omitempty"`           // mean of the test samples; missing if the tests have none
	VerifyMaxRelDiff *float64 `json:"verify_max_rel_diff,omitempty"` // with --verify

	ParamsSHA256 string            `json:"params_sha256"` // of the final parameters, in order, little-endian; the same on all ranks
	Trace        string            `json:"trace,omitempty"`
	Versions     map[string]string `json:"versions"`
}

// Summary returns the results that are known before the first step.
func (r *Run) Summary() *Summary {
	cfg := r.Config
	return &Summary{
		Name: cfg.Run.Name, ConfigHash: cfg.Hash(), Model: r.Model, Parameters: r.Parameters,
		WorldSize: r.World.Size(), Backend: r.World.Backend(), Launcher: r.Env.Launcher,
		Device: r.Device(), Machine: cfg.Run.Machine, Precision: cfg.Run.Precision,
		Threads: r.Threads, BLAS: r.products(),
		Steps: r.Steps, GlobalBatch: cfg.Data.GlobalBatch, Versions: versions(),
	}
}

// Tested records how many test answers were right, and the mean loss, NaN for none.
func (s *Summary) Tested(right, all int64, loss float64) {
	accuracy := float64(right) / float64(all)
	s.TestAccuracy, s.TestCorrect, s.TestSamples = &accuracy, right, all
	if !math.IsNaN(loss) && !math.IsInf(loss, 0) { // JSON has no others
		s.TestLoss = &loss
	}
}

// Measured records the losses and times of m, for a training set of so many samples. all means that
// all losses are wanted.
func (s *Summary) Measured(m *measure.Meter, samples int, all bool) {
	s.Epochs = float64(m.Samples()) / float64(samples)
	s.Seconds, s.SamplesPerSecond = m.Seconds(), m.SamplesPerSecond()
	if exposed := m.ExposedPercent(); !math.IsNaN(exposed) {
		s.ExposedCommPercent = &exposed
	}
	if s.FinalLoss = m.Finite(); math.IsNaN(s.FinalLoss) {
		s.FinalLoss = 0 // JSON has no NaN
	}
	if all {
		s.Losses, s.LossesFrom = m.Losses()
	}
}

// Write writes s to dir completely, or leaves the old file.
func (s *Summary) Write(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := output.Replace(filepath.Join(dir, config.SummaryName), append(text, '\n')); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	return nil
}

// versions returns the versions in the build that the numbers depend on.
func versions() map[string]string {
	v := map[string]string{"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	if commit := build.Commit(); commit != "" {
		v["symgrad"] = commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, m := range info.Deps {
		switch m.Path {
		case "gorgonia.org/gorgonia", "gorgonia.org/tensor", "gonum.org/v1/gonum":
			v[m.Path] = m.Version
		}
	}
	return v
}

// Footer returns the results of the run and where they are: the folder of checkpoints and the
// output folder.
func (s *Summary) Footer(saved *save.Folder, dir string) (string, error) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 11, 0, 1, ' ', 0)
	fmt.Fprintf(w, "trained\t%s in %v: %.0f samples/s", Plural(s.Steps-s.ResumedStep, "step"),
		time.Duration(s.Seconds*float64(time.Second)).Round(100*time.Millisecond), s.SamplesPerSecond)
	if s.ExposedCommPercent != nil {
		fmt.Fprintf(w, ", %.1f%% of the time waiting for communication", *s.ExposedCommPercent)
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "loss\t%.6f at the last step\n", s.FinalLoss)
	if s.SkippedSteps > 0 {
		fmt.Fprintf(w, "skipped\t%s with gradients that were not finite\n", Plural(s.SkippedSteps, "step"))
	}
	if s.TestAccuracy != nil {
		fmt.Fprintf(w, "accuracy\t%.4f: %d of %d test answers\n", *s.TestAccuracy, s.TestCorrect, s.TestSamples)
	}
	if s.TestLoss != nil {
		fmt.Fprintf(w, "test loss\t%.6f\n", *s.TestLoss)
	}
	fmt.Fprintf(w, "params\tsha256 %s, the same on %s\n", s.ParamsSHA256, Plural(s.WorldSize, "rank"))
	if s.Trace != "" {
		fmt.Fprintf(w, "timeline\t%s, for https://ui.perfetto.dev\n", s.Trace)
	}
	if n := len(s.Checkpoints); n > 0 {
		fmt.Fprintf(w, "checkpoint\t%s\n", saved.Path(s.Checkpoints[n-1]))
	}
	fmt.Fprintf(w, "metrics\t%s: symgrad plot %s draws them\n", filepath.Join(dir, config.MetricsName), dir)
	fmt.Fprintf(w, "summary\t%s\n", filepath.Join(dir, config.SummaryName))
	err := w.Flush()
	return b.String(), err
}
