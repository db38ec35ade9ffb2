package cudaexec

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cublas"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// product is a MatMul in the form that cuBLAS takes.
type product struct {
	gemm        cublas.Gemm
	a, b, c     argument
	align       int         // of all three addresses, if bound values are aligned to boundAlign
	gemmVariant             // the faster one; without a plan unless some were timed
	spare       gemmVariant // the slower one of two that were timed, in case memory is short for the faster
	clear       int64       // bytes of C to set to 0 instead of a product, if K is 0

	on program.Stream
	h  *cublas.Handle // of that stream
}

// gemmVariant is a plan for a product, with or without a transposed copy of an operand.
type gemmVariant struct {
	plan   *cublas.Plan // the fastest of several algorithms
	turned *turned      // the product with a copy that the plan is for; nil for the product as it is
	trial  *trial       // of the algorithms
}

// boundAlign is the expected alignment of bound memory. With less, a plan is not used.
const boundAlign = 256

// cublasTypes are the element types of products by cuBLAS.
var cublasTypes = map[tensor.DType]cublas.DType{
	tensor.F32: cublas.F32, tensor.F64: cublas.F64, tensor.F16: cublas.F16, tensor.BF16: cublas.BF16,
}

// matrix is the layout of a view of (batch, rows, cols): by rows, or by columns for trans.
type matrix struct {
	trans  bool
	ld     int
	stride int64
}

// newMatrix finds the layout of v. Errors: strides of which neither of the last two is 1.
func newMatrix(v program.View, rows, cols int) (matrix, error) {
	if len(v.Strides) != 3 {
		return matrix{}, fmt.Errorf("a view with strides %v, want 3 of them", v.Strides)
	}
	r, c := v.Strides[1], v.Strides[2]
	switch {
	case (c == 1 || cols == 1) && rows == 1:
		return matrix{false, max(cols, 1), int64(v.Strides[0])}, nil
	case (c == 1 || cols == 1) && r >= cols:
		return matrix{false, r, int64(v.Strides[0])}, nil
	case (r == 1 || rows == 1) && cols == 1:
		return matrix{true, max(rows, 1), int64(v.Strides[0])}, nil
	case (r == 1 || rows == 1) && c >= rows:
		return matrix{true, c, int64(v.Strides[0])}, nil
	}
	return matrix{}, fmt.Errorf("strides %v of %d by %d elements lie neither in rows nor in columns", v.Strides, rows, cols)
}

// packed reports whether batch matrices of this layout have no gaps in them, nor between them.
func (m matrix) packed(batch, rows, cols int) bool {
	line := cols
	if m.trans {
		line = rows
	}
	return m.ld == line && (batch == 1 || m.stride == int64(rows*cols))
}

// newProduct returns step i of p, a MatMul, in cuBLAS's form, or nil if its result is empty.
//
// Errors: dl.ErrUnsupported for types and strides that cuBLAS does not take.
func newProduct(p *program.Program, i int, compute Compute) (*product, error) {
	s := &p.Steps[i]
	o := s.Op.(*program.MatMul)
	if o.Batch == 0 || o.M == 0 || o.N == 0 {
		return nil, nil
	}
	wrong := func(err error) error {
		return fmt.Errorf("cudaexec: %w: %s: %w", dl.ErrUnsupported, stepName(p, i), err)
	}
	if len(s.In) != 2 || len(s.Out) != 1 {
		return nil, wrong(fmt.Errorf("%d in and %d out, want 2 and 1", len(s.In), len(s.Out)))
	}
	x, y, z := &p.Values[s.In[0].Value], &p.Values[s.In[1].Value], &p.Values[s.Out[0].Value]
	dt, known := cublasTypes[x.DType]
	if !known || y.DType != x.DType || z.DType != x.DType && (z.DType != tensor.F32 || x.DType == tensor.F64) {
		return nil, wrong(fmt.Errorf("%v times %v to %v", x.DType, y.DType, z.DType))
	}
	g := cublas.Gemm{
		DType: dt, Out: cublasTypes[z.DType], M: o.M, N: o.N, K: o.K, Batch: o.Batch, Alpha: o.Alpha, Beta: o.Beta,
		Compute: gemmCompute(compute, x.DType),
	}
	a, errA := newMatrix(s.In[0], o.M, o.K)
	b, errB := newMatrix(s.In[1], o.K, o.N)
	c, errC := newMatrix(s.Out[0], o.M, o.N)
	if err := errors.Join(errA, errB, errC); err != nil {
		return nil, wrong(err)
	}
	q := &product{gemm: g, a: viewOf(p, s.In[0]), b: viewOf(p, s.In[1]), c: viewOf(p, s.Out[0])}
	if o.K == 0 {
		if o.Beta == 0 && !c.packed(o.Batch, o.M, o.N) {
			return nil, wrong(fmt.Errorf("no products, to elements with gaps between them: strides %v", s.Out[0].Strides))
		}
		if o.Beta == 0 {
			q.clear = int64(o.Batch*o.M*o.N) * int64(z.DType.Size())
		}
		return q, nil
	}
	q.lay(a, b, c)
	if err := q.gemm.Validate(); err != nil {
		return nil, wrong(err)
	}
	q.align = alignOf(p, s.In[0], s.In[1], s.Out[0])
	return q, nil
}

// lay sets the layouts of A, B and C. If C is by columns, it asks for the product Cᵀ = Bᵀ Aᵀ.
func (q *product) lay(a, b, c matrix) {
	g := &q.gemm
	if c.trans {
		g.M, g.N = g.N, g.M
		q.a, q.b = q.b, q.a
		a, b = b, a
		a.trans, b.trans = !a.trans, !b.trans
	}
	g.TransA, g.LDA, g.StrideA = a.trans, a.ld, a.stride
	g.TransB, g.LDB, g.StrideB = b.trans, b.ld, b.stride
	g.LDC, g.StrideC = c.ld, c.stride
}

// gemmCompute returns the precision for elements of dt.
func gemmCompute(c Compute, dt tensor.DType) cublas.Compute {
	switch {
	case dt == tensor.F32 && (c == TF32 || c == F16):
		return cublas.TF32
	case dt == tensor.F32 && c == BF16:
		return cublas.FastBF16
	}
	return cublas.Full
}

// viewOf returns the address of a view's first element.
func viewOf(p *program.Program, v program.View) argument {
	return argument{int32(v.Value), int64(v.Offset) * int64(p.Values[v.Value].DType.Size())}
}

// alignOf returns the alignment of the addresses of all views: a power of two up to boundAlign.
func alignOf(p *program.Program, views ...program.View) int {
	all := int64(boundAlign)
	for _, v := range views {
		val := &p.Values[v.Value]
		all |= int64(v.Offset) * int64(val.DType.Size())
		if val.Place == program.Arena {
			all |= val.Offset
		}
	}
	return int(all & -all)
}

// queue queues the product on s. room is empty between launches.
func (q *product) queue(s *cuda.Stream, addr []uintptr, room *cuda.Args) error {
	c := addr[q.c.slot] + uintptr(q.c.offset)
	if q.gemm.K == 0 {
		return s.Fill(c, 0, q.clear)
	}
	a, b := addr[q.a.slot]+uintptr(q.a.offset), addr[q.b.slot]+uintptr(q.b.offset)
	if q.plan != nil && (a|b|c)&uintptr(q.align-1) == 0 {
		o := cublas.Operands{A: a, B: b, C: c}
		if t := q.turned; t != nil {
			if err := t.copy.queue(s, addr, room); err != nil {
				return err
			}
			*t.operand(&o) = t.at
		}
		return q.plan.Run(s, o)
	}
	return q.h.Gemm(&q.gemm, a, b, c)
}

// products are the MatMul steps of a program that cuBLAS does.
type products struct {
	dev     *cuda.Device
	lib     *cublas.Library
	handles [streams]*cublas.Handle // of streams with products
	steps   []*product              // by step; nil for others
	copies  uintptr                 // memory for transposed copies, stream by stream: one copy at a time on each
	room    [streams]int64          // bytes of copies, of each stream
}

// newProducts opens cuBLAS if p has a MatMul that it takes. It returns nil if p has none, or if
// cuBLAS is missing and cfg names no path.
//
// Errors: those of cublas.Open for a library that cfg names.
func newProducts(p *program.Program, on []program.Stream, cfg *Config, s [streams]*cuda.Stream) (*products, error) {
	if cfg.CUBLAS == Without {
		return nil, nil
	}
	m := &products{dev: cfg.Device, steps: make([]*product, len(p.Steps))}
	some := false
	for i := range p.Steps {
		if _, ok := p.Steps[i].Op.(*program.MatMul); !ok || on[i] == program.Comm {
			continue
		}
		q, err := newProduct(p, i, cfg.Compute)
		if err != nil && !errors.Is(err, dl.ErrUnsupported) {
			return nil, err
		}
		if m.steps[i] = q; q != nil {
			some, q.on = true, on[i]
		}
	}
	if !some {
		return nil, nil
	}
	err := m.open(cfg, s)
	if err != nil && cfg.CUBLAS == "" && cublas.IsUnavailable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cudaexec: program %q: %w: set CUBLAS to %q to do without", p.Name, err, Without)
	}
	return m, nil
}

func (m *products) open(cfg *Config, s [streams]*cuda.Stream) error {
	var err error
	m.lib, err = cublas.Open(cublas.Config{Path: cfg.CUBLAS, Dirs: cfg.Dirs, CUDA: cfg.Device.Driver().Version()})
	if err != nil {
		return err
	}
	for _, q := range m.steps {
		if q == nil {
			continue
		}
		if m.handles[q.on] == nil {
			if m.handles[q.on], err = m.lib.NewHandle(s[q.on], cublas.HandleConfig{}); err != nil {
				return errors.Join(err, m.close())
			}
		}
		q.h = m.handles[q.on]
	}
	return nil
}

// does reports whether cuBLAS does step i.
func (m *products) does(i int) bool { return m != nil && m.steps[i] != nil }

func (m *products) close() error {
	if m == nil {
		return nil
	}
	var errs []error
	for _, q := range m.steps {
		if q != nil {
			errs = append(errs, q.gemmVariant.close(), q.spare.close())
		}
	}
	for k, h := range m.handles {
		if m.handles[k] = nil; h != nil {
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(append(errs, m.freeCopies())...)
}
