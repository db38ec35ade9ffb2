// Package curves draws the metrics of runs over their steps, samples or seconds, as a picture or as
// a page for a browser. Each metric has a panel, with a curve for each run.
package curves

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/metrics"
)

// ErrOption is returned for an invalid option.
var ErrOption = errors.New("invalid option")

// Options choose the curves.
type Options struct {
	Metrics []string // by name; empty means all, except those that only measure progress
	Over    string   // the horizontal axis: metrics.Step, Samples or Seconds; "" means Step
	Smooth  float64  // weight of the earlier values in a moving average, 0 to below 1; 0 means none
	Log     bool     // the vertical axis is logarithmic, in panels whose values are all above 0
}

// Validate checks o.
//
// Errors: ErrOption.
func (o Options) Validate() error {
	if o.Over != "" && !slices.Contains(Axes, o.Over) {
		return fmt.Errorf("%w: axis %q: use one of %s", ErrOption, o.Over, strings.Join(Axes, ", "))
	}
	if !(o.Smooth >= 0 && o.Smooth < 1) {
		return fmt.Errorf("%w: smoothing %v: want 0 or more, and less than 1", ErrOption, o.Smooth)
	}
	return nil
}

// Axes are the horizontal axes.
var Axes = []string{metrics.Step, metrics.Samples, metrics.Seconds}

// Run is the records of a run with a name.
type Run struct {
	Name string
	*metrics.History
}

// Read reads the runs: folders of runs, or files of metrics. A run has the name of its folder, or
// its whole path if another has that name.
//
// Errors: those of metrics.Read; a run without records.
func Read(paths []string) ([]Run, error) {
	var runs []Run
	for _, path := range paths {
		h, err := metrics.Read(path)
		if err != nil {
			return nil, err
		}
		if len(h.Names()) == 0 {
			return nil, fmt.Errorf("%s: no records yet: a run writes them every log.every steps", h.Path)
		}
		runs = append(runs, Run{nameOf(h.Path), h})
	}
	for i := range runs {
		same := func(r Run) bool { return r.Name == nameOf(runs[i].Path) }
		if n := slices.IndexFunc(runs, same); n != i || slices.ContainsFunc(runs[i+1:], same) {
			for k := range runs {
				if nameOf(runs[k].Path) == nameOf(runs[i].Path) {
					runs[k].Name = strings.TrimSuffix(runs[k].Path, string(filepath.Separator)+metrics.FileName)
				}
			}
		}
	}
	return runs, nil
}

// nameOf returns the folder of a file of metrics, or the name of a file that is not called as the
// one of a run.
func nameOf(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	if name := filepath.Base(path); name != metrics.FileName {
		return name
	}
	return filepath.Base(filepath.Dir(path))
}

// usual are the metrics in the order in which they are drawn. Those of a program follow.
var usual = []string{
	metrics.Loss, metrics.ValLoss, metrics.ValAccuracy, metrics.LearningRate, metrics.GradNorm, metrics.SamplesPerSecond,
	metrics.TokensPerSecond, metrics.MFUPercent, metrics.ExposedPercent, metrics.MemoryBytes,
}

// progress are metrics that only grow with the steps.
var progress = []string{metrics.Samples, metrics.Epoch}

// Names returns the metrics to draw: those of o, which every run must have, else all of any run.
//
// Errors: a metric that a run lacks, with those that it has.
func (o Options) Names(runs []Run) ([]string, error) {
	for _, name := range o.Metrics {
		for _, r := range runs {
			if !r.Has(name) {
				_, _, err := r.Points(name, metrics.Step)
				return nil, err
			}
		}
	}
	if len(o.Metrics) > 0 {
		return o.Metrics, nil
	}
	var names []string
	for _, name := range usual {
		if slices.ContainsFunc(runs, func(r Run) bool { return r.Has(name) }) {
			names = append(names, name)
		}
	}
	for _, r := range runs {
		for _, name := range r.Names() {
			if !slices.Contains(names, name) && !slices.Contains(progress, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: nothing to draw except %s: name it", runs[0].Path, strings.Join(runs[0].Names(), ", "))
	}
	return names, nil
}

// Smooth returns the moving average of y, whose values are weighted with powers of w, from the
// newest on:
//
//	s[i] = (y[i] + w y[i-1] + w² y[i-2] + ...) / (1 + w + w² + ...)
//
// It leaves out values that are NaN, and is NaN there.
func Smooth(y []float64, w float64) []float64 {
	s := make([]float64, len(y))
	sum, weight := 0.0, 0.0
	for i, v := range y {
		if s[i] = math.NaN(); !math.IsNaN(v) {
			sum, weight = v+w*sum, 1+w*weight
			s[i] = sum / weight
		}
	}
	return s
}

// thin returns the indices of at most about n points of a curve that look like all of them: of
// each of n/2 equal parts the least and the largest value, and the first that is NaN.
func thin(y []float64, n int) []int {
	parts := n / 2
	if len(y) <= n || parts < 1 {
		all := make([]int, len(y))
		for i := range all {
			all[i] = i
		}
		return all
	}
	var kept []int
	for p := range parts {
		from, to := p*len(y)/parts, (p+1)*len(y)/parts
		low, high, gap := -1, -1, -1
		for i := from; i < to; i++ {
			switch {
			case math.IsNaN(y[i]):
				if gap < 0 {
					gap = i
				}
			case low < 0:
				low, high = i, i
			case y[i] < y[low]:
				low = i
			case y[i] > y[high]:
				high = i
			}
		}
		part := slices.Sorted(slices.Values([]int{low, high, gap}))
		for _, i := range slices.Compact(part) {
			if i >= 0 {
				kept = append(kept, i)
			}
		}
	}
	if last := len(y) - 1; kept[len(kept)-1] != last {
		kept = append(kept, last)
	}
	return kept
}
