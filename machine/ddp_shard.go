package machine

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
)

// sharding is an exchange with Stage 1 of ddp. Weights are in buckets, as gradients are. A rank
// owns one part of each bucket, which it alone updates. For each bucket, once its last gradient is
// ready and its weights have their last read:
//
//	own part of the bucket  = reduce-scatter of factor*bucket, in place
//	own part of the bucket  = allreduce of it over the replicas, if there are any
//	own part of the weights = update of its pieces of parameters; states are as long as these
//	weights                 = allgather of the own parts, in place
//
// With Stage 2 the buckets of gradients share memory (see stage), and the own part of the sum has
// separate memory. With Stage 3 the rank stores only its own parts of the weights: the graph
// gathers them, and the update needs no allgather.
//
// Norms are sums over the pieces and then over the ranks. Updates that need one run when all
// gradients are ready.
type sharding struct {
	rank   int
	params gorgonia.Nodes // of the ddp.Plan
	homes  []program.ID   // buckets of weights, or own parts with Stage 3; None if unused
	shards []program.ID   // with Stage 2: own parts of the sums of gradients
	used   []int          // buckets of weights in the order of their first readers
	read   []int          // by bucket, the number of steps when the last node that may read its weights was lowered
	summed []int          // by bucket, the number of steps when its gradients were reduced
	views  map[*gorgonia.Node][]int
}

// newSharding returns the sharding of e; nil with Stage 0.
func newSharding(e *exchange) *sharding {
	if e.plan.Stage == 0 {
		return nil
	}
	n := len(e.plan.Buckets)
	s := &sharding{rank: e.layout.Group.Rank(), read: make([]int, n), summed: make([]int, n), views: map[*gorgonia.Node][]int{}}
	for _, p := range e.d.Model() {
		node, _ := p.(*gorgonia.Node) // all parameters of a DDP are nodes
		s.params = append(s.params, node)
	}
	s.homes, s.shards = slices.Repeat([]program.ID{program.None}, n), slices.Repeat([]program.ID{program.None}, n)
	return s
}

// home returns the slot of a parameter in a bucket of weights; false if it has none. It also
// returns false in a program without gradients. That belongs to another machine than the one that
// trains, whose buckets are newer than the values of nodes.
func (l *lowering) home(n *gorgonia.Node) (operand, bool) {
	if l.exchange == nil || l.exchange.shard == nil || len(l.g.params) == 0 {
		return operand{}, false
	}
	e := l.exchange
	i := slices.Index(e.shard.params, n)
	if i < 0 {
		return operand{}, false
	}
	q := e.plan.Params[i]
	if id := &e.shard.homes[q.Bucket]; *id == program.None {
		*id = l.outside(fmt.Sprintf("weights %d", q.Bucket), program.Param, e.layout.Homes[q.Bucket], e.plan.Buckets[q.Bucket].Elements)
	}
	e.shard.views[n] = []int{q.Bucket}
	o := operand{
		view:  program.View{Value: e.shard.homes[q.Bucket], Offset: q.Offset, Strides: program.Contiguous(q.Shape)},
		shape: slices.Clone(q.Shape), dtype: q.DType,
	}
	l.inputs = append(l.inputs, binding{node: n, id: o.view.Value, shape: o.shape, param: -1, slot: true, offset: q.Offset})
	return o, true
}

// looked records that a node that may read weights has been lowered.
//
// All ranks must have the same order of collectives, whatever their batches. So the order depends
// on nodes, not on steps: whether an operand is a view of a parameter or a copy may depend on the
// batch.
func (l *lowering) looked(n *gorgonia.Node, kids gorgonia.Nodes) {
	if l.exchange == nil || l.exchange.shard == nil {
		return
	}
	switch n.Op().(type) {
	case *ops.Start: // its other inputs only order it
		kids = kids[:1]
	case *ops.Join, *ops.Wait:
		return
	}
	s := l.exchange.shard
	var of []int
	for _, k := range kids {
		of = append(of, s.views[k]...)
	}
	if len(of) == 0 {
		return
	}
	for _, b := range of {
		s.read[b] = len(l.p.Steps)
		if !slices.Contains(s.used, b) {
			s.used = append(s.used, b)
		}
	}
	if !l.computes(n, kids) {
		slices.Sort(of)
		s.views[n] = slices.Compact(of)
	}
}

// computes reports whether the value of a node is certainly not a view of an input.
func (l *lowering) computes(n *gorgonia.Node, kids gorgonia.Nodes) bool {
	switch typeName(n.Op()) {
	case "gorgonia.linAlgBinOp", "gorgonia.tensordotOp", "gorgonia.elemUnaryOp", "gorgonia.im2colOp", "*gorgonia.byIndicesOp",
		"*gorgonia.byIndicesOpDiffOp", "*gorgonia.BatchNormOp", "*gorgonia.batchnormDiffOp", "*gorgonia.maxPoolOp":
		return true
	case "gorgonia.elemBinOp": // x times 1 is a view
		return !slices.ContainsFunc(kids, func(k *gorgonia.Node) bool { return l.values[k].isNum })
	}
	return false
}

// part returns the elements of a bucket, of gradients or of weights, that this rank owns.
func (e *exchange) part(bucket int, of program.ID) program.View {
	return program.View{Value: of, Offset: e.shard.rank * e.plan.Buckets[bucket].Shard, Strides: []int{1}}
}

// scatter adds the reduce-scatter of bucket i, whose elements are in of. This rank's part goes to
// the bucket or to its shard.
func (l *lowering) scatter(i int, of operand, red dist.RedOp, factor ...program.View) {
	e, p := l.exchange, &l.exchange.plan.Buckets[i]
	own := operand{view: e.part(i, of.view.Value), shape: []int{p.Shard}, dtype: of.dtype}
	to := operand{view: e.part(i, e.buckets[i]), shape: own.shape, dtype: p.DType}
	o := &program.Collective{Kind: dist.KindReduceScatter, Red: red, Group: e.group, Part: p.Shard}
	if e.staged() {
		to, o.Whole = l.whole(e.shard.shards[i]), p.Elements
		if to.dtype == of.dtype && !e.manner.joins() {
			own = to
		}
	}
	if e.layout.Replicas != nil && own.view.Value == of.view.Value {
		own = l.fresh(of.dtype, own.shape) // an allreduce takes whole values
	}
	l.add(program.Step{Op: o, In: append([]program.View{of.view}, factor...), Out: []program.View{own.view}})
	if r := e.layout.Replicas; r != nil {
		l.sumOver(r, own)
	}
	switch {
	case own.view.Value == to.view.Value:
	case e.staged() && e.manner.joins():
		l.join(to, own)
	default:
		l.copyTo(to, own)
	}
	e.shard.summed[i] = len(l.p.Steps)
}

// sumOver adds the sum of an operand over the ranks of a group, in place.
func (l *lowering) sumOver(g *dist.Group, o operand) {
	l.add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum, Group: l.group(g)},
		In: []program.View{o.view}, Out: []program.View{o.view},
	})
}

// gathering returns the step that gathers a bucket of weights on all ranks.
func (l *lowering) gathering(i int) program.Step {
	e := l.exchange
	home := e.shard.homes[i]
	return program.Step{
		Name: fmt.Sprintf("%sweights %d", e.layout.Prefix, i),
		Op:   &program.Collective{Kind: dist.KindAllGather, Group: e.group, Part: e.plan.Buckets[i].Shard},
		In:   []program.View{e.part(i, home)}, Out: []program.View{l.p.Whole(home)},
	}
}

// current returns ErrStale if the weights are not those of the last update.
func (m *Machine) current() error {
	if d := m.g.owner; d != nil && d.Machine().Stale() {
		return fmt.Errorf("%w: call Consolidate of the DDP, on all ranks, first", ErrStale)
	}
	return nil
}

// gatherFirst adds gatherings of the weights that the previous run updated, in the order of their
// first readers, with OverlapGather of ddp. Programs of later parts follow one that has gathered.
func (l *lowering) gatherFirst() {
	e := l.exchange
	if e == nil || !e.begun || !e.layout.Late || e.manner.joins() {
		return
	}
	first := make([]program.Step, 0, len(e.shard.used)+len(l.p.Steps))
	for _, i := range e.shard.used {
		s := l.gathering(i)
		s.Op.(*program.Collective).Early = true
		first = append(first, s)
	}
	for k := range e.copies {
		e.copies[k].step += len(first)
	}
	l.p.Steps = append(first, l.p.Steps...)
}

// spread moves the steps of an update, from number begin on, to the earliest valid places. It also
// adds the allgathers of weights. apart says that the update needs no sum over all gradients.
func (l *lowering) spread(u *update, begin int, apart bool) {
	e := l.exchange
	main, head := slices.Clone(l.p.Steps[:begin]), slices.Clone(l.p.Steps[begin:u.first])
	for _, n := range l.g.outputs {
		for _, b := range e.shard.views[n] {
			e.shard.read[b] = begin
		}
	}
	type block struct {
		at    int
		steps []program.Step
	}
	blocks := make([]block, len(e.plan.Buckets))
	for i := range u.params {
		if p := &u.params[i]; p.at >= 0 {
			b := &blocks[e.plan.Params[slices.Index(e.shard.params, p.node)].Bucket]
			b.steps = append(b.steps, l.p.Steps[p.at])
		}
	}
	for i := range blocks {
		if !e.gathers() && !e.layout.Late {
			blocks[i].steps = append(blocks[i].steps, l.gathering(i))
		}
		if blocks[i].at = begin; apart {
			blocks[i].at = max(e.shard.read[i], e.shard.summed[i])
		}
	}
	slices.SortStableFunc(blocks, func(a, b block) int { return a.at - b.at })
	steps := make([]program.Step, 0, len(l.p.Steps)+len(blocks))
	if apart {
		steps = append(steps, head...)
	}
	to := make([]int, len(main))
	for i := 0; i <= len(main); i++ {
		if i == len(main) && !apart {
			steps = append(steps, head...)
		}
		for len(blocks) > 0 && blocks[0].at == i {
			steps = append(steps, blocks[0].steps...)
			blocks = blocks[1:]
		}
		if i < len(main) {
			to[i] = len(steps)
			steps = append(steps, main[i])
		}
	}
	l.p.Steps = steps
	for k := range e.copies {
		e.copies[k].step = to[e.copies[k].step]
	}
}

// needsSolver rejects a sharded graph without Config.Solver: its gradients exist only inside a run.
func needsSolver(g *graph, cfg *Config) error {
	if g.owner == nil || cfg.Solver != nil || len(g.params) == 0 {
		return nil
	}
	stage := g.owner.Plan().Stage
	if stage == 0 {
		return nil
	}
	return fmt.Errorf("%w: with Stage %d of ddp the update of a GPU's pieces is a part of the run: set Solver in the machine's config",
		ErrSolver, stage)
}

// pieces returns the part of each parameter of a graph that this rank updates: all elements, or a
// range, which may be empty.
func (g *graph) pieces(shapes map[*gorgonia.Node][]int) []ddp.Piece {
	all := make([]ddp.Piece, len(g.params))
	for i := range all {
		all[i].Len = max(sizeOf(shapes[g.params[i].node]), 1)
	}
	if g.owner == nil || g.owner.Plan().Stage == 0 {
		return all
	}
	model, own := g.owner.Model(), g.owner.Pieces()
	for i := range all {
		k := slices.IndexFunc(model, func(p gorgonia.ValueGrad) bool { return p == gorgonia.ValueGrad(g.params[i].node) })
		if k < 0 {
			continue
		}
		all[i] = ddp.Piece{Param: k}
		if j := slices.IndexFunc(own, func(p ddp.Piece) bool { return p.Param == k }); j >= 0 {
			all[i] = own[j]
		}
	}
	return all
}

// piece returns the elements of an operand that this rank updates.
func (l *lowering) piece(o operand, p ddp.Piece) operand {
	flat := l.reshape(o, []int{o.len()})
	if p.Len == 0 {
		return cut(flat, 0, 0, 1, 0)
	}
	return cut(flat, 0, p.Offset, 1, p.Len)
}

// covers returns an error if the elements of a parameter's state do not include a piece.
func covers(p optim.ParamState, n int, piece ddp.Piece) error {
	if p.Offset <= piece.Offset && piece.Offset+piece.Len <= p.Offset+n {
		return nil
	}
	return fmt.Errorf("it has elements %d to %d, and %d to %d are wanted: %w",
		p.Offset, p.Offset+n, piece.Offset, piece.Offset+piece.Len, optim.ErrMismatch)
}
