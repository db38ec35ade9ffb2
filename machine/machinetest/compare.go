package machinetest

import (
	"fmt"
	"math"
	"testing"
)

// A gradient's tolerance uses at least gradientShare of the step's largest gradient, and at least
// leastGradient: a small gradient has the rounding errors of the larger numbers that it sums.
const (
	gradientShare = 0.1
	leastGradient = 1e-2
)

// Differences returns the differences between two records of one model, one line for each loss,
// gradient, statistic or weight.
//
// With tol 0 every number must be equal. Otherwise, with a number a of got and b of want, a loss
// may differ by tol*max(1,|b|), and an element of a tensor by tol*max|b| over the tensor. For a
// gradient that maximum is at least leastGradient, and gradientShare of the maximum over all
// gradients of the step. NaN differs from everything.
func Differences(want, got *Record, tol float64, ignoreStats bool) []string {
	d := differ{model: want.Model, tol: tol}
	if w, g := len(want.Losses), len(got.Losses); w != g {
		d.lines = append(d.lines, fmt.Sprintf("model %s: %d steps, want %d", want.Model, g, w))
	}
	for step := range min(len(want.Losses), len(got.Losses)) {
		d.check("loss", step, want.Losses[step:step+1], got.Losses[step:step+1], 1)
		floor := leastGradient
		for _, g := range want.Grads[step] {
			floor = math.Max(floor, gradientShare*largest(g))
		}
		for i, name := range want.Params {
			d.check("gradient of "+name, step, want.Grads[step][i], got.Grads[step][i], floor)
		}
	}
	for i, name := range want.Params {
		d.check("weights of "+name+" after the last step", -1, want.Weights[i], got.Weights[i], 0)
	}
	if !ignoreStats {
		for i, w := range want.Stats {
			kind := [2]string{"running mean", "running variance"}[i%2]
			d.check(fmt.Sprintf("%s of batch normalization %d", kind, i/2), -1, w, got.Stats[i], 0)
		}
	}
	return d.lines
}

// differ collects differences.
type differ struct {
	model string
	tol   float64
	lines []string
}

// check compares two lists of numbers. Step -1 means no step.
func (d *differ) check(what string, step int, want, got []float64, floor float64) {
	at := "model " + d.model
	if step >= 0 {
		at += fmt.Sprintf(": step %d", step)
	}
	at += ": " + what
	if len(want) != len(got) {
		d.lines = append(d.lines, fmt.Sprintf("%s: %d elements, want %d", at, len(got), len(want)))
		return
	}
	allowed := d.tol * math.Max(largest(want), floor)
	worst, index, count := 0.0, 0, 0
	for i := range want {
		off := math.Abs(got[i] - want[i])
		if off <= allowed || got[i] == want[i] { // equal infinities
			continue
		}
		if count++; count == 1 || off > worst || math.IsNaN(off) {
			worst, index = off, i
		}
	}
	if count > 0 {
		d.lines = append(d.lines, fmt.Sprintf("%s: %d of %d elements differ; [%d] is %.9g, want %.9g: off by %.3g, allowed %.3g",
			at, count, len(want), index, got[index], want[index], worst, allowed))
	}
}

func largest(v []float64) float64 {
	most := 0.0
	for _, x := range v {
		most = math.Max(most, math.Abs(x))
	}
	return most
}

// Compare reports the first five Differences of two records as errors of t.
func Compare(t testing.TB, want, got *Record, tol float64, ignoreStats bool) {
	t.Helper()
	lines := Differences(want, got, tol, ignoreStats)
	for i, line := range lines {
		if i == 5 {
			t.Errorf("model %s: and %d more differences", want.Model, len(lines)-i)
			return
		}
		t.Error(line)
	}
}

// Run trains each of Models with the machine of newVM, and with the oracle from the same weights on
// the same samples, and compares them. For dropout the oracle uses the masks that the machine has
// drawn, which CheckMasks tests.
func Run(t *testing.T, newVM NewVM, o Options) {
	for _, f := range Models() {
		t.Run(f.Name, func(t *testing.T) { RunModel(t, f, newVM, o) })
	}
}

// RunModel is Run for one model.
func RunModel(t *testing.T, f Builder, newVM NewVM, o Options) {
	t.Helper()
	judged, err := f.New(o.config())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Train(judged, newVM, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Oracle(f, o, got.Masks)
	if err != nil {
		t.Fatal(err)
	}
	Compare(t, want, got, o.Tolerance, o.IgnoreStats)
	if len(judged.Drops) > 0 {
		CheckMasks(t, judged, got)
	}
}

// Oracle returns the record of a model with the tape machine. Masks are those of a Record, for a
// model with dropout.
//
// Errors: those of Builder.New and Train.
func Oracle(f Builder, o Options, masks [][][]float64) (*Record, error) {
	c := o.config()
	c.Masked, c.TruePooling = true, o.TruePooling
	m, err := f.New(c)
	if err != nil {
		return nil, err
	}
	if len(m.Drops) == 0 {
		masks = nil
	}
	o.Sync, o.Step = nil, nil
	return Train(m, Tape, o, masks)
}
