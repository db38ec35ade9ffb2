package hostexec

import (
	"github.com/symgrad/symgrad/internal/compile/program"
)

// pieceCost is the time of a piece of work in picoseconds: long compared with its hand-over (some
// hundred nanoseconds), and short compared with a step.
const pieceCost = 12_000_000

// leastCost is the least time of a piece, in picoseconds, if there are too few pieces for all
// goroutines. It is an estimate: memory from other cores makes the real time longer.
const leastCost = 1_000_000

// perPiece returns the number of units per piece, out of units that take cost picoseconds each.
func (k *maker) perPiece(units, cost int) int {
	cost = max(1, cost)
	each := (units + k.threads - 1) / k.threads
	return max(1, min(pieceCost/cost, max(each, leastCost/cost)))
}

// mapStep is a Map. A piece is some of its blocks.
type mapStep[T real] struct {
	*code[T]
	per int // blocks of a piece
}

func newMap[T real](k *maker, s *program.Step, op *program.Map) ([]phase, error) {
	if p := newTurn(k, s, op); p != nil {
		return p, nil
	}
	order := upTo(len(op.Space))
	if len(s.Out) > 0 {
		order = byStride(op.Space, s.Out[0].Strides)
	}
	c, err := compile[T](&source{
		p: k.p, shape: op.Space, order: order, code: op.Code, in: s.In, out: s.Out, stores: op.Stores, level: k.level,
	})
	if err != nil {
		return nil, err
	}
	k.need(c.scratch(), c.slots())
	m := &mapStep[T]{c, k.perPiece(c.blocks(), c.cost*c.block)}
	if c.sp.total == 0 {
		return nil, nil
	}
	return []phase{{m, (c.blocks() + m.per - 1) / m.per}}, nil
}

func (m *mapStep[T]) piece(w *worker, i int) {
	m.enter(w)
	last := min((i+1)*m.per, m.blocks())
	for b := i * m.per; b < last; b++ {
		lo, n := m.blockAt(b)
		m.eval(w, lo, n)
		m.store(w, lo, n)
	}
}
