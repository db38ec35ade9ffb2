package hostcost

import "math/bits"

// ReduceScatter returns the time of a reduce-scatter of so many bytes of each rank: the first half
// of Parts.
func (n Net) ReduceScatter(bytes int64) float64 {
	n = n.WithDefaults()
	b := float64(bytes)
	return n.Spread(n.Hosts-1, float64(n.Ranks)*b/float64(n.Hosts)) + n.add(b)
}

// AllGather returns the time of an all-gather whose result has so many bytes: the second half of
// Parts.
func (n Net) AllGather(bytes int64) float64 {
	n = n.WithDefaults()
	b := float64(bytes)
	return n.Spread(n.Hosts-1, b/float64(n.Hosts)) + n.add(b)
}

// AllToAll returns the time of an all-to-all of so many bytes of each rank.
func (n Net) AllToAll(bytes int64) float64 {
	n = n.WithDefaults()
	b := float64(bytes)
	return n.Spread(n.Hosts-1, float64(n.Ranks)*b/float64(n.Hosts)) + n.add(b)
}

// Broadcast returns the time of a broadcast on a binomial tree of hosts.
func (n Net) Broadcast(bytes int64) float64 {
	n = n.WithDefaults()
	b := float64(bytes)
	return float64(bits.Len(uint(max(n.Hosts, 1)-1)))*n.Message(b) + n.within(b)
}
