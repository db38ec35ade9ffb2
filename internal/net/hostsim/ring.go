package hostsim

import "math/bits"

// pairing is the place of a host in steps among a power of two of hosts. The first 2 left hosts are
// in pairs: the even one gives its sum to the odd one and waits for the result.
//
// Source: Thakur, Rabenseifner and Gropp, 2005, section 4.4.
type pairing struct {
	power int // hosts of the steps
	left  int
	place int // of this host, or -1
}

func pair(hosts, host int) pairing {
	power := 1 << (bits.Len(uint(hosts)) - 1)
	p := pairing{power: power, left: hosts - power}
	switch {
	case host >= 2*p.left:
		p.place = host - p.left
	case host%2 == 1:
		p.place = host / 2
	default:
		p.place = -1
	}
	return p
}

// host returns the host at a place.
func (p pairing) host(place int) int {
	if place < p.left {
		return 2*place + 1
	}
	return place + p.left
}

// paired puts the operations of a host's partner around steps.
func paired(c *Config, host, parts int, steps func(p pairing) []op) []op {
	b := float64(c.Bytes)
	p := pair(c.Net.Hosts, host)
	all := op{hi: parts, bytes: b}
	give, get := all, all
	give.verb, get.verb = send, take
	if p.place < 0 {
		give.peer, get.peer, get.tag = host+1, host+1, 1
		return []op{give, get}
	}
	if host >= 2*p.left {
		return steps(p)
	}
	get.peer, get.joins = host-1, true
	ops := append([]op{get, {verb: work, hi: parts, folds: true, seconds: c.add(b)}}, steps(p)...)
	give.peer, give.tag = host-1, 1
	return append(ops, give)
}

// doubling exchanges sums with hosts at distances 1, 2, 4, ...
func doubling(c *Config, host int) []op {
	b := float64(c.Bytes)
	return paired(c, host, 1, func(p pairing) []op {
		var ops []op
		for d := 1; d < p.power; d *= 2 {
			peer := p.host(p.place ^ d)
			ops = append(ops,
				op{verb: send, peer: peer, hi: 1, bytes: b},
				op{verb: take, peer: peer, joins: true},
				op{verb: work, hi: 1, folds: true, seconds: c.add(b)})
		}
		return ops
	})
}

// halving keeps half of the parts in each step, and gathers them again in reverse.
func halving(c *Config, host int) []op {
	b := float64(c.Bytes)
	power := 1 << (bits.Len(uint(c.Net.Hosts)) - 1)
	return paired(c, host, power, func(p pairing) []op {
		var ops []op
		part := b / float64(p.power)
		for d := p.power / 2; d >= 1; d /= 2 {
			peer, other := p.host(p.place^d), (p.place^d)&^(d-1)
			own, bytes := p.place&^(d-1), part*float64(d)
			ops = append(ops,
				op{verb: send, peer: peer, lo: other, hi: other + d, bytes: bytes},
				op{verb: take, peer: peer, joins: true},
				op{verb: work, lo: own, hi: own + d, folds: true, seconds: c.add(bytes)})
		}
		for d := 1; d < p.power; d *= 2 {
			peer, own := p.host(p.place^d), p.place&^(d-1)
			ops = append(ops,
				op{verb: send, peer: peer, tag: 2, lo: own, hi: own + d, bytes: part * float64(d)},
				op{verb: take, peer: peer, tag: 2})
		}
		return ops
	})
}

// tree reduces to host 0 on a binomial tree, and broadcasts the result on it.
func tree(c *Config, host int) []op {
	b, n := float64(c.Bytes), c.Net.Hosts
	var ops []op
	d := 1
	for ; d < n && host&d == 0; d *= 2 {
		if peer := host + d; peer < n {
			ops = append(ops,
				op{verb: take, peer: peer, joins: true},
				op{verb: work, hi: 1, folds: true, seconds: c.add(b)})
		}
	}
	if host > 0 {
		ops = append(ops,
			op{verb: send, peer: host - d, hi: 1, bytes: b},
			op{verb: take, peer: host - d, tag: 1})
	}
	for d /= 2; d >= 1; d /= 2 {
		if peer := host + d; peer < n {
			ops = append(ops, op{verb: send, peer: peer, tag: 1, hi: 1, bytes: b})
		}
	}
	return ops
}

// ring is a reduce-scatter and an all-gather on the ring of hosts.
func ring(c *Config) *schedule {
	b := float64(c.Bytes)
	return leaders(c, c.Net.Hosts, func(host int) program {
		around := ringSteps(c, host, c.Net.Hosts, b)
		return func(i int) (op, bool) {
			if i == 0 {
				return op{verb: work, hi: c.Net.Hosts, folds: true, seconds: c.within(b)}, true
			}
			o, more := around(i - 1)
			if last := ringOps(c.Net.Hosts); i-1 == last {
				return op{verb: work, seconds: c.within(b)}, true
			}
			return o, more
		}
	})
}

// ringOps returns the number of operations of ringSteps.
func ringOps(n int) int { return 5 * (n - 1) }

// ringSteps returns the operations of member place of a ring of n actors on b bytes: n-1 steps that
// send, take and add, then n-1 that send and take.
func ringSteps(c *Config, place, n int, b float64) program {
	part := b / float64(n)
	next, previous := (place+1)%n, (place-1+n)%n
	return func(i int) (op, bool) {
		switch {
		case i >= ringOps(n):
			return op{}, false
		case i < 3*(n-1):
			k := i / 3
			out, in := (place-k+n)%n, (place-k-1+n)%n
			switch i % 3 {
			case 0:
				return op{verb: send, peer: next, tag: k, lo: out, hi: out + 1, bytes: part}, true
			case 1:
				return op{verb: take, peer: previous, tag: k, joins: true}, true
			}
			return op{verb: work, lo: in, hi: in + 1, folds: true, seconds: c.add(part)}, true
		}
		i -= 3 * (n - 1)
		k := i / 2
		if i%2 == 1 {
			return op{verb: take, peer: previous, tag: n + k}, true
		}
		out := (place + 1 - k + n) % n
		return op{verb: send, peer: next, tag: n + k, lo: out, hi: out + 1, bytes: part}, true
	}
}

// flatRing is a ring of all ranks, host by host, each with a processor of its own.
func flatRing(c *Config) *schedule {
	n := c.Net.World()
	s := &schedule{parts: n, procs: n}
	for r := range n {
		s.actors = append(s.actors, actor{host: r / c.Net.Ranks, proc: r, state: r, do: ringSteps(c, r, n, float64(c.Bytes))})
		s.inputs = append(s.inputs, []int{r})
	}
	return s
}
