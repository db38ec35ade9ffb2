package hostcost

import (
	"fmt"
	"math"
	"math/bits"
)

// Algorithm is a way to do an allreduce between hosts.
type Algorithm uint8

// Algorithms. H is the number of hosts. In all but FlatRing, ranks of a host first bring their
// inputs together, one leader of each host exchanges messages, and ranks copy the result.
const (
	// Exchange sends the inputs of a host's ranks to all other hosts. Every rank adds the inputs of
	// all ranks. Rounds have SlotBytes of each rank.
	Exchange Algorithm = iota
	// Parts cuts the elements in H parts. Host h gets all inputs of part h, adds them, and sends
	// the sum to all.
	Parts
	// Chain sends partial sums from host to host, in chunks. Each host adds its inputs to them. The
	// result flows back along the chain.
	Chain
	// Doubling exchanges partial sums with hosts at distances 1, 2, 4, ...
	Doubling
	// Halving is a reduce-scatter by halves and an all-gather by doubling (Rabenseifner).
	Halving
	// Ring is a reduce-scatter and an all-gather on a ring of hosts.
	Ring
	// Tree is a reduction and a broadcast on a binomial tree of hosts.
	Tree
	// FlatRing is a ring of all ranks, host by host.
	FlatRing
	algorithms
)

var algorithmNames = [algorithms]string{"exchange", "parts", "chain", "doubling", "halving", "ring", "tree", "flat ring"}

// String returns the name of a.
func (a Algorithm) String() string {
	if a >= algorithms {
		return fmt.Sprintf("Algorithm(%d)", uint8(a))
	}
	return algorithmNames[a]
}

// MarshalText implements encoding.TextMarshaler.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Algorithm) UnmarshalText(text []byte) error {
	for i, name := range algorithmNames {
		if name == string(text) {
			*a = Algorithm(i)
			return nil
		}
	}
	return fmt.Errorf("unknown algorithm %q: use one of %v", text, algorithmNames)
}

// All returns all algorithms.
func All() []Algorithm {
	all := make([]Algorithm, algorithms)
	for i := range all {
		all[i] = Algorithm(i)
	}
	return all
}

// InRankOrder reports whether sums have the bits of one host: ((r0 + r1) + r2) + ...
func (a Algorithm) InRankOrder() bool { return a <= Chain }

// Seconds returns the time of an allreduce of so many bytes with algorithm a.
func (n Net) Seconds(a Algorithm, bytes int64) float64 {
	n = n.WithDefaults()
	b, h := float64(bytes), float64(n.Hosts)
	if n.Hosts < 2 {
		return 2 * n.within(b)
	}
	switch a {
	case Exchange:
		return n.exchange(bytes)
	case Parts:
		return n.Spread(n.Hosts-1, float64(n.Ranks)*b/h) + n.add(b) + n.Spread(n.Hosts-1, b/h) + n.within(b)
	case Chain:
		return n.chain(b, float64(n.ChunkBytes(bytes)))
	case Doubling:
		steps, odd := n.steps()
		t := steps * (n.Message(b) + n.add(b))
		return 2*n.within(b) + t + odd*(2*n.Message(b)+n.add(b))
	case Halving:
		steps, odd := n.steps()
		part := b * (1 - math.Exp2(-steps))
		t := 2*steps*n.Latency + 2*part/n.Bandwidth + n.add(part)
		return 2*n.within(b) + t + odd*(2*n.Message(b)+n.add(b))
	case Ring:
		return 2*n.within(b) + (h-1)*(2*n.Message(b/h)+n.add(b/h))
	case Tree:
		steps := float64(bits.Len(uint(n.Hosts - 1)))
		return 2*n.within(b) + steps*(2*n.Message(b)+n.add(b))
	case FlatRing:
		return n.flatRing(b)
	}
	return math.Inf(1)
}

// steps returns the steps of doubling among the largest power of two of hosts, and 1 if hosts are
// left, which give their inputs to others first and get the result last, or 0.
func (n Net) steps() (steps, odd float64) {
	k := bits.Len(uint(n.Hosts)) - 1
	if 1<<k != n.Hosts {
		odd = 1
	}
	return float64(k), odd
}

// HeaderBytes is sent by Exchange with the data of each rank: the call, which all compare.
const HeaderBytes = 64

// BoardBytes returns the shared memory of a host in which Exchange keeps the data of all ranks.
func BoardBytes(world int) int64 {
	return int64(world) * int64(64+2*(HeaderBytes+SlotBytes(world)))
}

func (n Net) exchange(bytes int64) float64 { return n.rounds(bytes, n.World()) }

// rounds returns the time of rounds of Exchange with so many bytes of each rank. Every rank adds or
// copies those of some ranks.
func (n Net) rounds(bytes int64, ranks int) float64 {
	slot := int64(SlotBytes(n.World()))
	round := func(b float64) float64 {
		return n.Spread(n.Hosts-1, float64(n.Ranks)*(b+HeaderBytes)) + n.add(b*float64(ranks))
	}
	t := float64(bytes/slot) * round(float64(slot))
	if rest := bytes % slot; rest > 0 {
		t += round(float64(rest))
	}
	return t
}

// chain returns the time of Chain in chunks of c bytes: the first chunk's way to the last host and
// back, and the delay of each other chunk. With few chunks, results come back after all partial
// sums have left, and a host handles a chunk of one direction at a time. With many, the last host
// but one handles both directions, except in the time of a message to the last host and back.
func (n Net) chain(b, c float64) float64 {
	c = min(c, b)
	hops, rest := float64(n.Hosts-1), max(b/c-1, 0)
	way := n.within(c) + hops*(n.Message(c)+n.add(c)) + hops*n.Message(c) + n.add(c)
	one := max(n.link(c), 2*n.end(c)+n.add(c), n.shared(hops*(4*n.end(c)+n.add(c))))
	if n.Hosts == 2 {
		return way + max(rest*one, rest*(2*n.end(c)+n.within(c)+n.add(c))-2*n.Message(c)-n.add(c))
	}
	both := max(2*n.link(c), 4*n.end(c)+2*n.add(c))
	return way + max(rest*one, rest*both-2*n.Latency-n.add(c))
}

// Limits of the chunks of Chain.
const (
	leastChunk = 1 << 10
	mostChunk  = 4 << 20
)

// ChunkBytes returns the length of the chunks of Chain for an allreduce of so many bytes: the power
// of two with the least time.
func (n Net) ChunkBytes(bytes int64) int64 {
	n = n.WithDefaults()
	best, least := int64(leastChunk), math.Inf(1)
	for c := int64(leastChunk); c <= mostChunk; c *= 2 {
		if t := n.chain(float64(bytes), float64(c)); t < least {
			best, least = c, t
		}
		if c >= bytes {
			break
		}
	}
	return best
}

// Costs of a message between two ranks of one host, in seconds. Source: internal/host/shm, whose
// smallest messages take about 0.5 us.
const (
	LocalOverhead = 0.1e-6
	LocalLatency  = 0.3e-6
)

// flatRing returns the time of a ring of all ranks. A block travels over all ranks twice. Each host
// has one hop to the next, and its other hops are inside.
func (n Net) flatRing(b float64) float64 {
	h, world := float64(n.Hosts), float64(n.World())
	part := b / world
	between := n.Message(part)
	inside := 2*LocalOverhead + LocalLatency + n.add(part)
	way := 2*(h*between+(world-h)*inside)*(world-1)/world + (world-1)*n.add(part)
	slowest := n.Overhead + LocalOverhead + n.add(part)/2
	return max(way, 2*(world-1)*max(slowest, part/n.Bandwidth))
}

// ReduceScatter returns the time of a reduce-scatter of internal/net/hosts with so many bytes of
// each rank. A chain sends results no further than they are needed, which saves at most the way of
// one block of H.
func (n Net) ReduceScatter(bytes int64) float64 {
	n = n.WithDefaults()
	if n.World() == 2 && n.Hosts == 2 {
		return n.pair(bytes / 2)
	}
	return n.AllReduce(bytes).Seconds
}

// AllGather returns the time of an all-gather of internal/net/hosts whose result has so many bytes.
func (n Net) AllGather(bytes int64) float64 {
	n = n.WithDefaults()
	return n.rounds(max(bytes/int64(n.World()), 1), n.World())
}

// AllToAll returns the time of an all-to-all of internal/net/hosts with so many bytes of each rank.
// All inputs go to all hosts.
func (n Net) AllToAll(bytes int64) float64 {
	n = n.WithDefaults()
	return n.rounds(bytes, 1)
}

// Broadcast returns the time of a broadcast of internal/net/hosts. The host of the root sends the
// places of all its ranks to all others.
func (n Net) Broadcast(bytes int64) float64 {
	n = n.WithDefaults()
	return n.rounds(bytes, 1)
}
