package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// Config has the settings of a Writer. The zero value starts a new file of lines.
type Config struct {
	// Resumed is the number of steps that the run resumes after. Records of later steps are dropped
	// from the files, and the run continues them. 0 drops all records.
	Resumed int
	// Every is the number of records between flushes; 0 means 1. A process that is killed loses
	// the records since the last flush.
	Every int

	CSV         bool // also write metrics.csv: a row for each record, and a column for each name
	TensorBoard bool // also write event files into the folder tensorboard

	// NoRates omits SamplesPerSecond from records that lack it. By default it is computed from the
	// Samples of the last two records, over the seconds between them.
	NoRates bool
	// TokensPerSample adds TokensPerSecond to records with SamplesPerSecond; 0 means no
	// tokens.
	TokensPerSample int
	// FLOPPerSample and PeakFLOPS add MFUPercent to records with SamplesPerSecond: the percentage
	// of the peak that the training of the model uses. FLOPPerSample counts the matrix products of
	// a training step, forward and backward, without recomputation. PeakFLOPS is the sum over the
	// devices of all ranks, in FLOP/s. 0 means unknown.
	// Source: Chowdhery et al., PaLM, 2022, appendix B.
	FLOPPerSample, PeakFLOPS float64
}

// Validate checks c.
//
// Errors: dist.ErrInvalid naming the field.
func (c Config) Validate() error {
	switch {
	case c.Resumed < 0:
		return fmt.Errorf("metrics: %w: Resumed is %d: want the number of steps, or 0", dist.ErrInvalid, c.Resumed)
	case c.Every < 0:
		return fmt.Errorf("metrics: %w: Every is %d: want the number of records between flushes, or 0", dist.ErrInvalid, c.Every)
	case c.TokensPerSample < 0:
		return fmt.Errorf("metrics: %w: TokensPerSample is %d: want 0 or more", dist.ErrInvalid, c.TokensPerSample)
	case !(c.FLOPPerSample >= 0) || math.IsInf(c.FLOPPerSample, 1):
		return fmt.Errorf("metrics: %w: FLOPPerSample is %v: want a finite number, or 0", dist.ErrInvalid, c.FLOPPerSample)
	case !(c.PeakFLOPS >= 0) || math.IsInf(c.PeakFLOPS, 1):
		return fmt.Errorf("metrics: %w: PeakFLOPS is %v: want a finite number, or 0", dist.ErrInvalid, c.PeakFLOPS)
	}
	return nil
}

// Values are the metrics of a record, by name. See the constants for names that package train uses.
type Values map[string]float64

// Writer writes the records of a run. A nil Writer does nothing. Not for concurrent use.
type Writer struct {
	c      Config
	dir    string
	file   *os.File
	buf    []byte // lines that are not flushed
	held   int    // their number
	failed error  // of the first write that failed; part of a line may be in the file
	began  time.Time
	before float64 // seconds of the records that the run continues
	last   int     // step of the last record
	pairs  []pair  // of the current record, reused
	rate   rates
	csv    *table
	events *events
}

// pair is a metric of a record.
type pair struct {
	name  string
	value float64
}

// rates computes the speed from one record to the next.
type rates struct {
	known            bool // the numbers of the last record
	samples, seconds float64
}

// Open makes the folder dir and opens the files in it for a run that starts now, or resumes.
//
// Owns: the caller closes the Writer. Errors: dist.ErrInvalid for c; *LineError for a line of the
// existing file that is broken, with Config.Resumed; those of the file system.
func Open(dir string, c Config) (w *Writer, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Every = max(c.Every, 1)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	w = &Writer{c: c, dir: dir, began: time.Now(), rate: rates{known: c.Resumed == 0}}
	kept := &History{}
	if c.Resumed > 0 {
		if kept, err = w.resume(); err != nil {
			return nil, err
		}
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if c.Resumed == 0 {
		flags |= os.O_TRUNC
	}
	if w.file, err = os.OpenFile(filepath.Join(dir, FileName), flags, 0o666); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if c.CSV {
		w.csv, err = newTable(dir, kept)
	}
	if err == nil && c.TensorBoard {
		w.events, err = newEvents(filepath.Join(dir, EventsFolder), w.began, kept)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), w.Close())
	}
	return w, nil
}

// resume cuts the file after the last record of the steps that the run resumes after.
//
// Returns: the records that stay.
func (w *Writer) resume() (*History, error) {
	path := filepath.Join(w.dir, FileName)
	h, size, err := read(path, w.c.Resumed)
	if errors.Is(err, fs.ErrNotExist) {
		return &History{}, nil
	}
	if err == nil {
		err = os.Truncate(path, size)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if n := len(h.Steps); n > 0 {
		w.last, w.before = h.Steps[n-1], h.Seconds[n-1]
		w.rate.seconds = w.before
	}
	if s := h.series[Samples]; s != nil {
		at := len(s.y) - 1
		w.rate = rates{true, s.y[at], w.before}
	}
	return h, nil
}

// Write records the metrics of a step. The writer adds the time, the seconds since Open if v has
// none, and to these the seconds of the records that the run continues. It adds the rates that v
// lacks: SamplesPerSecond, TokensPerSecond and MFUPercent. Several records may have one step, such
// as that of an evaluation.
//
// Owns: v stays the caller's, who may change it afterwards. Errors: dist.ErrInvalid for a name, or
// a step below that of the last record; dist.ErrClosed; those of the file system.
func (w *Writer) Write(step int, v Values) error {
	if w == nil {
		return nil
	}
	if w.file == nil {
		return fmt.Errorf("metrics: %w", dist.ErrClosed)
	}
	if w.failed != nil {
		return w.failed
	}
	if step < w.last || step < 0 {
		return fmt.Errorf("metrics: %w: step %d after step %d: steps must not decrease", dist.ErrInvalid, step, w.last)
	}
	for name := range v {
		if err := checkName(name); err != nil {
			return err
		}
	}
	now := time.Now()
	seconds, given := v[Seconds]
	switch {
	case !given:
		seconds = now.Sub(w.began).Seconds()
	case math.IsNaN(seconds) || math.IsInf(seconds, 0):
		return fmt.Errorf("metrics: %w: %s of step %d are %v", dist.ErrInvalid, Seconds, step, seconds)
	}
	seconds += w.before
	w.gather(v, seconds)
	w.last = step
	w.held++
	at := float64(now.UnixMilli()) / 1e3
	w.buf = appendLine(w.buf, step, at, seconds, w.pairs)
	if w.csv != nil {
		w.csv.add(step, at, seconds, w.pairs)
	}
	if w.events != nil {
		w.events.add(step, at, w.pairs)
	}
	if w.held < w.c.Every {
		return nil
	}
	return w.Flush()
}

// gather sets the pairs of a record in the order of their names, with the rates that v lacks.
func (w *Writer) gather(v Values, seconds float64) {
	w.pairs = w.pairs[:0]
	for name, x := range v {
		if name != Seconds {
			w.pairs = append(w.pairs, pair{name, x})
		}
	}
	w.speed(v, seconds)
	slices.SortFunc(w.pairs, func(a, b pair) int { return cmp.Compare(a.name, b.name) })
}

// speed adds the rates of a record.
func (w *Writer) speed(v Values, seconds float64) {
	rate, ok := v[SamplesPerSecond]
	if samples, has := v[Samples]; has {
		if r := &w.rate; !ok && !w.c.NoRates && r.known && seconds > r.seconds {
			rate, ok = (samples-r.samples)/(seconds-r.seconds), true
			w.pairs = append(w.pairs, pair{SamplesPerSecond, rate})
		}
		w.rate = rates{true, samples, seconds}
	}
	if !ok {
		return
	}
	if _, given := v[TokensPerSecond]; !given && w.c.TokensPerSample > 0 {
		w.pairs = append(w.pairs, pair{TokensPerSecond, rate * float64(w.c.TokensPerSample)})
	}
	if _, given := v[MFUPercent]; !given && w.c.FLOPPerSample > 0 && w.c.PeakFLOPS > 0 {
		w.pairs = append(w.pairs, pair{MFUPercent, 100 * rate * w.c.FLOPPerSample / w.c.PeakFLOPS})
	}
}

// Flush writes the records so far to the files. They then survive the end of the process, but not
// that of the machine.
//
// Errors: dist.ErrClosed; those of the file system, after which nothing more is written, since part
// of a line may be in the file.
func (w *Writer) Flush() error {
	if w == nil {
		return nil
	}
	if w.file == nil {
		return fmt.Errorf("metrics: %w", dist.ErrClosed)
	}
	if w.failed != nil {
		return w.failed
	}
	if len(w.buf) > 0 {
		_, err := w.file.Write(w.buf)
		w.buf, w.held = w.buf[:0], 0
		if err != nil {
			w.failed = fmt.Errorf("metrics: %w", err)
			return w.failed
		}
	}
	var err error
	if w.csv != nil {
		err = w.csv.flush()
	}
	if w.events != nil {
		err = errors.Join(err, w.events.flush())
	}
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Close flushes and closes the files. It may be called twice.
func (w *Writer) Close() error {
	if w == nil || w.file == nil {
		return nil
	}
	err := w.Flush()
	if e := w.file.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("metrics: %w", e))
	}
	w.file = nil
	if w.csv != nil {
		err = errors.Join(err, w.csv.close())
	}
	if w.events != nil {
		err = errors.Join(err, w.events.close())
	}
	return err
}

// appendLine appends the line of a record.
func appendLine(b []byte, step int, at, seconds float64, pairs []pair) []byte {
	b = strconv.AppendInt(append(b, `{"step":`...), int64(step), 10)
	b = strconv.AppendFloat(append(b, `,"time":`...), at, 'f', 3, 64)
	b = appendNumber(append(b, `,"seconds":`...), seconds, "null")
	for _, p := range pairs {
		b = append(append(append(b, `,"`...), p.name...), `":`...)
		b = appendNumber(b, p.value, "null")
	}
	return append(b, "}\n"...)
}

// appendNumber appends the shortest text from which x can be read again. other is the text of a
// number that is not finite.
func appendNumber(b []byte, x float64, other string) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(b, other...)
	}
	format := byte('g')
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		format = 'f' // 6400 instead of 6400 in exponents
	}
	return strconv.AppendFloat(b, x, format, -1, 64)
}
