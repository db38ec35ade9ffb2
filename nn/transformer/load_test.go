package transformer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// source is the weights of a model with known values, as tensors for a file.
func source(t *testing.T, c Config) (*Weights, []checkpoint.NamedTensor) {
	t.Helper()
	all, err := c.Params()
	if err != nil {
		t.Fatal(err)
	}
	w := &Weights{Config: c}
	var tensors []checkpoint.NamedTensor
	for i, p := range all {
		v := dense(p)
		for j := range v.Float32s() {
			v.Float32s()[j] = float32(i) + float32(j%64)/64 // exact in bfloat16 below 2
		}
		w.Values = append(w.Values, v)
		tensors = append(tensors, checkpoint.NamedTensor{Name: p.Name, Shape: p.Shape, Data: tensor.Of(v.Float32s())})
	}
	return w, tensors
}

// folderOf writes a folder with a config.json and one file of weights.
func folderOf(t *testing.T, config string, tensors []checkpoint.NamedTensor) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ConfigName), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if tensors != nil {
		writeWeights(t, filepath.Join(dir, weightsName), tensors)
	}
	return dir
}

func writeWeights(t *testing.T, path string, tensors []checkpoint.NamedTensor) {
	t.Helper()
	if err := checkpoint.WriteFile(path, map[string]string{"format": "pt"}, tensors); err != nil {
		t.Fatal(err)
	}
}

// same compares the loaded weights with w, rounded by narrow.
func same(t *testing.T, dir string, w *Weights, narrow func(float32) float32) {
	t.Helper()
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := got.check()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		for j, x := range w.Values[i].Float32s() {
			if y := got.Values[i].Float32s()[j]; y != narrow(x) {
				t.Fatalf("%s[%d] is %v, want %v", p.Name, j, y, narrow(x))
			}
		}
	}
}

func exact(x float32) float32 { return x }

// head is the output layer of a tied model with these values.
func head(w *Weights) checkpoint.NamedTensor {
	return checkpoint.NamedTensor{Name: headName, Shape: w.Values[0].Shape(), Data: tensor.Of(w.Values[0].Float32s())}
}

func TestWeightsLoadUnderAllNames(t *testing.T) {
	for _, text := range []string{gpt2Text, llamaText, strings.Replace(llamaText, `"tie_word_embeddings": false`, `"tie_word_embeddings": true`, 1)} {
		c := parse(t, text)
		w, tensors := source(t, c)
		same(t, folderOf(t, text, tensors), w, exact)
		if c.Tied {
			same(t, folderOf(t, text, append(slices.Clone(tensors), head(w))), w, exact)
		}
		bare := slices.Clone(tensors)
		for i := range bare {
			bare[i].Name = strings.TrimPrefix(bare[i].Name, c.prefix())
		}
		bare = append(bare, checkpoint.NamedTensor{Name: "h.0.attn.bias", Type: checkpoint.U8, Shape: []int{1, 1, 2, 2}, Data: tensor.Of([]uint8{1, 0, 1, 1})})
		same(t, folderOf(t, text, bare), w, exact)
	}
}

func TestNarrowWeightsBecomeFloat32(t *testing.T) {
	w, tensors := source(t, parse(t, llamaText))
	for _, dt := range []checkpoint.Type{checkpoint.F16, checkpoint.BF16} {
		narrow := slices.Clone(tensors)
		for i := range narrow {
			values := w.Values[i].Float32s()
			words := make([]tensor.Float16, len(values))
			b, err := tensor.Of(words).As(dt.DType())
			if err == nil {
				err = tensor.Convert(b, tensor.Of(values))
			}
			if err != nil {
				t.Fatal(err)
			}
			narrow[i].Type, narrow[i].Data = dt, b
		}
		round := func(x float32) float32 { return tensor.ToFloat16(x).Float32() }
		if dt == checkpoint.BF16 {
			round = func(x float32) float32 { return tensor.ToBFloat16(x).Float32() }
		}
		same(t, folderOf(t, llamaText, narrow), w, round)
	}
}

// sharded writes tensors to two files and an index.
func sharded(t *testing.T, config string, tensors []checkpoint.NamedTensor) string {
	t.Helper()
	dir := folderOf(t, config, nil)
	files := map[string]string{}
	for i := range 2 {
		name := fmt.Sprintf("model-%05d-of-00002.safetensors", i+1)
		some := tensors[i*len(tensors)/2 : (i+1)*len(tensors)/2]
		for _, x := range some {
			files[x.Name] = name
		}
		writeWeights(t, filepath.Join(dir, name), some)
	}
	writeIndex(t, dir, files)
	return dir
}

func writeIndex(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 1}, "weight_map": files})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, indexName), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestWeightsInSeveralFilesLoad(t *testing.T) {
	w, tensors := source(t, parse(t, gpt2Text))
	same(t, sharded(t, gpt2Text, tensors), w, exact)
}

func TestFoldersThatDoNotFitAreRefused(t *testing.T) {
	c := parse(t, gpt2Text)
	w, tensors := source(t, c)
	weight := slices.IndexFunc(tensors, func(x checkpoint.NamedTensor) bool { return strings.HasSuffix(x.Name, "h.1.attn.c_attn.weight") })
	swap := func(change func(*checkpoint.NamedTensor)) string {
		all := slices.Clone(tensors)
		change(&all[weight])
		return folderOf(t, gpt2Text, all)
	}
	other := slices.Clone(w.Values[0].Float32s())
	other[5]++
	untied := strings.Replace(gpt2Text, `"use_cache"`, `"tie_word_embeddings": false, "use_cache"`, 1)
	for _, test := range []struct {
		name, dir string
		want      []string
	}{
		{"wide", swap(func(x *checkpoint.NamedTensor) { x.Shape = []int{4, 48} }), []string{weightsName, `"transformer.h.1.attn.c_attn.weight" has shape [4 48], and config.json needs [8 24]`, "change config.json"}},
		{"transposed", swap(func(x *checkpoint.NamedTensor) { x.Shape = []int{24, 8} }), []string{"has shape [24 8], and config.json needs [8 24]: it is transposed", "[in, out] for gpt2"}},
		{"renamed", swap(func(x *checkpoint.NamedTensor) { x.Name = "transformer.h.1.attn.q.weight" }), []string{`tensor "transformer.h.1.attn.c_attn.weight" is missing, of shape [8 24]`}},
		{"integers", swap(func(x *checkpoint.NamedTensor) { x.Type, x.Data = checkpoint.I32, tensor.Of(make([]int32, 192)) }), []string{"has dtype I32: save the model as float32"}},
		{"more", folderOf(t, gpt2Text, append(slices.Clone(tensors), checkpoint.NamedTensor{Name: "score.weight", Shape: []int{1}, Data: tensor.Of([]float32{1})})), []string{`tensor "score.weight" of shape [1] is unknown`}},
		{"twice", folderOf(t, gpt2Text, append(slices.Clone(tensors), checkpoint.NamedTensor{Name: "wte.weight", Shape: []int{1}, Data: tensor.Of([]float32{1})})), []string{`is parameter transformer.wte.weight, as is`}},
		{"head", folderOf(t, gpt2Text, append(slices.Clone(tensors), checkpoint.NamedTensor{Name: headName, Shape: []int{11, 8}, Data: tensor.Of(other)})), []string{`element 5 of tensor "lm_head.weight"`, "tie_word_embeddings", "set it to false"}},
		{"no head", folderOf(t, untied, tensors), []string{`tensor "lm_head.weight" is missing`, "set tie_word_embeddings to true"}},
		{"no weights", folderOf(t, gpt2Text, nil), []string{"neither model.safetensors nor model.safetensors.index.json", "save_pretrained"}},
	} {
		got, err := Load(test.dir)
		if got != nil || err == nil || !errors.Is(err, dist.ErrInvalid) && !errors.Is(err, dist.ErrUnsupported) {
			t.Errorf("%s: %v, %v", test.name, got, err)
			continue
		}
		for _, want := range append(test.want, test.dir) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v lacks %q", test.name, err, want)
			}
		}
	}
	old := folderOf(t, gpt2Text, nil)
	if err := os.WriteFile(filepath.Join(old, "pytorch_model.bin"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(old); err == nil || !strings.Contains(err.Error(), "but pytorch_model.bin: load it with the transformers library") {
		t.Errorf("%v", err)
	}
	if _, err := Load(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestAnIndexThatDoesNotFitIsRefused(t *testing.T) {
	_, tensors := source(t, parse(t, gpt2Text))
	const first = "model-00001-of-00002.safetensors"
	for _, test := range []struct {
		files map[string]string
		want  string
	}{
		{nil, "no weight_map"},
		{map[string]string{"wte.weight": "../" + first}, `tensor "wte.weight" is in file "../model`},
		{map[string]string{"wte.weight": first}, `has no tensor "wte.weight"`},
		{map[string]string{"transformer.wte.weight": first}, "is missing"},
		{map[string]string{"transformer.wte.weight": "none.safetensors"}, "none.safetensors"},
	} {
		dir := sharded(t, gpt2Text, tensors)
		writeIndex(t, dir, test.files)
		if got, err := Load(dir); got != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.files, err, test.want)
		}
	}
	dir := sharded(t, gpt2Text, tensors)
	if err := os.Truncate(filepath.Join(dir, first), 1000); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(dir); got != nil || !errors.Is(err, checkpoint.ErrCorrupt) || !strings.Contains(err.Error(), first) {
		t.Errorf("a truncated file: %v", err)
	}
}

func TestSavedWeightsLoad(t *testing.T) {
	for _, text := range []string{gpt2Text, llamaText} {
		w, err := Initial(parse(t, text), 7)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "new", "folder")
		for range 2 { // the second time over the first
			if err := w.Save(dir); err != nil {
				t.Fatal(err)
			}
		}
		same(t, dir, w, exact)
		f, err := checkpoint.OpenFile(filepath.Join(dir, weightsName))
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().Metadata["format"] != "pt" || len(f.Header().Entries) != len(w.Values) {
			t.Errorf("metadata %v, %d tensors", f.Header().Metadata, len(f.Header().Entries))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		names, err := os.ReadDir(dir)
		if err != nil || len(names) != 2 {
			t.Errorf("the folder has %v, %v", names, err)
		}
	}
}

func TestWeightsThatDoNotFitAreNotSaved(t *testing.T) {
	w, tensors := source(t, parse(t, gpt2Text))
	short := &Weights{Config: w.Config, Values: w.Values[1:]}
	wrong := &Weights{Config: w.Config, Values: slices.Clone(w.Values)}
	wrong.Values[3] = gtensor.New(gtensor.WithShape(2, 4), gtensor.WithBacking(make([]float32, 8)))
	for _, test := range []struct {
		w    *Weights
		dir  string
		want string
	}{
		{short, t.TempDir(), "27 weights, and the configuration has 28 parameters"},
		{wrong, t.TempDir(), "weight 3 is float32 [2 4], and parameter transformer.h.0.ln_1.bias is float32 [8]"},
		{w, sharded(t, gpt2Text, tensors), "a model in several files: use another folder"},
	} {
		if err := test.w.Save(test.dir); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}

// The deviations are those of the papers and of Hugging Face's _init_weights.
func TestInitialWeights(t *testing.T) {
	c := GPT2Small()
	c.Vocabulary, c.Context, c.Width, c.Layers, c.Heads, c.HeadWidth, c.KVHeads, c.Inner = 300, 64, 64, 8, 4, 16, 4, 256
	w, err := Initial(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Params()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		want := 0.02
		switch {
		case strings.HasSuffix(p.Name, "c_proj.weight"):
			want = 0.005 // 0.02 / sqrt(2*8)
		case strings.HasSuffix(p.Name, "bias"), strings.Contains(p.Name, "ln_"):
			want = 0
		}
		var sum, squares float64
		for _, x := range w.Values[i].Float32s() {
			sum += float64(x)
			squares += float64(x) * float64(x)
		}
		n := float64(p.len())
		mean := 0.0
		if strings.Contains(p.Name, "ln_") && strings.HasSuffix(p.Name, "weight") {
			mean = 1
		}
		deviation := squares/n - sum/n*sum/n
		if d := sum/n - mean; d*d > 25*want*want/n || deviation < 0.9*want*want || deviation > 1.1*want*want {
			t.Errorf("%s has mean %v and variance %v, want %v and %v", p.Name, sum/n, deviation, mean, want*want)
		}
	}
	again, err := Initial(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Initial(c, 2)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.Values[2].Float32s(), again.Values[2].Float32s()) || slices.Equal(w.Values[0].Float32s(), other.Values[0].Float32s()) {
		t.Error("the seed does not decide the weights")
	}
}
