package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// staged is a run at one stage: its settings and buckets.
type staged struct {
	j    *Job
	cfg  ddp.Config
	plan ddp.Plan
	wire ddp.Wire
}

// stage returns the plan of stage s.
func (j *Job) stage(s int) (Stage, error) {
	if err := j.Missing[s]; err != nil {
		return Stage{}, err
	}
	x := staged{j: j, cfg: j.at(s)}
	var err error
	if x.plan, err = ddp.PlanFor(j.Params, j.Order, x.cfg, j.Ranks, j.GPU); err != nil {
		return Stage{}, err
	}
	if x.wire, err = x.plan.Wire(x.cfg, j.Ranks, j.GPU); err != nil {
		return Stage{}, err
	}
	q := x.step()
	st := Stage{Stage: s, Buckets: x.buckets(), Step: q.all, Every: max(x.cfg.LocalSteps, 1), phases: q.phases}
	st.Precision = j.Machine[s].Precision
	st.Volume = Sum(st.Step)
	for r := range j.Ranks {
		st.Ranks = append(st.Ranks, x.memory(r))
	}
	return st, nil
}

func (x *staged) buckets() []Bucket {
	var all []Bucket
	elements, come := 0, 0
	for _, q := range x.plan.Params {
		elements += q.Len()
	}
	for _, b := range x.plan.Buckets {
		k := Bucket{DType: b.DType.String(), Elements: b.Elements, Bytes: b.Bytes()}
		for _, i := range b.Params {
			k.Params = append(k.Params, x.plan.Params[i].Name)
			come += x.plan.Params[i].Len()
		}
		k.Ready = float64(come) / float64(elements)
		all = append(all, k)
	}
	return all
}

// memory returns the bytes of a rank. See the package comment.
func (x *staged) memory(rank int) Memory {
	j, f, room := x.j, x.j.Machine[x.cfg.Stage], x.plan.Room(x.j.GPU)
	m := Memory{
		Params: room.Params, Gradients: room.Grads, Wire: x.wire.Bytes,
		Staging:     room.Staging + room.Scalars + max(f.Gradients, x.spares()),
		Activations: f.Arena + f.Constants + f.Scratch, Inputs: j.Inputs, Outputs: f.Outputs,
	}
	if j.GPU {
		m.Inputs = f.Inputs
	}
	if room.Params == 0 { // parameters stay in the model's memory
		for _, q := range x.plan.Params {
			m.Params += bytesOf(q)
		}
	}
	if x.hasZeros() {
		m.Staging += x.zeros()
	}
	slots := int64(len(j.Rule.Slots()))
	for _, own := range x.plan.Owned(rank) {
		m.State += slots * int64(own.Len) * int64(x.plan.Params[own.Param].DType.Size())
	}
	return m
}

func bytesOf(q ddp.PlanParam) int64 { return int64(q.Len()) * int64(q.DType.Size()) }

// spares returns the bytes that a machine on the host allocates to accumulate gradients over the
// runs of a step. Buffers for all runs are in its footprint. Virtual ranks do not accumulate.
func (x *staged) spares() (bytes int64) {
	if x.j.GPU || x.cfg.Stage > 1 || x.cfg.VirtualRanks > 0 || x.j.Runs < 2 {
		return 0
	}
	for _, q := range x.plan.Params {
		bytes += bytesOf(q)
	}
	return bytes
}

// hasZeros reports whether ddp allocates zeros to expose for missing gradients. It does on the host
// for sharded gradients and for runs that do not communicate. In stage 3 no caller reads gradients.
func (x *staged) hasZeros() bool {
	return !x.j.GPU && (x.cfg.Stage == 2 || x.cfg.Stage < 2 && x.j.Runs > 1)
}

// zeros returns the bytes that are exposed for missing gradients: those of the largest parameter of
// each dtype.
func (x *staged) zeros() int64 {
	var longest [2]int64
	for _, q := range x.plan.Params {
		k := 0
		if q.DType == tensor.F64 {
			k = 1
		}
		longest[k] = max(longest[k], bytesOf(q))
	}
	return longest[0] + longest[1]
}

// phase is the condition that a collective of a step waits for: the gradients of a bucket, by its
// number, or a constant.
type phase int

const (
	early phase = -1 // nothing: it is queued before the backward pass and overlaps computation
	late  phase = -2 // the end of the backward pass
	first phase = -3 // nothing, and no computation starts before it is done
)

// queue is a list of collectives and the phase of each.
type queue struct {
	all    []Collective
	phases []phase
}

func (q *queue) add(p phase, all ...Collective) {
	for _, c := range all {
		q.all, q.phases = append(q.all, c), append(q.phases, p)
	}
}

// step returns the collectives of one step, in the order in which they are queued.
func (x *staged) step() queue {
	var q queue
	if x.cfg.LocalSteps > 0 {
		q.add(late, x.averaging()...)
		return q
	}
	shared := x.cfg.Stage == 1 || x.cfg.Stage == 2
	before := shared && x.cfg.OverlapGather && x.j.GPU
	if before {
		x.gatherFirst(&q)
	}
	runs := max(x.j.Runs, 1)
	for run := range runs {
		x.run(&q, run == runs-1)
	}
	q.add(late, x.norms()...)
	if x.j.GPU && x.cfg.ErrorFeedback && x.cfg.Stage > 0 { // a rank sees its part of each gradient only
		q.add(late, collective("finite gradients", dist.KindAllReduce, tensor.F64, 1, x.j.Ranks))
	}
	for i := range x.plan.Buckets {
		if shared && !before {
			q.add(late, x.gathering(i))
		}
	}
	return q
}

// gatherFirst queues the gatherings of the weights that the previous step updated. Their order is
// that of the forward pass, which is about that of the buckets in reverse.
func (x *staged) gatherFirst(q *queue) {
	for i := len(x.plan.Buckets) - 1; i >= 0; i-- {
		if len(x.plan.Buckets) == 1 {
			q.add(first, x.gathering(i))
		} else {
			q.add(early, x.gathering(i)) // overlaps the previous layer
		}
	}
}

// run queues the collectives of one run of the graph. Gradients of all runs except the last stay on
// their rank, unless it stores shards only.
func (x *staged) run(q *queue, last bool) {
	if x.cfg.Stage == sharded {
		x.walk(q, last)
		return
	}
	if last {
		q.add(early, x.weights()...)
	}
	for i := range x.plan.Buckets {
		switch {
		case last:
			q.add(phase(i), x.reduction(i)...)
		case x.cfg.Stage > 1:
			q.add(early, x.reduction(i)...)
		}
	}
}

// walk is run for stage 3. It follows the moments of the compiled graph, in which gradients become
// ready between the gatherings of weights.
func (x *staged) walk(q *queue, last bool) {
	missing := make([]int, len(x.plan.Buckets))
	for i, b := range x.plan.Buckets {
		missing[i] = len(b.Params)
	}
	next, gathered, weighed := 0, false, false
	reduce := func(all bool) {
		for ; next < len(missing) && (all || missing[next] == 0); next++ {
			if last {
				q.add(phase(next), x.reduction(next)...)
			} else {
				q.add(early, x.reduction(next)...)
			}
		}
	}
	for _, m := range x.j.Machine[sharded].Moments {
		switch {
		case m.Kind == dist.KindAllGather:
			when := early // overlaps the previous layer
			if !gathered {
				gathered, when = true, first
			}
			q.add(when, collective(m.Name, m.Kind, m.DType, m.Count, x.j.Ranks))
		case m.Name == "begin" && last, m.Kind == dist.KindAllReduce && m.Count == 1 && m.DType == tensor.F64:
			if !weighed && last { // else it is a norm, on a GPU
				q.add(early, x.weights()...)
			}
			weighed = true
		case m.Kind == dist.KindReduceScatter: // a bucket, on a GPU
			missing[min(next, len(missing)-1)] = 0
			reduce(false)
		case m.Name == "join":
			reduce(true)
		default:
			if i := x.starts(m.Name); i >= 0 {
				missing[x.plan.Params[i].Bucket]--
				reduce(false)
			}
		}
	}
}

// starts returns the parameter whose gradient is ready at a moment, or -1.
func (x *staged) starts(moment string) int {
	name, ok := strings.CutPrefix(moment, "start ")
	if !ok {
		return -1
	}
	return slices.IndexFunc(x.plan.Params, func(q ddp.PlanParam) bool { return q.Name == name })
}

// gathering returns the all-gather of the weights of bucket i.
func (x *staged) gathering(i int) Collective {
	b := x.plan.Buckets[i]
	return collective(fmt.Sprintf("weights %d", i), dist.KindAllGather, b.DType, b.Shard, x.j.Ranks)
}

// averaging returns the collectives of local SGD, which average the weights once in LocalSteps
// steps.
func (x *staged) averaging() []Collective {
	all := []Collective{collective(weightName, dist.KindAllReduce, tensor.F64, 1, x.j.Ranks)}
	for _, p := range x.plan.Params {
		all = append(all, collective(p.Name, dist.KindAllReduce, p.DType, p.Len(), x.j.Ranks))
	}
	return all
}

// weightName names the exchange of the ranks' sample counts in the flight recorder.
const weightName = "ddp weight"

// weights returns the exchange of the ranks' sample counts.
func (x *staged) weights() []Collective {
	switch a := x.cfg.Average; {
	case x.cfg.VirtualRanks > 0:
		return []Collective{collective(weightName, dist.KindAllGather, tensor.F64, x.cfg.VirtualRanks/x.j.Ranks, x.j.Ranks)}
	case a != ddp.Mean && a != ddp.PreDivide:
		return nil
	}
	return []Collective{collective(weightName, dist.KindAllReduce, tensor.F64, 1, x.j.Ranks)}
}

// reduction returns the collectives that sum bucket i over the ranks.
func (x *staged) reduction(i int) []Collective {
	b, n, name := x.plan.Buckets[i], x.j.Ranks, bucketName(i)
	scatters := x.cfg.Stage > 0
	switch {
	case x.cfg.VirtualRanks > 0:
		slice := (b.Elements + n - 1) / n
		all := []Collective{collective(name, dist.KindAllToAll, b.DType, x.cfg.VirtualRanks/n*slice, n)}
		if !scatters { // with sharding a rank needs only its own slice
			all = append(all, collective(name, dist.KindAllGather, b.DType, slice, n))
		}
		return all
	case x.wire.Messages != nil:
		var all []Collective
		for _, m := range x.wire.Messages[i] {
			if scatters {
				all = append(all, collective(name, dist.KindReduceScatter, m.DType, m.Elements/n, n))
			} else {
				all = append(all, collective(name, dist.KindAllReduce, m.DType, m.Elements, n))
			}
		}
		return all
	case scatters:
		return []Collective{collective(name, dist.KindReduceScatter, b.DType, b.Shard, n)}
	}
	return []Collective{collective(name, dist.KindAllReduce, b.DType, b.Elements, n)}
}

// norms returns the sums over ranks that a solver of shards needs. They are squared gradients for
// the norm, and for LAMB squared updates and weights, by block.
func (x *staged) norms() []Collective {
	r, n := x.j.Rule, x.j.Ranks
	if x.cfg.Stage == 0 || n == 1 {
		return nil
	}
	blocks := 0
	for _, q := range x.plan.Params {
		blocks += (q.Len() + optim.Block - 1) / optim.Block
	}
	sum := func(count int) Collective {
		return collective("sums of the solver", dist.KindAllReduce, tensor.F64, count, n)
	}
	adapts, measures := r.Name == optim.LAMB, r.Measures()
	switch {
	case adapts && measures:
		return []Collective{sum(2 * blocks), sum(blocks)}
	case adapts:
		return []Collective{sum(2 * blocks)}
	case measures:
		return []Collective{sum(blocks)}
	}
	return nil
}
