package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// auto is the engine to judge: the dispatcher. gpuOthers are its competitors. gpuOwn are symgrad's
// kernels, which the tables show as well. Both are in the order of the columns.
const auto = "auto"

var (
	gpuOthers = []string{"nccl", "nccl-window", "nvshmem", "torch", "torch-one-shot", "torch-two-shot", "nccl-tests"}
	gpuOwn    = []string{"ll", "ll128", "ll128-twoshot", "oneshot", "twoshot", "tiles", "copy", auto}
)

// gpuOperations are the operations to compare, in the order of the output, and whether they run in
// place.
var gpuOperations = []gpuOperation{{"allreduce", true}, {"reducescatter", false}, {"allgather", false}}

type gpuOperation struct {
	name    string
	inPlace bool
}

// The modes of measuring.
const (
	modeQueued = "queued" // operations on a stream, back to back
	modeGraph  = "graph"  // launches of a captured graph
)

// gpuKey identifies a comparison.
type gpuKey struct {
	mode, op, dtype string
	bytes           int64
}

// gpuSample is one measured time of one engine.
type gpuSample struct {
	gpuKey
	engine string
	us     float64
	host   float64 // time to queue it on the host, in us; 0 if unknown
}

// gpuSession is the result of a run of bench/gpu.sh.
type gpuSession struct {
	Date string `json:"date"`
	Host struct {
		Kernel string   `json:"kernel"`
		Driver string   `json:"driver"`
		GPUs   []string `json:"gpus"`
	} `json:"host"`
	Settings map[string]any `json:"settings"` // of the script: rounds, engines, sizes, source of the table

	ranks     int
	machine   json.RawMessage   // as reported by symgrad bench
	libraries map[string]string // of all results
	launch    float64           // host time for an empty launch in us, the maximum over ranks and runs; 0 if unknown
	samples   []gpuSample
	engines   []string // engines with samples, in the order of the columns
	notes     []string // missing measurements, for the report
	wrong     []string // rows with wrong results, for the report
}

// gpuResult is a file of symgrad bench or of torch_yardstick.py.
type gpuResult struct {
	Machine  json.RawMessage `json:"machine"`
	Settings struct {
		Ranks int `json:"ranks"`
		Graph int `json:"graph"`
	} `json:"settings"`
	Libraries map[string]string `json:"libraries"`
	Notes     []string          `json:"notes"`
	Ranks     []gpuRank         `json:"ranks"`
	Rows      []gpuRow          `json:"rows"`
}

type gpuRank struct {
	LaunchUS float64 `json:"launch_us"`
}

type gpuRow struct {
	Op      string  `json:"op"`
	Bytes   int64   `json:"bytes"`
	DType   string  `json:"dtype"`
	InPlace bool    `json:"in_place"`
	Engine  string  `json:"engine"`
	US      float64 `json:"median_us"`
	HostUS  float64 `json:"host_us"`
	Wrong   *int64  `json:"wrong"`
	Skipped string  `json:"skipped"`
}

// readGPUs reads the folder of a session.
//
// Errors: a missing or invalid file; results of different numbers of ranks.
func readGPUs(folder string) (*gpuSession, error) {
	s := &gpuSession{libraries: map[string]string{}}
	if err := readJSON(filepath.Join(folder, "session.json"), s); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, name := range files {
		switch base := filepath.Base(name); {
		case base == "session.json":
		case strings.HasSuffix(base, ".json"):
			err = s.readResult(name)
		case strings.HasPrefix(base, "nccl-tests.") && strings.HasSuffix(base, ".txt"):
			err = s.readTests(name, strings.Split(base, ".")[1])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(s.samples) == 0 {
		return nil, fmt.Errorf("%s has no results", folder)
	}
	for _, engine := range slices.Concat(gpuOthers, gpuOwn) {
		if slices.ContainsFunc(s.samples, func(x gpuSample) bool { return x.engine == engine }) {
			s.engines = append(s.engines, engine)
		}
	}
	slices.Sort(s.notes)
	s.notes = slices.Compact(s.notes)
	return s, nil
}

// readResult adds the rows of a result. An incomplete file, of a stopped program, becomes a note.
func (s *gpuSession) readResult(name string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var r gpuResult
	if err := json.Unmarshal(raw, &r); err != nil {
		s.notes = append(s.notes, filepath.Base(name)+": incomplete result")
		return nil
	}
	if s.ranks == 0 {
		s.ranks = r.Settings.Ranks
	}
	if r.Settings.Ranks != s.ranks || s.ranks < 2 {
		return fmt.Errorf("result of %d ranks in a session of %d", r.Settings.Ranks, s.ranks)
	}
	if r.Machine != nil {
		s.machine = r.Machine
	}
	for library, version := range r.Libraries {
		s.libraries[library] = version
	}
	s.notes = append(s.notes, r.Notes...)
	for _, rank := range r.Ranks {
		s.launch = max(s.launch, rank.LaunchUS)
	}
	mode := modeQueued
	if r.Settings.Graph > 0 {
		mode = modeGraph
	}
	for _, row := range r.Rows {
		if err := s.add(filepath.Base(name), mode, row); err != nil {
			return err
		}
	}
	return nil
}

// add adds a row, unless it is not compared or has wrong results.
func (s *gpuSession) add(file, mode string, row gpuRow) error {
	i := slices.IndexFunc(gpuOperations, func(o gpuOperation) bool { return o.name == row.Op })
	fromTorch := strings.HasPrefix(row.Engine, "torch") // torch has one form of each operation only
	switch {
	case row.Op == "" || row.Engine == "" || row.Bytes <= 0 || row.US < 0:
		return fmt.Errorf("invalid row: operation %q by %q, %d bytes, %v us", row.Op, row.Engine, row.Bytes, row.US)
	case i < 0 || row.InPlace != gpuOperations[i].inPlace && !fromTorch:
		return nil
	case row.Skipped != "":
		s.notes = append(s.notes, fmt.Sprintf("%s cannot %s %s: %s", row.Engine, row.Op, row.DType, row.Skipped))
		return nil
	case row.Wrong != nil && *row.Wrong > 0:
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %d elements of %s %s, %s, by %s", file, *row.Wrong, row.Op, row.DType,
			formatSize(row.Bytes), row.Engine))
		return nil
	case row.US == 0:
		return fmt.Errorf("a row of operation %q by %q, %d bytes, has no time", row.Op, row.Engine, row.Bytes)
	}
	s.samples = append(s.samples, gpuSample{gpuKey{mode, row.Op, row.DType, row.Bytes}, row.Engine, row.US, row.HostUS})
	return nil
}

// readTests adds the table of a program of nccl-tests for one operation.
func (s *gpuSession) readTests(name, op string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	types := map[string]string{"float": "f32", "bfloat16": "bf16"}
	mode := modeQueued
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if i := slices.Index(fields, "graph:"); i >= 0 && i+1 < len(fields) && fields[i+1] != "0" {
			mode = modeGraph
		}
		if len(fields) < 13 || fields[0] == "#" || types[fields[2]] == "" {
			continue
		}
		bytes, err1 := strconv.ParseInt(fields[0], 10, 64)
		out, err2 := strconv.ParseFloat(fields[5], 64)
		in, err3 := strconv.ParseFloat(fields[9], 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
		for _, row := range []gpuRow{{InPlace: false, US: out}, {InPlace: true, US: in}} {
			row.Op, row.Bytes, row.DType, row.Engine = op, bytes, types[fields[2]], "nccl-tests"
			if err := s.add(filepath.Base(name), mode, row); err != nil {
				return err
			}
		}
	}
	return nil
}
