package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/examples/ddp/mnist"
	ddpmodel "github.com/symgrad/symgrad/examples/ddp/model"
	"github.com/symgrad/symgrad/examples/language"
	resnetmodel "github.com/symgrad/symgrad/examples/resnet/model"
	"github.com/symgrad/symgrad/examples/resnet/pictures"
	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/nn/transformer"
)

// planned is the model that a program builds from its settings.
type planned struct {
	name  string                                             // shapes: without values of parameters
	build func(rows int, shapes bool) (machine.Model, error) // shapes: parameters have no values
}

// planProgram is a program whose runs can be planned: its name, the names of its models, and their
// builder.
type planProgram struct {
	name   string
	models []string
	model  func(c *config.Config) (planned, error)
	reads  func(path string) bool // data.path is one of its own; nil means that any is
}

// allPlanPrograms returns the training examples. For a model of several programs, the first one
// that reads the data is the default.
func allPlanPrograms() []planProgram {
	return []planProgram{
		{"ddp", []string{"mlp", "cnn"}, imageModel, nil},
		{"lm", []string{"gpt2", "llama"}, textModel, isText},
		{"gpt2", []string{"gpt2", "llama"}, tokenModel, nil},
		{"mlp", []string{"mlp"}, wideModel, nil},
		{"resnet", resnetmodel.Names(), residualModel, nil},
	}
}

// isText reports whether path is a file, and not one of tokens.
func isText(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && filepath.Ext(path) != ".bin"
}

func planPrograms() []string {
	var names []string
	for _, p := range allPlanPrograms() {
		names = append(names, p.name)
	}
	return names
}

// planModel returns the model that a program builds from the settings; "" means the first program
// that trains such a model.
//
// Errors: an unknown program, one that does not train this model, data from which sizes cannot be
// read.
func planModel(c *config.Config, program string) (planned, error) {
	for _, p := range allPlanPrograms() {
		switch trains := slices.Contains(p.models, c.Model.Name); {
		case program == "" && trains && (p.reads == nil || p.reads(c.Data.Path)), program == p.name && trains:
			return p.model(c)
		case program == p.name:
			return planned{}, fmt.Errorf("--program %s: trains %s, but model.name is %s", program, strings.Join(p.models, " or "), c.Model.Name)
		}
	}
	if program != "" {
		return planned{}, fmt.Errorf("unknown --program %q: use one of %s", program, strings.Join(planPrograms(), ", "))
	}
	return planned{}, fmt.Errorf("model.name=%s: none of %s trains it", c.Model.Name, strings.Join(planPrograms(), ", "))
}

// imageModel returns the model of examples/ddp. Images have the size of those in data.path, or of
// MNIST if there are none yet.
func imageModel(c *config.Config) (planned, error) {
	rows, cols, where := 28, 28, ""
	switch err := mnist.Find(c.Data.Path); {
	case err == nil:
		d, err := mnist.Load(c.Data.Path)
		if err != nil {
			return planned{}, fmt.Errorf("data.path: %w", err)
		}
		rows, cols = d.Train.Rows, d.Train.Cols
	case errors.Is(err, os.ErrNotExist):
		where = fmt.Sprintf(" (size of MNIST: no data in %s)", c.Data.Path)
	default:
		return planned{}, fmt.Errorf("data.path: %w", err)
	}
	m := ddpmodel.Config{Name: c.Model.Name, Hidden: c.Model.Hidden, Rows: rows, Cols: cols, Classes: mnist.Classes, Seed: c.Run.Seed}
	name := fmt.Sprintf("mlp of %dx%d images%s", rows, cols, where)
	if m.Name == "cnn" {
		m.Channels, m.Kernel = c.Model.Channels, c.Model.Kernel
		name = fmt.Sprintf("cnn of %dx%d images%s, channels %v", rows, cols, where, m.Channels)
	}
	return planned{fmt.Sprintf("%s, hidden %v, %d classes", name, m.Hidden, m.Classes), classifier(m)}, nil
}

// wideModel returns the model of examples/mlp, whose inputs are as wide as the first hidden layer.
func wideModel(c *config.Config) (planned, error) {
	if len(c.Model.Hidden) == 0 {
		return planned{}, errors.New("model.hidden is empty: examples/mlp takes the width of its inputs from the first hidden layer")
	}
	m := ddpmodel.Config{Name: "mlp", Hidden: c.Model.Hidden, Rows: 1, Cols: c.Model.Hidden[0], Classes: 10, Seed: c.Run.Seed}
	return planned{fmt.Sprintf("mlp of %d inputs, hidden %v, %d classes", m.Cols, m.Hidden, m.Classes), classifier(m)}, nil
}

func classifier(m ddpmodel.Config) func(rows int, shapes bool) (machine.Model, error) {
	return func(rows int, shapes bool) (machine.Model, error) {
		m := m
		m.Batch, m.Shapes = rows, shapes
		made, err := ddpmodel.New(m, nil)
		if err != nil {
			return machine.Model{}, err
		}
		return machine.Model{Cost: made.Cost, Params: made.Params}, nil
	}
}

// residualModel returns the model of examples/resnet. Images have the size and the classes of those
// in data.path, or of CIFAR-10 if there are none yet.
func residualModel(c *config.Config) (planned, error) {
	m := resnetmodel.Config{Name: c.Model.Name, Width: c.Model.Width, Classes: 10, Side: 32, Small: true, LabelSmoothing: c.Model.LabelSmoothing}
	where := ""
	switch p, err := pictures.Open(c); {
	case err == nil:
		m.Classes, m.Side, m.Small = p.Classes, p.Side, p.Small
		if err := p.Close(); err != nil {
			return planned{}, fmt.Errorf("data.path: %w", err)
		}
	case errors.Is(err, os.ErrNotExist):
		where = fmt.Sprintf(" (size of CIFAR-10: no data in %s)", c.Data.Path)
		if side := c.Data.ImageSize; side != 0 && side != m.Side {
			m.Side, m.Small, m.Classes = side, false, 1000
			where = fmt.Sprintf(" (1000 classes: no data in %s)", c.Data.Path)
		}
	default:
		return planned{}, fmt.Errorf("data.path: %w", err)
	}
	name := fmt.Sprintf("%s of %dx%d images%s, width %d, %d classes", m.Name, m.Side, m.Side, where, m.Width, m.Classes)
	return planned{name, func(rows int, shapes bool) (machine.Model, error) {
		m := m
		m.Batch, m.Shapes = rows, shapes
		made, err := resnetmodel.New(m, nil)
		if err != nil {
			return machine.Model{}, err
		}
		return machine.Model{Cost: made.Cost, Params: made.Params}, nil
	}}, nil
}

// tokenModel returns the model of examples/gpt2.
func tokenModel(c *config.Config) (planned, error) {
	m, err := language.ModelOf(c)
	if err != nil {
		return planned{}, err
	}
	return languageModel(m, c), nil
}

// textModel returns the model of examples/lm, whose vocabulary is the characters of the text.
func textModel(c *config.Config) (planned, error) {
	text, err := foreign.ReadNamed(c.Data.Path, 1<<30) // same limit as examples/lm
	if err != nil {
		return planned{}, fmt.Errorf("text: %w; set data.path to the training text: its characters are the vocabulary", err)
	}
	m := language.Sized(c.Model)
	m.Vocabulary = 0
	var occurs [256]bool
	for _, b := range text {
		if !occurs[b] {
			occurs[b] = true
			m.Vocabulary++
		}
	}
	if m.Vocabulary == 0 {
		return planned{}, fmt.Errorf("text: %s is empty", c.Data.Path)
	}
	return languageModel(m, c), nil
}

// languageModel returns a transformer that is trained on samples of model.context tokens.
func languageModel(m transformer.Config, c *config.Config) planned {
	context, seed := c.Model.Context, c.Run.Seed
	return planned{language.Describe(m, context), func(rows int, shapes bool) (machine.Model, error) {
		made, err := transformer.New(m, transformer.Options{Batch: rows, Tokens: context, Train: true, Seed: seed, Shapes: shapes})
		if err != nil {
			return machine.Model{}, err
		}
		return machine.Model{Cost: made.Cost, Params: made.Params}, nil
	}}
}
