package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// ours is the engine that is compared with all others. byHand is no library but processes that do
// nothing else, so it is shown and not compared.
const (
	ours   = "symgrad"
	byHand = "bare"
)

// session is the result of a run of bench/mpi.sh.
type session struct {
	Date     string            `json:"date"`
	NearNS   []float64         `json:"near_ns"`
	Machine  json.RawMessage   `json:"machine"`
	Versions map[string]string `json:"versions"`
	Engines  []string          `json:"engines"`

	libraries  json.RawMessage  // as reported by symgrad bench
	clocks     map[string]clock // of each engine
	roundTrips []float64        // in ns, from the probes of batches that count
	counts     []count          // per unit, in the order of the first measurement
	samples    []sample         // of batches that count
	partial    []string         // engines with incomplete results, for the report
	wrong      []string         // rows with wrong results, for the report
}

// unit is one set of conditions of measuring.
type unit struct {
	Ranks   int  `json:"ranks"`
	Fresh   bool `json:"fresh"`
	InPlace bool `json:"in_place"`
}

// style returns "fresh" or "osu".
func (u unit) style() string {
	if u.Fresh {
		return "fresh"
	}
	return "osu"
}

// String returns "2 ranks, fresh, in place".
func (u unit) String() string {
	if u.InPlace {
		return fmt.Sprintf("%d ranks, %s, in place", u.Ranks, u.style())
	}
	return fmt.Sprintf("%d ranks, %s, out of place", u.Ranks, u.style())
}

// count is the number of batches of a unit.
type count struct {
	unit
	kept, thrown int
}

// clock is the clock of an engine's times.
type clock struct {
	Name   string  `json:"name"`
	ReadNS float64 `json:"read_ns"`
}

// row is a line of a result, of collbench or of symgrad bench.
type row struct {
	Op     string  `json:"op"`
	Bytes  int64   `json:"bytes"`
	TimeUS float64 `json:"time_us"`
	Wrong  int64   `json:"wrong"`
}

// key identifies a comparison.
type key struct {
	unit
	op    string
	bytes int64
}

// sample is one measured time of one engine.
type sample struct {
	key
	engine string
	us     float64
}

// errPartial is returned for an engine that did not finish.
var errPartial = errors.New("incomplete result")

// readSession reads the folder of a session.
//
// Errors: a missing or invalid file. An engine without a complete result becomes a note, not an
// error.
func readSession(folder string) (*session, error) {
	s := &session{clocks: map[string]clock{}}
	if err := readJSON(filepath.Join(folder, "session.json"), s); err != nil {
		return nil, err
	}
	batches, err := filepath.Glob(filepath.Join(folder, "batch-*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(batches)
	for _, b := range batches {
		if err := s.readBatch(b); err != nil {
			return nil, err
		}
	}
	if len(batches) == 0 {
		return nil, fmt.Errorf("%s has no batches", folder)
	}
	return s, nil
}

func (s *session) readBatch(folder string) error {
	var u unit
	if err := readJSON(filepath.Join(folder, "unit.json"), &u); err != nil {
		return err
	}
	i := slices.IndexFunc(s.counts, func(c count) bool { return c.unit == u })
	if i < 0 {
		i = len(s.counts)
		s.counts = append(s.counts, count{unit: u})
	}
	near, roundTrips, err := nearThroughout(folder)
	if err != nil {
		return err
	}
	if !near {
		s.counts[i].thrown++
		return nil
	}
	s.counts[i].kept++
	s.roundTrips = append(s.roundTrips, roundTrips...)
	for _, engine := range s.Engines {
		rows, err := s.readEngine(folder, engine, u)
		switch {
		case errors.Is(err, errPartial):
			s.partial = append(s.partial, fmt.Sprintf("%s: %v of %s (%v)", filepath.Base(folder), err, engine, u))
		case err != nil:
			return err
		}
		s.add(folder, engine, u, rows)
	}
	return nil
}

// nearThroughout reports whether both probes of a batch found the cores near each other, and the
// round trips that they measured. An aborted batch has no second probe, or an incomplete one.
func nearThroughout(folder string) (near bool, roundTrips []float64, err error) {
	for _, name := range []string{"before.json", "after.json"} {
		var probe struct {
			Near        bool    `json:"near"`
			RoundTripNS float64 `json:"round_trip_ns"`
		}
		raw, err := os.ReadFile(filepath.Join(folder, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil, nil
		case err != nil:
			return false, nil, err
		case json.Unmarshal(raw, &probe) != nil || !probe.Near:
			return false, nil, nil
		}
		roundTrips = append(roundTrips, probe.RoundTripNS)
	}
	return true, roundTrips, nil
}

// add adds the rows of an engine. Wrong rows become one note per operation.
func (s *session) add(folder, engine string, u unit, rows []row) {
	var ops []string // with wrong rows
	wrong := map[string]int{}
	for _, r := range rows {
		if r.Wrong == 0 {
			s.samples = append(s.samples, sample{key{u, r.Op, r.Bytes}, engine, r.TimeUS})
			continue
		}
		if wrong[r.Op] == 0 {
			ops = append(ops, r.Op)
		}
		wrong[r.Op]++
	}
	for _, op := range ops {
		s.wrong = append(s.wrong, fmt.Sprintf("%s: results of %s are wrong at %d sizes of %s (%v)",
			filepath.Base(folder), engine, wrong[op], op, u))
	}
}

// readEngine returns the rows of one engine in one batch.
//
// Errors: errPartial; a result of another unit, or one that cannot be parsed.
func (s *session) readEngine(folder, engine string, u unit) ([]row, error) {
	name := filepath.Join(folder, engine+".jsonl")
	parse := parseCollbench
	if engine == ours {
		name = filepath.Join(folder, engine+".json")
		parse = s.parseSymgrad
	}
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errPartial
	}
	if err != nil {
		return nil, err
	}
	rows, c, err := parse(raw, u)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if _, ok := s.clocks[engine]; !ok && c.Name != "" {
		s.clocks[engine] = c
	}
	return rows, nil
}

// parseCollbench parses the lines of collbench: header, rows, end.
func parseCollbench(raw []byte, u unit) ([]row, clock, error) {
	var rows []row
	var c clock
	ended := false
	for line := range bytes.Lines(raw) {
		var l struct {
			Kind string `json:"kind"`
			unit
			row
			Clock clock `json:"clock"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, c, fmt.Errorf("%w: %w", errPartial, err)
		}
		switch {
		case l.Kind == "header" && l.unit != u:
			return nil, c, fmt.Errorf("result of %v in a batch of %v", l.unit, u)
		case l.Kind == "header":
			c = l.Clock
		case l.Kind == "row":
			rows = append(rows, l.row)
		case l.Kind == "end":
			ended = true
		}
	}
	if !ended {
		return nil, c, errPartial
	}
	return rows, c, check(rows)
}

// parseSymgrad parses the file of symgrad bench.
func (s *session) parseSymgrad(raw []byte, u unit) ([]row, clock, error) {
	var file struct {
		Libraries json.RawMessage `json:"libraries"`
		Settings  unit            `json:"settings"` // without InPlace, which is set per row
		Clock     clock           `json:"clock"`
		Rows      []struct {
			row
			InPlace bool   `json:"in_place"`
			Wrong   *int64 `json:"wrong"` // null if nothing was checked
		} `json:"rows"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, clock{}, fmt.Errorf("%w: %w", errPartial, err)
	}
	if s.libraries == nil {
		s.libraries = file.Libraries
	}
	var rows []row
	for _, r := range file.Rows {
		file.Settings.InPlace = r.InPlace
		switch {
		case file.Settings != u:
			return nil, clock{}, fmt.Errorf("%s of %d bytes: result of %v in a batch of %v", r.Op, r.Bytes, file.Settings, u)
		case r.Wrong == nil:
			return nil, clock{}, fmt.Errorf("%s of %d bytes was not checked", r.Op, r.Bytes)
		}
		r.row.Wrong = *r.Wrong
		rows = append(rows, r.row)
	}
	return rows, file.Clock, check(rows)
}

// check rejects invalid rows.
func check(rows []row) error {
	for _, r := range rows {
		if r.Op == "" || r.Bytes < 0 || r.TimeUS <= 0 {
			return fmt.Errorf("invalid row: operation %q, %d bytes, %v us", r.Op, r.Bytes, r.TimeUS)
		}
	}
	return nil
}

func readJSON(name string, into any) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
