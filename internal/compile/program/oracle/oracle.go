package oracle

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// Rank is a rank's program with its memory.
type Rank struct {
	Program *program.Program
	Memory  map[program.ID][]byte                 // of each Outside value; after the run of every value
	Calls   []func(in, out []tensor.Buffer) error // of Call
	Groups  [][]int                               // ranks of each group of this rank, in order; nil: all ranks
}

// Run runs a program on one rank. Memory has each Outside value, and afterwards each other value
// after its last step. After Plan, later values may have overwritten earlier ones in the arena.
// Errors: missing or short memory, an index out of range, a Call, which needs RunRanks.
func Run(p *program.Program, memory map[program.ID][]byte) error {
	return RunRanks([]Rank{{Program: p, Memory: memory}})
}

// RunRanks runs a program on each rank, step by step.
// The programs must have the same collectives and may differ otherwise. Errors: those of Run; ranks
// whose collectives do not match.
func RunRanks(ranks []Rank) error {
	all := make([]*machine, len(ranks))
	for r := range ranks {
		m, err := load(&ranks[r])
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		all[r] = m
	}
	for {
		waiting := 0
		for r, m := range all {
			if err := m.advance(); err != nil {
				return fmt.Errorf("rank %d: %w", r, err)
			}
			if m.next < len(m.p.Steps) {
				waiting++
			}
		}
		switch waiting {
		case 0:
			return nil
		case len(all):
		default:
			return fmt.Errorf("%d of %d ranks wait in a collective that the others do not have", waiting, len(all))
		}
		if err := collective(all); err != nil {
			return err
		}
	}
}

// machine runs the program of one rank.
type machine struct {
	p      *program.Program
	mem    [][]byte
	calls  []func(in, out []tensor.Buffer) error
	groups [][]int
	next   int
}

func load(r *Rank) (*machine, error) {
	p := r.Program
	m := &machine{p: p, mem: make([][]byte, len(p.Values)), calls: r.Calls, groups: r.Groups}
	arena := words(p.Arena)
	for i := range p.Values {
		v, id := &p.Values[i], program.ID(i)
		given, ok := r.Memory[id]
		switch {
		case v.Place == program.Constant:
			m.mem[i] = append([]byte(nil), v.Data...)
		case ok && v.Place == program.Outside:
			if int64(len(given)) < v.Bytes() {
				return nil, fmt.Errorf("value %d %q needs %d bytes and has %d", i, v.Name, v.Bytes(), len(given))
			}
			m.mem[i] = given[:v.Bytes()]
		case v.Place == program.Outside:
			if used(p, id) {
				return nil, fmt.Errorf("value %d %q has no memory", i, v.Name)
			}
		case p.Arena > 0 && v.Offset+v.Bytes() <= p.Arena:
			m.mem[i] = arena[v.Offset : v.Offset+v.Bytes()]
		default:
			m.mem[i] = words(v.Bytes())
		}
		if ok && v.Place == program.Arena {
			copy(m.mem[i], given)
		}
		r.Memory[id] = m.mem[i]
	}
	return m, nil
}

// words returns n bytes that read as NaN for all types until written, aligned for all types.
func words(n int64) []byte {
	w := make([]uint64, (n+7)/8)
	for i := range w {
		w[i] = ^uint64(0)
	}
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), n)
}

func used(p *program.Program, id program.ID) bool {
	for i := range p.Steps {
		for _, v := range p.Steps[i].In {
			if v.Value == id {
				return true
			}
		}
		for _, v := range p.Steps[i].Out {
			if v.Value == id {
				return true
			}
		}
	}
	return false
}

// advance runs the steps up to the next collective.
func (m *machine) advance() error {
	for ; m.next < len(m.p.Steps); m.next++ {
		s := &m.p.Steps[m.next]
		if _, ok := s.Op.(*program.Collective); ok {
			return nil
		}
		if err := m.step(s); err != nil {
			return fmt.Errorf("step %d %q (%v): %w", m.next, s.Name, s.Op, err)
		}
	}
	return nil
}

func (m *machine) step(s *program.Step) error {
	in, out, err := m.p.Operands(s)
	if err != nil {
		return err
	}
	o := operands{make([]*array, len(in)), make([]*array, len(out))}
	for k := range in {
		o.in[k] = m.array(s.In[k], in[k].Space)
	}
	for k := range out {
		o.out[k] = m.array(s.Out[k], out[k].Space)
	}
	switch op := s.Op.(type) {
	case *program.Map:
		m.mapped(op, &o)
	case *program.Reduce:
		m.reduce(op, &o)
	case *program.Integer:
		return integer(op, &o)
	case *program.MatMul:
		matmul(op, &o)
	case *program.BatchNorm:
		batchNorm(op, &o)
	case *program.BatchNormGrad:
		batchNormGrad(op, &o)
	case *program.CrossEntropy:
		crossEntropy(op, &o)
	case *program.SparseCrossEntropy:
		return sparseCrossEntropy(op, &o)
	case *program.Gather:
		return gather(op, &o)
	case *program.GatherGrad:
		return gatherGrad(op, &o)
	case *program.Attention:
		attention(op, &o)
	case *program.AttentionGrad:
		attentionGrad(op, &o)
	case *program.Softmax:
		softmax(op, &o)
	case *program.SoftmaxGrad:
		softmaxGrad(op, &o)
	case *program.Call:
		return m.call(s, op)
	default:
		return windowed(s.Op, &o)
	}
	return nil
}

// operands has the In and Out of a step.
type operands struct{ in, out []*array }

// array is a view over its space.
type array struct {
	dt      tensor.DType
	b       []byte
	offset  int
	space   []int
	strides []int
}

func (m *machine) array(v program.View, space []int) *array {
	return &array{m.p.Values[v.Value].DType, m.mem[v.Value], v.Offset, space, v.Strides}
}

func (a *array) element(index []int) int {
	e := a.offset
	for i, x := range index {
		e += x * a.strides[i]
	}
	return e
}

// at returns the element at an index.
func (a *array) at(index ...int) float64 { return program.Element(a.dt, a.b, a.element(index)) }

// set stores an element.
func (a *array) set(x float64, index ...int) { program.SetElement(a.dt, a.b, a.element(index), x) }

// bits returns the memory of an element.
func (a *array) bits(index []int) []byte {
	n := a.dt.Size()
	at := a.element(index) * n
	return a.b[at : at+n]
}

// call calls the host function with the memory of the operands.
func (m *machine) call(s *program.Step, op *program.Call) error {
	if op.Func < 0 || op.Func >= len(m.calls) {
		return fmt.Errorf("function %d of %d", op.Func, len(m.calls))
	}
	in, err := m.buffers(s.In)
	if err != nil {
		return err
	}
	out, err := m.buffers(s.Out)
	if err != nil {
		return err
	}
	return m.calls[op.Func](in, out)
}

func (m *machine) buffers(views []program.View) ([]tensor.Buffer, error) {
	all := make([]tensor.Buffer, len(views))
	for i, v := range views {
		val, b := &m.p.Values[v.Value], m.mem[v.Value]
		size := val.DType.Size()
		b = b[v.Offset*size:]
		var at unsafe.Pointer
		if len(b) > 0 {
			at = unsafe.Pointer(&b[0])
		}
		buf, err := tensor.FromPointer(at, len(b)/size, val.DType, tensor.Host)
		if err != nil {
			return nil, err
		}
		all[i] = buf
	}
	return all, nil
}
