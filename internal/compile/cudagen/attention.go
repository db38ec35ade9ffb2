package cudagen

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// attentionRows is the rows of queries or keys per block: 16 for each warp.
const attentionRows = 64

// attention generates the kernel of an Attention.
func (g *generator) attention(i int, op *program.Attention) error {
	const bias = 3
	if err := g.checkAttention(i, op, 3, 1); err != nil {
		return err
	}
	s := &g.p.Steps[i]
	t := g.attentionTemplate(i, "attention", op, op.M)
	t.attend(op.Depth, 1, 64, 4)
	t.consts = append(t.consts, constant{"Biased", len(s.In) > bias}, constant{"Keeps", len(s.Out) > 1})
	t.lines("Q", s.In[0])
	t.lines("K", s.In[1])
	t.lines("V", s.In[2])
	t.lines("O", s.Out[0])
	t.read(g, i, 0, 1, 2)
	t.readOr(g, i, bias, bias+1, bias+2)
	t.write(g, i, 0)
	if len(s.Out) > 1 {
		t.write(g, i, 1)
	} else {
		t.nothing(i, "float *b1")
	}
	g.fixedLaunch(i, t)
	return nil
}

// attentionGrad generates the kernels of an AttentionGrad: one with blocks of keys, and one with
// blocks of queries. Both recompute the softmax probabilities, so that each sum belongs to one
// block.
func (g *generator) attentionGrad(i int, op *program.AttentionGrad) error {
	const bias = 6
	if err := g.checkAttention(i, &op.Attention, 4, 3); err != nil {
		return err
	}
	s := &g.p.Steps[i]
	keys := g.attentionTemplate(i, "attentionGradKeys", &op.Attention, op.N)
	queries := g.attentionTemplate(i, "attentionGradQueries", &op.Attention, op.M)
	step := 64
	if op.Depth > 64 {
		step = 32
	}
	keys.attend(op.Depth, 2, step, 3)
	queries.attend(op.Depth, 2, step, 3)
	for _, t := range []*template{keys, queries} {
		t.consts = append(t.consts, constant{"Biased", len(s.In) > bias})
		t.lines("Q", s.In[0])
		t.lines("K", s.In[1])
		t.lines("V", s.In[2])
		t.lines("G", s.In[3])
		t.read(g, i, 0, 1, 2, 3, 4, 5)
		t.readOr(g, i, bias, bias+1, bias+2)
	}
	keys.lines("DK", s.Out[1])
	keys.lines("DV", s.Out[2])
	keys.write(g, i, 1, 2)
	queries.lines("DQ", s.Out[0])
	queries.write(g, i, 0)
	g.fixedLaunch(i, keys)
	g.fixedLaunch(i, queries)
	return nil
}

// attend sets how blocks scan the other side: step rows at a time. Shared memory has own operands
// of the block's rows, and two buffers for each of two operands of the other side. resident is the
// number of blocks per multiprocessor to aim at with short rows.
func (t *template) attend(depth, own, step, resident int) {
	t.shared = (own*attentionRows + 4*step) * depth * 2
	if t.resident = resident; depth > 64 {
		t.resident = 2
	}
	t.consts = append(t.consts, constant{"Step", step})
}

// checkAttention rejects an unsupported step. Its first ins Ins and outs Outs are matrices.
func (g *generator) checkAttention(i int, op *program.Attention, ins, outs int) error {
	s := &g.p.Steps[i]
	if g.t.Arch < 80 {
		return fmt.Errorf("sm_%d has no products of bf16", g.t.Arch)
	}
	if d := op.Depth; d != 32 && d != 64 && d != 128 {
		return fmt.Errorf("rows of %d; kernels have 32, 64 or 128", d)
	}
	if op.M%program.AttentionTile != 0 || op.N%program.AttentionTile != 0 {
		return fmt.Errorf("%d by %d scores; kernels have tiles of %d", op.M, op.N, program.AttentionTile)
	}
	for k, v := range s.In {
		if dt := g.value(v).DType; k < ins && dt != tensor.BF16 || k >= ins && dt != tensor.F32 {
			return fmt.Errorf("in %d is %v; want bf16, or f32 for values derived from it", k, dt)
		}
	}
	for k, v := range s.Out {
		if dt := g.value(v).DType; dt != tensor.F32 && (k >= outs || dt != tensor.BF16) {
			return fmt.Errorf("out %d is %v; want bf16 or f32", k, dt)
		}
	}
	return nil
}

// attentionTemplate returns a kernel whose blocks divide all rows of every head.
func (g *generator) attentionTemplate(i int, name string, op *program.Attention, all int) *template {
	g.use(attentionPart)
	t := &template{kind: name, call: name, threads: attentionRows * 2, grid: op.Batch * op.Heads * (all / attentionRows)}
	s := &g.p.Steps[i]
	for _, v := range slices.Concat(s.In, s.Out) {
		t.wide = t.wide || wideIndex(g.value(v).Len())
	}
	// The operands of blocks that run at once should fit in a part of the cache.
	const cached = 16 << 20
	group := max(1, min(op.Batch*op.Heads, cached/(4*max(op.M, op.N)*op.Depth)))
	t.consts = []constant{
		{"Batch", op.Batch},
		{"Heads", op.Heads},
		{"M", op.M},
		{"N", op.N},
		{"Depth", op.Depth},
		{"Group", group},
		{"Scale", op.Scale},
		{"LeastBias", program.LeastBias},
	}
	return t
}

// lines adds the strides of a view of (batch, heads, rows, depth).
func (t *template) lines(name string, v program.View) {
	t.consts = append(t.consts, constant{name + "Batch", v.Strides[0]}, constant{name + "Head", v.Strides[1]}, constant{name + "Row", v.Strides[2]})
}

// readOr adds Ins of f32 to the parameters, and unused parameters for missing Ins.
func (t *template) readOr(g *generator, i int, ins ...int) {
	for _, j := range ins {
		if j < len(g.p.Steps[i].In) {
			t.read(g, i, j)
		} else {
			t.nothing(i, fmt.Sprintf("const float *a%d", j))
		}
	}
}

// nothing adds a parameter that the kernel does not use.
func (t *template) nothing(i int, param string) {
	t.params = append(t.params, param)
	t.args = append(t.args, Arg{Kind: Number, Step: i})
}
