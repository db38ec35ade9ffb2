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
)

// timingFlags has the flags of a comparison of step times.
type timingFlags struct {
	file     string // --json; may be empty
	warmup   int
	resident bool
	kept     bool
	tune     bool
}

func (f *timingFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "json", "", "write how long a step takes into this file")
	flags.IntVar(&f.warmup, "warmup", 5, "steps that --json leaves out, at the beginning")
	flags.BoolVar(&f.resident, "resident", false, "fill the inputs once, with the first batch, and train on it only: a step without its data")
	flags.BoolVar(&f.kept, "kept", false, "with --resident, on a GPU, leave the batch there: a step without the copy to the device")
	flags.BoolVar(&f.tune, "tune", false, "on a GPU, choose the fastest way of each matrix product by trying, at the beginning")
}

func (f *timingFlags) check() error {
	if f.warmup < 0 {
		return Usage("--warmup %d: want 0 or more", f.warmup)
	}
	if info, err := os.Stat(f.file); err == nil && info.IsDir() {
		return Usage("--json %s: it is a folder: name a file", f.file)
	}
	if f.kept && !f.resident {
		return Usage("--kept: the batches are other ones at each step; say --resident, too")
	}
	return nil
}

// Timing is how long a step takes, as --json writes it. Times are those of the rank that took
// longest.
type Timing struct {
	Program    string `json:"program"`
	Model      string `json:"model"`
	Parameters int    `json:"parameters"`

	Ranks     int    `json:"ranks"`
	RankBatch int    `json:"rank_batch"` // samples of a step on the rank that has most of them
	Precision string `json:"precision"`  // of matrix products
	Device    string `json:"device"`     // "cpu", or the name of rank 0's GPU
	Machine   string `json:"machine"`
	Backend   string `json:"backend"`
	Optimizer string `json:"optimizer"`
	Resident  bool   `json:"resident"` // the inputs stay, the data are not part of a step

	Warmup   int     `json:"warmup"`    // steps left out
	Steps    int     `json:"steps"`     // steps measured
	MedianUS float64 `json:"median_us"` // of one step: the median over groups of consecutive steps
	MeanUS   float64 `json:"mean_us"`   // from the end of the warm-up to the end, by the number of steps
	P90US    float64 `json:"p90_us"`    // over groups

	ExposedCommPercent *float64          `json:"exposed_comm_percent"` // of the time; on GPUs of a step of Profile; null if it is not known
	Profile            *Profile          `json:"profile,omitempty"`    // on GPUs
	FinalLoss          float64           `json:"final_loss"`
	ParamsSHA256       string            `json:"params_sha256"`
	Libraries          map[string]string `json:"libraries"`
}

// timing takes down when steps end.
type timing struct {
	warmup   int
	measured int             // steps after the warm-up
	ends     []time.Duration // the first is that of the last step of the warm-up
}

func newTiming(warmup, steps int) *timing {
	measured := max(0, steps-warmup)
	// A run without end has more steps than memory has room for; few runs have more than this.
	room := 1 + min(measured, 1<<16)
	t := &timing{warmup: warmup, measured: measured, ends: make([]time.Duration, 0, room)}
	if warmup == 0 {
		t.ends = append(t.ends, 0)
	}
	return t
}

// step notes that a step has ended.
func (t *timing) step(now time.Duration) {
	if t.warmup--; t.warmup <= 0 {
		t.ends = append(t.ends, now)
	}
}

// groupSteps is the number of consecutive steps that are timed together in a run with some groups
// of so many. If a device works asynchronously, the end of a single step is only the end of its
// launch.
const groupSteps = 10

// group is how many of n steps are timed together.
func group(n int) int {
	if n < 3*groupSteps {
		return 1
	}
	return groupSteps
}

// edge reports whether the step that ends now is the last of a group, of the warm-up or of all: its
// end has to be that of the device.
func (t *timing) edge() bool {
	if t.warmup > 1 {
		return false
	}
	k := len(t.ends)
	return k%group(t.measured) == 0 || k == t.measured
}

// laps makes the ends of edges those of a device, which has measured the times between them.
func (t *timing) laps(between []time.Duration) {
	group, last := group(t.measured), len(t.ends)-1
	for i, d := range between {
		t.ends[min((i+1)*group, last)] = t.ends[i*group] + d
	}
}

// microseconds is median, mean and 90th percentile of a step; zeros when there were none after the
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

// times returns the result of worst, once the device's times are known.
//
// Collective: all ranks.
func (t *trainer) times() ([]float64, error) {
	if t.job.site.gpu && t.job.timing.file != "" {
		between, err := t.vm.compiled.Intervals()
		if err != nil {
			return nil, err
		}
		t.timing.laps(between)
	}
	return t.timing.worst(t.talk)
}

// worst is the largest median, mean and 90th percentile of any rank.
//
// Collective: all ranks.
func (t *timing) worst(k *talk) ([]float64, error) {
	v := make([]float64, 3)
	v[0], v[1], v[2] = t.microseconds()
	return v, reduce(k, "step times", v, dist.Max)
}

// writeTiming writes the file of --json, on rank 0. Times are median, mean and 90th percentile;
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
	if err := replaceFile(file, append(text, '\n')); err != nil {
		return fmt.Errorf("step times: %w", err)
	}
	return nil
}
