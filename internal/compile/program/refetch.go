package program

import (
	"math"
	"slices"
)

// refetchBlocks prepares a program with fetches for RecomputeBlocks. Fetched values are divided
// into blocks by their first uses, sqrt(n) blocks of n values. Before the backward pass of a block,
// its values are fetched once more, for the steps that recomputeActivations repeats there. The last
// block is not repeated.
//
// It adds steps that read one element of each such value into a new value. They stand for the
// repeated steps until Rematerialize has placed the fetches. So the order of
// fetches follows from the graph alone, like that of all others, even if ranks then repeat
// different steps, and a fetch may stay without a reader. It returns the shards of the first value
// of each block except the first.
func refetchBlocks(p *Program) (blocks []ID) {
	if p.Recompute != RecomputeBlocks && p.Recompute != RecomputeMost {
		return nil
	}
	f := flowOf(p)
	fetch := fetchesOf(f)
	var all []ID // fetched values, in the order of their first uses
	for i := range p.Steps {
		if fetch[i] {
			all = append(all, p.Steps[i].Out[0].Value)
		}
	}
	slices.SortStableFunc(all, func(a, b ID) int { return f.readers[a][0] - f.readers[b][0] })
	each := int(math.Ceil(math.Sqrt(float64(len(all)))))
	add := make([][]Step, len(p.Steps)) // by the step that they follow
	for at := each; at < len(all); at += each {
		next := all[at] // when its last use is done, the backward pass of the block before it begins
		blocks = append(blocks, p.Steps[f.maker(next)].In[0].Value)
		last := f.readers[next][len(f.readers[next])-1]
		for _, id := range all[at-each : at] {
			add[last] = append(add[last], readStep(p, id))
		}
	}
	var steps []Step
	for i := range p.Steps {
		steps = append(append(steps, p.Steps[i]), add[i]...)
	}
	p.Steps = steps
	return blocks
}

// readStep returns a step that reads an element of a value into a new one.
func readStep(p *Program, id ID) Step {
	to := p.Add(Value{Name: p.Values[id].Name, DType: p.Values[id].DType, Shape: []int{1}})
	return Step{
		Name: p.Values[id].Name, Op: &Map{Space: []int{1}, Code: []Instr{{Op: Load}}, Stores: []int{0}},
		In: []View{{Value: id, Strides: []int{0}}}, Out: []View{p.Whole(to)},
	}
}

// cutsBefore returns the ends of the blocks that begin with fetched values: for each block, given
// by the shard of its first value, the step before which the fewest bytes pass, between the last
// use of another fetched value and the first use of that one.
func (d *division) cutsBefore(blocks []ID) []int {
	a := d.a
	var cuts []int
	for _, home := range blocks {
		first := d.firstUse(home)
		if first <= 0 || first >= a.turn {
			continue
		}
		best := first
		for c := first; c > 0; c-- {
			if d.pass[c] < d.pass[best] {
				best = c
			}
			if slices.ContainsFunc(a.p.Steps[c-1].In, func(v View) bool { _, ok := a.fetchedFrom(v.Value); return ok }) {
				break
			}
		}
		cuts = append(cuts, best)
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// firstUse returns the first step that reads a value that was fetched from home, or -1.
func (d *division) firstUse(home ID) int {
	a := d.a
	return slices.IndexFunc(a.p.Steps, func(s Step) bool {
		return slices.ContainsFunc(s.In, func(v View) bool {
			from, ok := a.fetchedFrom(v.Value)
			return ok && from == home
		})
	})
}
