package perf

import (
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrOtherRows is returned by Comparable and Compare if two measurements cannot be compared.
var ErrOtherRows = errors.New("the earlier result cannot be compared")

// Ratio compares one row with the same row of an earlier result.
type Ratio struct {
	Row      Row
	Earlier  Row
	OfTime   float64 // time over the earlier time: less than 1 is faster
	OfMedian float64 // the same of the medians
}

// Comparison has the rows that two results have in common, in the order of the new one.
type Comparison struct {
	Ratios  []Ratio
	Dropped int     // rows of the earlier result that the new one lacks
	Added   int     // rows of the new result that the earlier one lacks
	Mean    float64 // geometric mean of OfTime
	Medians float64 // geometric mean of OfMedian
}

// Comparable reports whether a measurement of cfg on ranks ranks will have a row of earlier, with
// equal settings. The backend may differ; engines are those of the rows, if they have any.
//
// Errors: ErrOtherRows with the first difference, or if no row will be in both.
func Comparable(earlier Result, cfg Config, ranks int, engines ...string) error {
	d := cfg.withDefaults()
	planned := Result{Settings: Settings{
		Ranks: ranks, Style: d.Style, Fresh: d.Fresh, Private: d.Private, Queued: d.Queued, Graph: d.Graph,
	}}
	if len(engines) == 0 {
		engines = []string{""}
	}
	for _, c := range d.cases(ranks) {
		for _, engine := range engines {
			row := newRow(c)
			row.Engine = engine
			planned.Rows = append(planned.Rows, row)
		}
	}
	_, err := pair(earlier, planned)
	return err
}

// pair returns the rows of later and of earlier with equal keys, in the order of later.
//
// Errors: ErrOtherRows for other settings, and if there is no pair.
func pair(earlier, later Result) ([][2]Row, error) {
	refuse := func(field string, a, b any) error {
		return fmt.Errorf("%w: %s: %v there, %v here", ErrOtherRows, field, a, b)
	}
	was, is := earlier.Settings, later.Settings
	switch {
	case was.Ranks != is.Ranks:
		return nil, refuse("ranks", was.Ranks, is.Ranks)
	case was.Style != is.Style:
		return nil, refuse("style", was.Style, is.Style)
	case was.Fresh != is.Fresh:
		return nil, refuse("fresh buffers", was.Fresh, is.Fresh)
	case was.Private != is.Private:
		return nil, refuse("private buffers", was.Private, is.Private)
	case was.Graph != is.Graph:
		return nil, refuse("launches of a graph", was.Graph, is.Graph)
	case was.Queued != is.Queued:
		return nil, refuse("queued operations", was.Queued, is.Queued)
	}
	byKey := map[string]Row{}
	for _, row := range earlier.Rows {
		byKey[row.key()] = row
	}
	var pairs [][2]Row
	for _, row := range later.Rows {
		if found, ok := byKey[row.key()]; ok {
			pairs = append(pairs, [2]Row{row, found})
			delete(byKey, row.key())
		}
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%w: this measurement has none of its %d rows", ErrOtherRows, len(earlier.Rows))
	}
	return pairs, nil
}

// Compare compares the rows that both results have, and counts the others.
//
// Errors: ErrOtherRows with the first difference, or if they have no row in common; a row whose
// time is not positive.
func Compare(earlier, later Result) (Comparison, error) {
	pairs, err := pair(earlier, later)
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{Dropped: len(earlier.Rows) - len(pairs), Added: len(later.Rows) - len(pairs)}
	sum, medians := 0.0, 0.0
	for _, p := range pairs {
		row, was := p[0], p[1]
		if row.Skipped != "" || was.Skipped != "" {
			continue
		}
		if !(row.TimeUS > 0 && was.TimeUS > 0 && row.MedianUS > 0 && was.MedianUS > 0) {
			return Comparison{}, fmt.Errorf("%w: row %q has no time", ErrOtherRows, row.key())
		}
		ratio := Ratio{row, was, row.TimeUS / was.TimeUS, row.MedianUS / was.MedianUS}
		sum += math.Log(ratio.OfTime)
		medians += math.Log(ratio.OfMedian)
		c.Ratios = append(c.Ratios, ratio)
	}
	n := float64(max(len(c.Ratios), 1))
	c.Mean, c.Medians = math.Exp(sum/n), math.Exp(medians/n)
	return c, nil
}

// Write prints one line per row, and the geometric means.
func (c Comparison) Write(w io.Writer) error {
	var err error
	printf := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format, args...)
		}
	}
	const heads = "# %10s  %-28s  %9s  %9s  %7s  %7s\n"
	printf(heads, "size", "row", "before", "now", "ratio", "medians")
	printf("# %10s  %28s  %9s  %9s\n", "(B)", "", "(us)", "(us)")
	for _, r := range c.Ratios {
		printf("%12d  %-28s  %9s  %9s  %7.3f  %7.3f\n", r.Row.Bytes, r.Row.label(),
			number(r.Earlier.TimeUS, 9), number(r.Row.TimeUS, 9), r.OfTime, r.OfMedian)
	}
	if c.Dropped > 0 || c.Added > 0 {
		printf("# %-20s : %d rows of the earlier result, %d rows of this one\n", "Not in both", c.Dropped, c.Added)
	}
	printf("# %-20s : %.3f of the time before, medians %.3f (less is faster)\n", "Geometric mean", c.Mean, c.Medians)
	return err
}
