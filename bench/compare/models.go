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

// modelsLimits are the limits of a model of bench/models.sh.
type modelsLimits struct {
	loss   float64 // largest relative difference of a loss from eager torch's at the same step
	memory float64 // our memory over eager torch's; 0 for no limit
}

// modelsLimit returns the limits of a model. The losses of a ResNet scatter more: a batch
// normalization divides by the deviation of few numbers.
func modelsLimit(name string) modelsLimits {
	if name == gpt2Name {
		return modelsLimits{loss: 0.01, memory: 1}
	}
	return modelsLimits{loss: 0.02}
}

// gpt2Name is the model whose operations follow from its sizes.
const gpt2Name = "gpt2"

// modelsEngines are the engines other than ours, in the order of the output, which have a file
// ENGINE.RANKS.json each.
var modelsEngines = []string{torchEager, torchCompile + "default", torchCompile + "max-autotune-no-cudagraphs"}

// modelsRow is a run of one engine.
type modelsRow struct {
	Engine      string    `json:"engine"`
	Ranks       int       `json:"ranks"`
	GlobalBatch int       `json:"global_batch"`
	Precision   string    `json:"precision"`
	Parameters  int       `json:"parameters"`
	MedianUS    float64   `json:"median_us"`
	PerSecond   float64   `json:"per_second"`     // tokens or images
	TFLOPS      float64   `json:"tflops_per_gpu"` // of the model's products, see modelsSizes.flops
	Memory      int64     `json:"memory"`         // bytes allocated on rank 0's GPU
	FirstLoss   float64   `json:"first_loss"`
	LastLoss    float64   `json:"last_loss"`
	LossDiff    float64   `json:"loss_difference"` // the largest relative one from eager torch
	Losses      []float64 `json:"losses"`

	libraries map[string]string
}

// modelsSizes has the sizes of the model, as the Python program writes them.
type modelsSizes struct {
	Name  string `json:"name"`
	Unit  string `json:"unit"`  // tokens or images
	Units int    `json:"units"` // of a sample

	Layers  int `json:"layers,omitempty"`
	Width   int `json:"width,omitempty"`
	Heads   int `json:"heads,omitempty"`
	Context int `json:"context,omitempty"`

	Side       int     `json:"side,omitempty"`       // rows and columns of an image
	Operations float64 `json:"operations,omitempty"` // additions and multiplications of a forward pass of a sample
}

// flops returns the operations of a training step for one sample: the backward pass has twice those
// of the forward pass. Of GPT-2 they are 6 for each parameter and token, and those of attention.
func (m modelsSizes) flops(parameters int) float64 {
	if m.Name == gpt2Name {
		return (6*float64(parameters) + 12*float64(m.Layers*m.Width*m.Context)) * float64(m.Context)
	}
	return 3 * m.Operations
}

// check rejects sizes from which nothing can be computed.
func (m modelsSizes) check() error {
	if m.Name == "" || m.Unit == "" || m.Units < 1 || !(m.flops(1) > 0) {
		return fmt.Errorf("session.json: model %+v lacks a name, a unit or its sizes", m)
	}
	return nil
}

// modelsVerdict is a criterion's result.
type modelsVerdict struct {
	What  string  `json:"what"`
	Ranks int     `json:"ranks"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Holds bool    `json:"holds"`
}

// modelsReport compares the runs of bench/models.sh.
type modelsReport struct {
	Date  string          `json:"date"`
	Model modelsSizes     `json:"model"`
	Steps int             `json:"steps"`
	Host  json.RawMessage `json:"host"`

	libraries map[string]string
	rows      []modelsRow
	verdicts  []modelsVerdict
	wrong     []string
}

// readModels reads the folder of a session.
//
// Errors: a missing or unreadable session; a run that cannot be compared; no run of symgrad.
func readModels(folder string) (*modelsReport, error) {
	r := &modelsReport{libraries: map[string]string{}}
	if err := readJSON(filepath.Join(folder, "session.json"), r); err != nil {
		return nil, err
	}
	if err := r.Model.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
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
	slices.SortStableFunc(r.rows, func(a, b modelsRow) int { return a.Ranks - b.Ranks })
	r.judge()
	return r, nil
}

// readRanks reads the runs on so many ranks.
func (r *modelsReport) readRanks(folder string, ranks int) error {
	own, err := readModelOurs(folder, ranks)
	if err != nil {
		return err
	}
	r.add(own)
	for _, engine := range modelsEngines {
		row := modelsRow{}
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

// readModelOurs reads summary.json and the times of a run of symgrad.
func readModelOurs(folder string, ranks int) (modelsRow, error) {
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
		return modelsRow{}, err
	}
	row := modelsRow{
		Engine: ours, Ranks: summary.WorldSize, GlobalBatch: summary.GlobalBatch, Precision: summary.Precision,
		Parameters: summary.Parameters, MedianUS: times.Median, Losses: summary.Losses, libraries: times.Libraries,
	}
	for _, bytes := range summary.Memory {
		row.Memory += bytes
	}
	return row, nil
}

// add completes a row and adds it, or a note on its fault.
func (r *modelsReport) add(x modelsRow) {
	name := fmt.Sprintf("%s on %d ranks", x.Engine, x.Ranks)
	first := x
	if i := slices.IndexFunc(r.rows, func(y modelsRow) bool { return y.Ranks == x.Ranks }); i >= 0 {
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
		x.PerSecond = round(1e6 * float64(x.GlobalBatch*r.Model.Units) / x.MedianUS)
		x.TFLOPS = round(r.Model.flops(x.Parameters) * float64(x.GlobalBatch) / x.MedianUS / 1e6 / float64(x.Ranks))
		x.FirstLoss, x.LastLoss = x.Losses[0], x.Losses[len(x.Losses)-1]
		r.libraries = merged(r.libraries, x.libraries)
		r.rows = append(r.rows, x)
	}
}

// judge compares the losses and the memory of all rows with eager torch's.
func (r *modelsReport) judge() {
	for i := range r.rows {
		x := &r.rows[i]
		k := slices.IndexFunc(r.rows, func(y modelsRow) bool { return y.Ranks == x.Ranks && y.Engine == torchEager })
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
		limit := modelsLimit(r.Model.Name)
		r.verdicts = append(r.verdicts,
			modelsVerdict{"largest relative difference of a loss from torch's", x.Ranks, round(x.LossDiff), limit.loss, x.LossDiff <= limit.loss})
		if memory := float64(x.Memory) / float64(eager.Memory); limit.memory > 0 {
			r.verdicts = append(r.verdicts, modelsVerdict{"memory over torch's", x.Ranks, round(memory), limit.memory, memory <= limit.memory})
		}
	}
}

func (r *modelsReport) holds() bool {
	return len(r.wrong) == 0 && !slices.ContainsFunc(r.verdicts, func(v modelsVerdict) bool { return !v.Holds })
}

func (r *modelsReport) print(w io.Writer) {
	fmt.Fprintf(w, "%v\n", modelsGrid(r.Model, r.rows))
	for _, text := range r.wrong {
		fmt.Fprintln(w, "WRONG:", text)
	}
	for _, v := range r.verdicts {
		fmt.Fprintf(w, "%s  %d ranks: %s: %.3g, limit %g\n", map[bool]string{true: "HOLDS", false: "FAILS"}[v.Holds], v.Ranks, v.What, v.Value, v.Limit)
	}
}

// modelsGrid is the table of rows.
func modelsGrid(m modelsSizes, rows []modelsRow) grid {
	g := grid{{"GPUs", "engine", "ms a step", m.Unit + "/s", "TFLOP/s a GPU", "GB", "first loss", "last loss", "largest difference from torch"}}
	for _, x := range rows {
		g = append(g, []string{
			strconv.Itoa(x.Ranks), x.Engine, fmt.Sprintf("%.1f", x.MedianUS/1e3), fmt.Sprintf("%.0f", x.PerSecond), fmt.Sprintf("%.0f", x.TFLOPS),
			fmt.Sprintf("%.1f", float64(x.Memory)/1e9), fmt.Sprintf("%.4f", x.FirstLoss), fmt.Sprintf("%.4f", x.LastLoss),
			fmt.Sprintf("%.2f %%", 100*x.LossDiff),
		})
	}
	return g
}

// modelsTables returns the tables of a result file.
func modelsTables(text []byte) ([]grid, error) {
	var file struct {
		Model modelsSizes `json:"model"`
		Rows  []modelsRow `json:"rows"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	return []grid{modelsGrid(file.Model, file.Rows)}, nil
}

// fields returns the result, in the order of the file.
func (r *modelsReport) fields() []field {
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
