package plan

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// Stages is the number of stages of sharding; they are numbered from 0.
const Stages = 4

// ErrJob is returned when a Job or one of its numbers is invalid.
var ErrJob = errors.New("no such run can be planned")

// Job describes a run to plan. Look makes one from a graph, Training from a running program.
type Job struct {
	Name  string // of the run
	Model string // in words: "mlp 784-512-512-10"
	Ranks int
	Rows  int  // samples of a rank in one run of the graph
	Runs  int  // runs of the graph in one step; 0 means 1. Gradients are exchanged in the last
	GPU   bool // each rank is on a GPU; else on the host

	DDP    ddp.Config   // its Stage is that of the run
	Rule   optim.Config // optimizer of the weights
	Params []ddp.PlanParam
	Order  []int // indices of Params in the order in which gradients are ready

	Inputs  int64                     // bytes of the graph's inputs if the program allocates them
	Machine [Stages]machine.Footprint // of the compiled graph, by stage
	Missing [Stages]error             // by stage, the reason why it has no footprint; nil if it has one
}

// Plan predicts memory and communication of a run for every stage of sharding. symgrad plan --json
// prints it.
type Plan struct {
	Name       string  `json:"name"`
	Model      string  `json:"model"`
	Ranks      int     `json:"ranks"`
	Device     string  `json:"device"` // of a rank: "cpu" or "cuda"
	Rows       int     `json:"rows"`   // samples of a rank in one run of the graph
	Runs       int     `json:"runs"`   // runs of the graph in one step
	Rule       string  `json:"rule"`
	Tensors    int     `json:"tensors"`    // parameters
	Parameters int64   `json:"parameters"` // elements of all of them
	Bytes      int64   `json:"bytes"`      // of all of them
	Stage      int     `json:"stage"`      // of the run
	Stages     []Stage `json:"stages"`     // by number
	Warning    string  `json:"warning,omitempty"`
	Link       *Link   `json:"link,omitempty"`
}

// Stage is the prediction for one stage of sharding.
type Stage struct {
	Stage   int          `json:"stage"`
	Ranks   []Memory     `json:"memory"` // by rank
	Buckets []Bucket     `json:"buckets"`
	Step    []Collective `json:"step"`  // collectives of one step, in the order in which they are queued
	Every   int          `json:"every"` // one step of so many has these collectives, the others none
	Volume  Volume       `json:"volume"`
	Time    *Exposure    `json:"time,omitempty"`

	Precision machine.Precision `json:"precision"`         // of the compiled graph
	Refused   string            `json:"refused,omitempty"` // why ddp rejects the stage; without Step there are no numbers
	phases    []phase           // by index of Step
}

// Bucket is a run of gradients that one collective reduces.
type Bucket struct {
	DType    string   `json:"dtype"`
	Elements int      `json:"elements"` // with padding
	Bytes    int64    `json:"bytes"`
	Params   []string `json:"params"`
	Ready    float64  `json:"ready"` // share of all gradient elements that are ready when the bucket is full
}

// New returns the plan of j. A stage that ddp rejects has the reason in Refused, unless it is the
// stage of the run.
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
			st.Refused = fmt.Sprintf("error feedback needs whole steps, and stage %d reduces each of the %d runs of a step", s, j.Runs)
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

// settings validates all of j except the model.
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

// at returns the exchange settings for another stage.
func (j *Job) at(stage int) ddp.Config {
	c := j.DDP
	if c.Stage != stage && stage == 0 {
		c.OverlapGather = false
	}
	c.Stage = stage
	return c
}

// Configured returns the stage of the run.
func (p *Plan) Configured() *Stage { return &p.Stages[p.Stage] }

// Most returns the memory of the rank that needs the most.
func (s *Stage) Most() Memory {
	most := s.Ranks[0]
	for _, m := range s.Ranks[1:] {
		if m.Total() > most.Total() {
			most = m
		}
	}
	return most
}

// sharded is the stage that shards the weights; its graph gathers them.
const sharded = 3
