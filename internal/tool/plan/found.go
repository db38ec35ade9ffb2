package plan

import (
	"errors"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// Training has the objects of a training program from which its Job and its measured memory follow.
type Training struct {
	DDP       *ddp.DDP
	Settings  ddp.Config // settings with which DDP was attached
	Rule      optim.Config
	Footprint machine.Footprint // of its machine
	Inputs    int64             // bytes of the graph's inputs if the program allocates them
	Ranks     int
	Rows      int // samples of a rank in one run of the graph
	Runs      int // of the graph in one step; 0 means 1
	GPU       bool
}

// errNotCompiled is the reason why a Job of a running program has one stage only.
var errNotCompiled = errors.New("the program runs at another stage")

// Job returns the Job of the run, which has a footprint for its own stage only.
func (t Training) Job(name, model string) Job {
	p := t.DDP.Plan()
	j := Job{
		Name: name, Model: model, Ranks: t.Ranks, Rows: t.Rows, Runs: t.Runs, GPU: t.GPU,
		DDP: t.Settings, Rule: t.Rule, Params: p.Params, Order: p.GradientOrder(), Inputs: t.Inputs,
	}
	for s := range Stages {
		if s == t.Settings.Stage {
			j.Machine[s] = t.Footprint
		} else {
			j.Missing[s] = errNotCompiled
		}
	}
	return j
}

// Found returns the memory that this rank has allocated, as its allocators count it. Staging
// includes ddp's wire buffers. state is the solver's state after a step.
func (t Training) Found(state optim.State) Memory {
	f, own := t.Footprint, t.DDP.Memory()
	m := Memory{
		Params: own.Params, Gradients: own.Grads, Staging: own.Staging + f.Gradients,
		Activations: f.Arena + f.Constants + f.Scratch, Outputs: f.Outputs, Inputs: t.Inputs,
	}
	if t.GPU {
		m.Inputs = f.Inputs
	}
	for _, p := range state.Params {
		for _, s := range p.Slots {
			m.State += 4*int64(len(s.F32)) + 8*int64(len(s.F64))
		}
	}
	return m
}
