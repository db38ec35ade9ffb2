package hostcost

// ReduceScatter returns the time of a reduce-scatter of internal/hosts with so many bytes of each
// rank. A chain sends results no further than they are needed, which saves at most the way of one
// block of H.
func (n Net) ReduceScatter(bytes int64) float64 {
	n = n.WithDefaults()
	if n.World() == 2 && n.Hosts == 2 {
		return n.pair(bytes / 2)
	}
	return n.AllReduce(bytes).Seconds
}

// AllGather returns the time of an all-gather of internal/hosts whose result has so many bytes.
func (n Net) AllGather(bytes int64) float64 {
	n = n.WithDefaults()
	return n.rounds(max(bytes/int64(n.World()), 1), n.World())
}

// AllToAll returns the time of an all-to-all of internal/hosts with so many bytes of each rank. All
// inputs go to all hosts.
func (n Net) AllToAll(bytes int64) float64 {
	n = n.WithDefaults()
	return n.rounds(bytes, 1)
}

// Broadcast returns the time of a broadcast of internal/hosts. The host of the root sends the
// places of all its ranks to all others.
func (n Net) Broadcast(bytes int64) float64 {
	n = n.WithDefaults()
	return n.rounds(bytes, 1)
}
