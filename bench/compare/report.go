package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
)

// report is the comparison of a session of bench/mpi.sh.
type report struct {
	*session
	tables   []table
	verdicts []verdict
}

func newReport(s *session) *report {
	tables := newTables(s)
	return &report{s, tables, judge(tables)}
}

// holds reports whether all criteria hold and all results are correct.
func (r *report) holds() bool {
	return len(r.wrong) == 0 && !slices.ContainsFunc(r.verdicts, func(v verdict) bool { return !v.Holds })
}

// print writes tables and verdicts as text.
func (r *report) print(w io.Writer) {
	for _, c := range r.counts {
		fmt.Fprintf(w, "== %v (batches: %d count, %d thrown away)\n", c.unit, c.kept, c.thrown)
		for _, t := range r.tables {
			if t.unit == c.unit {
				t.print(w)
			}
		}
		fmt.Fprintln(w)
	}
	for _, text := range r.partial {
		fmt.Fprintln(w, "note:", text)
	}
	for _, text := range r.wrong {
		fmt.Fprintln(w, "WRONG:", text)
	}
	fmt.Fprintf(w, "ratios are %s / best other engine; below 1 %s is faster\n", ours, ours)
	for _, v := range r.verdicts {
		fmt.Fprintln(w, v)
	}
}

func (t table) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", t.op)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head, hand := "", len(t.hand()) > 0
	if hand {
		head = "by hand us\t"
	}
	fmt.Fprintf(tw, "size\tbest\tus\t%s us\tratio\t%s\n", ours, head)
	for _, l := range t.lines {
		size, best := sizeOf(t.op, l.bytes), l.best
		if size == "" {
			size = "-"
		}
		if best == "" {
			best = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t", size, best, timeOf(l, l.best), timeOf(l, ours), formatRatio(l.ratio))
		if hand {
			fmt.Fprintf(tw, "%s\t", timeOf(l, byHand))
		}
		fmt.Fprintln(tw)
	}
	_ = tw.Flush() // to a terminal: no error to handle
	if len(t.ratios) > 0 {
		fmt.Fprintf(w, "ratio: min %s, max %s, geomean %s\n", formatRatio(t.least), formatRatio(t.most), formatRatio(t.mean))
	}
}

func timeOf(l line, engine string) string {
	us, ok := l.us[engine]
	if !ok {
		return "-"
	}
	return strconv.FormatFloat(round(us), 'f', -1, 64)
}

// round keeps four digits: the rest is noise.
func round(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// maybe returns v for JSON, which has no NaN.
func maybe(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	v = round(v)
	return &v
}

// rowJSON is a line of the result.
type rowJSON struct {
	Ranks   int                `json:"ranks"`
	Style   string             `json:"style"`
	InPlace bool               `json:"in_place"`
	Op      string             `json:"op"`
	Bytes   int64              `json:"bytes"`
	Best    string             `json:"best"`
	Ratio   *float64           `json:"ratio"`
	US      map[string]float64 `json:"time_us"`
}

// summaryJSON is one operation of one unit in the result.
type summaryJSON struct {
	Ranks   int      `json:"ranks"`
	Style   string   `json:"style"`
	InPlace bool     `json:"in_place"`
	Op      string   `json:"op"`
	Min     *float64 `json:"min"`
	Max     *float64 `json:"max"`
	Geomean *float64 `json:"geomean"`
}

// countJSON is one unit in the result.
type countJSON struct {
	Ranks   int    `json:"ranks"`
	Style   string `json:"style"`
	InPlace bool   `json:"in_place"`
	Kept    int    `json:"kept"`
	Thrown  int    `json:"thrown_away"`
}

// field is one entry of the result; each of many values gets its own line.
type field struct {
	name string
	one  any
	many []any
}

// fields returns the result, in the order of the file.
func (r *report) fields() []field {
	var counts, verdicts, summaries, rows []any
	for _, c := range r.counts {
		counts = append(counts, countJSON{c.Ranks, c.style(), c.InPlace, c.kept, c.thrown})
	}
	for _, v := range r.verdicts {
		v.Most, v.Mean, v.HandMost, v.HandMean = round(v.Most), round(v.Mean), round(v.HandMost), round(v.HandMean)
		verdicts = append(verdicts, v)
	}
	for _, t := range r.tables {
		summaries = append(summaries, summaryJSON{
			t.Ranks, t.style(), t.InPlace, t.op, maybe(t.least), maybe(t.most), maybe(t.mean),
		})
		for _, l := range t.lines {
			us := map[string]float64{}
			for _, engine := range r.Engines {
				if v, ok := l.us[engine]; ok {
					us[engine] = round(v)
				}
			}
			rows = append(rows, rowJSON{t.Ranks, t.style(), t.InPlace, t.op, l.bytes, l.best, maybe(l.ratio), us})
		}
	}
	return []field{
		{name: "date", one: r.Date},
		{name: "machine", one: r.Machine},
		{name: "versions", one: r.Versions},
		{name: "libraries", one: r.libraries},
		{name: "clocks", one: r.clocks},
		{name: "near_ns", one: r.NearNS},
		{name: "round_trip_ns", one: maybe(median(r.roundTrips))},
		{name: "batches", many: counts},
		{name: "without_result", one: r.partial},
		{name: "wrong", one: r.wrong},
		{name: "verdicts", many: verdicts},
		{name: "summaries", many: summaries},
		{name: "rows", many: rows},
	}
}

// save writes a result to a file and creates its folder. One row per line keeps files short and
// easy to compare.
func save(name string, fields []field) error {
	var out bytes.Buffer
	separator := "{\n"
	for _, f := range fields {
		out.WriteString(separator)
		separator = ",\n"
		fmt.Fprintf(&out, "  %q: ", f.name)
		if err := f.write(&out); err != nil {
			return fmt.Errorf("%s: %s: %w", name, f.name, err)
		}
	}
	out.WriteString("\n}\n")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, out.Bytes(), 0o644)
}

func (f field) write(out *bytes.Buffer) error {
	if f.many == nil {
		raw, err := json.Marshal(f.one)
		out.Write(raw)
		return err
	}
	for i, v := range f.many {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		before := ",\n    "
		if i == 0 {
			before = "[\n    "
		}
		out.WriteString(before)
		out.Write(raw)
	}
	out.WriteString("\n  ]")
	return nil
}
