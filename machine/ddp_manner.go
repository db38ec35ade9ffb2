package machine

import (
	"github.com/symgrad/symgrad/internal/drive"
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
func mannerOf(r drive.Run) manner {
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

// reads reports whether a program reads number i of the Weights of a drive.Layout. It computes
// number 1 itself.
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

// scaleGradients adds the factors of gradients, in their dtypes.
func (l *lowering) scaleGradients() {
	e := l.exchange
	e.share = l.outside("weight of the gradients", program.State, e.layout.Weights[3])
	l.label = "weight of the gradients"
	for k, b := range e.layout.Factors {
		if !e.has(b.DType()) {
			continue
		}
		e.scales[k] = l.fresh(b.DType(), nil)
		l.copyTo(e.scales[k], l.whole(e.share))
	}
}

// accumulate writes a weighted gradient to its slot, or adds it.
func (l *lowering) accumulate(slot, g operand) error {
	e := l.exchange
	c := l.newCode(slot.shape)
	r := c.do(program.Mul, c.load(e.scales[factorOf(slot.dtype)]), c.load(g))
	rest := -1
	if e.manner.joins() && !e.staged() { // with staged, the sums are accumulated
		rest = c.load(slot)
		r = c.do(program.Add, rest, r)
	}
	if e.idle {
		if rest < 0 {
			rest = c.constant(0)
		}
		r = c.do(program.Select, c.load(e.counts), r, rest)
	}
	if c.err == nil {
		l.add(c.mapTo(r, slot))
	}
	return c.err
}

// factorOf returns the index of a dtype among the factors of a drive.Layout.
func factorOf(dt tensor.DType) int {
	if dt == tensor.F64 {
		return 1
	}
	return 0
}
