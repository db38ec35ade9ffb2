package metrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// table is the CSV file of a run. Its columns are step, time and seconds, and then the metrics in
// the order in which they first appear. If a new metric appears, the file is written again from the
// lines.
type table struct {
	dir     string
	file    *os.File
	column  map[string]int // index of a metric's column, from 0
	row     []float64      // of the current record
	set     []bool
	buf     []byte
	outdate bool // a metric has no column
}

// newTable makes the file with the records that the run continues.
func newTable(dir string, h *History) (*table, error) {
	t := &table{dir: dir}
	return t, t.rewrite(h)
}

// add appends a row.
func (t *table) add(step int, at, seconds float64, pairs []pair) {
	clear(t.set)
	for _, p := range pairs {
		i, ok := t.column[p.name]
		if !ok {
			t.outdate = true // the file is written again, with this row
			return
		}
		t.row[i], t.set[i] = p.value, true
	}
	t.appendRow(step, at, seconds)
}

func (t *table) appendRow(step int, at, seconds float64) {
	b := strconv.AppendInt(t.buf, int64(step), 10)
	b = strconv.AppendFloat(append(b, ','), at, 'f', 3, 64)
	b = appendNumber(append(b, ','), seconds, "NaN")
	for i, ok := range t.set {
		if b = append(b, ','); ok {
			b = appendNumber(b, t.row[i], "NaN")
		}
	}
	t.buf = append(b, '\n')
}

// flush writes the rows so far.
func (t *table) flush() error {
	if t.outdate {
		h, err := Read(filepath.Join(t.dir, FileName)) // the writer has flushed the lines
		if err != nil {
			return err
		}
		return t.rewrite(h)
	}
	if len(t.buf) == 0 {
		return nil
	}
	_, err := t.file.Write(t.buf)
	t.buf = t.buf[:0]
	return err
}

// rewrite replaces the file by one with the records of h.
func (t *table) rewrite(h *History) (err error) {
	t.column, t.row, t.set = map[string]int{}, make([]float64, len(h.names)), make([]bool, len(h.names))
	t.buf = append(t.buf[:0], Step+","+clock+","+Seconds...)
	for i, name := range h.names {
		t.column[name] = i
		t.buf = append(append(t.buf, ','), name...)
	}
	t.buf = append(t.buf, '\n')
	next := make([]int, len(h.names)) // in each series
	for at, step := range h.Steps {
		for i, name := range h.names {
			s := h.series[name]
			if t.set[i] = next[i] < len(s.at) && s.at[next[i]] == at; t.set[i] {
				t.row[i] = s.y[next[i]]
				next[i]++
			}
		}
		t.appendRow(step, h.times[at], h.Seconds[at])
	}
	t.outdate = false
	return t.replace()
}

// replace writes the buffer to a new file, which then has the name.
func (t *table) replace() (err error) {
	path := filepath.Join(t.dir, CSVName)
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(t.buf)
	t.buf = t.buf[:0]
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", CSVName, err), f.Close(), os.Remove(f.Name()))
	}
	old := t.file
	t.file = f
	if old != nil {
		return old.Close()
	}
	return nil
}

func (t *table) close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}
