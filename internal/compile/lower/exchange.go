package lower

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/tensor"
)

// Manner says how a run handles gradients. Each program has one. w is the weight of the run, and
// each product is rounded:
//
//	WholeBatch  slots = g              then exchange and update
//	FirstPart   slots = w*g            no communication, no update
//	LaterPart   slots = slots + w*g    no communication, no update
//	LastPart    slots = slots + w*g    then exchange and update
//	virtual     slots = g              copied to the place of the run; no communication, no update
//
// With OverlapGather of ddp WholeBatch and FirstPart begin with gathering weights. With Stage 2
// slots hold w*g, except in WholeBatch, and their sums over the ranks are accumulated. With
// ddp.Config.Idle a run of weight 0 adds 0 for any g.
type Manner uint16

// The manners.
const (
	WholeBatch Manner = iota
	FirstPart
	LaterPart
	LastPart
	firstVirtual // and those of the next runs of virtual ranks; the last run of a step is a WholeBatch
)

// MannerOf returns the manner of a run.
func MannerOf(r drive.Run) Manner {
	switch {
	case r.Virtual && r.Local:
		return firstVirtual + Manner(r.Part)
	case r.Local && r.Joins:
		return LaterPart
	case r.Local:
		return FirstPart
	case r.Joins:
		return LastPart
	}
	return WholeBatch
}

// Local reports whether the run only accumulates.
func (k Manner) Local() bool { return k == FirstPart || k == LaterPart || k.isVirtual() }

// isVirtual reports whether the run is one of a virtual rank, except the last of a step.
func (k Manner) isVirtual() bool { return k >= firstVirtual }

// part returns the number of a virtual rank's run.
func (k Manner) part() int { return int(k - firstVirtual) }

// plain reports whether slots get gradients without a factor.
func (k Manner) plain() bool { return k == WholeBatch || k.isVirtual() }

// joins reports whether slots already hold sums.
func (k Manner) joins() bool { return k == LaterPart || k == LastPart }

// Reads reports whether a program reads number i of the Weights of a drive.Layout. It computes
// number 1 itself.
func (k Manner) Reads(i int) bool {
	if i == 3 {
		return k != WholeBatch
	}
	return i != 1 && !k.Local()
}

// String returns the name for errors and listings.
func (k Manner) String() string {
	if k.isVirtual() {
		return fmt.Sprintf("virtual rank %d", k.part())
	}
	return [...]string{WholeBatch: "whole batch", FirstPart: "first part", LaterPart: "later part", LastPart: "last part"}[k]
}

// Exchange has the facts of a program's exchange of gradients that its runs need.
type Exchange struct {
	DDP    *ddp.DDP
	plan   ddp.Plan
	Layout drive.Layout
	Manner Manner
	params gorgonia.Nodes // of the plan
	Begun  bool           // the program computes gradients
	Sum    program.ID     // of the weights; None in a program without communication
}

// ValueOf returns the memory on the GPU for a learnable.
func (e *Exchange) ValueOf(n *gorgonia.Node) (tensor.Buffer, bool) {
	if e == nil {
		return tensor.Buffer{}, false
	}
	i := slices.IndexFunc(e.Layout.Values, func(v drive.Learnable) bool { return v.Node == n })
	if i < 0 {
		return tensor.Buffer{}, false
	}
	return e.Layout.Values[i].Memory, true
}

// staged reports whether buckets of gradients exist only while they fill and are summed: Stages 2
// and 3 of ddp.
func (e *Exchange) staged() bool { return e != nil && e.plan.Stage >= 2 }

// Gathers reports whether a rank has only its own part of each bucket of weights: Stage 3.
func (e *Exchange) Gathers() bool { return e != nil && e.plan.Stage == 3 }

// InShard returns the bucket of a parameter, and the offset of its piece in this rank's part.
func (e *Exchange) InShard(n *gorgonia.Node, p ddp.Piece) (bucket, from int) {
	q := e.plan.Params[slices.Index(e.params, n)]
	return q.Bucket, q.Offset + p.Offset - e.Layout.Group.Rank()*e.plan.Buckets[q.Bucket].Shard
}

// factorOf returns the index of a dtype among the factors of a drive.Layout.
func factorOf(dt tensor.DType) int {
	if dt == tensor.F64 {
		return 1
	}
	return 0
}

// slotCopy is a step that copies a gradient to its slot.
type slotCopy struct {
	step, offset int
	bucket       program.ID
}

// has reports whether a bucket has a dtype.
func (e *Exchange) has(dt tensor.DType) bool {
	return slices.ContainsFunc(e.plan.Buckets, func(p ddp.PlanBucket) bool { return p.DType == dt })
}
