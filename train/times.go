package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/train/internal/output"
)

// Timing is the content of the --json file. Times are those of the slowest rank.
type Timing struct {
	Program    string `json:"program"`
	Model      string `json:"model"`
	Parameters int    `json:"parameters"`

	Ranks     int    `json:"ranks"`
	RankBatch int    `json:"rank_batch"` // the largest part of a batch that a rank has
	Precision string `json:"precision"`  // of matrix products
	Device    string `json:"device"`     // "cpu", or the name of rank 0's GPU
	Machine   string `json:"machine"`
	Backend   string `json:"backend"`
	Optimizer string `json:"optimizer"`
	Resident  bool   `json:"resident"` // inputs stay: steps do not read data

	Warmup   int     `json:"warmup"`    // steps left out
	Steps    int     `json:"steps"`     // steps measured
	MedianUS float64 `json:"median_us"` // of one step: the median over groups of consecutive steps
	MeanUS   float64 `json:"mean_us"`   // mean from the end of the warm-up to the last step
	P90US    float64 `json:"p90_us"`    // over groups

	ExposedCommPercent *float64          `json:"exposed_comm_percent"` // percentage of time, on GPUs of a step of Profile; null if unknown
	Profile            *Profile          `json:"profile,omitempty"`    // on GPUs
	FinalLoss          float64           `json:"final_loss"`
	ParamsSHA256       string            `json:"params_sha256"`
	Libraries          map[string]string `json:"libraries"`
}

// times returns the result of worst, with the device's times.
//
// Collective: all ranks.
func (t *trainer) times() ([]float64, error) {
	if t.job.site.GPU && t.job.timing.file != "" {
		between, err := t.vm.compiled.Intervals()
		if err != nil {
			return nil, err
		}
		t.timing.SetLaps(between)
	}
	return t.timing.Worst(t.exchanger)
}

// writeTiming writes the --json file, on rank 0. times are median, mean and 90th percentile.
// profile and exposed are those of a GPU, or nil.
func (t *trainer) writeTiming(s *Summary, times []float64, profile *Profile, exposed *float64) error {
	file := t.job.timing.file
	if file == "" {
		return nil
	}
	libraries := maps.Clone(s.Versions)
	libraries["blas"] = s.BLAS
	if exposed == nil {
		exposed = s.ExposedCommPercent
	}
	text, err := json.MarshalIndent(Timing{
		Program: t.job.program.Name, Model: s.Model, Parameters: s.Parameters,
		Ranks: s.WorldSize, RankBatch: ceilDiv(s.GlobalBatch, s.WorldSize), Precision: t.job.cfg.Run.Precision,
		Device: t.computesOn(), Machine: t.job.cfg.Run.Machine, Backend: s.Backend, Optimizer: t.job.cfg.Optim.Name, Resident: t.job.timing.resident,
		Warmup: t.job.timing.warmup, Steps: t.timing.Measured(), MedianUS: times[0], MeanUS: times[1], P90US: times[2],
		ExposedCommPercent: exposed, Profile: profile, FinalLoss: s.FinalLoss, ParamsSHA256: s.ParamsSHA256, Libraries: libraries,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("step times: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return fmt.Errorf("step times: %w", err)
	}
	if err := output.Replace(file, append(text, '\n')); err != nil {
		return fmt.Errorf("step times: %w", err)
	}
	return nil
}
