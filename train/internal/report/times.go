package report

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

// Times are the measured step times of a run.
type Times struct {
	Warmup, Steps     int  // steps left out, and measured
	Resident          bool // inputs stay
	Median, Mean, P90 float64
	Profile           *Profile // nil on the host
	Exposed           *float64 // of Profile; nil for that of the summary
}

// WriteTiming writes the --json file.
func (r *Run) WriteTiming(file string, s *Summary, t Times) error {
	libraries := maps.Clone(s.Versions)
	libraries["blas"] = s.BLAS
	exposed := t.Exposed
	if exposed == nil {
		exposed = s.ExposedCommPercent
	}
	text, err := json.MarshalIndent(Timing{
		Program: r.Program, Model: s.Model, Parameters: s.Parameters,
		Ranks: s.WorldSize, RankBatch: ceilDiv(s.GlobalBatch, s.WorldSize), Precision: r.Config.Run.Precision,
		Device: r.Device(), Machine: r.Config.Run.Machine, Backend: s.Backend, Optimizer: r.Config.Optim.Name, Resident: t.Resident,
		Warmup: t.Warmup, Steps: t.Steps, MedianUS: t.Median, MeanUS: t.Mean, P90US: t.P90,
		ExposedCommPercent: exposed, Profile: t.Profile, FinalLoss: s.FinalLoss, ParamsSHA256: s.ParamsSHA256, Libraries: libraries,
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
