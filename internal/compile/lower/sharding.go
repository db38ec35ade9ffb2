package lower

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/compile/update"
	"github.com/symgrad/symgrad/ops"
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
	e      *exchanging
	rank   int
	trains bool                             // the program computes gradients
	values map[*gorgonia.Node]draft.Operand // of the nodes so far
	homes  []program.ID                     // buckets of weights, or own parts with Stage 3; None if unused
	shards []program.ID                     // with Stage 2: own parts of the sums of gradients
	used   []int                            // buckets of weights in the order of their first readers
	read   []int                            // by bucket, the number of steps when the last node that may read its weights was lowered
	summed []int                            // by bucket, the number of steps when its gradients were reduced
	views  map[*gorgonia.Node][]int
}

// newSharding returns the sharding of e; nil with Stage 0.
func newSharding(e *exchanging) *sharding {
	if e.plan.Stage == 0 {
		return nil
	}
	n := len(e.plan.Buckets)
	s := &sharding{e: e, rank: e.Layout.Group.Rank(), read: make([]int, n), summed: make([]int, n), views: map[*gorgonia.Node][]int{}}
	s.homes, s.shards = slices.Repeat([]program.ID{program.None}, n), slices.Repeat([]program.ID{program.None}, n)
	return s
}

// home returns the slot of a parameter in a bucket of weights; false if it has none. It also
// returns false in a program without gradients. That belongs to another machine than the one that
// trains, whose buckets are newer than the values of nodes.
func (s *sharding) home(n *gorgonia.Node) (draft.Operand, bool) {
	if s == nil || !s.trains {
		return draft.Operand{}, false
	}
	e := s.e
	i := slices.Index(e.params, n)
	if i < 0 {
		return draft.Operand{}, false
	}
	q := e.plan.Params[i]
	if id := &s.homes[q.Bucket]; *id == program.None {
		*id = e.outside(fmt.Sprintf("weights %d", q.Bucket), program.Param, e.Layout.Homes[q.Bucket], e.plan.Buckets[q.Bucket].Elements)
	}
	s.views[n] = []int{q.Bucket}
	o := draft.Operand{
		View:  program.View{Value: s.homes[q.Bucket], Offset: q.Offset, Strides: program.Contiguous(q.Shape)},
		Shape: slices.Clone(q.Shape), DType: q.DType,
	}
	e.out.Inputs = append(e.out.Inputs, Binding{Node: n, ID: o.View.Value, Shape: o.Shape, Param: -1, Slot: true, Offset: q.Offset})
	return o, true
}

// looked records that a node that may read weights has been lowered.
//
// All ranks must have the same order of collectives, whatever their batches. So the order depends
// on nodes, not on steps: whether an operand is a view of a parameter or a copy may depend on the
// batch.
func (s *sharding) looked(n *gorgonia.Node, kids gorgonia.Nodes) {
	if s == nil {
		return
	}
	switch n.Op().(type) {
	case *ops.Start: // its other inputs only order it
		kids = kids[:1]
	case *ops.Join, *ops.Wait:
		return
	}
	var of []int
	for _, k := range kids {
		of = append(of, s.views[k]...)
	}
	if len(of) == 0 {
		return
	}
	for _, b := range of {
		s.read[b] = len(s.e.Program.Steps)
		if !slices.Contains(s.used, b) {
			s.used = append(s.used, b)
		}
	}
	if !s.computes(n, kids) {
		slices.Sort(of)
		s.views[n] = slices.Compact(of)
	}
}

// computes reports whether the value of a node is certainly not a view of an input.
func (s *sharding) computes(n *gorgonia.Node, kids gorgonia.Nodes) bool {
	switch typeName(n.Op()) {
	case "gorgonia.linAlgBinOp", "gorgonia.tensordotOp", "gorgonia.elemUnaryOp", "gorgonia.im2colOp", "*gorgonia.byIndicesOp",
		"*gorgonia.byIndicesOpDiffOp", "*gorgonia.BatchNormOp", "*gorgonia.batchnormDiffOp", "*gorgonia.maxPoolOp":
		return true
	case "gorgonia.elemBinOp": // x times 1 is a view
		return !slices.ContainsFunc(kids, func(k *gorgonia.Node) bool { return s.values[k].IsNum })
	}
	return false
}

// place returns the memory for this rank's part of the sum of bucket i: in the bucket, or its
// shard.
func (s *sharding) place(i int) draft.Operand {
	e, p := s.e, &s.e.plan.Buckets[i]
	if e.staged() {
		return e.Whole(s.shards[i])
	}
	return draft.Operand{View: s.part(i, e.buckets[i]), Shape: []int{p.Shard}, DType: p.DType}
}

// scatter adds the reduce-scatter of bucket i, whose elements are in of. It returns this rank's
// part of the sum.
func (s *sharding) scatter(i int, of draft.Operand, red dist.RedOp, factor ...program.View) draft.Operand {
	e, p := s.e, &s.e.plan.Buckets[i]
	own := draft.Operand{View: s.part(i, of.View.Value), Shape: []int{p.Shard}, DType: of.DType}
	o := &program.Collective{Kind: dist.KindReduceScatter, Red: red, Group: e.group, Part: p.Shard}
	if e.staged() {
		o.Whole = p.Elements
		if to := s.place(i); to.DType == of.DType && !e.Manner.joins() {
			own = to
		}
	}
	if e.Layout.Replicas != nil && own.View.Value == of.View.Value {
		own = e.Fresh(of.DType, own.Shape) // an allreduce takes whole values
	}
	e.Add(program.Step{Op: o, In: append([]program.View{of.View}, factor...), Out: []program.View{own.View}})
	if r := e.Layout.Replicas; r != nil {
		e.sumOver(r, own)
	}
	return own
}

// settle moves this rank's part of the sum of bucket i, times a number, to its place, and returns
// that.
func (s *sharding) settle(i int, own draft.Operand, by float64) draft.Operand {
	e, to := s.e, s.place(i)
	if e.staged() && e.Manner.joins() {
		if by != 1 {
			product := e.Fresh(to.DType, to.Shape)
			e.moveTo(product, own, by)
			own = product
		}
		s.join(to, own)
	} else {
		e.moveTo(to, own, by)
	}
	s.summed[i] = len(e.Program.Steps)
	return to
}

// gathering returns the step that gathers a bucket of weights on all ranks.
func (s *sharding) gathering(i int) program.Step {
	e := s.e
	home := s.homes[i]
	return program.Step{
		Name: fmt.Sprintf("%sweights %d", e.Layout.Prefix, i),
		Op:   &program.Collective{Kind: dist.KindAllGather, Group: e.group, Part: e.plan.Buckets[i].Shard},
		In:   []program.View{s.part(i, home)}, Out: []program.View{e.Program.Whole(home)},
	}
}

// gatherFirst adds gatherings of the weights that the previous run updated, in the order of their
// first readers, with OverlapGather of ddp. Programs of later parts follow one that has gathered.
func (s *sharding) gatherFirst() {
	if s == nil || !s.e.Begun || !s.e.Layout.Late || s.e.Manner.joins() {
		return
	}
	e := s.e
	first := make([]program.Step, 0, len(s.used)+len(e.Program.Steps))
	for _, i := range s.used {
		step := s.gathering(i)
		step.Op.(*program.Collective).Early = true
		first = append(first, step)
	}
	for k := range e.copies {
		e.copies[k].step += len(first)
	}
	e.Program.Steps = append(first, e.Program.Steps...)
}

// spread moves the steps of an update, from number begin on, to the earliest valid places. It also
// adds the allgathers of weights. params are the parameters of the update, and outputs those of the
// graph. apart says that the update needs no sum over all gradients.
func (s *sharding) spread(u *update.Update, params, outputs gorgonia.Nodes, begin int, apart bool) {
	e := s.e
	main, head := slices.Clone(e.Program.Steps[:begin]), slices.Clone(e.Program.Steps[begin:u.First])
	for _, n := range outputs {
		for _, b := range s.views[n] {
			s.read[b] = begin
		}
	}
	type block struct {
		at    int
		steps []program.Step
	}
	blocks := make([]block, len(e.plan.Buckets))
	for i := range u.Params {
		if p := &u.Params[i]; p.At >= 0 {
			b := &blocks[e.plan.Params[slices.Index(e.params, params[i])].Bucket]
			b.steps = append(b.steps, e.Program.Steps[p.At])
		}
	}
	for i := range blocks {
		if !e.Gathers() && !e.Layout.Late {
			blocks[i].steps = append(blocks[i].steps, s.gathering(i))
		}
		if blocks[i].at = begin; apart {
			blocks[i].at = max(s.read[i], s.summed[i])
		}
	}
	slices.SortStableFunc(blocks, func(a, b block) int { return a.at - b.at })
	steps := make([]program.Step, 0, len(e.Program.Steps)+len(blocks))
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
	e.Program.Steps = steps
	for k := range e.copies {
		e.copies[k].step = to[e.copies[k].step]
	}
}

// piece returns the elements of an operand that this rank updates.
func (s *sharding) piece(o draft.Operand, p ddp.Piece) draft.Operand {
	flat := s.e.Reshape(o, []int{o.Len()})
	if p.Len == 0 {
		return draft.Cut(flat, 0, 0, 1, 0)
	}
	return draft.Cut(flat, 0, p.Offset, 1, p.Len)
}

// stage adds one value for all buckets that share memory, and values for this rank's parts of the
// sums. Since the buckets are one value, a step that fills a bucket follows the readers of the
// bucket before it.
func (s *sharding) stage() {
	e := s.e
	copy(e.buckets, e.shared("buckets", program.Gradient, e.Layout.Buckets))
	for i, b := range e.Layout.Shards {
		s.shards[i] = e.outside(fmt.Sprintf("gradients %d", i), program.Gradient, b, b.Len())
	}
}

// join adds part to to, this rank's sums of earlier parts. In the last run it multiplies these by
// the factor, which part already has.
func (s *sharding) join(to, part draft.Operand) {
	e := s.e
	m := e.NewCode(to.Shape)
	before := m.Load(to)
	if !e.Manner.Local() && e.Layout.Share.Part == 1 { // else the parts have it
		before = m.Do(program.Product, m.Load(e.Whole(e.factors[factorOf(to.DType)])), before)
	}
	e.Add(m.MapTo(m.Do(program.Add, before, m.Load(part)), to))
}

// own returns the input from which Stage 3 gathers a bucket of weights; false for other nodes.
func (s *sharding) own(n *gorgonia.Node) (draft.Operand, bool) {
	if s == nil || !s.e.Gathers() {
		return draft.Operand{}, false
	}
	i, ok := ddp.ShardOf(n)
	if !ok {
		return draft.Operand{}, false
	}
	s.views[n] = []int{i}
	return s.e.Whole(s.ownWeights(i)), true
}

// ownWeights returns this rank's part of bucket i of weights.
func (s *sharding) ownWeights(i int) program.ID {
	e := s.e
	id := &s.homes[i]
	if *id == program.None {
		*id = e.outside(fmt.Sprintf("shard %d", i), program.Param, e.Layout.Own[i], e.Layout.Own[i].Len())
	}
	return *id
}

// pieces returns the pieces of a parameter and its gradient that this rank updates.
func (s *sharding) pieces(n *gorgonia.Node, weight, grad draft.Operand, p ddp.Piece) (w, g draft.Operand) {
	e := s.e
	w, g = weight, grad
	if !e.Gathers() {
		w = s.piece(weight, p)
	}
	if !e.staged() {
		return w, s.piece(grad, p)
	}
	bucket, from := e.InShard(n, p)
	own := func(of program.ID) draft.Operand {
		o := e.Whole(of)
		if p.Len == 0 {
			return draft.Cut(o, 0, 0, 1, 0)
		}
		return draft.Cut(o, 0, from, 1, p.Len)
	}
	if e.Gathers() {
		w = own(s.ownWeights(bucket))
	}
	return w, own(s.shards[bucket])
}

// part returns the elements of a bucket, of gradients or of weights, that this rank owns.
func (s *sharding) part(bucket int, of program.ID) program.View {
	return program.View{Value: of, Offset: s.rank * s.e.plan.Buckets[bucket].Shard, Strides: []int{1}}
}
