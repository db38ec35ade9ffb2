package train

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// vm runs a graph: a compiled machine, or Gorgonia's tape machine.
type vm struct {
	gorgonia.VM
	compiled *machine.Machine // nil for the tape machine
}

// newVM returns a machine that computes outputs. Compiled for them alone, it omits unused values,
// such as the gradient of the inputs, which is a matrix product.
//
// Owns: the caller closes it.
func (j *job) newVM(c machine.Config, outputs ...*gorgonia.Node) (*vm, error) {
	g := outputs[0].Graph()
	if j.cfg.Run.Machine == settings.Tape {
		prog, locations, err := gorgonia.CompileFunction(g, leaves(outputs), outputs)
		if err != nil {
			return nil, fmt.Errorf("compile: %w", err)
		}
		return &vm{VM: gorgonia.NewTapeMachine(g, gorgonia.WithPrecompiled(prog, locations))}, nil
	}
	m, err := machine.New(g, c, outputs...)
	if err != nil {
		return nil, err
	}
	return &vm{m, m}, nil
}

// machineConfig returns the configuration of a compiled graph.
func (j *job) machineConfig(name string) machine.Config {
	c := settings.Machine(j.cfg, j.site.GPU, name, j.threads)
	c.Tune = j.site.GPU && j.timing.tune
	return c
}

// scalar returns the single element of an output after the last run.
//
// Returns: when that run is done.
func (v *vm) scalar(n *gorgonia.Node) (float64, error) {
	if v.compiled != nil {
		return v.compiled.Scalar(n)
	}
	x, ok := n.Value().Data().(float32)
	if !ok {
		return 0, fmt.Errorf("node %s: %w: its value is a %T", n.Name(), errNoLoss, n.Value().Data())
	}
	return float64(x), nil
}

var errNoLoss = errors.New("the cost is not a float32")

// at sets the step and the first sample's index in the batch for the next run. Random numbers
// depend only on these, so they are the same for any number of ranks and after resuming. The tape
// machine has no random numbers.
func (v *vm) at(step, first int) {
	if v.compiled != nil {
		v.compiled.SetClock(uint64(step))
		v.compiled.SetFirstSample(uint64(first))
	}
}

// sync updates the values of outputs and parameters after the last run.
func (v *vm) sync() error {
	if v.compiled == nil {
		return nil
	}
	return v.compiled.Sync()
}

// load makes the next run use values that were changed in place.
func (v *vm) load() {
	if v.compiled != nil {
		v.compiled.Load()
	}
}

// leaves returns the inputs and parameters that nodes depend on, in the order in which they are
// found.
func leaves(nodes gorgonia.Nodes) gorgonia.Nodes {
	var found gorgonia.Nodes
	seen := map[int64]bool{}
	for left := append(gorgonia.Nodes(nil), nodes...); len(left) > 0; {
		n := left[len(left)-1]
		left = left[:len(left)-1]
		if seen[n.ID()] {
			continue
		}
		seen[n.ID()] = true
		if n.Op() == nil {
			found = append(found, n)
		}
		left = append(left, ops.Children(n)...)
	}
	return found
}
