package hosts

import (
	"slices"
	"time"
)

// beats has the heartbeats between hosts, by which a cut link or a stopped process shows. Each rank
// sends them to one rank of the hosts at distances 1, 2, 4, ... on a ring of hosts, so that their
// number grows as the logarithm of the number of hosts. The rank that misses one reports it to all.
type beats struct {
	to    []int             // ranks that get heartbeats of this one
	last  map[int]time.Time // last message of each rank that sends heartbeats to this one
	next  time.Time
	asked time.Time // of the last call of due
	limit time.Duration
}

// newBeats returns the heartbeats of rank. hosts is the host of each rank.
func newBeats(hosts []int, rank int, limit time.Duration, now time.Time) beats {
	b := beats{limit: limit, asked: now, last: map[int]time.Time{}}
	var order []int // hosts
	ranks := map[int][]int{}
	for r, h := range hosts {
		if len(ranks[h]) == 0 {
			order = append(order, h)
		}
		ranks[h] = append(ranks[h], r)
	}
	own := ranks[hosts[rank]]
	at, i := slices.Index(order, hosts[rank]), slices.Index(own, rank)
	for d := 1; d < len(order); d *= 2 {
		to := ranks[order[(at+d)%len(order)]]
		b.to = append(b.to, to[i%len(to)])
		for j, r := range ranks[order[(at-d+len(order))%len(order)]] {
			if j%len(own) == i {
				b.last[r] = now
			}
		}
	}
	return b
}

// heard notes a message of rank; last means that it sends no more, because it closes the world.
func (b *beats) heard(rank int, last bool, now time.Time) {
	if _, known := b.last[rank]; !known {
		return
	}
	if last {
		delete(b.last, rank)
		return
	}
	b.last[rank] = now
}

// due returns the ranks that get a heartbeat now, and those that have been silent for too long. The
// time in which this process did not run, and could not receive, counts for none.
func (b *beats) due(now time.Time) (to, silent []int) {
	if paused := now.Sub(b.asked); paused > b.limit/4 {
		for r, t := range b.last {
			b.last[r] = t.Add(paused)
		}
	}
	b.asked = now
	for r, t := range b.last {
		if now.Sub(t) > b.limit {
			silent = append(silent, r)
		}
	}
	slices.Sort(silent)
	for _, r := range silent {
		delete(b.last, r)
	}
	if now.Before(b.next) {
		return nil, silent
	}
	b.next = now.Add(b.limit / 8)
	return b.to, silent
}
