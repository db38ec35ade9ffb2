package plan

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// Stages is how many stages of sharding there are, from 0.
const Stages = 4

// ErrJob is matched by the errors of a Job that cannot be planned.
var ErrJob = errors.New("no such run can be planned")

// Job describes a planned run. Look makes it from a graph; a running program makes its own.
type Job struct {
	Name  string // of the run
	Model string // in words: "mlp 784-512-512-10"
	Ranks int
	Rows  int  // samples of a rank in one run of the graph
	Runs  int  // of the graph in one step; 0 means 1. Gradients are exchanged in the last
	GPU   bool // each rank is on a GPU; else on the host

	DDP    ddp.Config   // its Stage is that of the run
	Rule   optim.Config // that updates the weights
	Params []ddp.PlanParam
	Order  []int // indices of Params in the order in which gradients come

	Inputs  int64                     // bytes of inputs of the graph, where the program has them
	Machine [Stages]machine.Footprint // of the compiled graph, by stage
	Missing [Stages]error             // why a stage has none; nil for those that have
}

// Plan is the prediction of a run, for every stage of sharding. symgrad plan --json prints it.
type Plan struct {
	Name       string  `json:"name"`
	Model      string  `json:"model"`
	Ranks      int     `json:"ranks"`
	Device     string  `json:"device"` // of a rank: "cpu" or "cuda"
	Rows       int     `json:"rows"`   // samples of a rank in one run of the graph
	Runs       int     `json:"runs"`   // of the graph in one step
	Rule       string  `json:"rule"`
	Tensors    int     `json:"tensors"`    // parameters
	Parameters int64   `json:"parameters"` // elements of all of them
	Bytes      int64   `json:"bytes"`      // of all of them
	Stage      int     `json:"stage"`      // of the run
	Stages     []Stage `json:"stages"`     // all of them, by number
	Warning    string  `json:"warning,omitempty"`
	Link       *Link   `json:"link,omitempty"`
}

// Stage is the prediction at one stage of sharding.
type Stage struct {
	Stage   int          `json:"stage"`
	Ranks   []Memory     `json:"memory"` // of each rank
	Buckets []Bucket     `json:"buckets"`
	Step    []Collective `json:"step"`  // of one step, in the order in which they are queued
	Every   int          `json:"every"` // steps of which one has these collectives, and the others none
	Volume  Volume       `json:"volume"`
	Time    *Exposure    `json:"time,omitempty"`
	Refused string       `json:"refused,omitempty"` // why ddp does not take such a stage with the run's settings; without Step there are no numbers either

	phases []phase // by index of Step
}

// Bucket is a run of gradients that one collective reduces.
type Bucket struct {
	DType    string   `json:"dtype"`
	Elements int      `json:"elements"` // with padding
	Bytes    int64    `json:"bytes"`
	Params   []string `json:"params"`
	Ready    float64  `json:"ready"` // share of all elements of gradients that have come when it is full
}

// New is the plan of j.
//
// Errors: ErrJob; those of ddp.PlanFor.
func New(j Job) (*Plan, error) {
	if err := j.validate(); err != nil {
		return nil, err
	}
	p := &Plan{
		Name: j.Name, Model: j.Model, Ranks: j.Ranks, Device: "cpu", Rows: j.Rows, Runs: max(j.Runs, 1),
		Rule: j.Rule.Name, Tensors: len(j.Params), Stage: j.DDP.Stage,
	}
	if j.GPU {
		p.Device = "cuda"
	} else if j.DDP.OverlapGather {
		p.Warning = "shard.overlap_gather has no effect on the host"
	}
	for _, q := range j.Params {
		p.Parameters += int64(q.Len())
		p.Bytes += int64(q.Len()) * int64(q.DType.Size())
	}
	for s := range Stages {
		st, err := j.stage(s)
		if err != nil && s == j.DDP.Stage {
			return nil, fmt.Errorf("stage %d: %w", s, err)
		}
		if err != nil {
			st = Stage{Stage: s, Refused: err.Error(), Ranks: make([]Memory, j.Ranks)}
		} else if err = ddp.Supports(j.at(s), j.Ranks, j.GPU); err != nil {
			st.Refused = err.Error()
		} else if j.DDP.ErrorFeedback && s > 1 && j.Runs > 1 {
			st.Refused = fmt.Sprintf("error feedback is of whole steps, and stage %d reduces each of the %d runs of a step by itself", s, j.Runs)
		}
		p.Stages = append(p.Stages, st)
	}
	return p, nil
}

func (j *Job) validate() error {
	switch {
	case len(j.Params) == 0:
		return fmt.Errorf("%w: the model has no parameters", ErrJob)
	case len(j.Order) != len(j.Params):
		return fmt.Errorf("%w: an order of %d gradients for %d parameters", ErrJob, len(j.Order), len(j.Params))
	}
	return j.settings()
}

// settings is an error for settings that make no sense, whatever the model is.
func (j *Job) settings() error {
	switch {
	case j.Ranks < 1:
		return fmt.Errorf("%w: %d ranks: want 1 or more", ErrJob, j.Ranks)
	case j.DDP.Stage < 0 || j.DDP.Stage >= Stages:
		return fmt.Errorf("%w: stage %d: want 0 to %d", ErrJob, j.DDP.Stage, Stages-1)
	}
	if err := ddp.Supports(j.DDP, j.Ranks, j.GPU); err != nil {
		return fmt.Errorf("%w: %w", ErrJob, err)
	}
	if err := j.Rule.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrJob, err)
	}
	return nil
}

// at is the settings of the exchange at another stage.
func (j *Job) at(stage int) ddp.Config {
	c := j.DDP
	if c.Stage != stage && stage == 0 {
		c.OverlapGather = false
	}
	c.Stage = stage
	return c
}

// Configured is the stage of the run.
func (p *Plan) Configured() *Stage { return &p.Stages[p.Stage] }

// Most is the memory of the rank that takes the most.
func (s *Stage) Most() Memory {
	most := s.Ranks[0]
	for _, m := range s.Ranks[1:] {
		if m.Total() > most.Total() {
			most = m
		}
	}
	return most
}

// sharded is the stage that shards the weights, and so has gatherings in its graph.
const sharded = 3
