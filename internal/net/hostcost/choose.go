package hostcost

import (
	"math"
	"math/bits"
)

// Choice is the algorithm of an allreduce and its predicted time.
type Choice struct {
	Algorithm  Algorithm
	ChunkBytes int64 // of messages; 0 for whole ones
	Seconds    float64
}

// limits are the sizes from which the second and the third candidate are faster, as the base-2
// logarithm of bytes / (Latency x Bandwidth).
type limits struct{ second, third int8 }

// The algorithms that Choose considers, from short to long messages: for sums in rank order, and
// for sums in any order.
var (
	ordered  = [3]Algorithm{Exchange, Parts, Chain}
	anyOrder = [3]Algorithm{Doubling, Halving, Chain}
)

// Candidates returns the algorithms that Choose considers, from short to long messages.
func Candidates(inRankOrder bool) [3]Algorithm {
	if inRankOrder {
		return ordered
	}
	return anyOrder
}

// Axes of the table. Choose uses the nearest entry.
const (
	tableHosts = 12 // 2, 4, 8 ... 4096 hosts
	tableRanks = 5  // 1, 2, 4, 8, 16 ranks of a host
	tableLinks = 3  // Bandwidth / Memory of 1/8, 1, 8
)

// TableNet returns the network of an entry of the table, for the three axes, and false after the
// last.
func TableNet(link, host, rank int) (Net, bool) {
	n := Net{Hosts: 2 << host, Ranks: 1 << rank}.WithDefaults()
	n.Bandwidth = n.Memory * math.Exp2(float64(3*(link-1)))
	return n, link < tableLinks && host < tableHosts && rank < tableRanks
}

// nearest returns the place of x among the first count powers of two: 1, 2, 4, ...
func nearest(x float64, count int) int {
	return min(max(int(math.Round(math.Log2(x))), 0), count-1)
}

// Choose returns the algorithm for an allreduce of so many bytes. In rank order means that the sum
// must have the bits of one host; sums of integers need not.
func Choose(n Net, bytes int64, inRankOrder bool) Choice {
	n = n.WithDefaults()
	link := nearest(math.Cbrt(n.Bandwidth/n.Memory)*2, tableLinks)
	host := min(max(bits.Len(uint(n.Hosts*4/3))-2, 0), tableHosts-1)
	rank := nearest(float64(n.Ranks), tableRanks)
	c := n.choice(bytes, &orderedLimits[link][host][rank], ordered)
	if !inRankOrder {
		if other := n.choice(bytes, &anyOrderLimits[link][host][rank], anyOrder); other.Seconds < c.Seconds {
			c = other
		}
	}
	return c
}

// choice returns the candidate that l has for so many bytes.
func (n Net) choice(bytes int64, l *limits, candidates [3]Algorithm) Choice {
	a := candidates[0]
	switch size := math.Log2(float64(max(bytes, 1)) / (n.Latency * n.Bandwidth)); {
	case size >= float64(l.third):
		a = candidates[2]
	case size >= float64(l.second):
		a = candidates[1]
	}
	c := Choice{Algorithm: a, Seconds: n.Seconds(a, bytes)}
	if a == Chain {
		c.ChunkBytes = n.ChunkBytes(bytes)
	}
	return c
}
