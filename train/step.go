package train

import (
	"math/bits"
	"time"

	"github.com/symgrad/symgrad/data"
)

// gradients computes the parameters' gradient of the mean loss over a global batch. This
// rank's part is b. The graph has a fixed batch size, so the part is cut into pieces of that
// many rows. All pieces except the last run without communication. The last is filled up with rows
// of weight zero. All ranks have equally many pieces; some may be empty.
//
// Collective: all ranks. Returns: the sum of the losses of this rank's samples.
func (l *learner) gradients(step int, b data.Batch, wanted bool) (loss float64, err error) {
	cuts := l.cut(len(b.Indices), b.Global)
	if cuts.n > 1 {
		err = l.d.NoSync(func() error {
			for i := range cuts.n - 1 {
				part, err := l.run(step, b.Indices, cuts, i, wanted)
				if err != nil {
					return err
				}
				loss += part
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	part, err := l.run(step, b.Indices, cuts, cuts.n-1, wanted)
	return loss + part, err
}

// run runs the graph on one piece of this rank's part of a batch.
//
// Returns: the sum of the losses of the samples. On a GPU it is 0 unless the loss is wanted and
// there are several pieces.
func (l *learner) run(step int, indices []int, c cuts, piece int, wanted bool) (loss float64, err error) {
	filling := time.Now()
	lo, hi := c.at(piece), c.at(piece+1)
	l.vm.at(step, c.first+lo)
	indices = indices[lo:hi:hi]
	m, n := l.model, float64(len(indices))
	if err := l.inputs.fill(l.job, m, indices); err != nil {
		return 0, err
	}
	if err := l.d.SetWeight(n); err != nil { // Cost is the mean over the samples
		return 0, err
	}
	running := time.Now()
	l.spans.Add("compute", "batch", filling, running)
	err = l.vm.RunAll()
	l.spans.Ran(running, time.Now())
	if err == nil && (!l.job.site.GPU || c.n > 1 && wanted) {
		loss, err = l.vm.scalar(m.Cost)
		loss *= n
	}
	l.vm.Reset() // after an error as well
	return loss, err
}

// update runs the solver's step.
func (l *learner) update() error {
	if err := l.solver.Step(l.d.Model()); err != nil {
		return err
	}
	return l.d.ScaleHookState(l.scaled.update(l.solver))
}

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
func (l *learner) cut(have, global int) cuts {
	rank, size := l.w.Rank(), l.w.Size()
	c := cuts{first: share(global, rank, size), have: have, global: global}
	if v := l.job.cfg.DDP.VirtualRanks; v > 0 {
		c.n, c.virtual, c.before = v/size, v, rank*(v/size)
		return c
	}
	c.rows = l.rows
	c.n = max(1, ceilDiv(ceilDiv(global, size), l.rows))
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
