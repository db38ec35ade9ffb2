package program

import (
	"math"
	"slices"
)

// slack has the factors of the least possible memory for which blocks are planned. The estimate
// does not count the results that are in memory for a short time, so a larger one may be better.
var slack = [...]float64{1, 1.1, 1.25, 1.5, 2}

// blocks considers divisions of the forward pass into blocks. Values that pass from block to block
// are kept, and all others are computed again, block by block. The last block is kept, too, as the
// backward pass begins with it. It returns the ends of blocks with the smallest arena.
func (c *chooser) blocks() ([]int, error) {
	d := c.a.divide()
	if len(c.fetched) > 0 { // fetches are where these blocks need them
		cuts := d.cutsBefore(c.fetched)
		_, err := c.consider(c.a.between(cuts, len(cuts)))
		return cuts, err
	}
	low, high := 0.0, float64(d.total)
	const halvings = 40
	for range halvings {
		if mid := (low + high) / 2; d.cuts(mid) != nil {
			high = mid
		} else {
			low = mid
		}
	}
	var best, before []int
	least := int64(math.MaxInt64)
	for _, k := range slack {
		cuts := d.cuts(high * k)
		if len(cuts) == 0 || slices.Equal(cuts, before) {
			continue
		}
		before = cuts
		bytes, err := c.consider(c.a.between(cuts, len(cuts)))
		if err != nil {
			return nil, err
		}
		if bytes < least {
			best, least = cuts, bytes
		}
	}
	return best, nil
}

// between returns the values to drop for blocks that end at cuts: those of the first n blocks that
// do not pass a cut.
func (a *activations) between(cuts []int, n int) []bool {
	drop := make([]bool, len(a.p.Values))
	from := 0
	for _, to := range cuts[:n] {
		for i := from; i < to; i++ {
			for _, id := range a.made[i] {
				drop[id] = a.again[i] && a.last[id] < to
			}
		}
		from = to
	}
	return drop
}

// division has the points where the forward pass can be cut.
type division struct {
	a     *activations
	at    []int   // steps before which to cut; the first is 0, the last is turn
	pass  []int64 // by step: bytes that pass from earlier steps to it or later ones of the forward pass
	total int64   // bytes of all activations
}

// divide finds the points where fewer bytes pass than next to them.
func (a *activations) divide() *division {
	d := &division{a: a, at: []int{0}}
	change := make([]int64, a.turn+1)
	for i := range a.made {
		for _, id := range a.made[i] {
			bytes := a.p.Values[id].Bytes()
			change[i+1] += bytes
			change[min(a.last[id]+1, a.turn)] -= bytes
			if a.saved[id] {
				d.total += bytes
			}
		}
	}
	d.pass = make([]int64, a.turn+1)
	for i := 1; i <= a.turn; i++ {
		d.pass[i] = d.pass[i-1] + change[i]
	}
	for i := 1; i < a.turn; i++ {
		if d.pass[i] <= d.pass[i-1] && d.pass[i] <= d.pass[i+1] || i == 1 {
			d.at = append(d.at, i)
		}
	}
	d.at = append(d.at, a.turn)
	return d
}

// bytes returns the bytes of step i that are kept for a block that ends before step to, and those
// that are in memory only while that block is computed again.
func (a *activations) bytes(i, to int) (kept, again float64) {
	for _, id := range a.made[i] {
		n := float64(a.p.Values[id].Bytes())
		switch {
		case a.last[id] >= to && to < a.turn, a.saved[id] && !a.again[i]:
			kept += n
		case a.saved[id]:
			again += n
		}
	}
	return kept, again
}

// cuts returns the ends of blocks, except of the last one, for which activations never take more
// than limit bytes, with the fewest bytes kept. It returns nil if there are none. While a block is
// computed again, the kept bytes of the blocks before it are in memory, and all bytes of its own.
func (d *division) cuts(limit float64) []int {
	least, from := make([]float64, len(d.at)), make([]int, len(d.at))
	for k := 1; k < len(d.at); k++ {
		least[k] = math.Inf(1)
		kept, again := 0.0, 0.0
		for j := k - 1; j >= 0; j-- {
			for i := d.at[j]; i < d.at[j+1]; i++ {
				x, y := d.a.bytes(i, d.at[k])
				kept, again = kept+x, again+y
			}
			if again > limit {
				break
			}
			if all := least[j] + kept; all+again <= limit && all < least[k] {
				least[k], from[k] = all, j
			}
		}
	}
	last := len(d.at) - 1
	if math.IsInf(least[last], 1) {
		return nil
	}
	cuts := []int{}
	for k := from[last]; k > 0; k = from[k] {
		cuts = append(cuts, d.at[k])
	}
	slices.Sort(cuts)
	return cuts
}
