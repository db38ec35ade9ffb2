package machine

import (
	"math"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// update is what an optimizer does, as steps of a program. The rules are those of package optim, whose files sgd.go, adam.go
// and clip.go have the formulas; what changes from step to step is computed on the device, from words that the host sets
// when they change and others that the program itself counts on.
//
//	squares  of each gradient, and their sum       with ClipNorm
//	terms    of the step: rate, bias corrections   one Map over nothing
//	weights  and states                            a Map for each parameter
type update struct {
	cfg    optim.Config // with defaults
	params []updated

	rate, scale  program.ID // f64, set by the host
	pow1, pow2   program.ID // f64: beta1 and beta2 to the number of steps
	count        program.ID // f64: number of steps
	norm         program.ID // f64, with ClipNorm: of the scaled gradients, before they are clipped
	total        operand
	terms32      terms
	terms64      terms
	counted      bool // pow1, pow2 and count are those of this step
	gradientZero bool // the gradients become 0 behind their use
}

// updated is a parameter in a program.
type updated struct {
	name   string
	weight operand
	grad   operand
	slots  []program.ID
}

// terms are numbers of one step, of one dtype; those that the rule does not need are missing.
type terms struct {
	made        bool
	rate, scale operand
	size, root  operand // of Adam
	shrink      operand // of AdamW
	keep, add   operand // of momentum with dampening
	finite      operand // 1 if the norm is a number, with ClipNorm
}

// emit adds the steps.
func (u *update) emit(l *lowering) error {
	if u.cfg.ClipNorm > 0 {
		if err := u.measure(l); err != nil {
			return err
		}
	}
	for i := range u.params {
		p := &u.params[i]
		t := &u.terms32
		if p.weight.dtype == tensor.F64 {
			t = &u.terms64
		}
		if !t.made {
			if err := u.makeTerms(l, t, p.weight.dtype); err != nil {
				return err
			}
		}
		if err := u.step(l, p, t); err != nil {
			return err
		}
	}
	return nil
}

// measure adds the sum of the squared gradients, in f64.
func (u *update) measure(l *lowering) error {
	l.label = "squared gradients"
	each := l.fresh(tensor.F64, []int{len(u.params)})
	for i := range u.params {
		g := l.reshape(u.params[i].grad, []int{u.params[i].grad.len()})
		m := l.newCode(g.shape)
		r := m.load(g)
		m.do(program.Mul, r, r)
		if m.err != nil {
			return m.err
		}
		l.label = "squares of d " + u.params[i].name
		l.add(program.Step{
			Op: &program.Reduce{Space: m.space, Reduced: []bool{true}, Red: program.Sum, Code: m.code},
			In: m.in, Out: []program.View{{Value: each.view.Value, Offset: i, Strides: []int{0}}},
		})
	}
	l.label = "squared norm"
	u.total = l.fresh(tensor.F64, nil)
	m := l.newCode(each.shape)
	m.load(each)
	l.add(program.Step{
		Op: &program.Reduce{Space: m.space, Reduced: []bool{true}, Red: program.Sum, Code: m.code},
		In: m.in, Out: []program.View{{Value: u.total.view.Value, Strides: []int{0}}},
	})
	return m.err
}

// termCode is the code of the terms.
type termCode struct {
	*code
	l      *lowering
	u      *update
	dt     tensor.DType
	outs   []program.View
	stores []int
}

// term stores register r as a term.
func (c *termCode) term(r int) operand {
	o := c.l.fresh(c.dt, nil)
	c.store(r, o)
	return o
}

func (c *termCode) store(r int, o operand) {
	c.outs, c.stores = append(c.outs, o.view), append(c.stores, r)
}

// makeTerms adds the Map that computes the terms of dt. The first such Map of a program counts the step.
func (u *update) makeTerms(l *lowering, t *terms, dt tensor.DType) error {
	l.label = "terms of the step"
	c := &termCode{code: l.newCode(nil), l: l, u: u, dt: dt}
	rate, scale := c.load(l.whole(u.rate)), c.load(l.whole(u.scale))
	finite := -1
	if u.cfg.ClipNorm > 0 {
		scale, finite = c.clip(scale)
		t.finite = c.term(finite)
	}
	t.made = true
	t.scale = c.term(scale)
	switch u.cfg.Name {
	case optim.Adam, optim.AdamW:
		one := c.constant(1)
		p1, p2 := c.counted(u.pow1, u.cfg.Beta1, finite), c.counted(u.pow2, u.cfg.Beta2, finite)
		t.size = c.term(c.do(program.Div, rate, c.do(program.Sub, one, p1)))
		t.root = c.term(c.do(program.Sqrt, c.do(program.Sub, one, p2)))
		if u.cfg.Name == optim.AdamW {
			t.shrink = c.term(c.do(program.Sub, one, c.do(program.Mul, rate, c.constant(u.cfg.WeightDecay))))
		}
	case optim.Momentum:
		t.rate = c.term(rate)
		if u.cfg.Dampening != 0 {
			c.dampen(t, finite)
		}
	default:
		t.rate = c.term(rate)
	}
	u.counted = true
	l.add(program.Step{Op: &program.Map{Space: c.space, Code: c.code.code, Stores: c.stores}, In: c.in, Out: c.outs})
	return c.err
}

// clip is the scale of gradients whose norm is bounded, and whether the norm is a number; without one the scale is 0.
func (c *termCode) clip(scale int) (clipped, finite int) {
	norm := c.do(program.Mul, scale, c.do(program.Sqrt, c.load(c.u.total)))
	finite = c.do(program.Equal, c.do(program.Sub, norm, norm), c.constant(0))
	if !c.u.counted {
		c.store(norm, c.l.whole(c.u.norm))
	}
	if limit := c.u.cfg.ClipNorm; !math.IsInf(limit, 1) {
		factor := c.do(program.Minimum, c.do(program.Div, c.constant(limit), c.do(program.Add, norm, c.constant(1e-6))), c.constant(1))
		scale = c.do(program.Mul, scale, factor)
	}
	return c.do(program.Select, finite, scale, c.constant(0)), finite
}

// counted is a power of beta for this step, which the value keeps. It stays where the norm is no number: no step is made.
func (c *termCode) counted(id program.ID, beta float64, finite int) int {
	now := c.load(c.l.whole(id))
	if c.u.counted {
		return now
	}
	next := c.do(program.Mul, now, c.constant(beta))
	if finite >= 0 {
		c.store(c.do(program.Select, finite, next, now), c.l.whole(id))
	} else {
		c.store(next, c.l.whole(id))
	}
	return next
}

// dampen makes the terms of momentum with dampening, which the first step is without.
func (c *termCode) dampen(t *terms, finite int) {
	before := c.load(c.l.whole(c.u.count))
	zero, one := c.constant(0), c.constant(1)
	if c.u.counted { // before is one more
		before = c.do(program.Sub, before, one)
	} else {
		next := c.do(program.Add, before, one)
		if finite >= 0 {
			next = c.do(program.Select, finite, next, before)
		}
		c.store(next, c.l.whole(c.u.count))
	}
	later := c.do(program.Greater, before, zero)
	t.keep = c.term(c.do(program.Select, later, c.constant(c.u.cfg.Momentum), zero))
	t.add = c.term(c.do(program.Select, later, c.constant(1-c.u.cfg.Dampening), one))
}

// element is the code of an update, element by element.
type element struct {
	*code
	l      *lowering
	u      *update
	t      *terms
	finite int // register; -1 without
	outs   []program.View
	stores []int
}

// step adds the Map of one parameter.
func (u *update) step(l *lowering, p *updated, t *terms) error {
	l.label = "update " + p.name
	n := p.weight.len()
	c := &element{code: l.newCode([]int{n}), l: l, u: u, t: t, finite: -1}
	if u.cfg.ClipNorm > 0 {
		c.finite = c.load(t.finite)
	}
	weight, grad := l.reshape(p.weight, c.space), l.reshape(p.grad, c.space)
	w := c.load(weight)
	g := c.do(program.Mul, c.load(t.scale), c.load(grad))
	if u.cfg.WeightDecay != 0 && u.cfg.Name != optim.AdamW {
		g = c.do(program.Add, g, c.do(program.Mul, c.constant(u.cfg.WeightDecay), w))
	}
	var next int
	switch u.cfg.Name {
	case optim.Adam, optim.AdamW:
		next = c.adam(w, g, p.slots)
	case optim.Momentum:
		next = c.momentum(w, g, p.slots[0])
	default:
		next = c.do(program.Sub, w, c.do(program.Mul, c.load(t.rate), g))
	}
	c.keep(next, w, weight)
	if u.gradientZero {
		c.outs, c.stores = append(c.outs, grad.view), append(c.stores, c.constant(0))
	}
	if c.err != nil {
		return c.err
	}
	l.add(program.Step{Op: &program.Map{Space: c.space, Code: c.code.code, Stores: c.stores}, In: c.in, Out: c.outs})
	return nil
}

// keep stores a new value over the old one, unless the norm is no number.
func (c *element) keep(next, old int, at operand) {
	if c.finite >= 0 {
		next = c.do(program.Select, c.finite, next, old)
	}
	c.outs, c.stores = append(c.outs, at.view), append(c.stores, next)
}

// slot is a state over the space, and its element.
func (c *element) slot(id program.ID) (operand, int) {
	o := c.l.reshape(c.l.whole(id), c.space)
	return o, c.load(o)
}

func (c *element) adam(w, g int, slots []program.ID) int {
	cfg, t := &c.u.cfg, c.t
	meanAt, mean := c.slot(slots[0])
	squareAt, square := c.slot(slots[1])
	m := c.do(program.Add, c.do(program.Mul, c.constant(cfg.Beta1), mean), c.do(program.Mul, c.constant(1-cfg.Beta1), g))
	v := c.do(program.Add, c.do(program.Mul, c.constant(cfg.Beta2), square), c.do(program.Mul, c.do(program.Mul, c.constant(1-cfg.Beta2), g), g))
	top := v
	if cfg.AMSGrad {
		largestAt, largest := c.slot(slots[2])
		top = c.do(program.Maximum, largest, v)
		c.keep(top, largest, largestAt)
	}
	c.keep(m, mean, meanAt)
	c.keep(v, square, squareAt)
	if cfg.Name == optim.AdamW {
		w = c.do(program.Mul, c.load(t.shrink), w)
	}
	below := c.do(program.Add, c.do(program.Div, c.do(program.Sqrt, top), c.load(t.root)), c.constant(cfg.Epsilon))
	return c.do(program.Sub, w, c.do(program.Div, c.do(program.Mul, c.load(t.size), m), below))
}

func (c *element) momentum(w, g int, slot program.ID) int {
	cfg, t := &c.u.cfg, c.t
	at, buffer := c.slot(slot)
	keep, now := c.constant(cfg.Momentum), g
	if cfg.Dampening != 0 {
		keep, now = c.load(t.keep), c.do(program.Mul, c.load(t.add), g)
	}
	b := c.do(program.Add, c.do(program.Mul, keep, buffer), now)
	c.keep(b, buffer, at)
	along := b
	if cfg.Nesterov {
		along = c.do(program.Add, g, c.do(program.Mul, c.constant(cfg.Momentum), b))
	}
	return c.do(program.Sub, w, c.do(program.Mul, c.load(t.rate), along))
}
