package main

import (
	"cmp"
	"math"
	"slices"
)

// median returns the median of values; NaN if there are none. It sorts values.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// geomean returns the geometric mean of values; NaN if there are none.
func geomean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}

// line is one row of the comparison.
type line struct {
	key
	us    map[string]float64 // minimum of each engine with samples
	best  string             // fastest library other than ours; "" if there is none
	ratio float64            // our time over the best one's; NaN if either is missing
}

// table has all rows of one operation and unit.
type table struct {
	unit
	op           string
	lines        []line    // by size
	ratios       []float64 // of the lines with a ratio
	least, most  float64   // of the ratios; NaN if there are none
	mean         float64   // geometric mean of the ratios
	worst        int64     // size with the largest ratio
	lowest, high int64     // smallest and largest size with a ratio
}

// newTables groups the samples of a session: by unit in the order of measuring, then by operation
// in the order of rows, then by size.
func newTables(s *session) []table {
	var tables []table
	for _, c := range s.counts {
		for _, op := range opsOf(s, c.unit) {
			t := table{unit: c.unit, op: op}
			for _, bytes := range sizesOf(s, c.unit, op) {
				t.lines = append(t.lines, newLine(s, key{c.unit, op, bytes}))
			}
			t.summarize()
			tables = append(tables, t)
		}
	}
	return tables
}

func opsOf(s *session, u unit) []string {
	var ops []string
	for _, x := range s.samples {
		if x.unit == u && !slices.Contains(ops, x.op) {
			ops = append(ops, x.op)
		}
	}
	slices.SortFunc(ops, func(a, b string) int { return cmp.Compare(orderOf(a), orderOf(b)) })
	return ops
}

// orderOf returns the position of an operation in the output.
func orderOf(op string) int {
	if i := slices.Index(operations, op); i >= 0 {
		return i
	}
	return len(operations)
}

func sizesOf(s *session, u unit, op string) []int64 {
	var sizes []int64
	for _, x := range s.samples {
		if x.unit == u && x.op == op {
			sizes = append(sizes, x.bytes)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func newLine(s *session, k key) line {
	l := line{key: k, us: map[string]float64{}, ratio: math.NaN()}
	for _, engine := range s.Engines {
		var times []float64
		for _, x := range s.samples {
			if x.key == k && x.engine == engine {
				times = append(times, x.us)
			}
		}
		if len(times) == 0 {
			continue
		}
		l.us[engine] = slices.Min(times)
		if engine != ours && engine != byHand && (l.best == "" || l.us[engine] < l.us[l.best]) {
			l.best = engine
		}
	}
	if us, ok := l.us[ours]; ok && l.best != "" {
		l.ratio = us / l.us[l.best]
	}
	return l
}

// hand returns the time by hand over the best one's; NaN if either is missing.
func (l line) hand() float64 {
	us, ok := l.us[byHand]
	if !ok || l.best == "" {
		return math.NaN()
	}
	return us / l.us[l.best]
}

// hand returns the ratios of hand of the lines that have one.
func (t table) hand() []float64 {
	var ratios []float64
	for _, l := range t.lines {
		if r := l.hand(); !math.IsNaN(r) {
			ratios = append(ratios, r)
		}
	}
	return ratios
}

func (t *table) summarize() {
	t.least, t.most = math.NaN(), math.NaN()
	for _, l := range t.lines {
		if math.IsNaN(l.ratio) {
			continue
		}
		if len(t.ratios) == 0 {
			t.lowest, t.least, t.most, t.worst = l.bytes, l.ratio, l.ratio, l.bytes
		}
		if l.ratio > t.most {
			t.most, t.worst = l.ratio, l.bytes
		}
		t.least = min(t.least, l.ratio)
		t.high = l.bytes
		t.ratios = append(t.ratios, l.ratio)
	}
	t.mean = geomean(t.ratios)
}
