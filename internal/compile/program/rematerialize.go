package program

import (
	"cmp"
	"slices"
)

// A fetch is a Collective with Fetch that gathers sharded parameters into a value of which it is
// the maker. No step writes its input before all uses are done. So it can be repeated at any time,
// and its result need not be kept.

// Limits of how long fetched values are kept. They count fetches, not steps or bytes: ranks with
// batches of different length have different programs, but must fetch in the same order.
const (
	// keepOver is the most other fetched values that may be used between two uses of a kept value.
	keepOver = 1
	// liveFetches is the number of fetched values that exist at the same time, including the one in
	// flight, if the order of uses allows it.
	liveFetches = 2
)

// Rematerialize shortens the lives of fetched values. A value whose uses are far apart is fetched
// again before the later ones. Each fetch starts one ahead, when all fetched values except one have
// been used. A training step, which uses parameters forward and backward, then holds two layers'
// parameters at a time:
//
//	fetch 0, fetch 1, use 0, fetch 2, use 1, fetch 3, use 2, use 3, use 3,
//	fetch 1, use 2, fetch 0, use 1, use 0
//
// It works on raw programs, before passes that depend on sizes: the order of fetches among Calls
// and other collectives follows from the graph alone, so it is the same on all ranks.
//
// With RecomputeBlocks values are also fetched for the steps that are repeated: see refetchBlocks.
//
// Optimize includes it. Results keep their bits. Errors: ErrInvalid.
func Rematerialize(p *Program) error {
	_, err := rematerialize(p)
	return err
}

// rematerialize is Rematerialize. It returns the shards of the values that are the first to be used
// in each block of the forward pass except the first.
func rematerialize(p *Program) (blocks []ID, err error) {
	if err := check(p); err != nil {
		return nil, err
	}
	first := ID(len(p.Values))
	blocks = refetchBlocks(p)
	end := ID(len(p.Values))
	f := flowOf(p)
	var all []loan
	fetch := fetchesOf(f)
	for i := range p.Steps {
		if fetch[i] {
			all = append(all, f.loans(i, fetch)...)
		}
	}
	if len(all) > 0 {
		slices.SortStableFunc(all, func(a, b loan) int { return cmp.Compare(a.first(), b.first()) })
		lend(p, all, fetch, ahead(all))
		p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { // of refetchBlocks
			return len(s.Out) > 0 && s.Out[0].Value >= first && s.Out[0].Value < end
		})
	}
	return blocks, nil
}

// loan is a fetch and the steps that use its result, in order. There is at least one.
type loan struct {
	step int
	uses []int
}

func (l *loan) first() int { return l.uses[0] }
func (l *loan) last() int  { return l.uses[len(l.uses)-1] }

// fetchesOf reports which steps are fetches with uses. A fetch that another collective reads does
// not count, as the order of collectives does not wait for its uses.
func fetchesOf(f *flow) []bool {
	is := make([]bool, len(f.p.Steps))
	for i := range f.p.Steps {
		s := &f.p.Steps[i]
		c, ok := s.Op.(*Collective)
		if !ok || !c.Fetch || f.p.Values[s.In[0].Value].Place != Outside {
			continue
		}
		from, to := s.In[0].Value, s.Out[0].Value
		written := len(f.p.Steps)
		if w := f.writers[from]; len(w) > 0 {
			written = w[0]
		}
		is[i] = f.maker(to) == i && len(f.readers[to]) > 0 && !slices.ContainsFunc(f.readers[to], func(j int) bool {
			_, collective := f.p.Steps[j].Op.(*Collective)
			return collective || j >= written
		})
	}
	return is
}

// loans returns fetch i, divided where its uses are far apart.
func (f *flow) loans(i int, fetch []bool) []loan {
	var all []loan
	uses := f.readers[f.p.Steps[i].Out[0].Value]
	from := 0
	for k := range uses {
		if k+1 == len(uses) || f.usedBetween(uses[k], uses[k+1], fetch) > keepOver {
			all = append(all, loan{i, uses[from : k+1]})
			from = k + 1
		}
	}
	return all
}

// usedBetween returns the number of fetched values that steps between i and j, both excluded, use.
func (f *flow) usedBetween(i, j int, fetch []bool) int {
	n := 0
	for k := range fetch {
		if fetch[k] && between(f.readers[f.p.Steps[k].Out[0].Value], i, j) {
			n++
		}
	}
	return n
}

// ahead returns, for each loan, the step before which its fetch starts: when few enough earlier
// loans are in use, and no later than its first use. Loans are in the order of their fetches.
func ahead(all []loan) []int {
	at := make([]int, len(all))
	var ends []int // last uses of the loans so far, the latest first
	for k := range all {
		if k > 0 {
			at[k] = at[k-1]
		}
		if len(ends) >= liveFetches {
			at[k] = max(at[k], ends[liveFetches-1]+1)
		}
		at[k] = min(at[k], all[k].first())
		ends = append(ends, all[k].last())
		slices.SortFunc(ends, func(a, b int) int { return cmp.Compare(b, a) })
	}
	return at
}

// lend puts fetches at the steps of at. All loans of a fetch except its first get a value of their
// own.
func lend(p *Program, all []loan, fetch []bool, at []int) {
	lent := make([]Step, len(all))
	seen := make([]bool, len(p.Steps))
	for k, l := range all {
		lent[k] = p.Steps[l.step]
		if !seen[l.step] {
			seen[l.step] = true
			continue
		}
		lent[k] = refetch(p, &lent[k], l.uses)
	}
	steps := make([]Step, 0, len(p.Steps)+len(all))
	k := 0
	for i := range p.Steps {
		for ; k < len(all) && at[k] <= i; k++ {
			steps = append(steps, lent[k])
		}
		if !fetch[i] {
			steps = append(steps, p.Steps[i])
		}
	}
	p.Steps = steps
}

// refetch returns a copy of a fetch into a new value, which uses read instead of the first.
func refetch(p *Program, s *Step, uses []int) Step {
	old := s.Out[0].Value
	v := p.Values[old]
	v.Shape = slices.Clone(v.Shape)
	id := p.Add(v)
	for _, i := range uses {
		in := slices.Clone(p.Steps[i].In) // steps may share a slice of views
		for k := range in {
			if in[k].Value == old {
				in[k].Value = id
			}
		}
		p.Steps[i].In = in
	}
	next := *s
	next.Name += " again"
	next.Out = []View{p.Whole(id)}
	return next
}

// fetching is the input of schedule about fetches.
type fetching struct {
	f     *flow
	fetch []bool
	deps  [][]int
}

// holds returns, for each fetch, the index in compute before which it must not be placed, so that
// it is one ahead of its use; 0 for other steps. It never holds back a fetch beyond a step that
// needs it, or that needs a collective after it.
func (x *fetching) holds(compute, comm []int) []int {
	hold := make([]int, len(x.fetch))
	place := make([]int, len(x.fetch)) // of Compute steps
	for k, i := range compute {
		place[i] = k
	}
	var all []loan
	for _, i := range comm {
		if !x.fetch[i] {
			continue
		}
		l := loan{step: i}
		for _, j := range x.f.readers[x.f.p.Steps[i].Out[0].Value] {
			l.uses = append(l.uses, place[j])
		}
		slices.Sort(l.uses)
		all = append(all, l)
	}
	if len(all) == 0 {
		return hold
	}
	needed := make([]int, len(x.fetch)) // first index in compute that needs each collective
	for i := range needed {
		needed[i] = len(compute)
	}
	for k, i := range compute {
		for _, j := range x.deps[i] {
			needed[j] = min(needed[j], k)
		}
	}
	for k := len(comm) - 2; k >= 0; k-- {
		needed[comm[k]] = min(needed[comm[k]], needed[comm[k+1]])
	}
	for k, at := range ahead(all) {
		hold[all[k].step] = min(at, needed[all[k].step])
	}
	return hold
}
