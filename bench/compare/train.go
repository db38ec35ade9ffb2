package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Engines of training steps. Ours is compared with the engines of torch that do the same work, and
// with sharded states with torch's sharded ones.
const (
	torchEager   = "torch"
	torchCompile = "torch-compile-" // followed by the mode
	torchZero    = "torch-zero"
	torchFSDP    = "torch-fsdp"
	oursSharded  = ours + "-zero" // followed by the stage
	oursZero     = oursSharded + "1"
)

// trainModels are the trained models, in the order of the output.
var trainModels = []string{"mlp", "wide", "cnn", "lm"}

// trainKey identifies a comparison.
type trainKey struct {
	model, precision string
	ranks            int
}

// trainSample is one measured time of one engine.
type trainSample struct {
	trainKey
	engine  string
	us      float64
	exposed *float64 // exposed communication in percent of the time
}

// trainSession is the result of a run of bench/train.sh.
type trainSession struct {
	Date    string `json:"date"`
	Device  string `json:"device"`
	Staging string `json:"staging"`
	Host    struct {
		Kernel string   `json:"kernel"`
		CPU    string   `json:"cpu"`
		Cores  int      `json:"cores"`
		Driver string   `json:"driver"`
		GPUs   []string `json:"gpus"`
	} `json:"host"`

	libraries map[string]string
	samples   []trainSample
	sizes     map[string]trainSize // by model, with the engine that reported it first
	notes     []string             // missing measurements, for the report
	wrong     []string             // results that cannot be compared, for the report
}

// trainSize has the sizes that must agree on both sides.
type trainSize struct {
	parameters, batch int
	by                string
}

// trainOurs is a file of --json.
type trainOurs struct {
	Parameters int               `json:"parameters"`
	Ranks      int               `json:"ranks"`
	RankBatch  int               `json:"rank_batch"`
	Precision  string            `json:"precision"`
	Median     float64           `json:"median_us"`
	Exposed    *float64          `json:"exposed_comm_percent"`
	FinalLoss  float64           `json:"final_loss"`
	Libraries  map[string]string `json:"libraries"`
}

// trainTorch is a file of ddp.py.
type trainTorch struct {
	Ranks     int               `json:"ranks"`
	Precision string            `json:"precision"`
	Libraries map[string]string `json:"libraries"`
	Rows      []struct {
		Engine     string  `json:"engine"`
		Skipped    string  `json:"skipped"`
		Parameters int     `json:"parameters"`
		RankBatch  int     `json:"rank_batch"`
		Median     float64 `json:"median_us"`
	} `json:"rows"`
}

// readTraining reads the folder of a session. Results are in SIDE.MODEL.PRECISION.RANKS.ROUND.json,
// where SIDE is symgrad, symgrad-zeroSTAGE or torch.
//
// Errors: a missing file, or one with another name; a folder without results.
func readTraining(folder string) (*trainSession, error) {
	s := &trainSession{libraries: map[string]string{}, sizes: map[string]trainSize{}}
	if err := readJSON(filepath.Join(folder, "session.json"), s); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.*.*.*.*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files) // ours are first
	for _, name := range files {
		if err := s.read(name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(s.samples) == 0 {
		return nil, fmt.Errorf("%s has no results", folder)
	}
	slices.Sort(s.notes)
	s.notes = slices.Compact(s.notes)
	return s, nil
}

// read reads a file. An incomplete file, of a stopped program, becomes a note.
func (s *trainSession) read(name string) error {
	base := filepath.Base(name)
	parts := strings.Split(base, ".")
	ranks, err := strconv.Atoi(parts[3])
	if err != nil || !slices.Contains(trainModels, parts[1]) {
		return fmt.Errorf("invalid name: want SIDE.MODEL.PRECISION.RANKS.ROUND.json with a model of %v", trainModels)
	}
	key := trainKey{parts[1], parts[2], ranks}
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if parts[0] == ours || strings.HasPrefix(parts[0], oursSharded) {
		var r trainOurs
		if err := json.Unmarshal(raw, &r); err != nil {
			s.notes = append(s.notes, base+": incomplete result")
			return nil
		}
		s.libraries = merged(s.libraries, r.Libraries)
		s.add(base, key, trainKey{key.model, r.Precision, r.Ranks}, trainSample{engine: parts[0], us: r.Median, exposed: r.Exposed},
			trainSize{r.Parameters, r.RankBatch, parts[0]})
		return nil
	}
	var r trainTorch
	if err := json.Unmarshal(raw, &r); err != nil {
		s.notes = append(s.notes, base+": incomplete result")
		return nil
	}
	s.libraries = merged(s.libraries, r.Libraries)
	for _, row := range r.Rows {
		if row.Skipped != "" {
			s.notes = append(s.notes, fmt.Sprintf("%s, %s, %d ranks: no %s: %s", key.model, key.precision, key.ranks, row.Engine, row.Skipped))
			continue
		}
		s.add(base, key, trainKey{key.model, r.Precision, r.Ranks}, trainSample{engine: row.Engine, us: row.Median},
			trainSize{row.Parameters, row.RankBatch, row.Engine})
	}
	return nil
}

// add adds a sample, unless it does not match the file's name, or its model differs from that of
// earlier files with this name.
func (s *trainSession) add(file string, key, said trainKey, x trainSample, size trainSize) {
	x.trainKey = key
	known, ok := s.sizes[key.model]
	switch {
	case said != key:
		s.wrong = append(s.wrong, fmt.Sprintf("%s: result of precision %s on %d ranks", file, said.precision, said.ranks))
	case !(x.us > 0) || math.IsInf(x.us, 0):
		s.wrong = append(s.wrong, fmt.Sprintf("%s: a step of %s takes %v us", file, x.engine, x.us))
	case ok && (known.parameters != size.parameters || known.batch != size.batch):
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %s has %d parameters and %d samples a rank, %s has %d and %d: they must be equal",
			file, x.engine, size.parameters, size.batch, known.by, known.parameters, known.batch))
	default:
		s.sizes[key.model] = trainSize{size.parameters, size.batch, size.by}
		s.samples = append(s.samples, x)
	}
}

// merged returns a after adding b.
func merged(a, b map[string]string) map[string]string {
	for k, v := range b {
		a[k] = v
	}
	return a
}
