package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
)

// trainReport is the comparison of a session of bench/train.sh.
type trainReport struct {
	*trainSession
	lines    []trainLine
	engines  []string // engines of torch with times, in the order of the columns
	verdicts []trainVerdict
}

func newTrainReport(s *trainSession) *trainReport {
	r := &trainReport{trainSession: s, lines: newTrainLines(s)}
	r.verdicts = judgeTraining(s, r.lines)
	for _, l := range r.lines {
		for engine := range l.us {
			if engine != ours && !slices.Contains(r.engines, engine) {
				r.engines = append(r.engines, engine)
			}
		}
	}
	slices.SortFunc(r.engines, func(a, b string) int { // engines that count come first
		if rival(a) != rival(b) {
			if rival(a) {
				return -1
			}
			return 1
		}
		switch {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	})
	return r
}

// holds reports whether all criteria hold and both sides trained the same models.
func (r *trainReport) holds() bool {
	return len(r.wrong) == 0 && !slices.ContainsFunc(r.verdicts, func(v trainVerdict) bool { return !v.Holds })
}

// print writes the table and the verdicts as text.
func (r *trainReport) print(w io.Writer) {
	fmt.Fprintf(w, "microseconds of a training step on the slowest rank, medians; on %s, the same batch per rank for any number of ranks\n\n", r.Device)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "model\tprecision\tranks\t")
	for _, engine := range r.engines {
		fmt.Fprintf(tw, "%s\t", engine)
	}
	fmt.Fprintf(tw, "%s\tfaster\tscaling\texposed\t\n", ours)
	for _, l := range r.lines {
		fmt.Fprintf(tw, "%s\t%s\t%d\t", l.model, l.precision, l.ranks)
		for _, engine := range append(slices.Clone(r.engines), ours) {
			text := "-"
			if us, ok := l.us[engine]; ok {
				text = strconv.FormatFloat(us, 'f', decimals(us), 64)
			}
			fmt.Fprintf(tw, "%s\t", text)
		}
		exposed := "-"
		if !math.IsNaN(l.exposed) {
			exposed = fmt.Sprintf("%.1f%%", l.exposed)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t\n", formatRatio(l.faster), formatRatio(l.scaling), exposed)
	}
	_ = tw.Flush() // to a terminal: no error to handle
	fmt.Fprintln(w)
	for _, text := range r.notes {
		fmt.Fprintln(w, "note:", text)
	}
	for _, text := range r.wrong {
		fmt.Fprintln(w, "WRONG:", text)
	}
	fmt.Fprintf(w, "faster is the time of eager or compiled torch, whichever is less, over the time of %s; scaling is the time on one rank over this time\n", ours)
	for _, v := range r.verdicts {
		fmt.Fprintln(w, v)
	}
}

// trainRowJSON is a line of the result.
type trainRowJSON struct {
	Model      string             `json:"model"`
	Parameters int                `json:"parameters"`
	RankBatch  int                `json:"rank_batch"`
	Precision  string             `json:"precision"`
	Ranks      int                `json:"ranks"`
	Best       string             `json:"best"`
	Faster     *float64           `json:"faster"`
	Scaling    *float64           `json:"scaling"`
	Exposed    *float64           `json:"exposed_comm_percent"`
	US         map[string]float64 `json:"time_us"`
}

// fields returns the result, in the order of the file.
func (r *trainReport) fields() []field {
	var verdicts, rows []any
	for _, v := range r.verdicts {
		verdicts = append(verdicts, v)
	}
	for _, l := range r.lines {
		us := map[string]float64{}
		for engine, v := range l.us {
			us[engine] = round(v)
		}
		size := r.sizes[l.model]
		rows = append(rows, trainRowJSON{
			l.model, size.parameters, size.batch, l.precision, l.ranks, l.best, maybe(l.faster), maybe(l.scaling), maybe(l.exposed), us,
		})
	}
	return []field{
		{name: "date", one: r.Date},
		{name: "device", one: r.Device},
		{name: "staging", one: r.Staging},
		{name: "host", one: r.Host},
		{name: "libraries", one: r.libraries},
		{name: "notes", one: r.notes},
		{name: "wrong", one: r.wrong},
		{name: "verdicts", many: verdicts},
		{name: "rows", many: rows},
	}
}
