package conformance

import (
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// rows holds the inputs of the ranks of a world and their reductions, as bytes. Element i of a row
// does not depend on the row's length. Inputs and results of all cases are thus pieces of few rows,
// each made once.
//
// Goroutine ranks share the rows made before they started, and only read them. The cases therefore
// do not synchronize the ranks, which would hide races of a backend from the race detector. Each
// rank makes missing rows for itself.
type rows struct {
	n    int   // ranks of the world
	base *rows // shared; nil for none
	made map[rowKey][]byte
}

// rowKey identifies a row.
type rowKey struct {
	data dataKind
	dt   tensor.DType
	red  dist.RedKind
	rank int // with this input; combined for the result of the reduction
}

const combined = -1

func newRows(n int, base *rows) *rows { return &rows{n: n, base: base, made: map[rowKey][]byte{}} }

// input returns elements lo to lo+count of rank's input to c.
func (m *rows) input(c scenario, rank, lo, count int) []byte {
	return m.piece(rowKey{c.data, c.dt, c.red, rank}, lo, count)
}

// result returns elements lo to lo+count of the reduction of all ranks' inputs to c.
func (m *rows) result(c scenario, lo, count int) []byte { return m.input(c, combined, lo, count) }

func (m *rows) piece(k rowKey, lo, count int) []byte {
	size := k.dt.Size()
	return m.row(k, lo+count)[lo*size : (lo+count)*size]
}

// row returns the row of k, with at least count elements.
func (m *rows) row(k rowKey, count int) []byte {
	size := k.dt.Size()
	if m.base != nil {
		if row := m.base.made[k]; len(row) >= count*size {
			return row
		}
	}
	row := m.made[k]
	done := len(row) / size
	if done >= count {
		return row
	}
	row = append(make([]byte, 0, count*size), row...)[:count*size]
	if k.rank == combined {
		m.combine(row, k, done, count)
	} else {
		for i := done; i < count; i++ {
			put(row, k.dt, i, input(k.data, k.dt, k.red, m.n, k.rank, i))
		}
	}
	m.made[k] = row
	return row
}

// combine sets elements lo to hi of row to the reduction of k.
func (m *rows) combine(row []byte, k rowKey, lo, hi int) {
	inputs, column := make([][]byte, m.n), make([]uint64, m.n)
	for r := range inputs {
		inputs[r] = m.row(rowKey{k.data, k.dt, k.red, r}, hi)
	}
	scalars := factors(k.data, k.dt, m.n)
	for i := lo; i < hi; i++ {
		for r, in := range inputs {
			column[r] = get(in, k.dt, i)
		}
		put(row, k.dt, i, combine(k.dt, k.red, column, scalars))
	}
}

// wanted returns the destination of rank after c, as consecutive pieces.
func (m *rows) wanted(c scenario, rank int) [][]byte {
	lo := 0
	switch c.kind {
	case dist.KindAllReduce, dist.KindReduce:
		return [][]byte{m.result(c, 0, c.count)}
	case dist.KindReduceScatter:
		return [][]byte{m.result(c, rank*c.count, c.count)}
	case dist.KindBroadcast:
		return [][]byte{m.input(c, c.root, 0, c.count)}
	case dist.KindScatter:
		return [][]byte{m.input(c, c.root, rank*c.count, c.count)}
	case dist.KindAllToAll:
		lo = rank * c.count
	}
	pieces := make([][]byte, m.n)
	for r := range pieces {
		pieces[r] = m.input(c, r, lo, c.count)
	}
	return pieces
}

// foresee makes the rows of c, for all ranks.
func (m *rows) foresee(c scenario) {
	count := c.count
	switch c.kind {
	case dist.KindReduceScatter, dist.KindScatter, dist.KindAllToAll:
		count *= m.n
	}
	for r := range m.n {
		m.input(c, r, 0, count)
	}
	if c.kind.Reduces() {
		m.result(c, 0, count)
	}
}

// foreseen returns a function for the rows of the cases of p in worlds of n ranks. Its first call
// makes them; it returns nil for a part without cases.
func (p part) foreseen(o Options, n int) func() *rows {
	if p.cases == nil {
		return func() *rows { return nil }
	}
	return sync.OnceValue(func() *rows {
		m := newRows(n, nil)
		for _, c := range p.cases(o, n) {
			m.foresee(c)
		}
		return m
	})
}
