package train

import "math/bits"

// cuts is how a rank's part of a batch is cut into pieces, one for each run of the graph.
type cuts struct {
	n     int // pieces
	first int // index in the batch of the part's first sample
	rows  int // samples of a piece, the last ones fewer; 0 with virtual ranks

	have    int // samples of the part
	global  int // and of the batch
	virtual int // ranks, if there are any
	before  int // virtual ranks before this rank's first
}

// cut is the pieces of this rank's part, of so many samples, of a batch. Their number is the same
// on all ranks.
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

// at is where piece i begins in the part.
func (c cuts) at(i int) int {
	if c.virtual > 0 { // where a rank of so many would begin
		return share(c.global, c.before+i, c.virtual) - c.first
	}
	return min(i*c.rows, c.have)
}

// share is where the part of a rank begins when n things are cut into size parts, as ddp.Sampler
// does it.
func share(n, rank, size int) int {
	hi, lo := bits.Mul64(uint64(n), uint64(rank)) // n*rank/size without overflow
	q, _ := bits.Div64(hi, lo, uint64(size))
	return int(q)
}
