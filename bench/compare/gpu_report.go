package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// gpuReport is the comparison of a session of bench/gpu.sh.
type gpuReport struct {
	*gpuSession
	tables   []gpuTable
	verdicts []gpuVerdict
}

func newGPUReport(s *gpuSession) *gpuReport {
	tables := newGPUTables(s)
	return &gpuReport{s, tables, judgeGPUs(s, tables)}
}

// holds reports whether all criteria hold and all results are correct.
func (r *gpuReport) holds() bool {
	return len(r.wrong) == 0 && !slices.ContainsFunc(r.verdicts, func(v gpuVerdict) bool { return !v.Holds })
}

// print writes the tables and the verdicts as text.
func (r *gpuReport) print(w io.Writer) {
	fmt.Fprintf(w, "%d GPUs; microseconds of one operation on the slowest rank, medians; sizes are those of the larger buffer of a rank\n", r.ranks)
	for _, t := range r.tables {
		place := "out of place"
		for _, op := range gpuOperations {
			if op.name == t.op && op.inPlace {
				place = "in place"
			}
		}
		fmt.Fprintf(w, "\n== %s, %s %s, %s\n", t.mode, t.op, t.dtype, place)
		r.printTable(w, t)
	}
	fmt.Fprintln(w)
	for _, text := range r.notes {
		fmt.Fprintln(w, "note:", text)
	}
	for _, text := range r.wrong {
		fmt.Fprintln(w, "WRONG:", text)
	}
	fmt.Fprintf(w, "faster is the time of the best other engine over the time of %s; above 1 %s is faster\n", auto, auto)
	for _, v := range r.verdicts {
		fmt.Fprintln(w, v)
	}
}

func (r *gpuReport) printTable(w io.Writer, t gpuTable) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "size\t")
	for _, engine := range r.engines {
		fmt.Fprintf(tw, "%s\t", engine)
	}
	fmt.Fprint(tw, "best other\tfaster\t\n")
	for _, l := range t.lines {
		fmt.Fprintf(tw, "%s\t", formatSize(l.bytes))
		for _, engine := range r.engines {
			text := "-"
			if us, ok := l.us[engine]; ok {
				text = strconv.FormatFloat(us, 'f', decimals(us), 64)
			}
			fmt.Fprintf(tw, "%s\t", text)
		}
		best := l.best
		if best == "" {
			best = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t\n", best, formatRatio(l.faster))
	}
	_ = tw.Flush() // to a terminal: no error to handle
}

// decimals returns the number of significant digits after the point.
func decimals(us float64) int {
	switch {
	case us < 100:
		return 2
	case us < 1000:
		return 1
	}
	return 0
}

// gpuRowJSON is a line of the result.
type gpuRowJSON struct {
	Mode   string             `json:"mode"`
	Op     string             `json:"op"`
	DType  string             `json:"dtype"`
	Bytes  int64              `json:"bytes"`
	Best   string             `json:"best"`
	Faster *float64           `json:"faster"`
	US     map[string]float64 `json:"time_us"`
	Host   float64            `json:"host_us,omitempty"`
}

// fields returns the result, in the order of the file.
func (r *gpuReport) fields() []field {
	var verdicts, rows []any
	for _, v := range r.verdicts {
		for _, p := range []**float64{&v.Faster, &v.Most, &v.Host} {
			if *p != nil {
				*p = maybe(**p)
			}
		}
		verdicts = append(verdicts, v)
	}
	for _, t := range r.tables {
		for _, l := range t.lines {
			us := map[string]float64{}
			for _, engine := range r.engines {
				if v, ok := l.us[engine]; ok {
					us[engine] = round(v)
				}
			}
			rows = append(rows, gpuRowJSON{t.mode, t.op, t.dtype, l.bytes, l.best, maybe(l.faster), us, round(l.host)})
		}
	}
	return []field{
		{name: "date", one: r.Date},
		{name: "ranks", one: r.ranks},
		{name: "host", one: r.Host},
		{name: "settings", one: r.Settings},
		{name: "machine", one: r.machine},
		{name: "libraries", one: r.libraries},
		{name: "engines", one: r.engines},
		{name: "notes", one: r.notes},
		{name: "wrong", one: r.wrong},
		{name: "verdicts", many: verdicts},
		{name: "rows", many: rows},
	}
}
