package ddp

import (
	"encoding/binary"
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/ops"
)

// watchedInputs is of how many inputs of a graph the ranks compare lengths.
const watchedInputs = 8

// rowWatch looks for ranks whose parts of a batch have different lengths while no weight says so.
type rowWatch struct {
	inputs gorgonia.Nodes // the first inputs of the graph that are no learnables
	own    []int          // their first dimensions at Attach
	uneven string         // "x: 1 on rank 0, 3 on rank 1" at Attach; "" where all ranks have the same
	weight bool           // SetWeight has been called
	said   bool           // the warning has been given

	single string // the op for which a part cannot be run in pieces, see RunPart; "" for none
}

// watch makes d's rowWatch, which has seen this rank alone.
func (d *DDP) watch(cost *gorgonia.Node, learnables gorgonia.Nodes) {
	w := &d.rows
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

// coupled reports whether n's op looks at all rows at once, or talks to other ranks.
func coupled(n *gorgonia.Node) bool {
	switch n.Op().(type) {
	case *ops.Hook, *ops.Begin, *ops.Start, *ops.Wait, *ops.Join:
		return false
	case *gorgonia.BatchNormOp:
		return true
	}
	return strings.HasPrefix(fmt.Sprintf("%T", n.Op()), "*ops.")
}

// agreeOn compares the results of Attach, and the lengths of the inputs, over the ranks.
//
// Collective. Errors: those of agree.
func (d *DDP) agreeOn(b *builder, learnables gorgonia.Nodes, failed error) error {
	lines := b.lines
	if failed != nil {
		lines = nil
	} else {
		d.watch(b.cost, learnables)
	}
	mine := make([]byte, 8*watchedInputs)
	for i, n := range d.rows.own {
		binary.LittleEndian.PutUint64(mine[8*i:], uint64(n))
	}
	all, err := agreeWith(d.world, lines, failed, mine)
	if err == nil {
		d.rows.compare(all)
	}
	return err
}

// compare notes the first input whose length differs between the ranks.
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

// warnOfRows warns, once, about parts of different lengths with equal weights.
func (d *DDP) warnOfRows() {
	w := &d.rows
	if w.said || w.weight || d.world.Size() == 1 || !d.cfg.Average.divides() || d.imagined {
		return
	}
	const remedy = "call SetWeight with the rows of this rank before each run, or use RunPart"
	if w.uneven != "" {
		if w.said = true; d.world.Rank() == 0 {
			d.cfg.Log.Warn("ddp: the ranks' inputs have different lengths, and all ranks have the weight 1: "+
				"gradients are the mean of the ranks' means and not the mean over the rows: "+remedy, "rows", w.uneven)
		}
		return
	}
	for i, n := range w.inputs {
		if now := n.Shape()[0]; now != w.own[i] {
			w.said = true
			d.cfg.Log.Warn("ddp: an input has another length than at Attach, and this rank has the weight 1: "+
				"where the ranks' lengths differ now, gradients are not the mean over the rows: "+remedy,
				"input", n.Name(), "rank", d.world.Rank(), "rows", now, "before", w.own[i])
			return
		}
	}
}
