package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// operations are the operations to measure, in the order of the output.
var operations = []string{"allreduce", "reducescatter", "allgather", "broadcast", "alltoall", "barrier"}

// The sizes of a criterion, in bytes of the larger buffer of a rank. It has at least one element of
// 4 bytes per rank.
const (
	lowestBytes  = 8
	highestBytes = 64 << 20
	elementBytes = 4
)

// criterion is a claim about ratios of our time to the best MPI's.
type criterion struct {
	name    string
	ranks   int
	inPlace bool
	ops     []string
	each    float64 // maximum of every ratio; 0 means no claim
	mean    float64 // maximum of each operation's geometric mean; 0 means no claim
}

// criteria are the claims, for fresh and OSU style. The first three are factors over the best MPI.
// The others claim that nothing is lost when ranks outnumber cores.
var criteria = []criterion{
	{name: "allreduce", ranks: 2, ops: operations[:1], each: 0.5, mean: 0.3},
	{name: "allreduce in place", ranks: 2, inPlace: true, ops: operations[:1], mean: 0.25},
	{name: "every other collective", ranks: 2, ops: operations[1:], each: 0.8},
	{name: "every collective", ranks: 4, ops: operations, each: 1},
	{name: "allreduce in place", ranks: 4, inPlace: true, ops: operations[:1], each: 1},
}

// verdict is the result of a criterion in one style.
type verdict struct {
	Criterion string  `json:"criterion"`
	Style     string  `json:"style"`
	Ranks     int     `json:"ranks"`
	Holds     bool    `json:"holds"`
	Most      float64 `json:"most"` // the largest ratio
	At        string  `json:"at"`   // row of the largest ratio
	EachLimit float64 `json:"each_limit,omitempty"`
	Mean      float64 `json:"geomean"` // the largest geometric mean of an operation
	MeanLimit float64 `json:"geomean_limit,omitempty"`
	Above     int     `json:"above,omitempty"`     // rows whose ratio is above EachLimit
	HandMost  float64 `json:"hand_most,omitempty"` // largest ratio of processes without a library; 0 if not measured
	HandMean  float64 `json:"hand_geomean,omitempty"`
	HandAbove int     `json:"hand_above,omitempty"` // rows of Above that exceed the limit by hand as well
	Missing   string  `json:"missing,omitempty"`    // operations or sizes that were not measured
}

// judge returns one verdict per criterion and style.
func judge(tables []table) []verdict {
	var list []verdict
	for _, c := range criteria {
		for _, fresh := range []bool{false, true} {
			list = append(list, c.judge(unit{c.ranks, fresh, c.inPlace}, tables))
		}
	}
	return list
}

func (c criterion) judge(u unit, tables []table) verdict {
	v := verdict{Criterion: c.name, Style: u.style(), Ranks: c.ranks, EachLimit: c.each, MeanLimit: c.mean}
	var missing []string
	for _, op := range c.ops {
		i := slices.IndexFunc(tables, func(t table) bool { return t.unit == u && t.op == op })
		if i < 0 || len(tables[i].ratios) == 0 {
			missing = append(missing, op)
			continue
		}
		t := tables[i]
		if what := t.gap(); what != "" {
			missing = append(missing, op+" "+what)
		}
		if t.most > v.Most {
			v.Most, v.At = t.most, strings.TrimSpace(op+" "+sizeOf(op, t.worst))
		}
		v.Mean = max(v.Mean, t.mean)
		if ratios := t.hand(); len(ratios) > 0 {
			v.HandMost, v.HandMean = max(v.HandMost, slices.Max(ratios)), max(v.HandMean, geomean(ratios))
		}
		for _, l := range t.lines {
			if c.each == 0 || !(l.ratio > c.each) {
				continue
			}
			v.Above++
			if l.hand() > c.each {
				v.HandAbove++
			}
		}
	}
	v.Missing = strings.Join(missing, ", ")
	v.Holds = v.Missing == "" && (c.each == 0 || v.Most <= c.each) && (c.mean == 0 || v.Mean <= c.mean)
	return v
}

// gap returns the sizes of a criterion that were not compared; "" if there are none.
func (t table) gap() string {
	lowest := max(lowestBytes, int64(t.Ranks*elementBytes))
	switch {
	case t.op == "barrier":
	case t.lowest > lowest:
		return "below " + formatSize(t.lowest)
	case t.high < highestBytes:
		return "above " + formatSize(t.high)
	case len(t.ratios) < len(t.lines):
		return fmt.Sprintf("at %d of %d sizes", len(t.lines)-len(t.ratios), len(t.lines))
	}
	return ""
}

// String returns a line: "HOLDS 2 ranks, fresh, allreduce: at most 0.41 (8K), limit 0.5; geomean
// 0.22, limit 0.3".
func (v verdict) String() string {
	var parts []string
	if v.Most > 0 {
		parts = append(parts, fmt.Sprintf("at most %s (%s)%s", formatRatio(v.Most), v.At, limitText(v.EachLimit)))
		parts = append(parts, fmt.Sprintf("geomean %s%s", formatRatio(v.Mean), limitText(v.MeanLimit)))
	}
	if v.HandMost > 0 {
		parts = append(parts, fmt.Sprintf("by hand at most %s, geomean %s", formatRatio(v.HandMost), formatRatio(v.HandMean)))
		if v.Above > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d rows above the limit exceed it by hand as well", v.HandAbove, v.Above))
		}
	}
	if v.Missing != "" {
		parts = append(parts, "not measured: "+v.Missing)
	}
	word := "HOLDS"
	if !v.Holds {
		word = "FAILS"
	}
	return fmt.Sprintf("%s  %d ranks, %s, %s: %s", word, v.Ranks, v.Style, v.Criterion, strings.Join(parts, "; "))
}

func limitText(limit float64) string {
	if limit == 0 {
		return ""
	}
	return ", limit " + strconv.FormatFloat(limit, 'g', -1, 64)
}

// formatRatio uses so many digits that a ratio just above a limit does not look like the limit.
func formatRatio(r float64) string {
	if math.IsNaN(r) {
		return "-"
	}
	return strconv.FormatFloat(r, 'f', 3, 64)
}

// sizeOf returns the size of a row as text; a barrier has none.
func sizeOf(op string, bytes int64) string {
	if op == "barrier" {
		return ""
	}
	return formatSize(bytes)
}

// formatSize returns bytes with the largest unit that divides them: "64M".
func formatSize(bytes int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{20, "M"}, {10, "K"}} {
		if bytes >= 1<<u.shift && bytes%(1<<u.shift) == 0 {
			return strconv.FormatInt(bytes>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(bytes, 10)
}
