package lower

import (
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/drive"
)

// virtualIDs are the values of virtual ranks in a program: see drive.Virtual.
type virtualIDs struct {
	own    program.ID
	shares [2]program.ID
}

// mostTerms is the most terms that one Map adds up.
const mostTerms = 8

// scalar returns element i of a vector.
func (e *exchanging) scalar(id program.ID, i int) draft.Operand {
	return draft.Operand{View: program.View{Value: id, Offset: i}, DType: e.Program.Values[id].DType}
}

// exchangeVirtualWeights keeps the weight of this run. In the last run of a step it adds the
// gathering of all virtual ranks' weights, their sum and their shares.
func (e *exchanging) exchangeVirtualWeights() {
	v := &e.Layout.Virtual
	e.virtual.own = e.outside("weights of this rank's runs", program.State, v.Own, v.Runs)
	e.Label = "weight of this run"
	if e.Manner.isVirtual() {
		e.share = e.outside("weight of the gradients", program.State, e.Layout.Weights[3])
		e.CopyTo(e.scalar(e.virtual.own, e.Manner.part()), e.Whole(e.share))
		return
	}
	e.own = e.outside("own weight", program.State, e.Layout.Weights[2])
	e.CopyTo(e.scalar(e.virtual.own, v.Runs-1), e.Whole(e.own))
	all := e.outside("weights of virtual ranks", program.State, v.All, v.All.Len())
	e.Label = e.Layout.Prefix + "weights of virtual ranks"
	e.Add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllGather, Group: e.group},
		In: []program.View{e.Program.Whole(e.virtual.own)}, Out: []program.View{e.Program.Whole(all)},
	})
	e.Label = "sum of weights"
	sum := e.outside("sum of weights", program.Output, e.Layout.Weights[1])
	weights := make([]draft.Operand, v.All.Len())
	for i := range weights {
		weights[i] = e.scalar(all, i)
	}
	e.addUp(e.Whole(sum), weights)
	if e.Layout.Share.Exchanged() {
		e.Sum = sum
	}
	e.Label = "shares of virtual ranks"
	for k, b := range v.Shares {
		if !e.has(b.DType()) {
			continue
		}
		e.virtual.shares[k] = e.outside("shares", program.State, b, b.Len())
		m := e.NewCode([]int{b.Len()})
		e.Add(m.MapTo(e.shareOf(m, e.Whole(all), sum), e.Whole(e.virtual.shares[k])))
	}
}

// addUp adds the sum of operands, one after the other.
func (e *exchanging) addUp(to draft.Operand, terms []draft.Operand) {
	for first := true; len(terms) > 0; first = false {
		n := min(mostTerms, len(terms))
		m := e.NewCode(to.Shape)
		r := -1
		if !first {
			r = m.Load(to)
		}
		for _, o := range terms[:n] {
			if x := m.Load(o); r < 0 {
				r = x
			} else {
				r = m.Do(program.Add, r, x)
			}
		}
		e.Add(m.MapTo(r, to))
		terms = terms[n:]
	}
}

// slice returns the elements of the bucket that a rank adds up.
func (x *bucketSteps) slice() int { return drive.Slice(x.all.Len(), x.Layout.Group.Size()) }

// runs returns the memory of this rank's runs, [rank][run][slice].
func (x *bucketSteps) runs() draft.Operand {
	v := &x.Layout.Virtual
	id := x.outside("gradients of virtual ranks", program.State, v.Send[x.i], x.Layout.Group.Size(), v.Runs, x.slice())
	return x.Whole(id)
}

// pack copies the bucket to the slices of a run, times its share if it is scaled.
func (x *bucketSteps) pack(to draft.Operand, run int, scaled bool) {
	slice := x.slice()
	to = draft.Cut(to, 1, run, 1, 1)
	copy := func(first, ranks, n int) { // n elements of each rank's slice
		if ranks == 0 || n == 0 {
			return
		}
		space := []int{ranks, 1, n}
		from := x.all
		from.Shape, from.View.Offset, from.View.Strides = space, x.all.View.Offset+first*slice, []int{slice, 0, 1}
		m := x.NewCode(space)
		r := m.Load(from)
		if scaled {
			r = m.Do(program.Product, m.Load(x.scalar(x.virtual.shares[factorOf(x.all.DType)], x.virtualRank(run))), r)
		}
		x.Add(m.MapTo(r, draft.Cut(draft.Cut(to, 0, first, 1, ranks), 2, 0, 1, n)))
	}
	whole := x.all.Len() / slice
	copy(0, whole, slice)
	copy(whole, 1, x.all.Len()-whole*slice)
}

// virtualRank returns the number of this rank's run among all virtual ranks.
func (x *bucketSteps) virtualRank(run int) int {
	return x.Layout.Group.Rank()*x.Layout.Virtual.Runs + run
}

// packAll puts the last run's gradients next to the others', and multiplies all by their shares.
func (x *bucketSteps) packAll() {
	sent, last := x.runs(), x.Layout.Virtual.Runs-1
	x.pack(sent, last, true)
	x.sent = sent
	if last == 0 {
		return
	}
	before := draft.Cut(sent, 1, 0, 1, last)
	shares := draft.Operand{
		View:  program.View{Value: x.virtual.shares[factorOf(x.all.DType)], Offset: x.virtualRank(0), Strides: []int{0, 1, 0}},
		Shape: slices.Clone(before.Shape), DType: x.all.DType,
	}
	m := x.NewCode(before.Shape)
	x.Add(m.MapTo(m.Do(program.Product, m.Load(shares), m.Load(before)), before))
}

// trade adds the exchange of slices.
func (x *bucketSteps) trade() {
	x.got = x.Fresh(x.all.DType, []int{x.sent.Len()})
	x.Add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllToAll, Group: x.group},
		In: []program.View{x.Program.Whole(x.sent.View.Value)}, Out: []program.View{x.got.View},
	})
}

// addUpSlices adds the sum of this rank's slices.
func (x *bucketSteps) addUpSlices() {
	slice := x.slice()
	var terms []draft.Operand
	for from := 0; from < x.got.Len(); from += slice {
		terms = append(terms, draft.Cut(x.got, 0, from, 1, slice))
	}
	to := draft.Operand{}
	if x.shard != nil { // a slice is a shard
		to = x.shard.place(x.i)
	} else {
		to = x.Fresh(x.all.DType, []int{slice})
	}
	x.addUp(to, terms)
	if x.shard != nil {
		x.shard.summed[x.i] = len(x.Program.Steps)
	}
	x.got = to
}

// gather adds the gathering of all ranks' sums in the bucket.
func (x *bucketSteps) gather() {
	n := x.Layout.Group.Size() * x.got.Len()
	to := x.all
	if n != to.Len() {
		to = x.Fresh(x.all.DType, []int{n})
	}
	x.Add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllGather, Group: x.group},
		In: []program.View{x.got.View}, Out: []program.View{to.View},
	})
	if n != x.all.Len() {
		x.CopyTo(x.all, draft.Cut(to, 0, 0, 1, x.all.Len()))
	}
}
