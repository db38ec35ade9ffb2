package train

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/tensor"
)

// whole updates the values of the model's parameters to the full weights after the last step.
//
// Collective: all ranks, between runs.
func (l *learner) whole() error {
	if err := l.d.Consolidate(); err != nil { // with shard.stage=3, and with shard.overlap_gather
		return err
	}
	if err := l.d.AverageWeights(); err != nil {
		return err
	}
	return l.vm.sync()
}

// weights returns the parameters' tensors.
func (l *learner) weights() ([]*gtensor.Dense, error) { return weightsOf(l.model.Params) }

// weightsOf returns the tensors of params.
func weightsOf(params gorgonia.Nodes) ([]*gtensor.Dense, error) {
	all := make([]*gtensor.Dense, len(params))
	for i, p := range params {
		d, ok := p.Value().(*gtensor.Dense)
		if !ok {
			return nil, fmt.Errorf("parameter %s: its value is a %T, not a dense tensor", p.Name(), p.Value())
		}
		all[i] = d
	}
	return all, nil
}

// copied returns copies of all weights.
//
// Collective: all ranks.
func (l *learner) copied() ([][]float32, error) {
	if err := l.whole(); err != nil {
		return nil, err
	}
	weights, err := l.weights()
	if err != nil {
		return nil, err
	}
	all := make([][]float32, len(weights))
	for i, w := range weights {
		all[i] = slices.Clone(w.Float32s())
	}
	return all, nil
}

// fill sets parameters to values.
func fill(params gorgonia.Nodes, values [][]float32) error {
	weights, err := weightsOf(params)
	if err != nil {
		return err
	}
	for i, w := range weights {
		copy(w.Float32s(), values[i])
	}
	return nil
}

// saved returns a function that restores the current weights and solver state on the device.
func (l *learner) saved() (restore func() error, err error) {
	before, err := l.copied()
	if err != nil {
		return nil, err
	}
	state := l.solver.State()
	return func() error {
		if err := fill(l.model.Params, before); err != nil {
			return err
		}
		l.vm.compiled.Load()
		return l.solver.SetState(state)
	}, nil
}

// swap exchanges the weights and their moving averages.
//
// Collective: all ranks.
func (l *learner) swap() error {
	if err := l.solver.SwapAverages(l.d.Model()); err != nil {
		return err
	}
	return l.whole()
}

// digest returns the SHA-256 of the parameters in the order of the layers, as little-endian bytes.
func (l *learner) digest() ([]byte, error) {
	params, err := l.weights()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	for i, p := range params {
		b, err := tensor.BufferOf(p)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", l.model.Params[i].Name(), err)
		}
		elements, err := tensor.Data[float32](b)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", l.model.Params[i].Name(), err)
		}
		bytes := make([]byte, 0, 4*len(elements))
		for _, e := range elements {
			bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(e))
		}
		h.Write(bytes)
	}
	return h.Sum(nil), nil
}
