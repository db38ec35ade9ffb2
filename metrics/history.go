package metrics

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/foreign"
)

// mostLineBytes is the maximum length of a line: a thousand metrics with long names fit.
const mostLineBytes = 1 << 20

// History has the records of a run.
type History struct {
	Path    string    // of the file
	Steps   []int     // of each record, in order
	Seconds []float64 // of training until each record
	times   []float64 // seconds since 1970
	names   []string  // in the order in which they first appear
	series  map[string]*series
}

// series has the values of a metric.
type series struct {
	at []int // indices of records
	y  []float64
}

// ErrNoMetrics is returned by Read for a folder without a file of metrics.
var ErrNoMetrics = errors.New("no " + FileName)

// LineError is returned by Read and Open for a line that is no record.
type LineError struct {
	Path string
	Line int // from 1
	Err  error
}

// Error names the line.
func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.Path, e.Line, e.Err) }

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }

// Read reads the metrics of a run: path is its folder, or the file. A last line without a line end,
// which a run leaves that is killed or still writes, is ignored.
//
// Errors: ErrNoMetrics; *LineError; those of the file system.
func Read(path string) (*History, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, FileName)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w: want the output folder of a run, or its file of metrics", filepath.Dir(path), ErrNoMetrics)
		}
	}
	h, _, err := read(path, math.MaxInt)
	return h, err
}

// read reads the records of steps up to last.
//
// Returns: also the bytes of their lines.
func read(path string, last int) (h *History, size int64, err error) {
	f, err := foreign.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h = &History{Path: path, series: map[string]*series{}}
	in := bufio.NewReaderSize(f, mostLineBytes)
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return h, size, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, 0, &LineError{path, number, fmt.Errorf("longer than %d bytes", mostLineBytes)}
		case err != nil:
			return nil, 0, err
		}
		step, err := h.add(line, last)
		if err != nil {
			return nil, 0, &LineError{path, number, err}
		}
		if step > last {
			return h, size, nil
		}
		size += int64(len(line))
	}
}

// add adds the record of a line, unless its step is after the last one wanted.
func (h *History) add(line []byte, last int) (step int, err error) {
	var fields map[string]*float64
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, fmt.Errorf("no JSON object of numbers: %w", err)
	}
	number, seconds := fields[Step], fields[Seconds]
	switch {
	case number == nil || seconds == nil:
		return 0, errors.New(`no record: "step" or "seconds" is missing`)
	case *number != math.Trunc(*number) || *number < 0 || *number >= 1<<53:
		return 0, fmt.Errorf("step %v is no number of steps", *number)
	}
	step = int(*number)
	if n := len(h.Steps); n > 0 && step < h.Steps[n-1] {
		return 0, fmt.Errorf("step %d after step %d", step, h.Steps[n-1])
	}
	if step > last {
		return step, nil
	}
	h.Steps, h.Seconds, h.times = append(h.Steps, step), append(h.Seconds, *seconds), append(h.times, 0)
	at := len(h.Steps) - 1
	if t := fields[clock]; t != nil {
		h.times[at] = *t
	}
	known := len(h.names)
	for name, y := range fields {
		if name == Step || name == Seconds || name == clock {
			continue
		}
		if err := checkName(name); err != nil {
			return 0, err
		}
		s := h.series[name]
		if s == nil {
			s = &series{}
			h.series[name] = s
			h.names = append(h.names, name)
		}
		s.at = append(s.at, at)
		if y == nil {
			s.y = append(s.y, math.NaN())
		} else {
			s.y = append(s.y, *y)
		}
	}
	slices.Sort(h.names[known:])
	return step, nil
}

// Names returns the names of the metrics, in the order in which they first appear.
func (h *History) Names() []string { return slices.Clone(h.names) }

// Has reports whether a record has the metric.
func (h *History) Has(name string) bool { return h.series[name] != nil }

// Points returns the values of a metric, and their places on the axis over, which is Step, Seconds
// or Samples. A value that is not finite is NaN. Records without the metric are left out.
//
// Errors: a metric or an axis that the file lacks, with the names that it has.
func (h *History) Points(name, over string) (x, y []float64, err error) {
	s := h.series[name]
	if s == nil {
		return nil, nil, fmt.Errorf("%s: no metric %q: it has %s", h.Path, name, h.list())
	}
	x = make([]float64, len(s.at))
	switch over {
	case Step:
		for i, at := range s.at {
			x[i] = float64(h.Steps[at])
		}
	case Seconds:
		for i, at := range s.at {
			x[i] = h.Seconds[at]
		}
	case Samples:
		if !h.samples(s, x) {
			return nil, nil, fmt.Errorf("%s: the axis %s of %s is unknown: its records have none", h.Path, Samples, name)
		}
	default:
		return nil, nil, fmt.Errorf("unknown axis %q: use one of %s, %s, %s", over, Step, Samples, Seconds)
	}
	return x, slices.Clone(s.y), nil
}

// samples sets x to the samples of the records of s. A record without them, as that of an
// evaluation, has those of the record before.
func (h *History) samples(s *series, x []float64) bool {
	from := h.series[Samples]
	if from == nil {
		return false
	}
	next := 0
	for i, at := range s.at {
		for next < len(from.at) && from.at[next] <= at {
			next++
		}
		if next == 0 {
			return false
		}
		x[i] = from.y[next-1]
	}
	return true
}

// list returns the names of the metrics for an error.
func (h *History) list() string {
	if len(h.names) == 0 {
		return "no records"
	}
	return strings.Join(h.names, ", ")
}

// Value returns the last value of a metric at a step; false if that step has none.
func (h *History) Value(name string, step int) (float64, bool) {
	s := h.series[name]
	if s == nil {
		return 0, false
	}
	for i := len(s.at) - 1; i >= 0 && h.Steps[s.at[i]] >= step; i-- {
		if h.Steps[s.at[i]] == step {
			return s.y[i], true
		}
	}
	return 0, false
}
