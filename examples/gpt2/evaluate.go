package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spf13/pflag"
	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/examples/language"
	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/nn/transformer"
	"github.com/symgrad/symgrad/tensor"
)

func (f *use) evalFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.data, "data", "", "file of tokens, or folder with such files")
	flags.IntVar(&f.window, "context", 0, "tokens of a sample; 0 means the model's context")
	flags.IntVar(&f.limit, "limit", 0, "number of samples, from the first; 0 means all")
	flags.BoolVar(&f.all, "all", false, "every checkpoint in the folder, the oldest first, instead of the newest")
	flags.IntVar(&f.batch, "batch", 4, "samples of a run")
	f.deviceFlags(flags)
}

// eval prints the mean loss of the next token over all samples.
func (f *use) eval(out io.Writer) (err error) {
	if f.data == "" {
		return cli.Usage("--data is missing: a file of tokens, or a folder with such files")
	}
	if f.limit < 0 || f.batch < 1 || f.window < 0 {
		return cli.Usage("--limit %d, --batch %d, --context %d: want 0 or more, and a batch of at least 1", f.limit, f.batch, f.window)
	}
	paths := []string{f.from}
	if f.all {
		if paths, err = checkpoint.List(f.from); err != nil {
			return err
		}
		slices.Reverse(paths)
	}
	for _, path := range paths {
		if err := f.evalOne(path, out); err != nil {
			return err
		}
	}
	return nil
}

// evalOne prints the loss of the model in a folder.
func (f *use) evalOne(dir string, out io.Writer) (err error) {
	w, path, err := trained(dir)
	if err != nil {
		return err
	}
	context := w.Config.Context
	if f.window > 0 {
		context = f.window
	}
	tokens, text, err := open("--data", f.data, w.Config.Vocabulary, context, f.limit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tokens.Close()) }()
	loss, err := f.loss(w, text, context)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: loss %.4f, perplexity %.2f, of %d samples of %d tokens\n", path, loss, math.Exp(loss), text.Len(), context)
	return err
}

// loss returns the mean loss over the samples of a text.
func (f *use) loss(w *transformer.Weights, text data.Dataset, context int) (loss float64, err error) {
	samples := text.Len()
	rows := min(f.batch, samples)
	c := w.Config
	c.EmbeddingDropout, c.ResidualDropout, c.AttentionDropout = 0, 0, 0 // they do not act here
	m, err := transformer.New(c, transformer.Options{Batch: rows, Tokens: context, Train: true, Weights: w.Values})
	if err != nil {
		return 0, err
	}
	vm, err := f.machine("eval", m.Cost)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	for first := 0; first < samples; first += rows {
		n := min(rows, samples-first)
		if err := language.Read(gorgonia.Nodes{m.Tokens, m.Targets}, text, first, n); err != nil {
			return 0, err
		}
		if err := vm.RunAll(); err != nil {
			return 0, err
		}
		mean, err := vm.Scalar(m.Cost)
		if err != nil {
			return 0, err
		}
		loss += mean * float64(n) / float64(samples)
		vm.Reset()
	}
	return loss, nil
}

func (f *use) exportFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.out, "out", "", "folder to write")
}

// export writes the model to a folder.
func (f *use) export(out io.Writer) error {
	if f.out == "" {
		return cli.Usage("--out is missing: the folder to write")
	}
	w, path, err := trained(f.from)
	if err != nil {
		return err
	}
	if err := w.Save(f.out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s of %d parameters, of %s\n", f.out, w.Config.Family, w.Config.Parameters(), path)
	return err
}

func (f *use) logitsFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.tokens, "tokens", "", "JSON file with samples of equal length: a list of lists of tokens")
	flags.StringVar(&f.out, "out", "", `safetensors file to write, with the tensor "logits", (samples, tokens, vocabulary)`)
	f.deviceFlags(flags)
}

// maxTokens is the largest file of --tokens in bytes.
const maxTokens = 64 << 20

// logits writes the logits of all tokens of a file.
func (f *use) logits(io.Writer) (err error) {
	if f.tokens == "" || f.out == "" {
		return cli.Usage("--tokens and --out are required: a file of tokens, and the file to write")
	}
	samples, err := readSamples(f.tokens)
	if err != nil {
		return err
	}
	w, _, err := trained(f.from)
	if err != nil {
		return err
	}
	batch, n := len(samples), len(samples[0])
	m, err := transformer.New(w.Config, transformer.Options{Batch: batch, Tokens: n, Weights: w.Values})
	if err != nil {
		return err
	}
	into := m.Tokens.Value().Data().([]int)
	for i, sample := range samples {
		copy(into[i*n:], sample)
	}
	vm, err := f.machine("logits", m.Logits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	if err := vm.RunAll(); err != nil {
		return err
	}
	return checkpoint.WriteFile(f.out, nil, []checkpoint.NamedTensor{{
		Name: "logits", Shape: []int{batch, n, w.Config.Vocabulary}, Data: tensor.Of(m.Logits.Value().Data().([]float32)),
	}})
}

// readSamples reads a JSON list of lists of tokens.
func readSamples(path string) ([][]int, error) {
	text, err := foreign.ReadNamed(path, maxTokens)
	if err != nil {
		return nil, err
	}
	var samples [][]int
	if err := json.Unmarshal(text, &samples); err != nil {
		return nil, fmt.Errorf("%s: want a list of lists of tokens: %w", path, err)
	}
	if len(samples) == 0 || len(samples[0]) == 0 {
		return nil, fmt.Errorf("%s: it has no tokens", path)
	}
	for i, s := range samples {
		if len(s) != len(samples[0]) {
			return nil, fmt.Errorf("%s: sample %d has %d tokens, and sample 0 %d: want one length", path, i, len(s), len(samples[0]))
		}
	}
	return samples, nil
}
