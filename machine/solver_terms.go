package machine

import (
	"math"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// terms has the numbers of one step for the parameters of one dtype and one factor of the rate.
// Those that the rule does not need are unset.
type terms struct {
	dtype  tensor.DType
	factor float64

	rate, scale operand
	size, root  operand // of Adam and LAMB
	keep, add   operand // of momentum with dampening
	finite      operand // 1 if the norm is finite, if it is measured
	first       operand // 1 at the first step, with EMADecay
}

// measure adds the sum of the squared gradients, in f64.
func (u *update) measure(b *builder) error {
	b.label = "squared gradients"
	each := b.fresh(tensor.F64, []int{len(u.params)})
	for i := range u.params {
		g := u.params[i].grad
		if g.len() == 0 {
			b.zero(each, i)
			continue
		}
		m := b.newCode(g.shape)
		r := m.load(g)
		m.do(program.Mul, r, r)
		b.label = "squares of d " + u.params[i].name
		if err := m.sumTo(each, i); err != nil {
			return err
		}
	}
	b.label = "squared norm"
	u.total = b.fresh(tensor.F64, nil)
	m := b.newCode(each.shape)
	m.load(each)
	if err := m.sumTo(u.total, 0); err != nil || u.sum == nil {
		return err
	}
	u.sum(u.total)
	return nil
}

// termCode builds the code of the terms.
type termCode struct {
	*code
	b      *builder
	u      *update
	dt     tensor.DType
	finite int // register; -1 if the norm is not measured
	outs   []program.View
	stores []int
}

// term stores register r as a term.
func (c *termCode) term(r int) operand {
	o := c.b.fresh(c.dt, nil)
	c.store(r, o)
	return o
}

func (c *termCode) store(r int, o operand) {
	c.outs, c.stores = append(c.outs, o.view), append(c.stores, r)
}

// termsOf returns the terms of a parameter's dtype and factor. The first call counts the step.
func (u *update) termsOf(b *builder, dt tensor.DType, factor float64) (*terms, error) {
	for _, t := range u.terms {
		if t.dtype == dt && t.factor == factor {
			return t, nil
		}
	}
	t := &terms{dtype: dt, factor: factor}
	u.terms = append(u.terms, t)
	b.label = "terms of the step"
	c := &termCode{code: b.newCode(nil), b: b, u: u, dt: dt, finite: -1}
	rate, scale := c.load(b.whole(u.rate)), c.load(b.whole(u.scale))
	if factor != 1 {
		rate = c.do(program.Mul, rate, c.constant(factor))
	}
	if u.cfg.Measures() {
		scale = c.clip(scale)
		t.finite = c.term(c.finite)
	}
	t.scale, t.rate = c.term(scale), c.term(rate)
	u.makeTerms(c, t, rate)
	u.counted = true
	b.add(program.Step{Op: &program.Map{Space: c.space, Code: c.code.code, Stores: c.stores}, In: c.in, Out: c.outs})
	return t, c.err
}

// makeTerms adds the terms that depend on the number of steps.
func (u *update) makeTerms(c *termCode, t *terms, rate int) {
	one := c.constant(1)
	switch u.cfg.Name {
	case optim.Adam, optim.AdamW, optim.LAMB:
		p1, p2 := c.counted(u.pow1, u.cfg.Beta1), c.counted(u.pow2, u.cfg.Beta2)
		size := rate
		if u.cfg.Name == optim.LAMB {
			size = one
		}
		t.size = c.term(c.do(program.Div, size, c.do(program.Sub, one, p1)))
		t.root = c.term(c.do(program.Sqrt, c.do(program.Sub, one, p2)))
	}
	if u.cfg.Dampening == 0 && u.cfg.EMADecay == 0 {
		return
	}
	before, zero := c.before(), c.constant(0)
	if u.cfg.Dampening != 0 { // dampening starts with the second step
		later := c.do(program.Greater, before, zero)
		t.keep = c.term(c.do(program.Select, later, c.constant(u.cfg.Momentum), zero))
		t.add = c.term(c.do(program.Select, later, c.constant(1-u.cfg.Dampening), one))
	}
	if u.cfg.EMADecay > 0 {
		t.first = c.term(c.do(program.Equal, before, zero))
	}
}

// clip returns the scale of gradients with a bounded norm; 0 if the norm is not finite. It sets
// c.finite.
func (c *termCode) clip(scale int) int {
	norm := c.do(program.Mul, scale, c.do(program.Sqrt, c.load(c.u.total)))
	c.finite = c.do(program.Equal, c.do(program.Sub, norm, norm), c.constant(0))
	if !c.u.counted {
		c.store(norm, c.b.whole(c.u.norm))
		if c.u.cfg.SkipNonFinite {
			before := c.load(c.b.whole(c.u.skipped))
			c.store(c.do(program.Select, c.finite, before, c.do(program.Add, before, c.constant(1))), c.b.whole(c.u.skipped))
		}
	}
	if limit := c.u.cfg.ClipNorm; limit > 0 && !math.IsInf(limit, 1) {
		factor := c.do(program.Minimum, c.do(program.Div, c.constant(limit), c.do(program.Add, norm, c.constant(1e-6))), c.constant(1))
		scale = c.do(program.Mul, scale, factor)
	}
	return c.do(program.Select, c.finite, scale, c.constant(0))
}

// counted returns a power of beta for this step, and stores it.
func (c *termCode) counted(id program.ID, beta float64) int {
	now := c.load(c.b.whole(id))
	if c.u.counted {
		return now
	}
	next := c.do(program.Mul, now, c.constant(beta))
	c.advance(next, now, id)
	return next
}

// before returns the number of steps before this one, and counts this one.
func (c *termCode) before() int {
	now := c.load(c.b.whole(c.u.count))
	one := c.constant(1)
	if c.u.counted { // now includes this step, unless the step is skipped and needs no number
		return c.do(program.Sub, now, one)
	}
	c.advance(c.do(program.Add, now, one), now, c.u.count)
	return now
}

// advance stores the value of a word after this step. It keeps the old one if the norm is not
// finite, as the step is skipped.
func (c *termCode) advance(next, now int, id program.ID) {
	if c.finite >= 0 {
		next = c.do(program.Select, c.finite, next, now)
	}
	c.store(next, c.b.whole(id))
}
