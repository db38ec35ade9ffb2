package ddp

import (
	"encoding/binary"
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/ops"
)

// watchedInputs is the number of a graph's inputs whose lengths ranks compare.
const watchedInputs = 8

// rowWatch detects parts of a batch whose lengths differ between ranks without SetWeight.
type rowWatch struct {
	inputs gorgonia.Nodes // the graph's first inputs that are not learnables
	own    []int          // their first dimensions at Attach
	uneven string         // "x: 1 on rank 0, 3 on rank 1" at Attach; "" if all ranks have the same
	weight bool           // SetWeight has been called
	said   bool           // the warning was printed

	single string // the op that prevents running a part in pieces, see RunPart; "" for none
}

// watch fills w with this rank's lengths.
func (w *rowWatch) watch(cost *gorgonia.Node, learnables gorgonia.Nodes) {
	model := ops.Below(cost)
	for _, n := range cost.Graph().AllNodes() {
		if !model.Contains(n) {
			continue
		}
		if n.Op() == nil {
			if !n.IsScalar() && len(w.inputs) < watchedInputs && !learnables.Contains(n) && !IsShard(n) {
				w.inputs, w.own = append(w.inputs, n), append(w.own, n.Shape()[0])
			}
			continue
		}
		if coupled(n) {
			w.single = n.Op().String()
		}
	}
}

// coupled reports whether n's op combines rows of a run, or communicates.
func coupled(n *gorgonia.Node) bool {
	switch n.Op().(type) {
	case *ops.Hook, *ops.Begin, *ops.Start, *ops.Wait, *ops.Join:
		return false
	case *gorgonia.BatchNormOp:
		return true
	}
	return strings.HasPrefix(fmt.Sprintf("%T", n.Op()), "*ops.")
}

// agree compares Attach's results over the ranks, and the lengths of inputs.
//
// Collective. Errors: those of agree.
func (b *builder) agree(learnables gorgonia.Nodes, failed error) error {
	d, lines := b.d, b.lines
	if failed != nil {
		lines = nil
	} else {
		d.rows.watch(b.cost, learnables)
	}
	mine := make([]byte, 8*watchedInputs)
	for i, n := range d.rows.own {
		binary.LittleEndian.PutUint64(mine[8*i:], uint64(n))
	}
	all, err := agreeWith(d.team, lines, failed, mine)
	if err == nil {
		d.rows.compare(all)
	}
	return err
}

// compare records the first input whose length differs between ranks.
func (w *rowWatch) compare(all [][]byte) {
	for i, n := range w.inputs {
		lengths, differ := make([]string, len(all)), false
		for r := range all {
			length := binary.LittleEndian.Uint64(all[r][8*i:])
			differ = differ || length != binary.LittleEndian.Uint64(all[0][8*i:])
			lengths[r] = fmt.Sprintf("%d on rank %d", length, r)
		}
		if differ {
			w.uneven = fmt.Sprintf("%s: %s", n.Name(), strings.Join(lengths, ", "))
			return
		}
	}
}

// warn warns, once, if parts have different lengths but equal weights.
func (w *rowWatch) warn(t *team, cfg *Config) {
	if w.said || w.weight || t.Size() == 1 || !cfg.Average.divides() {
		return
	}
	const remedy = "call SetWeight with the rows of this rank before each run, or use RunPart"
	if w.uneven != "" {
		if w.said = true; t.Rank() == 0 {
			cfg.Log.Warn("ddp: the ranks' inputs have different lengths, and all ranks have the weight 1: "+
				"gradients are the mean of the ranks' means and not the mean over the rows: "+remedy, "rows", w.uneven)
		}
		return
	}
	for i, n := range w.inputs {
		if now := n.Shape()[0]; now != w.own[i] {
			w.said = true
			cfg.Log.Warn("ddp: an input has another length than at Attach, and this rank has the weight 1: "+
				"where the ranks' lengths differ now, gradients are not the mean over the rows: "+remedy,
				"input", n.Name(), "rank", t.Rank(), "rows", now, "before", w.own[i])
			return
		}
	}
}
