package train

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/build"
	"github.com/symgrad/symgrad/internal/plan"
	"github.com/symgrad/symgrad/train/internal/measure"
	"github.com/symgrad/symgrad/train/internal/output"
)

// SummaryName is the file in run.output_dir with the results of a run.
const SummaryName = config.SummaryName

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
	VerifyMaxRelDiff *float64 `json:"verify_max_rel_diff,omitempty"` // with --verify

	ParamsSHA256 string            `json:"params_sha256"` // of the final parameters, in order, little-endian; the same on all ranks
	Trace        string            `json:"trace,omitempty"`
	Versions     map[string]string `json:"versions"`
}

// newSummary returns the results that are known before the first step.
func newSummary(t *trainer) *Summary {
	cfg := t.job.cfg
	_, model := t.job.problem.Describe()
	return &Summary{
		Name: cfg.Run.Name, ConfigHash: cfg.Hash(), Model: model, Parameters: t.parameters(),
		WorldSize: t.w.Size(), Backend: t.w.Backend(), Launcher: t.job.env.Launcher,
		Device: t.computesOn(), Machine: cfg.Run.Machine, Precision: cfg.Run.Precision,
		Threads: t.job.threads, BLAS: t.job.products(),
		Steps: t.steps, GlobalBatch: cfg.Data.GlobalBatch, Versions: versions(),
	}
}

// tested records how many test answers were right.
func (s *Summary) tested(right, all int64) {
	accuracy := float64(right) / float64(all)
	s.TestAccuracy, s.TestCorrect, s.TestSamples = &accuracy, right, all
}

// measured records the results that are known after the last step.
func (s *Summary) measured(t *trainer, digest []byte) {
	m := t.meter
	s.Epochs = float64(m.Samples()) / float64(t.job.problem.Len())
	s.Seconds, s.SamplesPerSecond = m.Seconds(), m.SamplesPerSecond()
	if exposed := m.ExposedPercent(); !math.IsNaN(exposed) {
		s.ExposedCommPercent = &exposed
	}
	if s.FinalLoss = m.Finite(); math.IsNaN(s.FinalLoss) {
		s.FinalLoss = 0 // JSON has no NaN
	}
	s.Memory = t.memory()
	s.SkippedSteps = t.skipped()
	if t.from != nil {
		s.ResumedFrom, s.ResumedStep = t.from.Path(), t.first
	}
	s.Checkpoints = t.keeper.Written()
	if t.rank0Settings.losses {
		s.Losses, s.LossesFrom = m.Losses()
	}
	s.ParamsSHA256 = hex.EncodeToString(digest)
}

// write writes s to dir completely, or leaves the old file.
func (s *Summary) write(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := output.Replace(filepath.Join(dir, SummaryName), append(text, '\n')); err != nil {
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
