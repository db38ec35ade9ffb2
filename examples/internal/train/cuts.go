package train

import "math/bits"

// cuts describes how a rank's part of a batch is cut into pieces, one for each run of the graph.
type cuts struct {
	n     int // pieces
	first int // index of the part's first sample in the batch
	rows  int // samples per piece, fewer in the last ones; 0 with virtual ranks

	have    int // samples of the part
	global  int // samples of the batch
	virtual int // ddp.virtual_ranks; 0 for none
	before  int // virtual ranks before the first one of this rank
}

// cut returns the pieces of this rank's part of a batch; the part has have samples. The number of
// pieces is the same on all ranks.
func (t *trainer) cut(have, global int) cuts {
	rank, size := t.w.Rank(), t.w.Size()
	c := cuts{first: share(global, rank, size), have: have, global: global}
	if v := t.job.cfg.DDP.VirtualRanks; v > 0 {
		c.n, c.virtual, c.before = v/size, v, rank*(v/size)
		return c
	}
	c.rows = t.rows
	c.n = max(1, ceilDiv(ceilDiv(global, size), t.rows))
	return c
}

// at returns the index in the part at which piece i begins.
func (c cuts) at(i int) int {
	if c.virtual > 0 { // where the part of a virtual rank begins
		return share(c.global, c.before+i, c.virtual) - c.first
	}
	return min(i*c.rows, c.have)
}

// share returns the start of a rank's part when n items are split into size parts, as in
// data.Sampler.
func share(n, rank, size int) int {
	hi, lo := bits.Mul64(uint64(n), uint64(rank)) // n*rank/size without overflow
	q, _ := bits.Div64(hi, lo, uint64(size))
	return int(q)
}
