package plan

import (
	"errors"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/machine"
)

// Subject is the input of Look.
type Subject struct {
	Job     Job                                  // Look sets Params, Order, Inputs and Machine
	Build   func() (machine.Model, error)        // a new model for one rank's batch; parameters need no values
	World   func(ranks int) (*dist.World, error) // one rank of a world on the host; its peers need not exist
	Machine machine.Config                       // settings of the compiler
}

// Look builds the model, attaches ddp and compiles the graph as a run would, and runs nothing. It
// does so for each stage with a program of its own. It needs memory for graph and program only: see
// ddp.Imagine.
//
// Errors: those of Build and World, of ddp.Imagine and machine.Foresee. If another stage than the
// run's is invalid or unsupported, Look succeeds, and New reports the reason in Stage.Refused.
func Look(s Subject) (Job, error) {
	j := s.Job
	if err := j.settings(); err != nil {
		return j, err
	}
	var missing [Stages]error
	for stage := range Stages {
		if stage == 1 { // the same program as stage 0: whole gradients and whole weights
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

// compile returns the footprint at a stage, and sets the fields of j that all stages share.
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
		cfg.Solver = nil // the solver updates shards outside the graph
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
