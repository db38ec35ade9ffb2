package cudaexec

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cublas"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// tuneCandidates is the number of algorithms that are timed for a product.
const tuneCandidates = 16

// tune times several variants of each product, with Config.Tune. choose takes the fastest.
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

// tune times algorithms for q. If cuBLAS proposes none, or memory for the trial is short, q stays
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
		q.gemmVariant = newVariant(p, nil)
	}
	return err
}

// tryTurn times the turned form of q if it may pay. If cuBLAS proposes no algorithm, or memory for
// the trial is short, q stays as it is.
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
		q.spare = newVariant(p, t)
	}
	return err
}

// newVariant returns the variant of a timed plan, for the product of t, or for the step's own if t
// is nil.
func newVariant(p *cublas.Plan, t *turned) gemmVariant {
	return gemmVariant{p, t, trialOf(p)}
}

// trialOf returns the algorithms of a plan as a trial.
func trialOf(p *cublas.Plan) *trial {
	d := p.Desc()
	what := fmt.Sprintf("%v at multiples of %d B", &d.Gemm, d.AlignBytes)
	names, took := p.Candidates()
	return newTrial(what, names, took, p.Take)
}

// trials returns all that was timed, step by step.
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

// choose takes the faster variant of each product that was timed in two forms, copy included. With
// turnAlways it takes the turned one.
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

// fasterThan compares the times of the algorithms that w and o took, on the slowest rank.
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

// time returns the fastest plan for t's product. Each trial includes the copy, from memory of the
// operand's size.
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

// place allocates memory for the largest copy of all chosen turned products, for each stream.
//
// Returns: whether memory is short for it. Owns: m frees it when it closes. Errors: all except
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

// aim sets the addresses of all copies.
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

// dropTurns replaces all turned variants by those without copies, and frees the memory for copies.
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

// freeCopies frees the memory for copies, if any.
func (m *products) freeCopies() error {
	at := m.copies
	m.copies, m.room = 0, [streams]int64{}
	if at == 0 {
		return nil
	}
	return m.dev.Free(at)
}

// settle closes the variants that were not taken.
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
