package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train"
)

// weights are the parameters and running statistics of a safetensors file, by torchvision's names.
type weights struct {
	path   string
	values map[string][]float32
	shapes map[string][]int
}

// batches is the end of the name of a count that torch.nn.BatchNorm2d stores, and does not use with
// a fixed momentum.
const batches = ".num_batches_tracked"

// readWeights reads a file of float32 tensors.
//
// Errors: those of checkpoint.OpenFile; a tensor of another dtype.
func readWeights(path string) (w *weights, err error) {
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w = &weights{path: path, values: map[string][]float32{}, shapes: map[string][]int{}}
	for _, e := range f.Header().Entries {
		if strings.HasSuffix(e.Name, batches) {
			continue
		}
		if e.Type == checkpoint.NoType || e.Type.DType() != tensor.F32 {
			return nil, fmt.Errorf("%s: tensor %s is not of float32: save the model with .float()", path, e.Name)
		}
		v := make([]float32, e.Len())
		if err := f.Read(e.Name, 0, tensor.Of(v)); err != nil {
			return nil, err
		}
		w.values[e.Name], w.shapes[e.Name] = v, e.Shape
	}
	return w, nil
}

// set copies the weights into a model.
//
// Errors: a tensor that the file or the model lacks, or of another shape.
func (w *weights) set(m *train.Model) error {
	used := 0
	copyTo := func(name string, value *gtensor.Dense) error {
		v, ok := w.values[name]
		if !ok {
			return fmt.Errorf("%s has no tensor %s: it is of another network", w.path, name)
		}
		if !slices.Equal(w.shapes[name], []int(value.Shape())) {
			return fmt.Errorf("%s: tensor %s has shape %v, in the model %v", w.path, name, w.shapes[name], value.Shape())
		}
		copy(value.Float32s(), v)
		used++
		return nil
	}
	for _, p := range m.Params {
		if err := copyTo(p.Name(), p.Value().(*gtensor.Dense)); err != nil {
			return err
		}
	}
	known := map[string]bool{}
	for _, p := range m.Params {
		known[p.Name()] = true
	}
	for _, b := range m.Buffers {
		if err := copyTo(b.Name, b.Value); err != nil {
			return err
		}
		known[b.Name] = true
	}
	if used == len(w.values) {
		return nil
	}
	var unknown []string
	for name := range w.values {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	return fmt.Errorf("%s has a tensor %s that the model lacks: it is of another network", w.path, slices.Min(unknown))
}
