package curves

import (
	"cmp"
	_ "embed" // the page and its script
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/symgrad/symgrad/internal/tool/drawing"
	"github.com/symgrad/symgrad/metrics"
)

//go:embed page.html
var pageText string

//go:embed page.js
var pageScript string

var page = template.Must(template.New("page").Parse(pageText))

// pagePoints is the maximum number of points of a curve in a page.
const pagePoints = 4000

// pageData is the content of a page, for its script.
type pageData struct {
	Axes    []string  `json:"axes"`
	Over    string    `json:"over"`
	Smooth  float64   `json:"smooth"`
	Log     bool      `json:"log"`
	Metrics []string  `json:"metrics"`
	Runs    []pageRun `json:"runs"`
}

// pageRun is a run with its curves: lists of the axes and of y, by metric.
type pageRun struct {
	Name   string                        `json:"name"`
	Color  string                        `json:"color"`
	Dash   string                        `json:"dash"`
	Curves map[string]map[string]numbers `json:"curves"`
}

// numbers are written with seven digits, and null for NaN.
type numbers []float64

// MarshalJSON implements json.Marshaler.
func (n numbers) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, x := range n {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			b = append(b, "null"...)
		} else if x == math.Trunc(x) && math.Abs(x) < 1e15 { // steps and samples have all digits
			b = strconv.AppendFloat(b, x, 'f', 0, 64)
		} else {
			b = strconv.AppendFloat(b, x, 'g', 7, 64)
		}
	}
	return append(b, ']'), nil
}

// WritePage writes a page that shows the curves of runs in a browser, with the values under the
// pointer. It needs no other file and no network.
//
// Errors: ErrOption; a metric or an axis that a run lacks; those of w.
func WritePage(w io.Writer, runs []Run, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	names, err := o.Names(runs)
	if err != nil {
		return err
	}
	d := pageData{Axes: Axes, Over: cmp.Or(o.Over, metrics.Step), Smooth: o.Smooth, Log: o.Log, Metrics: names}
	titles := make([]string, len(runs))
	for i, r := range runs {
		titles[i] = r.Name
		run := pageRun{Name: r.Name, Curves: map[string]map[string]numbers{}}
		c := drawing.Palette[i%len(drawing.Palette)]
		run.Color = fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
		if c.R|c.G|c.B == 0 { // black is not visible on a dark page
			run.Color = "gray"
		}
		if n := i / len(drawing.Palette); n > 0 {
			run.Dash = fmt.Sprintf("%d 4", 4*n)
		}
		for _, name := range names {
			if !r.Has(name) {
				continue
			}
			if run.Curves[name], err = pageCurve(r, name, d.Over); err != nil {
				return err
			}
		}
		d.Runs = append(d.Runs, run)
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{
		"Title": "symgrad: " + strings.Join(titles, ", "), "Data": template.JS(text), "Script": template.JS(pageScript), //nolint:gosec // json.Marshal escapes HTML; the script is ours
	})
}

// pageCurve returns the lists of a curve. An axis that the run lacks is left out, unless it is
// over.
func pageCurve(r Run, name, over string) (map[string]numbers, error) {
	lists := map[string]numbers{}
	var kept []int
	for _, axis := range Axes {
		x, y, err := r.Points(name, axis)
		if err != nil && axis == over {
			return nil, err
		}
		if err != nil {
			continue
		}
		if kept == nil {
			kept = thin(y, pagePoints)
			lists["y"] = pick(y, kept)
		}
		lists[axis] = pick(x, kept)
	}
	return lists, nil
}

// pick returns the elements of x with the given indices.
func pick(x []float64, indices []int) numbers {
	all := make(numbers, len(indices))
	for i, at := range indices {
		all[i] = x[at]
	}
	return all
}
