// Package update turns the update of an optimizer into steps of a program.
package update

import (
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// Update adds the steps of an optimizer to a program. The rules are those of package optim, with
// formulas in sgd.go, adam.go, lamb.go, lion.go, clip.go and average.go. Numbers that change from
// step to step are computed on the device, from words that the host sets or the program counts:
//
//	squares  of each gradient, and their sum           with ClipNorm or SkipNonFinite
//	terms    of the step: rate, bias corrections       one Map for each dtype and factor of the rate
//	squares  of each weight and direction, and ratios  of LAMB
//	weights  and states                                a Map for each parameter
type Update struct {
	Config optim.Config // with defaults
	Params []Param

	Rate, Scale  program.ID // f64, set by the host
	Pow1, Pow2   program.ID // f64: beta1 and beta2 to the number of steps
	Count        program.ID // f64: number of steps
	Norm         program.ID // f64, if measured: of the scaled gradients, before clipping
	Skipped      program.ID // f64, with SkipNonFinite: number of skipped steps
	total        draft.Operand
	terms        []*terms
	counted      bool // Pow1, Pow2 and Count include this step
	GradientZero bool // gradients become 0 after their use
	First        int  // index of the first step that updates a parameter

	Sum func(o draft.Operand) // adds the sum over the ranks' pieces; nil if a rank has all
}

// Param is a parameter in a program.
type Param struct {
	Name   string
	Whole  []int         // shape of the parameter; Weight may be a piece of it, even an empty one
	At     int           // index of the step that updates it, or -1
	Weight draft.Operand // flat once Emit has begun, as is Grad
	Grad   draft.Operand
	Slots  []program.ID

	decay, factor float64 // weight decay, and factor of the rate
	terms         *terms
	trust         draft.Operand // of LAMB: the trust ratio; a number if it is 1
}

// Emit adds the steps of the update to b, and sets First and At.
func (u *Update) Emit(b *draft.Builder) error {
	for i := range u.Params {
		p := &u.Params[i]
		p.decay, p.factor = u.Config.Of(p.Name, p.Whole)
		b.Label = "update " + p.Name
		flat := []int{p.Weight.Len()}
		p.Weight, p.Grad = b.Reshape(p.Weight, flat), b.Reshape(p.Grad, flat)
	}
	if u.Config.Measures() {
		if err := u.measure(b); err != nil {
			return err
		}
	}
	for i := range u.Params {
		p := &u.Params[i]
		var err error
		if p.terms, err = u.termsOf(b, p.Weight.DType, p.factor); err != nil {
			return err
		}
	}
	if u.Config.Name == optim.LAMB {
		if err := u.adapt(b); err != nil {
			return err
		}
	}
	u.First = len(b.Program.Steps)
	for i := range u.Params {
		p := &u.Params[i]
		if p.At = -1; p.Weight.Len() == 0 {
			continue
		}
		if err := u.step(b, p); err != nil {
			return err
		}
		p.At = len(b.Program.Steps) - 1
	}
	return nil
}

// element builds the code of an update, element by element.
type element struct {
	*draft.Code
	b      *draft.Builder
	u      *Update
	p      *Param
	t      *terms
	finite int // register; -1 without
	outs   []program.View
	stores []int
}

// elements returns the code over the elements of a parameter, with the registers of its weight and
// its scaled, clipped gradient.
func (u *Update) elements(b *draft.Builder, p *Param) (c *element, w, g int) {
	c = &element{Code: b.NewCode(p.Weight.Shape), b: b, u: u, p: p, t: p.terms, finite: -1}
	if u.Config.Measures() {
		c.finite = c.Load(c.t.finite)
	}
	w = c.Load(p.Weight)
	g = c.Do(program.Mul, c.Load(c.t.scale), c.Load(p.Grad))
	if bound := u.Config.ClipValue; bound > 0 {
		g = c.Do(program.Minimum, c.Do(program.Maximum, g, c.Constant(-bound)), c.Constant(bound))
	}
	return c, w, g
}

// step adds the Map that updates one parameter.
func (u *Update) step(b *draft.Builder, p *Param) error {
	b.Label = "update " + p.Name
	c, w, g := u.elements(b, p)
	var next int
	switch u.Config.Name {
	case optim.Adam, optim.AdamW:
		next = c.adam(w, g)
	case optim.Momentum, optim.Nesterov:
		next = c.momentum(w, c.decayed(w, g))
	case optim.LAMB:
		next = c.lamb(w, g)
	case optim.Lion:
		next = c.lion(w, g)
	default:
		next = c.Do(program.Sub, w, c.Do(program.Mul, c.Load(c.t.rate), c.decayed(w, g)))
	}
	c.keep(next, w, p.Weight)
	if u.Config.EMADecay > 0 {
		c.average(next, w)
	}
	if u.GradientZero {
		c.outs, c.stores = append(c.outs, p.Grad.View), append(c.stores, c.Constant(0))
	}
	if c.Err != nil {
		return c.Err
	}
	b.Add(program.Step{Op: &program.Map{Space: c.Space, Code: c.Code.Instrs, Stores: c.stores}, In: c.In, Out: c.outs})
	return nil
}

// keep stores a new value over the old one, unless the norm is not finite.
func (c *element) keep(next, old int, at draft.Operand) {
	if c.finite >= 0 {
		next = c.Do(program.Select, c.finite, next, old)
	}
	c.outs, c.stores = append(c.outs, at.View), append(c.stores, next)
}

// slot returns state k over the space, and its register.
func (c *element) slot(k int) (draft.Operand, int) {
	o := c.b.Reshape(c.b.Whole(c.p.Slots[k]), c.Space)
	return o, c.Load(o)
}

// decayed returns the gradient plus weight decay.
func (c *element) decayed(w, g int) int {
	if c.p.decay == 0 {
		return g
	}
	return c.Do(program.Add, g, c.Do(program.Mul, c.Constant(c.p.decay), w))
}

// less returns w minus change, and minus the rate times decoupled weight decay.
func (c *element) less(w, change int) int {
	if c.p.decay != 0 {
		fade := c.Do(program.Mul, c.Load(c.t.rate), c.Constant(c.p.decay))
		change = c.Do(program.Add, change, c.Do(program.Mul, fade, w))
	}
	return c.Do(program.Sub, w, change)
}

// moments returns the moments of this step, for Adam and LAMB, and a function that stores them.
func (c *element) moments(g int) (m, v int, keep func()) {
	cfg := &c.u.Config
	meanAt, mean := c.slot(0)
	squareAt, square := c.slot(1)
	m = c.Do(program.Add, c.Do(program.Mul, c.Constant(cfg.Beta1), mean), c.Do(program.Mul, c.Constant(1-cfg.Beta1), g))
	v = c.Do(program.Add, c.Do(program.Mul, c.Constant(cfg.Beta2), square), c.Do(program.Mul, c.Do(program.Mul, c.Constant(1-cfg.Beta2), g), g))
	return m, v, func() {
		c.keep(m, mean, meanAt)
		c.keep(v, square, squareAt)
	}
}

// along returns the direction of moments.
func (c *element) along(m, v int) int {
	below := c.Do(program.Add, c.Do(program.Div, c.Do(program.Sqrt, v), c.Load(c.t.root)), c.Constant(c.u.Config.Epsilon))
	return c.Do(program.Div, c.Do(program.Mul, c.Load(c.t.size), m), below)
}

func (c *element) adam(w, g int) int {
	coupled := c.u.Config.Name == optim.Adam
	if coupled {
		g = c.decayed(w, g)
	}
	m, v, keep := c.moments(g)
	top := v
	if c.u.Config.AMSGrad {
		at, largest := c.slot(2)
		top = c.Do(program.Maximum, largest, v)
		c.keep(top, largest, at)
	}
	keep()
	if coupled {
		return c.Do(program.Sub, w, c.along(m, top))
	}
	return c.less(w, c.along(m, top))
}

func (c *element) momentum(w, g int) int {
	cfg, t := &c.u.Config, c.t
	at, buffer := c.slot(0)
	keep, now := c.Constant(cfg.Momentum), g
	if cfg.Dampening != 0 {
		keep, now = c.Load(t.keep), c.Do(program.Mul, c.Load(t.add), g)
	}
	b := c.Do(program.Add, c.Do(program.Mul, keep, buffer), now)
	c.keep(b, buffer, at)
	along := b
	if cfg.Nesterov {
		along = c.Do(program.Add, g, c.Do(program.Mul, c.Constant(cfg.Momentum), b))
	}
	return c.Do(program.Sub, w, c.Do(program.Mul, c.Load(t.rate), along))
}

func (c *element) lion(w, g int) int {
	cfg := &c.u.Config
	at, mean := c.slot(0)
	mix := func(beta float64) int {
		return c.Do(program.Add, c.Do(program.Mul, c.Constant(beta), mean), c.Do(program.Mul, c.Constant(1-beta), g))
	}
	direction, zero := mix(cfg.Beta1), c.Constant(0)
	c.keep(mix(cfg.Beta2), mean, at)
	sign := c.Do(program.Select, c.Do(program.Less, direction, zero), c.Constant(-1), direction) // a NaN stays
	sign = c.Do(program.Select, c.Do(program.Greater, direction, zero), c.Constant(1), sign)
	return c.less(w, c.Do(program.Mul, c.Load(c.t.rate), sign))
}

// average moves the moving average, the last state, toward next, the new weight.
func (c *element) average(next, w int) {
	at, average := c.slot(len(c.p.Slots) - 1)
	from := c.Do(program.Select, c.Load(c.t.first), w, average)
	step := c.Do(program.Mul, c.Constant(1-c.u.Config.EMADecay), c.Do(program.Sub, next, from))
	c.keep(c.Do(program.Add, from, step), average, at)
}

// lambDirection returns the direction in which LAMB moves the weight.
func (c *element) lambDirection(w, m, v int) int { return c.decayed(w, c.along(m, v)) }

func (c *element) lamb(w, g int) int {
	m, v, keep := c.moments(g)
	keep()
	rate := c.Do(program.Mul, c.Load(c.t.rate), c.Load(c.p.trust))
	return c.Do(program.Sub, w, c.Do(program.Mul, rate, c.lambDirection(w, m, v)))
}

// adapt adds the trust ratios of the parameters with weight decay, from f64 sums of squared weights
// and directions. The update computes the directions again, which costs less than to store them.
func (u *Update) adapt(b *draft.Builder) error {
	var adapted []*Param
	for i := range u.Params {
		p := &u.Params[i]
		if p.trust = draft.Number(1, p.Weight.DType, nil); p.decay != 0 {
			adapted = append(adapted, p)
		}
	}
	if len(adapted) == 0 {
		return nil
	}
	n := []int{len(adapted)}
	b.Label = "squares of weights and directions"
	weights, directions := b.Fresh(tensor.F64, n), b.Fresh(tensor.F64, n)
	for i, p := range adapted {
		b.Label = "squares of " + p.Name
		if p.Weight.Len() == 0 {
			b.Zero(directions, i)
			b.Zero(weights, i)
			continue
		}
		c, w, g := u.elements(b, p)
		m, v, _ := c.moments(g)
		along := c.lambDirection(w, m, v)
		c.Do(program.Mul, along, along)
		if err := c.SumTo(directions, i); err != nil {
			return err
		}
		norm := b.NewCode(p.Weight.Shape)
		w = norm.Load(p.Weight)
		norm.Do(program.Mul, w, w)
		if err := norm.SumTo(weights, i); err != nil {
			return err
		}
	}
	if u.Sum != nil {
		u.Sum(weights)
		u.Sum(directions)
	}
	return u.ratios(b, adapted, weights, directions)
}

// ratios adds the Map over all trust ratios, into a vector for each dtype.
func (u *Update) ratios(b *draft.Builder, adapted []*Param, weights, directions draft.Operand) error {
	b.Label = "trust ratios"
	c := b.NewCode(weights.Shape)
	w, d, zero := c.Load(weights), c.Load(directions), c.Constant(0)
	ratio := c.Do(program.Div, c.Do(program.Sqrt, w), c.Do(program.Sqrt, d))
	for _, x := range []int{w, d} {
		ratio = c.Do(program.Select, c.Do(program.Equal, x, zero), c.Constant(1), ratio)
	}
	step := program.Step{In: c.In}
	op := &program.Map{Space: c.Space, Code: c.Instrs}
	for _, dt := range []tensor.DType{tensor.F32, tensor.F64} {
		all := draft.Operand{}
		for i, p := range adapted {
			if p.Weight.DType != dt {
				continue
			}
			if len(all.Shape) == 0 {
				all = b.Fresh(dt, weights.Shape)
				step.Out, op.Stores = append(step.Out, all.View), append(op.Stores, ratio)
			}
			p.trust = draft.Operand{View: program.View{Value: all.View.Value, Offset: i}, DType: dt}
		}
	}
	step.Op = op
	b.Add(step)
	return c.Err
}
