package cudaexec

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/internal/cublas"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/dl"
)

// tuneCandidates is how many algorithms are timed for a product.
const tuneCandidates = 16

// tune chooses for each product the fastest of several ways, if x is to do so.
//
// Owns: m frees what turns need when it closes. Errors: those of cublas.Handle.NewPlan, naming the step.
func (m *products) tune(x *Exec) error {
	if m == nil || !x.cfg.Tune {
		return nil
	}
	for i, q := range m.steps {
		if q == nil {
			continue
		}
		err := q.tune(m.handle)
		if err == nil {
			err = q.tryTurn(x)
		}
		if err != nil {
			return fmt.Errorf("cudaexec: timing %s: %w", stepName(x.p, i), err)
		}
	}
	return m.place(x)
}

// tune times algorithms for q. That none is proposed, or that memory for trying is short, leaves q as it is.
func (q *product) tune(h *cublas.Handle) error {
	if q.gemm.K == 0 || q.align < max(q.gemm.DType.Bytes(), q.gemm.Out.Bytes()) {
		return nil
	}
	p, err := h.NewPlan(cublas.PlanDesc{Gemm: q.gemm, AlignBytes: q.align, Candidates: tuneCandidates})
	if errors.Is(err, dl.ErrUnsupported) || errors.Is(err, cuda.ErrMemory) {
		return nil
	}
	q.plan = p
	return err
}

// tryTurn times q with a transposed copy of an operand, where that can pay, and takes it if it is faster, the copy included.
// That no algorithm is proposed, or that memory for trying is short, leaves q as it is.
func (q *product) tryTurn(x *Exec) error {
	if q.plan == nil || x.cfg.turns == turnNever || x.cfg.turns == turnWhereFaster && !canPay(&q.gemm) {
		return nil
	}
	t := newTurn(&q.gemm)
	if t == nil {
		return nil
	}
	p, err := t.time(x, q.align)
	switch {
	case errors.Is(err, dl.ErrUnsupported) || errors.Is(err, cuda.ErrMemory):
		return nil
	case err != nil:
		return err
	case x.cfg.turns == turnWhereFaster && p.Took() >= q.plan.Took():
		return p.Close()
	}
	old := q.plan
	q.plan, q.turned = p, t
	return old.Close()
}

// time is the fastest plan for t's product with the copy before it, which is made of memory that has the operand's size.
func (t *turned) time(x *Exec, align int) (*cublas.Plan, error) {
	if err := x.needOwn(); err != nil {
		return nil, err
	}
	from, err := x.dev.Alloc(t.sourceBytes())
	if err != nil {
		return nil, err
	}
	if err := x.dev.Fill(from, 0x3c, t.sourceBytes()); err != nil {
		return nil, errors.Join(err, x.dev.Free(from))
	}
	before := func(s *cuda.Stream, o cublas.Operands) error {
		t.aim(x.own, argument{literal, int64(from)}, *t.operand(&o))
		return t.copy.queue(s, nil, x.room)
	}
	p, err := x.mul.handle.NewPlan(cublas.PlanDesc{Gemm: t.gemm, AlignBytes: align, Candidates: tuneCandidates, Before: before})
	if failed := x.dev.Free(from); failed != nil {
		if p != nil {
			failed = errors.Join(failed, p.Close())
		}
		return nil, failed
	}
	return p, err
}

// place makes room for the largest copy of all turns that were taken. Where there is none the products are done without.
func (m *products) place(x *Exec) error {
	for _, q := range m.steps {
		if q != nil && q.turned != nil {
			m.bytes = max(m.bytes, q.turned.bytes())
		}
	}
	if m.bytes == 0 {
		return nil
	}
	var err error
	m.copies, err = x.dev.Alloc(m.bytes)
	switch {
	case errors.Is(err, cuda.ErrMemory):
		return m.dropTurns()
	case err != nil:
		return fmt.Errorf("cudaexec: program %q: copies of operands: %w", x.p.Name, err)
	}
	for _, q := range m.steps {
		if q == nil || q.turned == nil {
			continue
		}
		from := q.a
		if q.turned.second {
			from = q.b
		}
		q.turned.aim(x.own, from, m.copies)
	}
	return nil
}

// dropTurns leaves the products that have turns to cuBLAS's own choice.
func (m *products) dropTurns() error {
	m.bytes = 0
	var errs []error
	for _, q := range m.steps {
		if q != nil && q.turned != nil {
			errs = append(errs, q.plan.Close())
			q.plan, q.turned = nil, nil
		}
	}
	return errors.Join(errs...)
}

// scratch is the bytes of memory that products work in, but for what cuBLAS has.
func (m *products) scratch() int64 {
	if m == nil {
		return 0
	}
	return m.bytes
}
