package train

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/internal/tool/plan"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/train/internal/measure"
)

// costs is the cost of a run on this rank, predicted and measured.
type costs struct {
	*learner
	began, ended uint64 // numbers of the last operation before the first step, and of the last step
}

// expected returns the predicted cost of the run on this rank, by the formulas of symgrad plan.
func (c *costs) expected() (*plan.Plan, error) {
	cfg, p := c.job.cfg, c.d.Plan()
	exchange, err := settings.Exchange(cfg)
	if err != nil {
		return nil, err
	}
	_, model := c.job.problem.Describe()
	j := plan.Job{
		Name: cfg.Run.Name, Model: model, Ranks: c.w.Size(), Rows: c.rows, GPU: c.job.site.GPU,
		Runs: c.cut(0, cfg.Data.GlobalBatch).n, DDP: exchange, Rule: c.rule, Params: p.Params, Order: p.GradientOrder(),
		Inputs: c.inputBytes(),
	}
	for i := range j.Machine {
		if c.vm.compiled != nil { // the tape machine's memory is unknown
			j.Machine[i] = c.vm.compiled.Footprint()
		}
	}
	return plan.New(j)
}

// sent returns the bytes that each rank sends in a step, by the formulas of symgrad plan.
func (c *costs) sent() (int64, error) {
	p, err := c.expected()
	if err != nil {
		return 0, fmt.Errorf("bytes that a step sends: %w", err)
	}
	s := p.Configured()
	every := int64(max(s.Every, 1))
	return (s.Volume.Sent + every - 1) / every, nil
}

// taken returns the measured cost of the run, of so many steps. Unknown numbers are 0.
func (c *costs) taken(p *plan.Plan, m *measure.Meter, steps int) plan.Figures {
	f := plan.Figures{Memory: c.memory()}
	var records []dist.Record
	all := c.w.Recorder().Records()
	if len(all) > 0 && all[0].Seq <= c.began+1 { // the ring still has all steps
		records = slices.DeleteFunc(all, func(r dist.Record) bool { return r.Seq <= c.began || r.Seq > c.ended })
	}
	f.Volume, _ = p.Configured().Count(records, c.w.Size())
	if all := m.Exposed(); all != nil && steps > 0 {
		exposed := *all / float64(steps)
		f.Exposed = &exposed
	}
	return f
}

// memory returns the bytes that this rank has allocated on its device.
func (c *costs) memory() plan.Memory {
	own := c.d.Memory()
	m := plan.Memory{Params: own.Params, Gradients: own.Grads, State: own.State, Staging: own.Staging}
	if m.State == 0 && c.solver.Steps() > 0 { // the state is not ddp's: count the slots of each element that the rank updates
		for _, piece := range c.d.Pieces() {
			m.State += int64(len(c.rule.WithDefaults().Slots()) * piece.Len * c.d.Plan().Params[piece.Param].DType.Size())
		}
	}
	var f machine.Footprint
	if c.vm.compiled != nil {
		f = c.vm.compiled.Footprint()
	}
	m.Staging += f.Gradients
	m.Activations, m.Outputs = f.Arena+f.Constants+f.Scratch, f.Outputs
	if m.Inputs = f.Inputs; !c.job.site.GPU {
		m.Inputs = c.inputBytes()
	}
	return m
}

// inputBytes returns the bytes of the graph's inputs in host memory.
func (c *costs) inputBytes() int64 {
	n := int64(0)
	for _, in := range c.model.Cost.Graph().AllNodes() {
		if in.IsVar() && in.Value() != nil && !c.model.Params.Contains(in) && !ddp.IsShard(in) {
			n += int64(in.Value().MemSize())
		}
	}
	return n
}

// newest returns the number of this rank's last operation.
func newest(w *dist.World) uint64 {
	records := w.Recorder().Records()
	if len(records) == 0 {
		return 0
	}
	return records[len(records)-1].Seq
}
