package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits of bench/gpt2.sh: the largest relative difference of a loss from eager torch's at the same
// step, and our memory over eager torch's.
const (
	gpt2LossLimit   = 0.01
	gpt2MemoryLimit = 1
)

// gpt2Engines are the engines other than ours, in the order of the output, which have a file
// ENGINE.RANKS.json each.
var gpt2Engines = []string{torchEager, torchCompile + "default", torchCompile + "max-autotune-no-cudagraphs"}

// gpt2Row is a run of one engine.
type gpt2Row struct {
	Engine      string    `json:"engine"`
	Ranks       int       `json:"ranks"`
	GlobalBatch int       `json:"global_batch"`
	Precision   string    `json:"precision"`
	Parameters  int       `json:"parameters"`
	MedianUS    float64   `json:"median_us"`
	TokensS     float64   `json:"tokens_per_second"`
	TFLOPS      float64   `json:"tflops_per_gpu"` // model FLOPs: 6 per parameter and token, and attention's
	Memory      int64     `json:"memory"`         // bytes allocated on rank 0's GPU
	FirstLoss   float64   `json:"first_loss"`
	LastLoss    float64   `json:"last_loss"`
	LossDiff    float64   `json:"loss_difference"` // the largest relative one from eager torch
	Losses      []float64 `json:"losses"`

	libraries map[string]string
}

// gpt2Model has the sizes of the model.
type gpt2Model struct {
	Layers  int `json:"layers"`
	Width   int `json:"width"`
	Heads   int `json:"heads"`
	Context int `json:"context"`
}

// gpt2Verdict is a criterion's result.
type gpt2Verdict struct {
	What  string  `json:"what"`
	Ranks int     `json:"ranks"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Holds bool    `json:"holds"`
}

// gpt2Report compares the runs of bench/gpt2.sh.
type gpt2Report struct {
	Date  string          `json:"date"`
	Model gpt2Model       `json:"model"`
	Steps int             `json:"steps"`
	Host  json.RawMessage `json:"host"`

	libraries map[string]string
	rows      []gpt2Row
	verdicts  []gpt2Verdict
	wrong     []string
}

// readGPT2 reads the folder of a session.
//
// Errors: a missing or unreadable session; a run that cannot be compared; no run of symgrad.
func readGPT2(folder string) (*gpt2Report, error) {
	r := &gpt2Report{libraries: map[string]string{}}
	if err := readJSON(filepath.Join(folder, "session.json"), r); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(folder, ours+".*.summary.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		ranks, err := strconv.Atoi(strings.Split(filepath.Base(name), ".")[1])
		if err != nil {
			return nil, fmt.Errorf("%s: want %s.RANKS.summary.json", name, ours)
		}
		if err := r.readRanks(folder, ranks); err != nil {
			return nil, err
		}
	}
	if len(r.rows) == 0 {
		return nil, fmt.Errorf("%s has no result of %s", folder, ours)
	}
	slices.SortStableFunc(r.rows, func(a, b gpt2Row) int { return a.Ranks - b.Ranks })
	r.judge()
	return r, nil
}

// readRanks reads the runs on so many ranks.
func (r *gpt2Report) readRanks(folder string, ranks int) error {
	own, err := readGPT2Ours(folder, ranks)
	if err != nil {
		return err
	}
	r.add(own)
	for _, engine := range gpt2Engines {
		row := gpt2Row{}
		var libraries struct {
			Libraries map[string]string `json:"libraries"`
		}
		name := filepath.Join(folder, fmt.Sprintf("%s.%d.json", engine, ranks))
		err := errors.Join(readJSON(name, &row), readJSON(name, &libraries))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		row.libraries = libraries.Libraries
		r.add(row)
	}
	return nil
}

// readGPT2Ours reads summary.json and the times of a run of examples/gpt2.
func readGPT2Ours(folder string, ranks int) (gpt2Row, error) {
	var summary struct {
		WorldSize   int              `json:"world_size"`
		GlobalBatch int              `json:"global_batch"`
		Precision   string           `json:"precision"`
		Parameters  int              `json:"parameters"`
		Memory      map[string]int64 `json:"memory"`
		Losses      []float64        `json:"losses"`
	}
	var times trainOurs
	base := filepath.Join(folder, fmt.Sprintf("%s.%d", ours, ranks))
	if err := errors.Join(readJSON(base+".summary.json", &summary), readJSON(base+".times.json", &times)); err != nil {
		return gpt2Row{}, err
	}
	row := gpt2Row{
		Engine: ours, Ranks: summary.WorldSize, GlobalBatch: summary.GlobalBatch, Precision: summary.Precision,
		Parameters: summary.Parameters, MedianUS: times.Median, Losses: summary.Losses, libraries: times.Libraries,
	}
	for _, bytes := range summary.Memory {
		row.Memory += bytes
	}
	return row, nil
}

// add completes a row and adds it, or a note on its fault.
func (r *gpt2Report) add(x gpt2Row) {
	name := fmt.Sprintf("%s on %d ranks", x.Engine, x.Ranks)
	first := x
	if i := slices.IndexFunc(r.rows, func(y gpt2Row) bool { return y.Ranks == x.Ranks }); i >= 0 {
		first = r.rows[i]
	}
	switch {
	case len(x.Losses) != r.Steps:
		r.wrong = append(r.wrong, fmt.Sprintf("%s: %d losses, want %d", name, len(x.Losses), r.Steps))
	case !(x.MedianUS > 0) || math.IsInf(x.MedianUS, 0):
		r.wrong = append(r.wrong, fmt.Sprintf("%s: a step takes %v us", name, x.MedianUS))
	case x.Parameters != first.Parameters || x.GlobalBatch != first.GlobalBatch || x.Precision != first.Precision:
		r.wrong = append(r.wrong, fmt.Sprintf("%s has %d parameters, a batch of %d and %s, %s %d, %d and %s: they must be equal",
			name, x.Parameters, x.GlobalBatch, x.Precision, first.Engine, first.Parameters, first.GlobalBatch, first.Precision))
	default:
		tokens := float64(x.GlobalBatch * r.Model.Context)
		x.TokensS = round(1e6 * tokens / x.MedianUS)
		flops := 6*float64(x.Parameters) + 12*float64(r.Model.Layers*r.Model.Width*r.Model.Context) // per token
		x.TFLOPS = round(flops * tokens / x.MedianUS / 1e6 / float64(x.Ranks))
		x.FirstLoss, x.LastLoss = x.Losses[0], x.Losses[len(x.Losses)-1]
		r.libraries = merged(r.libraries, x.libraries)
		r.rows = append(r.rows, x)
	}
}

// judge compares the losses and the memory of all rows with eager torch's.
func (r *gpt2Report) judge() {
	for i := range r.rows {
		x := &r.rows[i]
		k := slices.IndexFunc(r.rows, func(y gpt2Row) bool { return y.Ranks == x.Ranks && y.Engine == torchEager })
		if k < 0 {
			if x.Engine == ours {
				r.wrong = append(r.wrong, fmt.Sprintf("no result of %s on %d ranks", torchEager, x.Ranks))
			}
			continue
		}
		eager := r.rows[k]
		for step, loss := range x.Losses {
			x.LossDiff = max(x.LossDiff, math.Abs(loss-eager.Losses[step])/math.Abs(eager.Losses[step]))
		}
		if x.Engine != ours {
			continue
		}
		memory := float64(x.Memory) / float64(eager.Memory)
		r.verdicts = append(r.verdicts,
			gpt2Verdict{"largest relative difference of a loss from torch's", x.Ranks, round(x.LossDiff), gpt2LossLimit, x.LossDiff <= gpt2LossLimit},
			gpt2Verdict{"memory over torch's", x.Ranks, round(memory), gpt2MemoryLimit, memory <= gpt2MemoryLimit})
	}
}

func (r *gpt2Report) holds() bool {
	return len(r.wrong) == 0 && !slices.ContainsFunc(r.verdicts, func(v gpt2Verdict) bool { return !v.Holds })
}

func (r *gpt2Report) print(w io.Writer) {
	fmt.Fprintf(w, "%v\n", gpt2Grid(r.rows))
	for _, text := range r.wrong {
		fmt.Fprintln(w, "WRONG:", text)
	}
	for _, v := range r.verdicts {
		fmt.Fprintf(w, "%s  %d ranks: %s: %.3g, limit %g\n", map[bool]string{true: "HOLDS", false: "FAILS"}[v.Holds], v.Ranks, v.What, v.Value, v.Limit)
	}
}

// gpt2Grid is the table of rows.
func gpt2Grid(rows []gpt2Row) grid {
	g := grid{{"GPUs", "engine", "ms a step", "tokens/s", "TFLOP/s a GPU", "GB", "first loss", "last loss", "largest difference from torch"}}
	for _, x := range rows {
		g = append(g, []string{
			strconv.Itoa(x.Ranks), x.Engine, fmt.Sprintf("%.1f", x.MedianUS/1e3), fmt.Sprintf("%.0f", x.TokensS), fmt.Sprintf("%.0f", x.TFLOPS),
			fmt.Sprintf("%.1f", float64(x.Memory)/1e9), fmt.Sprintf("%.4f", x.FirstLoss), fmt.Sprintf("%.4f", x.LastLoss),
			fmt.Sprintf("%.2f %%", 100*x.LossDiff),
		})
	}
	return g
}

// gpt2Tables returns the tables of a result file.
func gpt2Tables(text []byte) ([]grid, error) {
	var file struct {
		Rows []gpt2Row `json:"rows"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	return []grid{gpt2Grid(file.Rows)}, nil
}

// fields returns the result, in the order of the file.
func (r *gpt2Report) fields() []field {
	var verdicts, rows []any
	for _, v := range r.verdicts {
		verdicts = append(verdicts, v)
	}
	for _, x := range r.rows {
		rows = append(rows, x)
	}
	return []field{
		{name: "date", one: r.Date},
		{name: "host", one: r.Host},
		{name: "libraries", one: r.libraries},
		{name: "model", one: r.Model},
		{name: "steps", one: r.Steps},
		{name: "time", one: "median over groups of steps"},
		{name: "wrong", one: r.wrong},
		{name: "verdicts", many: verdicts},
		{name: "rows", many: rows},
	}
}
