package machine

import (
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// manner says how a run handles gradients. Each program has one. w is the weight of the run, and
// each product is rounded:
//
//	wholeBatch  slots = g              then exchange and update
//	firstPart   slots = w*g            no communication, no update
//	laterPart   slots = slots + w*g    no communication, no update
//	lastPart    slots = slots + w*g    then exchange and update
//
// With OverlapGather of ddp wholeBatch and firstPart begin with gathering weights. With Stage 2
// slots hold w*g, except in wholeBatch, and their sums over the ranks are accumulated. With
// ddp.Config.Idle a run of weight 0 adds 0 for any g.
type manner uint8

const (
	wholeBatch manner = iota
	firstPart
	laterPart
	lastPart
)

// mannerOf returns the manner of a run.
func mannerOf(r ddp.Run) manner {
	switch {
	case r.Local && r.Joins:
		return laterPart
	case r.Local:
		return firstPart
	case r.Joins:
		return lastPart
	}
	return wholeBatch
}

// local reports whether the run only accumulates.
func (k manner) local() bool { return k == firstPart || k == laterPart }

// joins reports whether slots already hold sums.
func (k manner) joins() bool { return k == laterPart || k == lastPart }

// reads reports whether a program reads number i of the Weights of a ddp.Layout. It computes number
// 1 itself.
func (k manner) reads(i int) bool {
	if i == 3 {
		return k != wholeBatch
	}
	return i != 1 && !k.local()
}

// String returns the name for errors and listings.
func (k manner) String() string {
	return [...]string{wholeBatch: "whole batch", firstPart: "first part", laterPart: "later part", lastPart: "last part"}[k]
}

// exchange has the facts of a program's exchange of gradients that its runs need.
type exchange struct {
	d      *ddp.DDP
	plan   ddp.Plan
	layout ddp.Layout
	manner manner
	params gorgonia.Nodes // of the plan
	begun  bool           // the program computes gradients
	sum    program.ID     // of the weights; None in a program without communication
}

// valueOf returns the memory on the GPU for a learnable.
func (e *exchange) valueOf(n *gorgonia.Node) (tensor.Buffer, bool) {
	if e == nil {
		return tensor.Buffer{}, false
	}
	i := slices.IndexFunc(e.layout.Values, func(v ddp.LearnableValue) bool { return v.Node == n })
	if i < 0 {
		return tensor.Buffer{}, false
	}
	return e.layout.Values[i].Memory, true
}

// staged reports whether buckets of gradients exist only while they fill and are summed: Stages 2
// and 3 of ddp.
func (e *exchange) staged() bool { return e != nil && e.plan.Stage >= 2 }

// gathers reports whether a rank has only its own part of each bucket of weights: Stage 3.
func (e *exchange) gathers() bool { return e != nil && e.plan.Stage == 3 }

// inShard returns the bucket of a parameter, and the offset of its piece in this rank's part.
func (e *exchange) inShard(n *gorgonia.Node, p ddp.Piece) (bucket, from int) {
	q := e.plan.Params[slices.Index(e.params, n)]
	return q.Bucket, q.Offset + p.Offset - e.layout.Group.Rank()*e.plan.Buckets[q.Bucket].Shard
}

// factorOf returns the index of a dtype among the factors of a ddp.Layout.
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
func (e *exchange) has(dt tensor.DType) bool {
	return slices.ContainsFunc(e.plan.Buckets, func(p ddp.PlanBucket) bool { return p.DType == dt })
}
