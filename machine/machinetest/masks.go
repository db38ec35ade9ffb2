package machinetest

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// Drawn counts the elements of a dropout with non-zero input. A zero shows no difference between
// kept and dropped, and none matters: the product is zero, and the rectifier before it has no
// gradient there.
type Drawn struct{ Kept, Seen int }

// mask returns the mask of a dropout in the last run: 0 for a dropped element, else 1/(1-p).
func (c *Drawn) mask(d Drop) ([]float64, error) {
	x, err := elements(d.Input.Value())
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	y, err := elements(d.Output.Value())
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if len(x) != len(y) {
		return nil, fmt.Errorf("%d elements in, %d out", len(x), len(y))
	}
	for i := range y {
		if x[i] != 0 {
			c.Seen++
		}
		if y[i] != 0 {
			c.Kept++
			y[i] = 1 / (1 - d.Probability)
		}
	}
	return y, nil
}

// CheckMasks tests the masks of a machine. Over all steps, each dropout must keep the right share
// of elements, within five standard deviations. Masks must differ between steps and between
// samples.
func CheckMasks(t testing.TB, m *Model, r *Record) {
	t.Helper()
	for i, d := range m.Drops {
		for _, line := range judgeMasks(r, i, d.Probability, m.rows) {
			t.Errorf("model %s: dropout %d: %s", r.Model, i, line)
		}
	}
}

// judgeMasks returns the errors of the masks of dropout i.
func judgeMasks(r *Record, i int, p float64, rows int) []string {
	var lines []string
	c := r.Drawn[i]
	if c.Seen == 0 {
		return []string{"every input is zero"}
	}
	share, bound := float64(c.Kept)/float64(c.Seen), 5*math.Sqrt(p*(1-p)/float64(c.Seen))
	if math.Abs(share-(1-p)) > bound {
		lines = append(lines, fmt.Sprintf("kept %d of %d elements, a share of %.4f; want %.4f within %.4f", c.Kept, c.Seen, share, 1-p, bound))
	}
	stepsDiffer, rowsDiffer := len(r.Masks) == 1, rows == 1
	for _, step := range r.Masks {
		stepsDiffer = stepsDiffer || !slices.Equal(step[i], r.Masks[0][i])
		width := len(step[i]) / rows
		for row := range rows {
			rowsDiffer = rowsDiffer || !slices.Equal(step[i][row*width:][:width], step[i][:width])
		}
	}
	if !stepsDiffer {
		lines = append(lines, "all steps had one mask")
	}
	if !rowsDiffer {
		lines = append(lines, "all samples had one mask")
	}
	return lines
}
