package hostsim

import (
	"math/bits"

	"github.com/symgrad/symgrad/internal/net/hostcost"
)

// schedule is the messages of an algorithm: its actors and the parts of the elements.
type schedule struct {
	actors []actor
	procs  int
	parts  int
	inputs [][]int // by state: ranks
}

// plan returns the schedule of an algorithm; nil for an unknown one.
func plan(a hostcost.Algorithm, c *Config) *schedule {
	switch a {
	case hostcost.Exchange:
		return exchange(c)
	case hostcost.Parts:
		return parts(c)
	case hostcost.Chain:
		return chain(c)
	case hostcost.Doubling:
		return listed(c, 1, doubling)
	case hostcost.Halving:
		return listed(c, 1<<(bits.Len(uint(c.Net.Hosts))-1), halving)
	case hostcost.Ring:
		return ring(c)
	case hostcost.Tree:
		return listed(c, 1, tree)
	case hostcost.FlatRing:
		return flatRing(c)
	}
	return nil
}

// leaders returns a schedule with one actor a host, whose state has the inputs of its ranks.
func leaders(c *Config, parts int, do func(host int) program) *schedule {
	s := &schedule{parts: parts, procs: c.Net.Hosts}
	for h := range c.Net.Hosts {
		s.actors = append(s.actors, actor{host: h, proc: h, state: h, do: do(h)})
		s.inputs = append(s.inputs, ranksOf(c, h))
	}
	return s
}

// ranksOf returns the ranks of a host.
func ranksOf(c *Config, host int) []int {
	var ranks []int
	for i := range c.Net.Ranks {
		ranks = append(ranks, host*c.Net.Ranks+i)
	}
	return ranks
}

// add returns the work of adding b bytes.
func (c *Config) add(b float64) float64 { return b / c.Net.Memory }

// within returns the work of the ranks of a host on b bytes: none for one rank.
func (c *Config) within(b float64) float64 {
	if c.Net.Ranks < 2 {
		return 0
	}
	return c.add(b)
}

// list returns a program of given operations.
func list(ops []op) program {
	return func(i int) (op, bool) {
		if i >= len(ops) {
			return op{}, false
		}
		return ops[i], true
	}
}

// listed returns a schedule with a short list of operations for each host: the sum of the host's
// inputs, those of steps, and the copy of the result.
func listed(c *Config, parts int, steps func(c *Config, host int) []op) *schedule {
	b := float64(c.Bytes)
	return leaders(c, parts, func(host int) program {
		ops := []op{{verb: work, hi: parts, seconds: c.within(b), folds: true}}
		ops = append(ops, steps(c, host)...)
		return list(append(ops, op{verb: work, seconds: c.within(b)}))
	})
}

// round returns operation i of a round in which every host sends bytes to all others and takes as
// many messages: n-1 sends, then n-1 takes. Host h sends parts part(h'), to h' = h+1, h+2, ...
func round(c *Config, host, tag, i int, bytes float64, joins bool, part func(to int) int) op {
	n := c.Net.Hosts
	if i < n-1 {
		to := (host + 1 + i) % n
		p := part(to)
		return op{verb: send, peer: to, tag: tag, bytes: bytes, lo: p, hi: p + 1}
	}
	return op{verb: take, peer: anyone, tag: tag, joins: joins}
}

// exchange sends all inputs to all hosts, in rounds of a slot of each rank. Part k is that of round
// k. Each rank adds all.
func exchange(c *Config) *schedule {
	n, slot := c.Net.Hosts, int64(hostcost.SlotBytes(c.Net.World()))
	rounds := int((c.Bytes + slot - 1) / slot)
	one := 2*(n-1) + 1 // operations of a round
	return leaders(c, rounds, func(host int) program {
		return func(i int) (op, bool) {
			k := i / one
			if k == rounds {
				return op{}, false
			}
			b := float64(min(slot, c.Bytes-int64(k)*slot))
			if i%one == one-1 {
				return op{verb: work, lo: k, hi: k + 1, folds: true, seconds: c.add(b * float64(c.Net.World()))}, true
			}
			message := float64(c.Net.Ranks) * (b + hostcost.HeaderBytes)
			return round(c, host, k, i%one, message, true, func(int) int { return k }), true
		}
	})
}

// parts sends the inputs of part h to host h, which adds them and sends the sum to all.
func parts(c *Config) *schedule {
	n, b := c.Net.Hosts, float64(c.Bytes)
	part := b / float64(n)
	first := 2 * (n - 1)
	return leaders(c, n, func(host int) program {
		return func(i int) (op, bool) {
			switch {
			case i < first:
				return round(c, host, 0, i, part*float64(c.Net.Ranks), true, func(to int) int { return to }), true
			case i == first:
				return op{verb: work, lo: host, hi: host + 1, folds: true, seconds: c.add(b)}, true
			case i <= 2*first:
				return round(c, host, 1, i-first-1, part, false, func(int) int { return host }), true
			case i == 2*first+1:
				return op{verb: work, seconds: c.within(b)}, true
			}
			return op{}, false
		}
	})
}

// chain has two actors a host: one passes partial sums on to the next host, and one passes the
// result back. Part k is chunk k.
func chain(c *Config) *schedule {
	n := c.Net.Hosts
	chunks := int((c.Bytes + c.Chunk - 1) / c.Chunk)
	s := leaders(c, chunks, func(host int) program { return chainOn(c, host, chunks) })
	for h := range n - 1 {
		s.actors = append(s.actors, actor{host: h, proc: h, state: h, do: chainBack(c, h, chunks)})
	}
	return s
}

// chunk returns the bytes of chunk k.
func (c *Config) chunk(k int) float64 { return float64(min(c.Chunk, c.Bytes-int64(k)*c.Chunk)) }

// chainOn passes partial sums to the next host. The last host sends results to the actor of the
// previous one that passes them back.
func chainOn(c *Config, host, chunks int) program {
	n := c.Net.Hosts
	return func(i int) (op, bool) {
		k := i / 3
		if k == chunks {
			return op{}, false
		}
		b := c.chunk(k)
		switch i % 3 {
		case 0:
			if host == 0 {
				return op{verb: work}, true
			}
			return op{verb: take, peer: host - 1, tag: k, joins: true}, true
		case 1:
			adds := c.add(b)
			if host == 0 {
				adds = c.within(b)
			}
			return op{verb: work, lo: k, hi: k + 1, folds: true, seconds: adds}, true
		}
		switch {
		case n == 1:
			return op{verb: work}, true
		case host == n-1:
			return op{verb: send, peer: n + host - 1, tag: k, lo: k, hi: k + 1, bytes: b}, true
		}
		return op{verb: send, peer: host + 1, tag: k, lo: k, hi: k + 1, bytes: b}, true
	}
}

// chainBack takes results from the next host, passes them to the previous one, and copies them.
func chainBack(c *Config, host, chunks int) program {
	n := c.Net.Hosts
	return func(i int) (op, bool) {
		k := i / 3
		if k == chunks {
			return op{}, false
		}
		b := c.chunk(k)
		switch {
		case i%3 == 0:
			from := n + host + 1
			if host == n-2 {
				from = n - 1
			}
			return op{verb: take, peer: from, tag: k}, true
		case i%3 == 1 && host > 0:
			return op{verb: send, peer: n + host - 1, tag: k, lo: k, hi: k + 1, bytes: b}, true
		case i%3 == 1:
			return op{verb: work}, true
		}
		return op{verb: work, seconds: c.add(b)}, true
	}
}
