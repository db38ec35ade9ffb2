package update

import (
	"math"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// terms has the numbers of one step for the parameters of one dtype and one factor of the rate.
// Those that the rule does not need are unset.
type terms struct {
	dtype  tensor.DType
	factor float64

	rate, scale draft.Operand
	size, root  draft.Operand // of Adam and LAMB
	keep, add   draft.Operand // of momentum with dampening
	finite      draft.Operand // 1 if the norm is finite, if it is measured
	first       draft.Operand // 1 at the first step, with EMADecay
}

// measure adds the sum of the squared gradients, in f64.
func (u *Update) measure(b *draft.Builder) error {
	b.Label = "squared gradients"
	each := b.Fresh(tensor.F64, []int{len(u.Params)})
	for i := range u.Params {
		g := u.Params[i].Grad
		if g.Len() == 0 {
			b.Zero(each, i)
			continue
		}
		m := b.NewCode(g.Shape)
		r := m.Load(g)
		m.Do(program.Mul, r, r)
		b.Label = "squares of d " + u.Params[i].Name
		if err := m.SumTo(each, i); err != nil {
			return err
		}
	}
	b.Label = "squared norm"
	u.total = b.Fresh(tensor.F64, nil)
	m := b.NewCode(each.Shape)
	m.Load(each)
	if err := m.SumTo(u.total, 0); err != nil || u.Sum == nil {
		return err
	}
	u.Sum(u.total)
	return nil
}

// termCode builds the code of the terms.
type termCode struct {
	*draft.Code
	b      *draft.Builder
	u      *Update
	dt     tensor.DType
	finite int // register; -1 if the norm is not measured
	outs   []program.View
	stores []int
}

// term stores register r as a term.
func (c *termCode) term(r int) draft.Operand {
	o := c.b.Fresh(c.dt, nil)
	c.store(r, o)
	return o
}

func (c *termCode) store(r int, o draft.Operand) {
	c.outs, c.stores = append(c.outs, o.View), append(c.stores, r)
}

// termsOf returns the terms of a parameter's dtype and factor. The first call counts the step.
func (u *Update) termsOf(b *draft.Builder, dt tensor.DType, factor float64) (*terms, error) {
	for _, t := range u.terms {
		if t.dtype == dt && t.factor == factor {
			return t, nil
		}
	}
	t := &terms{dtype: dt, factor: factor}
	u.terms = append(u.terms, t)
	b.Label = "terms of the step"
	c := &termCode{Code: b.NewCode(nil), b: b, u: u, dt: dt, finite: -1}
	rate, scale := c.Load(b.Whole(u.Rate)), c.Load(b.Whole(u.Scale))
	if factor != 1 {
		rate = c.Do(program.Mul, rate, c.Constant(factor))
	}
	if u.Config.Measures() {
		scale = c.clip(scale)
		t.finite = c.term(c.finite)
	}
	t.scale, t.rate = c.term(scale), c.term(rate)
	u.makeTerms(c, t, rate)
	u.counted = true
	b.Add(program.Step{Op: &program.Map{Space: c.Space, Code: c.Code.Instrs, Stores: c.stores}, In: c.In, Out: c.outs})
	return t, c.Err
}

// makeTerms adds the terms that depend on the number of steps.
func (u *Update) makeTerms(c *termCode, t *terms, rate int) {
	one := c.Constant(1)
	switch u.Config.Name {
	case optim.Adam, optim.AdamW, optim.LAMB:
		p1, p2 := c.counted(u.Pow1, u.Config.Beta1), c.counted(u.Pow2, u.Config.Beta2)
		size := rate
		if u.Config.Name == optim.LAMB {
			size = one
		}
		t.size = c.term(c.Do(program.Div, size, c.Do(program.Sub, one, p1)))
		t.root = c.term(c.Do(program.Sqrt, c.Do(program.Sub, one, p2)))
	}
	if u.Config.Dampening == 0 && u.Config.EMADecay == 0 {
		return
	}
	before, zero := c.before(), c.Constant(0)
	if u.Config.Dampening != 0 { // dampening starts with the second step
		later := c.Do(program.Greater, before, zero)
		t.keep = c.term(c.Do(program.Select, later, c.Constant(u.Config.Momentum), zero))
		t.add = c.term(c.Do(program.Select, later, c.Constant(1-u.Config.Dampening), one))
	}
	if u.Config.EMADecay > 0 {
		t.first = c.term(c.Do(program.Equal, before, zero))
	}
}

// clip returns the scale of gradients with a bounded norm; 0 if the norm is not finite. It sets
// c.finite.
func (c *termCode) clip(scale int) int {
	norm := c.Do(program.Mul, scale, c.Do(program.Sqrt, c.Load(c.u.total)))
	c.finite = c.Do(program.Equal, c.Do(program.Sub, norm, norm), c.Constant(0))
	if !c.u.counted {
		c.store(norm, c.b.Whole(c.u.Norm))
		if c.u.Config.SkipNonFinite {
			before := c.Load(c.b.Whole(c.u.Skipped))
			c.store(c.Do(program.Select, c.finite, before, c.Do(program.Add, before, c.Constant(1))), c.b.Whole(c.u.Skipped))
		}
	}
	if limit := c.u.Config.ClipNorm; limit > 0 && !math.IsInf(limit, 1) {
		factor := c.Do(program.Minimum, c.Do(program.Div, c.Constant(limit), c.Do(program.Add, norm, c.Constant(1e-6))), c.Constant(1))
		scale = c.Do(program.Mul, scale, factor)
	}
	return c.Do(program.Select, c.finite, scale, c.Constant(0))
}

// counted returns a power of beta for this step, and stores it.
func (c *termCode) counted(id program.ID, beta float64) int {
	now := c.Load(c.b.Whole(id))
	if c.u.counted {
		return now
	}
	next := c.Do(program.Mul, now, c.Constant(beta))
	c.advance(next, now, id)
	return next
}

// before returns the number of steps before this one, and counts this one.
func (c *termCode) before() int {
	now := c.Load(c.b.Whole(c.u.Count))
	one := c.Constant(1)
	if c.u.counted { // now includes this step, unless the step is skipped and needs no number
		return c.Do(program.Sub, now, one)
	}
	c.advance(c.Do(program.Add, now, one), now, c.u.Count)
	return now
}

// advance stores the value of a word after this step. It keeps the old one if the norm is not
// finite, as the step is skipped.
func (c *termCode) advance(next, now int, id program.ID) {
	if c.finite >= 0 {
		next = c.Do(program.Select, c.finite, next, now)
	}
	c.store(next, c.b.Whole(id))
}
