package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cli"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/output"
)

// timingFlags are the flags for comparing step times.
type timingFlags struct {
	file     string // --json; "" for none
	warmup   int
	resident bool
	kept     bool
	tune     bool
}

func (f *timingFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "json", "", "write step times to this JSON file")
	flags.IntVar(&f.warmup, "warmup", 5, "number of first steps that --json does not measure")
	flags.BoolVar(&f.resident, "resident", false, "train on the first batch only, so that step times do not include reading data")
	flags.BoolVar(&f.kept, "kept", false, "with --resident on a GPU, copy the batch to the device only once")
	flags.BoolVar(&f.tune, "tune", false, "on a GPU, time the variants of each matrix product at the start and use the fastest")
}

func (f *timingFlags) check() error {
	if f.warmup < 0 {
		return cli.Usage("--warmup %d: want 0 or more", f.warmup)
	}
	if info, err := os.Stat(f.file); err == nil && info.IsDir() {
		return cli.Usage("--json %s: is a folder: use a file name", f.file)
	}
	if f.kept && !f.resident {
		return cli.Usage("--kept: batches change with every step: add --resident")
	}
	return nil
}

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

// timing records when steps end.
type timing struct {
	warmup   int
	measured int             // steps after the warm-up
	ends     []time.Duration // the first is the end of the warm-up
}

func newTiming(warmup, steps int) *timing {
	measured := max(0, steps-warmup)
	// A run without a step limit has more steps than fit into memory; few have more than this.
	room := 1 + min(measured, 1<<16)
	t := &timing{warmup: warmup, measured: measured, ends: make([]time.Duration, 0, room)}
	if warmup == 0 {
		t.ends = append(t.ends, 0)
	}
	return t
}

// step records the end of a step.
func (t *timing) step(now time.Duration) {
	if t.warmup--; t.warmup <= 0 {
		t.ends = append(t.ends, now)
	}
}

// groupSteps is the number of consecutive steps that are timed together, in runs of at least three
// such groups. With a device that works asynchronously, the host only sees when a single step was
// queued.
const groupSteps = 10

// group returns how many of n steps are timed together.
func group(n int) int {
	if n < 3*groupSteps {
		return 1
	}
	return groupSteps
}

// edge reports whether this step is the last of a group, of the warm-up or of all: its end must be
// measured on the device.
func (t *timing) edge() bool {
	if t.warmup > 1 {
		return false
	}
	k := len(t.ends)
	return k%group(t.measured) == 0 || k == t.measured
}

// laps sets the ends of the edges to device times; between has the intervals between them.
func (t *timing) laps(between []time.Duration) {
	group, last := group(t.measured), len(t.ends)-1
	for i, d := range between {
		t.ends[min((i+1)*group, last)] = t.ends[i*group] + d
	}
}

// microseconds returns median, mean and 90th percentile of a step; zeros if no step followed the
// warm-up.
func (t *timing) microseconds() (median, mean, p90 float64) {
	n := len(t.ends) - 1
	if n < 1 {
		return 0, 0, 0
	}
	group := group(n)
	groups := make([]float64, n/group)
	for i := range groups {
		groups[i] = float64(t.ends[(i+1)*group]-t.ends[i*group]) / float64(time.Microsecond) / float64(group)
	}
	slices.Sort(groups)
	k := len(groups)
	median = (groups[k/2] + groups[(k-1)/2]) / 2
	mean = float64(t.ends[n]-t.ends[0]) / float64(time.Microsecond) / float64(n)
	return median, mean, groups[(9*k)/10]
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
		t.timing.laps(between)
	}
	return t.timing.worst(t.exchanger)
}

// worst returns the largest median, mean and 90th percentile of any rank.
//
// Collective: all ranks.
func (t *timing) worst(k *exchange.Values) ([]float64, error) {
	v := make([]float64, 3)
	v[0], v[1], v[2] = t.microseconds()
	return v, exchange.Reduce(k, "step times", v, dist.Max)
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
		Warmup: t.job.timing.warmup, Steps: t.timing.measured, MedianUS: times[0], MeanUS: times[1], P90US: times[2],
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
