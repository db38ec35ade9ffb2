package transformer

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Load reads a model from a folder of Hugging Face: config.json, and model.safetensors or the files
// that model.safetensors.index.json lists. Elements are F32, F16 or BF16, and become float32. Names
// may have the prefix "transformer." (gpt2) or "model." (llama) or not. The output layer of a tied
// model may be there, equal to the token embedding. Masks and frequencies, which older versions
// saved, are ignored.
//
// Errors: those of ReadConfig; dist.ErrInvalid for a tensor that is missing, unknown, twice there,
// or of another shape, naming file, tensor and both shapes; dist.ErrUnsupported for other dtypes;
// those of package checkpoint. No weights are returned with an error.
func Load(dir string) (w *Weights, err error) {
	cfg, err := ReadConfig(filepath.Join(dir, ConfigName))
	if err != nil {
		return nil, err
	}
	files, err := openFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("transformer: %w", err)
	}
	defer func() { err = errors.Join(err, files.close()) }()
	w, err = files.load(cfg)
	if err != nil {
		return nil, fmt.Errorf("transformer: %w", err)
	}
	return w, nil
}

// load reads the weights of cfg.
func (f *folder) load(cfg Config) (*Weights, error) {
	all, err := cfg.Params()
	if err != nil {
		return nil, err
	}
	places, err := f.places(cfg)
	if err != nil {
		return nil, err
	}
	if err := f.match(all, places); err != nil {
		return nil, err
	}
	w := &Weights{Config: cfg, Values: make([]*gtensor.Dense, len(all))}
	for i, p := range all {
		w.Values[i] = dense(p)
		if err := places[p.Name].read(w.Values[i].Float32s()); err != nil {
			return nil, err
		}
	}
	if head, there := places[headName]; there && cfg.Tied {
		return w, head.equals(w.Values[0].Float32s(), all[0].Shape, cfg.embeddingName())
	}
	return w, nil
}

// place is a tensor of a file.
type place struct {
	path  string // of the file
	file  *checkpoint.File
	entry *checkpoint.Entry
}

// places returns the tensors by the names of Config.Params, without those that are ignored.
func (f *folder) places(cfg Config) (map[string]place, error) {
	places := make(map[string]place)
	for _, t := range f.tensors {
		name := t.entry.Name
		if ignored(name) {
			continue
		}
		if name != headName && !strings.HasPrefix(name, cfg.prefix()) {
			name = cfg.prefix() + name
		}
		if other, twice := places[name]; twice {
			return nil, fmt.Errorf("%s: %w: tensor %q is parameter %s, as is tensor %q of %s: remove one", t.path, dist.ErrInvalid, t.entry.Name, name, other.entry.Name, other.path)
		}
		places[name] = t
	}
	return places, nil
}

// ignored reports whether a tensor is a constant that older versions of transformers saved.
func ignored(name string) bool {
	return slices.ContainsFunc([]string{".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"}, func(end string) bool { return strings.HasSuffix(name, end) })
}

// match compares the tensors with the parameters, and removes no tensor.
func (f *folder) match(all []Param, places map[string]place) error {
	known := map[string]bool{headName: true} // of a tied model: load compares it
	for _, p := range all {
		known[p.Name] = true
		t, there := places[p.Name]
		if !there {
			return fmt.Errorf("%s: %w: tensor %q is missing, of shape %v: %s", f.path, dist.ErrInvalid, p.Name, p.Shape, f.missing(p.Name))
		}
		if err := t.fits(p.Shape); err != nil {
			return err
		}
	}
	for _, t := range f.tensors {
		name := t.entry.Name
		if !ignored(name) && !known[name] && !known[gpt2Prefix+name] && !known[llamaPrefix+name] {
			return fmt.Errorf("%s: %w: tensor %q of shape %v is unknown: config.json describes a model without it", t.path, dist.ErrInvalid, name, t.entry.Shape)
		}
	}
	return nil
}

// missing returns the remedy for a missing tensor.
func (f *folder) missing(name string) string {
	if name == headName {
		return "set tie_word_embeddings to true in config.json if the output layer is the token embedding, or save the model with its output layer"
	}
	return "config.json belongs to a larger model, or the file is incomplete"
}

// fits checks dtype and shape.
func (t place) fits(shape []int) error {
	e := t.entry
	switch {
	case e.Type != checkpoint.F32 && e.Type != checkpoint.F16 && e.Type != checkpoint.BF16:
		name := e.Type.String()
		if e.Type == checkpoint.NoType {
			name = e.Other
		}
		return fmt.Errorf("%s: %w: tensor %q has dtype %s: save the model as float32, float16 or bfloat16", t.path, dist.ErrUnsupported, e.Name, name)
	case slices.Equal(e.Shape, shape):
		return nil
	}
	hint := "change config.json, or use the weights that belong to it"
	if len(shape) == 2 && slices.Equal(e.Shape, []int{shape[1], shape[0]}) {
		hint = "it is transposed: save it in the layout of the transformers library, [in, out] for gpt2 and [out, in] for llama"
	}
	return fmt.Errorf("%s: %w: tensor %q has shape %v, and config.json needs %v: %s", t.path, dist.ErrInvalid, e.Name, e.Shape, shape, hint)
}

// part is the number of elements that are read at a time.
const part = 1 << 18

// each calls use for the elements, converted to float32, in parts.
func (t place) each(use func(at int, values []float32) error) error {
	n := t.entry.Len()
	size := min(part, n)
	values, words := make([]float32, size), make([]uint32, size) // aligned
	raw, err := tensor.Of(words).As(t.entry.Type.DType())
	if err != nil {
		return fmt.Errorf("%s: tensor %q: %w", t.path, t.entry.Name, err)
	}
	for at := 0; at < n; at += size {
		size = min(size, n-at)
		out := values[:size]
		in, err := raw.Slice(0, size)
		if err == nil {
			err = t.file.Read(t.entry.Name, at, in)
		}
		if err == nil {
			err = tensor.Convert(tensor.Of(out), in)
		}
		if err != nil {
			return fmt.Errorf("%s: tensor %q: %w", t.path, t.entry.Name, err)
		}
		if err := use(at, out); err != nil {
			return err
		}
	}
	return nil
}

// read sets values to the elements.
func (t place) read(values []float32) error {
	return t.each(func(at int, some []float32) error {
		copy(values[at:], some)
		return nil
	})
}

// equals returns an error if an element differs from values, those of the named tensor.
func (t place) equals(values []float32, shape []int, name string) error {
	if err := t.fits(shape); err != nil {
		return err
	}
	return t.each(func(at int, some []float32) error {
		for i, x := range some {
			if y := values[at+i]; x != y && (x == x || y == y) {
				return fmt.Errorf("%s: %w: element %d of tensor %q is %v, and of %q %v, although config.json has tie_word_embeddings: set it to false",
					t.path, dist.ErrInvalid, at+i, t.entry.Name, x, name, y)
			}
		}
		return nil
	})
}
