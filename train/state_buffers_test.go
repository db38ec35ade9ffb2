package train_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/train"
)

// withState runs body with the state of a script on each rank.
func withState(world *dist.World, body func(train.State) error) (err error) {
	_, _, w, b, cost := graph(4)
	d, err := ddp.Attach(world, cost, G.Nodes{w, b}, ddp.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	solver, err := d.NewSolver(optim.Config{Name: optim.SGD, LearningRate: 0.1})
	if err != nil {
		return err
	}
	return body(train.State{World: world, DDP: d, Solver: solver})
}

func buffer(name string, elements ...float32) train.Buffer {
	return train.Buffer{Name: name, Value: gtensor.New(gtensor.WithShape(len(elements)), gtensor.WithBacking(elements))}
}

// Ranks save the buffers of rank 0, and all get them back.
func TestScriptSavesItsBuffers(t *testing.T) {
	dir := t.TempDir()
	err := backend.Simulate(2, backend.Config{}, func(world *dist.World) error {
		return withState(world, func(s train.State) error {
			own := float32(world.Rank())
			s.Buffers = []train.Buffer{buffer("mean", 3+own, 4), buffer("variance", 5, 6+own)}
			if err := train.Save(dir, 2, s); err != nil {
				return err
			}
			if v := s.Buffers[0].Value.Float32s(); v[0] != 3+own {
				return fmt.Errorf("saving changed the mean to %v", v)
			}
			s.Buffers = []train.Buffer{buffer("mean", 0, 0), buffer("variance", 0, 0)}
			step, err := train.Resume(dir, s)
			mean, variance := s.Buffers[0].Value.Float32s(), s.Buffers[1].Value.Float32s()
			if step != 2 || !slices.Equal(mean, []float32{3, 4}) || !slices.Equal(variance, []float32{5, 6}) {
				err = errors.Join(err, fmt.Errorf("step %d, mean %v, variance %v", step, mean, variance))
			}
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
}

func TestBuffersOfAScriptThatDoNotFitAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		buffers []train.Buffer
		want    string
	}{
		{[]train.Buffer{buffer("w", 1)}, `State.Buffers: buffer 0 is named "w"`},
		{[]train.Buffer{{Name: "mean"}}, "buffer mean: want a tensor of float32"},
		{[]train.Buffer{buffer("mean", 1)}, ""},
		{[]train.Buffer{buffer("mean", 1, 2)}, "buffer mean has shape [1], in the model (2)"},
		{[]train.Buffer{buffer("median", 1)}, "has no buffer median"},
	} {
		err := backend.Simulate(1, backend.Config{}, func(world *dist.World) error {
			return withState(world, func(s train.State) error {
				s.Buffers = c.buffers
				if _, err := train.Resume(dir, s); err != nil {
					return err
				}
				return train.Save(dir, 1, s)
			})
		})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v; want %q", err, c.want)
		}
	}
}
