package machinetest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// source makes the values of an input. Its zero value makes normal numbers.
type source struct {
	classes int  // one-hot rows of so many classes
	below   int  // integers from 0 to below-1
	mask    bool // mask of a dropout: ones until SetMasks

	all float64 // value of all elements if not 0
}

// values returns the values for a step and a shape. Row i of step s is sample s*rows+i, which is
// equal in a batch of any size.
func (s source) values(name string, sample int, shape gtensor.Shape, rows int) []float64 {
	v := make([]float64, 0, shape.TotalSize())
	if s.all != 0 {
		for range shape.TotalSize() {
			v = append(v, s.all)
		}
		return v
	}
	width := shape.TotalSize() / rows
	input := fnv.New64a() // by name, so that a mask does not change other inputs
	input.Write([]byte(name))
	for i := range rows {
		rng := rand.New(rand.NewPCG(uint64(sample+i)+1, input.Sum64()))
		switch {
		case s.classes > 0:
			for range width / s.classes {
				hot := rng.IntN(s.classes)
				for c := range s.classes {
					v = append(v, float64(b2i(c == hot)))
				}
			}
		default:
			for range width {
				switch {
				case s.mask:
					v = append(v, 1)
				case s.below > 0:
					v = append(v, float64(rng.IntN(s.below)))
				default:
					v = append(v, rng.NormFloat64())
				}
			}
		}
	}
	return v
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Feed sets the inputs to the samples of a step; each step has others. Every third step binds new
// tensors with gorgonia.Let, the others write in place, as programs do both.
//
// Errors: those of gorgonia.Let.
func (m *Model) Feed(step int) error {
	for i, n := range m.Inputs {
		v := m.sources[i].values(n.Name(), step*m.rows, n.Shape(), m.rows)
		if err := m.set(n, v, step%3 == 0); err != nil {
			return fmt.Errorf("model %s: input %s: %w", m.Name, n.Name(), err)
		}
	}
	return nil
}

// SetMasks sets the masks of a Masked model: 0 for a dropped element, 1/(1-p) for a kept one.
//
// Errors: those of gorgonia.Let; a wrong number of masks.
func (m *Model) SetMasks(masks [][]float64) error {
	if len(masks) != len(m.Drops) {
		return fmt.Errorf("model %s: %d masks for %d dropouts", m.Name, len(masks), len(m.Drops))
	}
	for i, d := range m.Drops {
		if err := m.set(d.Mask, masks[i], false); err != nil {
			return fmt.Errorf("model %s: mask %d: %w", m.Name, i, err)
		}
	}
	return nil
}

// set sets the values of an input, in place or with a new tensor.
func (m *Model) set(n *G.Node, v []float64, bind bool) error {
	if !bind {
		switch data := n.Value().Data().(type) {
		case []float64:
			copy(data, v)
		case []float32:
			for i, x := range v {
				data[i] = float32(x)
			}
		case []int:
			for i, x := range v {
				data[i] = int(x)
			}
		default:
			return fmt.Errorf("elements %T, want float32, float64 or int", data)
		}
		return nil
	}
	if n.Dtype() != gtensor.Int {
		return G.Let(n, dense(n.Dtype(), v, n.Shape().Clone()))
	}
	whole := make([]int, len(v))
	for i, x := range v {
		whole[i] = int(x)
	}
	return G.Let(n, gtensor.New(gtensor.WithShape(n.Shape().Clone()...), gtensor.WithBacking(whole)))
}
