package hostcost

// Sizes at which internal/net/hosts changes its way, as its tests check.
const (
	slotBytes  = 48 << 10 // most bytes of a rank in a round of Exchange
	boardLimit = 8 << 20  // of a round, of all ranks
	chainBytes = 64 << 10 // least bytes for Parts or Chain
	manyChunks = 8        // of a long message

	messageBytes = 20 << 10 // cost of a message in the choice between them

	// Two ranks on two hosts exchange all inputs, after the first round in chunks of pairChunk. Up
	// to pairShort bytes, chunks are so short that all are on their way at once.
	pairChunk = 512 << 10
	pairShort = 128 << 10
)

// SlotBytes returns the most bytes of one rank in one round of Exchange, as internal/net/hosts has
// it.
func SlotBytes(world int) int {
	return max(min(slotBytes, boardLimit/world), 16*world, 1<<10) &^ 63
}

// ChainChunk returns the length of the chunks in which internal/net/hosts does an allreduce of so
// many bytes by Chain, if not by Parts; 0 if it takes Exchange.
func ChainChunk(bytes int64) int64 {
	if bytes < chainBytes {
		return 0
	}
	return min(max(bytes/manyChunks, chainBytes), manyChunks*chainBytes)
}

// TakesParts reports whether internal/net/hosts does an allreduce of so many bytes by Parts: if a
// host sends less than by Chain, where the leader of several ranks takes half as long again. The
// number of hosts is 2 or more.
func (n Net) TakesParts(bytes int64) bool {
	c, hosts, ranks := ChainChunk(bytes), int64(n.Hosts), int64(max(n.Ranks, 1))
	if c == 0 {
		return false
	}
	parts := 2*messageBytes + (ranks+1)*bytes/hosts*(hosts-1)
	chain := (2*(hosts-1) + (bytes+c-1)/c) * (messageBytes + c)
	if ranks > 1 {
		chain += chain / 2
	}
	return parts < chain
}

// PairChunk returns the length of the chunks in which two ranks on two hosts exchange their inputs
// for an allreduce of so many bytes; 0 if they need none, or only chunks without a wait in between.
func PairChunk(bytes int64) int64 {
	if bytes <= pairShort {
		return 0
	}
	return pairChunk
}

// AllReduce returns the algorithm of internal/net/hosts for an allreduce of so many bytes, in rank
// order, and its predicted time. Before parts and a chain all ranks compare their calls.
func (n Net) AllReduce(bytes int64) Choice {
	n = n.WithDefaults()
	chunk := ChainChunk(bytes)
	switch {
	case n.World() == 2 && n.Hosts == 2:
		return Choice{Algorithm: Exchange, ChunkBytes: PairChunk(bytes), Seconds: n.pair(bytes)}
	case chunk == 0 || n.Hosts < 2:
		return Choice{Algorithm: Exchange, Seconds: n.Seconds(Exchange, bytes)}
	case n.TakesParts(bytes):
		return Choice{Algorithm: Parts, Seconds: n.Seconds(Exchange, 1) + n.Seconds(Parts, bytes)}
	}
	return Choice{Algorithm: Chain, ChunkBytes: chunk, Seconds: n.Seconds(Exchange, 1) + n.chain(float64(bytes), float64(chunk))}
}

// pair returns the time in which two ranks exchange their inputs: a first round, with which the
// first chunk travels, and the other chunks, each after the sum of the one before.
func (n Net) pair(bytes int64) float64 {
	first := min(bytes, int64(SlotBytes(2)))
	rest := bytes - first
	chunk := PairChunk(bytes)
	if chunk == 0 {
		chunk = rest
	}
	lead := min(rest, chunk)
	t := n.Spread(1, float64(first+HeaderBytes+lead)) + n.add(float64(2*first+rest))
	for rest -= lead; rest > 0; rest -= chunk {
		t += n.Spread(1, float64(min(rest, chunk)))
	}
	return t
}
