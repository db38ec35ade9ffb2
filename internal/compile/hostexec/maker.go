package hostexec

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/host/blas"
	"github.com/symgrad/symgrad/tensor"
)

var errDType = errors.New("unsupported dtype")

// maker prepares the steps of a program.
type maker struct {
	p       *program.Program // a copy, with the maker's own values after the given ones
	env     program.Env
	level   *level
	library *blas.Implementation
	comm    dist.Stream // of the collectives on Comm: that of the first one's group
	threads int
	steps   []step
	scratch int // of a worker: the most that a step needs
	slots   int
	work    int // that all goroutines share during a step
}

func newMaker(p *program.Program, cfg Config, env program.Env, l *level) *maker {
	own := *p
	own.Values = append([]program.Value(nil), p.Values...)
	k := &maker{p: &own, env: env, level: l, threads: cfg.threads()}
	if l == nil || !l.wide && k.threads == 1 {
		k.library = cfg.library()
	}
	return k
}

// need records the memory that a step needs of a worker.
func (k *maker) need(scratch, slots int) {
	k.scratch = max(k.scratch, scratch)
	k.slots = max(k.slots, slots)
}

// temp adds memory for a step, n elements after the arena, as a value.
func (k *maker) temp(dt tensor.DType, n int) program.ID {
	at := (k.p.Arena + lineBytes - 1) &^ (lineBytes - 1)
	id := k.p.Add(program.Value{DType: dt, Shape: []int{n}, Place: program.Arena, Offset: at})
	k.p.Arena = at + int64(n*dt.Size())
	return id
}

// step prepares step i of the program.
func (k *maker) step(i int) error {
	s := &k.p.Steps[i]
	st := step{index: i, comm: s.Stream == program.Comm}
	for _, j := range s.After {
		if _, ok := k.p.Steps[j].Op.(*program.Collective); ok {
			st.after = append(st.after, j)
		}
	}
	var err error
	switch op := s.Op.(type) {
	case *program.Collective:
		st.coll, err = k.collective(i, op)
	case *program.Call:
		st.call, err = k.call(s, op)
	default:
		st.phases, err = k.compute(s)
	}
	if err != nil {
		return err
	}
	k.steps = append(k.steps, st)
	return nil
}

// compute returns the phases of a step that computes.
func (k *maker) compute(s *program.Step) ([]phase, error) {
	dt := tensor.F32
	for _, v := range append(append([]program.View(nil), s.In...), s.Out...) {
		if k.p.Values[v.Value].DType == tensor.F64 {
			dt = tensor.F64
		}
	}
	switch op := s.Op.(type) {
	case *program.Map, *program.Reduce:
		return k.typed(s, dt)
	case *program.Integer:
		return newInteger(k, s, op)
	case *program.Gather:
		if !k.p.Values[s.In[0].Value].DType.IsFloat() {
			return k.typed(s, dt) // it copies without computing
		}
	}
	return k.widened(s, dt)
}

// widened returns the phases of a step. Maps before and after it convert operands of other dtypes
// to and from dt.
func (k *maker) widened(s *program.Step, dt tensor.DType) ([]phase, error) {
	in, out, err := k.p.Operands(s)
	if err != nil {
		return nil, err
	}
	own := *s
	own.In, own.Out = append([]program.View(nil), s.In...), append([]program.View(nil), s.Out...)
	var before, after []phase
	for i := range own.In {
		if k.p.Values[own.In[i].Value].DType == dt || isIndex(s.Op, i) {
			continue
		}
		own.In[i] = k.packedTemp(dt, in[i].Space)
		if before, err = k.convert(before, dt, in[i].Space, s.In[i], own.In[i]); err != nil {
			return nil, err
		}
	}
	for i := range own.Out {
		if k.p.Values[own.Out[i].Value].DType == dt {
			continue
		}
		own.Out[i] = k.packedTemp(dt, out[i].Space)
		if m, ok := s.Op.(*program.MatMul); ok && m.Beta != 0 {
			if before, err = k.convert(before, dt, out[i].Space, s.Out[i], own.Out[i]); err != nil {
				return nil, err
			}
		}
		if after, err = k.convert(after, dt, out[i].Space, own.Out[i], s.Out[i]); err != nil {
			return nil, err
		}
	}
	middle, err := k.typed(&own, dt)
	return append(append(before, middle...), after...), err
}

// isIndex reports whether In i of an operation is indices, which are not converted.
func isIndex(op program.Op, i int) bool {
	switch op.(type) {
	case *program.Gather, *program.GatherGrad, *program.SparseCrossEntropy:
		return i == 1
	}
	return false
}

func (k *maker) packedTemp(dt tensor.DType, space []int) program.View {
	n := 1
	for _, d := range space {
		n *= d
	}
	return program.View{Value: k.temp(dt, n), Strides: program.Contiguous(space)}
}

// convert appends the copy of a view to a view of another dtype.
func (k *maker) convert(phases []phase, dt tensor.DType, space []int, from, to program.View) ([]phase, error) {
	p, err := k.typed(&program.Step{
		Op: &program.Map{Space: space, Code: []program.Instr{{Op: program.Load}}, Stores: []int{0}},
		In: []program.View{from}, Out: []program.View{to},
	}, dt)
	return append(phases, p...), err
}

// typed returns the phases of a step that computes in dt.
func (k *maker) typed(s *program.Step, dt tensor.DType) ([]phase, error) {
	phases, err := []phase(nil), error(nil)
	if dt == tensor.F64 {
		phases, err = makeStep[float64](k, s)
	} else {
		phases, err = makeStep[float32](k, s)
	}
	if err != nil {
		return nil, err
	}
	kept := phases[:0]
	for _, p := range phases {
		if p.pieces > 0 {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

func makeStep[T real](k *maker, s *program.Step) ([]phase, error) {
	switch op := s.Op.(type) {
	case *program.Map:
		return newMap[T](k, s, op)
	case *program.Reduce:
		return newReduce[T](k, s, op)
	case *program.MatMul:
		return newMatMul[T](k, s, op)
	case *program.Softmax:
		return newSoftmax[T](k, s, op)
	case *program.SoftmaxGrad:
		return newSoftmaxGrad[T](k, s, op)
	case *program.CrossEntropy:
		return newCrossEntropy[T](k, s, op)
	case *program.SparseCrossEntropy:
		return newSparseEntropy[T](k, s, op)
	case *program.Gather:
		return newGather[T](k, s, op)
	case *program.GatherGrad:
		return newGatherGrad[T](k, s, op)
	}
	return makeImages[T](k, s)
}

func makeImages[T real](k *maker, s *program.Step) ([]phase, error) {
	switch op := s.Op.(type) {
	case *program.Conv:
		return newConv[T](k, s, op)
	case *program.ConvGradInput:
		return newConvGradInput[T](k, s, op)
	case *program.ConvGradFilter:
		return newConvGradFilter[T](k, s, op)
	case *program.Im2Col:
		return newIm2Col[T](s, op.Window)
	case *program.Col2Im:
		return newCol2Im[T](s, op.Window)
	case *program.MaxPool:
		return newPool(k, s, op.Window, maxPool[T])
	case *program.MaxPoolGrad:
		return newPool(k, s, op.Window, maxPoolGrad[T])
	case *program.AvgPool:
		return newPool(k, s, op.Window, avgPool[T])
	case *program.AvgPoolGrad:
		return newPool(k, s, op.Window, avgPoolGrad[T])
	case *program.BatchNorm:
		return newBatchNorm[T](k, s, op)
	case *program.BatchNormGrad:
		return newBatchNormGrad[T](k, s, op)
	}
	return nil, fmt.Errorf("%T: the host has no code for it", s.Op)
}
