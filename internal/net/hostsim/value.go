package hostsim

import (
	"fmt"
	"slices"
)

// term is a sum of contributions, which are numbers of ranks in the order of the sum.
type term struct {
	ranks []int
	left  bool // ((a + b) + c) + ...: every addition but the first adds one contribution
}

// value is the state of a part of the elements: terms that are not added yet.
type value []term

// inputs returns the value of the inputs of some ranks.
func inputs(ranks ...int) value {
	var v value
	for _, r := range ranks {
		v = append(v, term{ranks: []int{r}, left: true})
	}
	return v
}

// join returns the terms of both, in the order of their first ranks.
func (v value) join(w value) value {
	all := slices.Concat(v, w)
	slices.SortStableFunc(all, func(a, b term) int { return a.ranks[0] - b.ranks[0] })
	return all
}

// fold returns the sum of the terms, from left to right.
func (v value) fold() value {
	sum := v[0]
	for _, t := range v[1:] {
		sum = term{ranks: slices.Concat(sum.ranks, t.ranks), left: sum.left && len(t.ranks) == 1}
	}
	return value{sum}
}

// check reports an error unless v is the sum of n ranks, each exactly once. In rank order means
// that the sum is ((0 + 1) + 2) + ...
func (v value) check(n int, inRankOrder bool) error {
	if len(v) != 1 {
		return fmt.Errorf("%d terms are not added", len(v))
	}
	got := v[0].ranks
	if inRankOrder && !v[0].left {
		return fmt.Errorf("the sum %v adds partial sums", got)
	}
	if inRankOrder && !slices.IsSorted(got) {
		return fmt.Errorf("the sum %v is not in rank order", got)
	}
	sorted := slices.Sorted(slices.Values(got))
	for r, rank := range sorted {
		if r != rank {
			return fmt.Errorf("rank %d is missing or counts twice in %v", r, sorted)
		}
	}
	if len(sorted) != n {
		return fmt.Errorf("the sum has %d contributions of %d ranks", len(sorted), n)
	}
	return nil
}
