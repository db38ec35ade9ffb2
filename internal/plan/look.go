package plan

import (
	"errors"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/machine"
)

// Subject has the inputs from which Look makes a Job.
type Subject struct {
	Job     Job                                  // without the fields that Look fills: Params, Order, Inputs, Machine
	Build   func() (machine.Model, error)        // fresh, for one rank's batch; its parameters need no values
	World   func(ranks int) (*dist.World, error) // one rank of a world on the host whose peers need not be there
	Machine machine.Config                       // how the graph is compiled
}

// Look builds the model, attaches ddp to it and compiles it, as a run would, and runs nothing. That
// is done for each stage that makes another program of the graph, in no more memory than graph and
// program take: see ddp.Imagine.
//
// Errors: those of Build and World, of ddp.Imagine and machine.Foresee. A stage that is not that of
// the run and is not to be had is none: New says so.
func Look(s Subject) (Job, error) {
	j := s.Job
	if err := j.settings(); err != nil {
		return j, err
	}
	var missing [Stages]error
	for stage := range Stages {
		if stage == 1 { // whole gradients and whole weights, as without sharding
			j.Machine[stage], missing[stage] = j.Machine[0], missing[0]
			continue
		}
		f, err := s.compile(&j, stage)
		if err != nil && j.DDP.Stage == stage || err != nil && !errors.Is(err, dist.ErrInvalid) && !errors.Is(err, dist.ErrUnsupported) {
			return j, err
		}
		j.Machine[stage], missing[stage] = f, err
	}
	if err := missing[j.DDP.Stage]; err != nil {
		return j, err
	}
	j.Missing = missing
	return j, nil
}

// compile returns the machine's footprint at a stage. It adds the parts that all stages share to j.
func (s *Subject) compile(j *Job, stage int) (f machine.Footprint, err error) {
	m, err := s.Build()
	if err != nil {
		return f, err
	}
	w, err := s.World(s.Job.Ranks)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	cfg := s.Machine
	if stage > 0 && !j.GPU {
		cfg.Solver = nil // the update is of shards, and no part of the graph
	}
	seen, err := m.Foresee(w, j.at(stage), cfg)
	if err != nil {
		return f, err
	}
	if j.Inputs = seen.Inputs; j.Params == nil {
		j.Params, j.Order = seen.Plan.Params, seen.Plan.GradientOrder()
	}
	return seen.Footprint, nil
}
