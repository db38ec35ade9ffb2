package train

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/plan"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/machine"
)

// expected returns the predicted cost of the run on this rank, by the formulas of symgrad plan.
func (t *trainer) expected() (*plan.Plan, error) {
	c, p := t.job.cfg, t.d.Plan()
	exchange, err := settings.Exchange(c)
	if err != nil {
		return nil, err
	}
	_, model := t.job.problem.Describe()
	j := plan.Job{
		Name: c.Run.Name, Model: model, Ranks: t.w.Size(), Rows: t.rows, GPU: t.job.site.GPU,
		Runs: t.cut(0, c.Data.GlobalBatch).n, DDP: exchange, Rule: t.rule, Params: p.Params, Order: p.GradientOrder(),
		Inputs: t.inputBytes(),
	}
	for i := range j.Machine {
		if t.vm.compiled != nil { // the tape machine's memory is unknown
			j.Machine[i] = t.vm.compiled.Footprint()
		}
	}
	return plan.New(j)
}

// sent returns the bytes that each rank sends in a step, by the formulas of symgrad plan.
func (t *trainer) sent() (int64, error) {
	p, err := t.expected()
	if err != nil {
		return 0, fmt.Errorf("bytes that a step sends: %w", err)
	}
	s := p.Configured()
	every := int64(max(s.Every, 1))
	return (s.Volume.Sent + every - 1) / every, nil
}

// taken returns the measured cost of the run. Unknown numbers are 0.
func (t *trainer) taken(p *plan.Plan) plan.Figures {
	f := plan.Figures{Memory: t.memory()}
	var records []dist.Record
	all := t.w.Recorder().Records()
	if len(all) > 0 && all[0].Seq <= t.began+1 { // the ring still has all steps
		records = slices.DeleteFunc(all, func(r dist.Record) bool { return r.Seq <= t.began || r.Seq > t.ended })
	}
	f.Volume, _ = p.Configured().Count(records, t.w.Size())
	if all := t.meter.Exposed(); all != nil && t.steps > t.first {
		exposed := *all / float64(t.steps-t.first)
		f.Exposed = &exposed
	}
	return f
}

// memory returns the bytes that this rank has allocated on its device.
func (t *trainer) memory() plan.Memory {
	own := t.d.Memory()
	m := plan.Memory{Params: own.Params, Gradients: own.Grads, State: own.State, Staging: own.Staging}
	if m.State == 0 && t.solver.Steps() > 0 { // the state is not ddp's: count the slots of each element that the rank updates
		for _, piece := range t.d.Pieces() {
			m.State += int64(len(t.rule.WithDefaults().Slots()) * piece.Len * t.d.Plan().Params[piece.Param].DType.Size())
		}
	}
	var f machine.Footprint
	if t.vm.compiled != nil {
		f = t.vm.compiled.Footprint()
	}
	m.Staging += f.Gradients
	m.Activations, m.Outputs = f.Arena+f.Constants+f.Scratch, f.Outputs
	if m.Inputs = f.Inputs; !t.job.site.GPU {
		m.Inputs = t.inputBytes()
	}
	return m
}

// inputBytes returns the bytes of the graph's inputs in host memory.
func (t *trainer) inputBytes() int64 {
	n := int64(0)
	for _, in := range t.model.Cost.Graph().AllNodes() {
		if in.IsVar() && in.Value() != nil && !t.model.Params.Contains(in) && !ddp.IsShard(in) {
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

// held prints the predicted and the measured cost.
func (t *trainer) held() error {
	p, err := t.expected()
	if err != nil {
		return err
	}
	return t.say("\n%s", plan.Compare(p.Figures(t.w.Rank()), t.taken(p)))
}
