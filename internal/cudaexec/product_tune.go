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

// tune times several ways for each product, if x is to do so. choose takes the fastest.
//
// Errors: those of cublas.Handle.NewPlan, naming the step.
func (m *products) tune(x *Exec) error {
	if m == nil || !x.cfg.Tune {
		return nil
	}
	for i, q := range m.steps {
		if q == nil {
			continue
		}
		err := q.tune()
		if err == nil {
			err = q.tryTurn(x)
		}
		if err != nil {
			return fmt.Errorf("cudaexec: timing %s: %w", stepName(x.p, i), err)
		}
	}
	return nil
}

// tune times algorithms for q. That none is proposed, or that memory for trying is short, leaves q
// as it is.
func (q *product) tune() error {
	if q.gemm.K == 0 || q.align < max(q.gemm.DType.Bytes(), q.gemm.Out.Bytes()) {
		return nil
	}
	p, err := q.h.NewPlan(cublas.PlanDesc{Gemm: q.gemm, AlignBytes: q.align, Candidates: tuneCandidates})
	if errors.Is(err, dl.ErrUnsupported) || errors.Is(err, cuda.ErrMemory) {
		return nil
	}
	if err == nil {
		q.gemmVariant = newWay(p, nil)
	}
	return err
}

// tryTurn times q with a transposed copy of an operand, where that can pay. That no algorithm is
// proposed, or that memory for trying is short, leaves q as it is.
func (q *product) tryTurn(x *Exec) error {
	if q.plan == nil || x.cfg.turns == turnNever || x.cfg.turns == turnWhereFaster && !canPay(&q.gemm) {
		return nil
	}
	t := newTurn(&q.gemm)
	if t == nil {
		return nil
	}
	p, err := t.time(x, q.h, q.align)
	if errors.Is(err, dl.ErrUnsupported) || errors.Is(err, cuda.ErrMemory) {
		return nil
	}
	if err == nil {
		q.spare = newWay(p, t)
	}
	return err
}

// newWay is the way of a plan whose algorithms were timed, for the product of t unless that is nil.
func newWay(p *cublas.Plan, t *turned) gemmVariant {
	return gemmVariant{p, t, trialOf(p)}
}

// trialOf is the algorithms of a plan.
func trialOf(p *cublas.Plan) *trial {
	d := p.Desc()
	what := fmt.Sprintf("%v at multiples of %d B", &d.Gemm, d.AlignBytes)
	names, took := p.Candidates()
	return newTrial(what, names, took, p.Take)
}

// trials is all that was timed, step by step.
func (m *products) trials() []*trial {
	if m == nil {
		return nil
	}
	var list []*trial
	for _, q := range m.steps {
		if q == nil {
			continue
		}
		for _, w := range []*gemmVariant{&q.gemmVariant, &q.spare} {
			if w.trial != nil {
				list = append(list, w.trial)
			}
		}
	}
	return list
}

// choose takes the faster of two variants for each product that was timed with both, the copy
// included, or the variant that when names.
func (m *products) choose(when turning) {
	if m == nil {
		return
	}
	for _, q := range m.steps {
		if q != nil && q.spare.plan != nil && (when == turnAlways || q.spare.fasterThan(&q.gemmVariant)) {
			q.gemmVariant, q.spare = q.spare, q.gemmVariant
		}
	}
}

// fasterThan compares the times of the algorithms of w and o on the slowest rank.
func (w *gemmVariant) fasterThan(o *gemmVariant) bool {
	return least([]float32{o.trial.worst, w.trial.worst}) == 1
}

func (w *gemmVariant) close() error {
	p := w.plan
	*w = gemmVariant{}
	if p == nil {
		return nil
	}
	return p.Close()
}

// time is the fastest plan for t's product with the copy before it, which is made of memory that
// has the operand's size.
func (t *turned) time(x *Exec, h *cublas.Handle, align int) (*cublas.Plan, error) {
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
	p, err := h.NewPlan(cublas.PlanDesc{Gemm: t.gemm, AlignBytes: align, Candidates: tuneCandidates, Before: before})
	if failed := x.dev.Free(from); failed != nil {
		if p != nil {
			failed = errors.Join(failed, p.Close())
		}
		return nil, failed
	}
	return p, err
}

// place makes room for the largest copy of all turns that were taken, of each stream.
//
// Returns: whether memory is short for it. Owns: m frees it when it closes. Errors: others than
// cuda.ErrMemory.
func (m *products) place() (short bool, err error) {
	if m == nil {
		return false, nil
	}
	for _, q := range m.steps {
		if q != nil && q.turned != nil {
			m.room[q.on] = max(m.room[q.on], aligned(q.turned.bytes()))
		}
	}
	if m.scratch() == 0 {
		return false, nil
	}
	m.copies, err = m.dev.Alloc(m.scratch())
	switch {
	case errors.Is(err, cuda.ErrMemory):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cudaexec: %d B for copies of operands: %w", m.scratch(), err)
	}
	return false, nil
}

// aim makes all turns copy to where there is room.
func (m *products) aim(k *own) {
	if m == nil {
		return
	}
	var at [streams]uintptr
	next := m.copies
	for s, bytes := range m.room {
		at[s] = next
		next += uintptr(bytes)
	}
	for _, q := range m.steps {
		if q == nil || q.turned == nil {
			continue
		}
		from := q.a
		if q.turned.second {
			from = q.b
		}
		q.turned.aim(k, from, at[q.on])
	}
}

// dropTurns has the products that have turns done as they are, and frees the room for copies, if
// there is.
func (m *products) dropTurns() error {
	if m == nil {
		return nil
	}
	for _, q := range m.steps {
		if q != nil && q.turned != nil {
			q.gemmVariant, q.spare = q.spare, q.gemmVariant
		}
	}
	return m.freeCopies()
}

// freeCopies frees the room for copies, if there is.
func (m *products) freeCopies() error {
	at := m.copies
	m.copies, m.room = 0, [streams]int64{}
	if at == 0 {
		return nil
	}
	return m.dev.Free(at)
}

// settle closes the ways that were not taken.
func (m *products) settle() error {
	if m == nil {
		return nil
	}
	var errs []error
	for _, q := range m.steps {
		if q != nil {
			errs = append(errs, q.spare.close())
		}
	}
	return errors.Join(errs...)
}

// scratch returns the workspace bytes of products, except cuBLAS's own.
func (m *products) scratch() int64 {
	if m == nil {
		return 0
	}
	sum := int64(0)
	for _, bytes := range m.room {
		sum += bytes
	}
	return sum
}
