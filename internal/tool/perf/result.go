package perf

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/symgrad/symgrad/dist"
)

// Result is a complete measurement on rank 0. --json stores it as JSON, and --vs reads it.
type Result struct {
	Machine   Machine           `json:"machine"`
	Libraries map[string]string `json:"libraries"` // name to version; set by the caller
	Settings  Settings          `json:"settings"`
	Clock     Clock             `json:"clock"`
	Ranks     []Rank            `json:"ranks"`
	Rows      []Row             `json:"rows"`
}

// Settings has the settings of the rows' measurement.
type Settings struct {
	Backend string `json:"backend"`
	Ranks   int    `json:"ranks"`
	Style   Style  `json:"style"`
	Fresh   bool   `json:"fresh"`
	Private bool   `json:"private"`
	Queued  bool   `json:"queued"`
	Checks  int    `json:"checks"`

	Symmetric bool     `json:"symmetric,omitempty"` // buffers were promised to have equal offsets
	Graph     int      `json:"graph,omitempty"`     // launches of a captured graph; 0 for single operations
	Rounds    int      `json:"rounds,omitempty"`    // times that each row was measured
	MaxCTAs   int      `json:"max_ctas,omitempty"`  // most thread blocks of an operation; 0 for the number that is fastest
	Timing    string   `json:"timing,omitempty"`    // "events" for a device; "" for the clock
	Engines   []string `json:"engines,omitempty"`   // in the order of measurement
}

// Clock describes the clock of the times.
type Clock struct {
	Name   string  `json:"name"`    // "tsc" or "monotonic"
	ReadNS float64 `json:"read_ns"` // cost of one reading, which is part of every time
}

// Rank describes one rank's process.
type Rank struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
	Core int    `json:"core"` // core of its thread; -1 for an unbound thread

	Device   string  `json:"device,omitempty"`    // device of its buffers; "" for the host
	LaunchUS float64 `json:"launch_us,omitempty"` // host time to queue an empty launch, before the first row; 0 if unknown
}

// Row is the measurement of one Case.
type Row struct {
	Op       string  `json:"op"`
	Bytes    int64   `json:"bytes"`
	Count    int64   `json:"count"`
	DType    string  `json:"dtype"`
	RedOp    string  `json:"redop"` // "none" without a reduction
	Root     int     `json:"root"`  // -1 without a root
	InPlace  bool    `json:"in_place"`
	Iters    int     `json:"iters"`
	TimeUS   float64 `json:"time_us"`   // of one operation: mean over iterations and ranks
	MinUS    float64 `json:"min_us"`    // the fastest iteration of any rank; back to back: the fastest rank's mean
	MedianUS float64 `json:"median_us"` // mean over ranks of the median; back to back: the same as TimeUS
	MaxUS    float64 `json:"max_us"`    // the slowest iteration of any rank; back to back: the slowest rank's mean
	AlgBW    float64 `json:"algbw_gbs"`
	BusBW    float64 `json:"busbw_gbs"`
	Rate     float64 `json:"rate_mops,omitempty"` // of atomics: millions in a second, of all ranks together
	Wrong    *int64  `json:"wrong"`               // elements of all ranks and checks; null without checks
	Engine   string  `json:"engine,omitempty"`    // engine of the operation, if several were measured
	Skipped  string  `json:"skipped,omitempty"`   // reason of a missing measurement; then the times are 0
	HostUS   float64 `json:"host_us,omitempty"`   // caller's time to queue one of the first 100, on the slowest rank, in the fastest round; between GPUs, not in graphs
}

// newRow returns the row of c without its times.
func newRow(c Case) Row {
	r := Row{Op: c.Op.String(), Bytes: c.Bytes, Count: int64(c.Count), DType: c.DType.String(), RedOp: "none", Root: c.Root}
	r.InPlace = c.InPlace
	if c.Op.trait().reduces {
		r.RedOp = dist.RedOp{Kind: c.Red}.String()
	}
	if c.Count == 0 {
		r.DType = "none"
	}
	return r
}

// label returns the row's name without its numbers: that of a curve in a plot.
func (r Row) label() string {
	s := r.Op
	if r.DType != "none" {
		s += " " + r.DType
	}
	if r.RedOp != "none" {
		s += " " + r.RedOp
	}
	if r.InPlace {
		s += ", in place"
	}
	if r.Engine != "" {
		s += ", by " + r.Engine
	}
	return s
}

// key returns the identity of a row; rows with equal keys can be compared.
func (r Row) key() string {
	return fmt.Sprintf("%s, %d B, %d elements, root %d", r.label(), r.Bytes, r.Count, r.Root)
}

// setTimes sets the times and bandwidths. bus is busbw over algbw, or 0 for none.
func (r *Row) setTimes(t times, bus float64) {
	r.TimeUS, r.MinUS = round(t.mean/1e3), round(t.least/1e3)
	r.MedianUS, r.MaxUS = round(t.median/1e3), round(t.most/1e3)
	r.HostUS = round(t.host / 1e3)
	if bus > 0 && t.mean > 0 {
		r.AlgBW = round(float64(r.Bytes) / t.mean) // bytes in a nanosecond are GB in a second
	}
	r.BusBW = round(r.AlgBW * bus)
}

// round returns x with six digits: more are noise, and make files hard to read.
func round(x float64) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) { // JSON has no such numbers
		return 0
	}
	return v
}

// Wrong returns the number of wrong elements in all rows.
func (r Result) Wrong() int64 {
	var n int64
	for _, row := range r.Rows {
		if row.Wrong != nil {
			n += *row.Wrong
		}
	}
	return n
}

// AverageBusBW returns the mean busbw of the rows that have one, in GB/s.
func (r Result) AverageBusBW() float64 {
	sum, n := 0.0, 0
	for _, row := range r.Rows {
		if row.BusBW > 0 {
			sum += row.BusBW
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// WriteJSON writes r as indented JSON, one row per line.
func (r Result) WriteJSON(w io.Writer) error {
	head := r
	head.Rows = []Row{}
	text, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	const tail = "[]\n}"
	text = append(text[:len(text)-len(tail)], '[')
	for i, row := range r.Rows {
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, "\n    "...), line...)
	}
	_, err = w.Write(append(text, "\n  ]\n}\n"...))
	return err
}

// ReadJSON reads a Result of WriteJSON.
//
// Errors: text that is not JSON, or not of a measurement.
func ReadJSON(in io.Reader) (Result, error) {
	var r Result
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return Result{}, fmt.Errorf("not a result of symgrad bench: %w", err)
	}
	if len(r.Rows) == 0 || r.Settings.Ranks == 0 {
		return Result{}, fmt.Errorf("not a result of symgrad bench: it has %d rows and settings of %d ranks", len(r.Rows), r.Settings.Ranks)
	}
	return r, nil
}
