package cudagen

import (
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
)

const (
	tileSide    = 32
	tileThreads = 256
	tileElems   = 1 << 12 // a smaller Map fits in the caches
	tileIns     = 4       // the most that static shared memory can hold, with f64
)

// transposition is a Map some of whose Ins have another fast dim than its Outs.
type transposition struct {
	n      *nest
	across int   // the fast dim of those Ins; that of the Outs is the last
	ins    []int // their numbers
}

// transposition returns the transposition of a Map, or nil if tiles gain nothing.
func (g *generator) transposition(i int, op *program.Map) *transposition {
	n := g.newNest(i, op.Space, nil)
	if len(n.outs) == 0 || n.count(false) < tileElems {
		return nil
	}
	n.order(func(d int) int { return abs(n.outs[0].strides[d]) })
	n.join(draws(op.Code))
	t := &transposition{n: n, across: -1}
	last := len(n.dims) - 1
	for j := range n.ins {
		s := n.ins[j].strides
		if last < 1 || abs(s[last]) < 2 || !loads(op.Code, j) || len(t.ins) == tileIns {
			continue
		}
		for d := range s[:last] {
			if s[d] == 1 && (t.across < 0 || t.across == d) && n.dims[d].size >= 8 && n.dims[last].size >= 8 {
				t.across = d
				t.ins = append(t.ins, j)
			}
		}
	}
	if t.across < 0 {
		return nil
	}
	return t
}

// loads reports whether code loads In j.
func loads(code []program.Instr, j int) bool {
	for _, c := range code {
		if c.Op == program.Load && c.A == j {
			return true
		}
	}
	return false
}

// tiled generates the kernel of a Map that is a transposition, and reports whether it is one. Tiles
// of 32 by 32 elements of its Ins pass through shared memory, so that neighbouring threads read and
// write neighbours.
func (g *generator) tiled(i int, op *program.Map) (bool, error) {
	t := g.transposition(i, op)
	if t == nil || len(op.Stores) != len(t.n.outs) {
		return false, nil
	}
	b := &body{n: t.n, code: op.Code, real: g.real(i), index: "s32", width: 1, tiles: t.ins}
	if !t.n.small() {
		b.index = "s64"
	}
	b.loop = t.n.group(false, "e", "c")
	b.loop.split = true
	if err := b.emit(); err != nil {
		return false, err
	}
	if err := b.storeAll(op); err != nil {
		return false, err
	}
	params, args := g.pointers(i, op.Code, b.clock)
	text, blocks := t.text(b, params)
	g.launch(i, Kernel{
		Name: g.function("tiles", text), Grid: [3]uint32{uint32(blocks), 1, 1}, Block: [3]uint32{tileThreads, 1, 1}, Args: args,
	})
	return true, nil
}

// text returns the kernel and its number of blocks.
func (t *transposition) text(b *body, params []string) (string, int) {
	last := len(t.n.dims) - 1
	rows, columns := t.n.dims[t.across].size, t.n.dims[last].size
	tileRows, tileColumns := ceilDiv(rows, tileSide), ceilDiv(columns, tileSide)
	var s strings.Builder
	fmt.Fprintf(&s, "extern \"C\" __global__ void __launch_bounds__(%d) %s(%s) {\n", tileThreads, nameMark, strings.Join(params, ", "))
	s.WriteString(b.lines[atTop].String())
	for _, j := range t.ins {
		fmt.Fprintf(&s, "  __shared__ %s t%d[%d][%d];\n", ctype(t.n.ins[j].dtype), j, tileSide, tileSide+1)
	}
	fmt.Fprintf(&s, "  const int column = threadIdx.x %% %d, lane = threadIdx.x / %d;\n", tileSide, tileSide)
	fmt.Fprintf(&s, "  const int right = blockIdx.x %% %d * %d, below = blockIdx.x / %d %% %d * %d;\n", tileColumns, tileSide, tileColumns, tileRows, tileSide)
	rest := tileColumns * tileRows
	for d := last - 1; d >= 0; d-- {
		if d != t.across {
			fmt.Fprintf(&s, "  const %s c%d = blockIdx.x / %d %% %d;\n", b.index, d, rest, t.n.dims[d].size)
			rest *= t.n.dims[d].size
		}
	}
	each := fmt.Sprintf("  for (int row = lane; row < %d; row += %d) {\n", tileSide, tileThreads/tileSide)
	place := "    const %s c%d = below + %s, c%d = right + %s;\n    if (c%d >= %d || c%d >= %d) continue;\n"
	s.WriteString("#pragma unroll\n" + each)
	fmt.Fprintf(&s, place, b.index, t.across, "column", last, "row", t.across, rows, last, columns)
	for _, j := range t.ins {
		fmt.Fprintf(&s, "    t%d[row][column] = a%d[%s];\n", j, j, b.offset(&t.n.ins[j]))
	}
	s.WriteString("  }\n  __syncthreads();\n" + each)
	fmt.Fprintf(&s, place, b.index, t.across, "row", last, "column", t.across, rows, last, columns)
	s.WriteString(b.lines[atLoop].String() + b.after.String() + "  }\n}\n")
	return s.String(), rest
}
