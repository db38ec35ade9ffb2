package optim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	gtensor "gorgonia.org/tensor"
)

// Block is the number of elements of a parameter whose squares are summed together, counted from
// its first element. Parameters may be cut into pieces only between blocks. Each block has one sum
// and the sums are added in one order, so norms then have equal bits for any cut.
const Block = 256

// blocksOf returns the number of blocks of a parameter of size elements.
func blocksOf(size int) int { return (size + Block - 1) / Block }

// engine is the part that all solvers share: it runs the rules over the spans of the owned
// elements.
type engine struct {
	config  Config  // with defaults
	rate    float64 // the schedule's base rate
	scale   float64
	norm    float64
	steps   int
	skipped int
	swapped bool // the weights hold the averages

	rules  []rule   // one a group, and one for parameters without a group
	slots  []string // names of the state kept for each weight, in the order of memory.slots
	adapts bool     // the rules need norms of each parameter

	params   []param // all of the model; nil before the first step or SetState of a Solver
	spans    []span
	blocks   int       // of all parameters
	sums     []float64 // one a block, of squared gradients or directions; if the rules adapt, then as many of squared weights
	exchange func(x []float64) error
	regions  []region // scratch of checkOverlap

	crew      *crew
	bounded   bounded
	gradScale float64 // of this step
	passes    passes
}

// bounded has, for each worker, a span of bounded gradients, with Config.ClipValue.
type bounded struct {
	f32 [][]float32
	f64 [][]float64
}

// passes are the passes over all spans: method values, made once because each allocates.
type passes struct{ squares, directions, update func(worker, span int) }

// rule is one update rule over flat memory. grad holds the gradients of elements lo to hi.
type rule interface {
	slots() []string // names of the state kept for each weight
	prepare(rate, scale float64, step int)
	update32(m *memory[float32], grad []float32, lo, hi int)
	update64(m *memory[float64], grad []float64, lo, hi int)
}

// newRule returns the rule of c, which has its defaults, for weights of the given decay.
func newRule(c Config, weightDecay float64) rule {
	switch c.Name {
	case SGD:
		return &sgd{weightDecay: weightDecay}
	case Momentum, Nesterov:
		return &momentum{momentum: c.Momentum, dampening: c.Dampening, nesterov: c.Nesterov, weightDecay: weightDecay}
	case LAMB:
		return &lamb{beta1: c.Beta1, beta2: c.Beta2, epsilon: c.Epsilon, weightDecay: weightDecay}
	case Lion:
		return &lion{beta1: c.Beta1, beta2: c.Beta2, weightDecay: weightDecay}
	default: // Validate rejects other names
		return &adam{
			beta1: c.Beta1, beta2: c.Beta2, epsilon: c.Epsilon, amsgrad: c.AMSGrad,
			weightDecay: weightDecay, decoupled: c.Name == AdamW,
		}
	}
}

// prepare sets e up for a valid config, without parameters.
func (e *engine) prepare(c Config) {
	c = c.withDefaults()
	c.Groups = slices.Clone(c.Groups) // the caller may change its own
	for i := range c.Groups {
		c.Groups[i].Names = slices.Clone(c.Groups[i].Names)
	}
	e.config, e.rate, e.scale, e.norm, e.crew = c, c.LearningRate, 1, math.NaN(), newCrew(c.Workers)
	for i := range len(c.Groups) + 1 {
		decay, _ := c.ofGroup(i)
		e.rules = append(e.rules, newRule(c, decay))
	}
	e.slots, e.adapts = c.Slots(), c.Name == LAMB
	e.passes = passes{squares: e.squaresOfSpan, directions: e.directionsOfSpan, update: e.updateSpan}
	if c.ClipValue > 0 {
		e.bounded.f32, e.bounded.f64 = make([][]float32, e.crew.workers()), make([][]float64, e.crew.workers())
	}
}

// adopt sets the engine's parameters and cuts them into spans.
func (e *engine) adopt(params []param) {
	e.params, e.spans, e.blocks = params, e.spans[:0], 0
	wide := map[gtensor.Dtype]int{} // elements of the largest span
	for i := range params {
		p := &params[i]
		p.block = e.blocks
		e.blocks += blocksOf(shapeSize(p.shape))
		e.spans = appendSpans(e.spans, i, p.count)
		wide[p.dtype] = max(wide[p.dtype], min(p.count, spanLen))
	}
	e.sums = make([]float64, e.blocks)
	if e.adapts {
		e.sums = make([]float64, 2*e.blocks)
	}
	for i := range e.bounded.f32 {
		e.bounded.f32[i], e.bounded.f64[i] = make([]float32, wide[gtensor.Float32]), make([]float64, wide[gtensor.Float64])
	}
}

// span returns span i, its parameter, and the index of its first block in e.sums.
func (e *engine) span(i int) (sp span, p *param, at int) {
	sp = e.spans[i]
	p = &e.params[sp.param]
	return sp, p, p.block + (p.first+sp.lo)/Block
}

func (e *engine) LearningRate() float64 { return e.config.Schedule.Rate(e.rate, e.steps) }
func (e *engine) Steps() int            { return e.steps }
func (e *engine) Skipped() int          { return e.skipped }
func (e *engine) GradNorm() float64     { return e.norm }

func (e *engine) SetLearningRate(base float64) error {
	if !(base >= 0) || math.IsInf(base, 1) {
		return fmt.Errorf("%s: learning rate %v: it must be finite and at least 0: %w", e.config.Name, base, ErrConfig)
	}
	e.rate = base
	return nil
}

func (e *engine) SetGradientScale(scale float64) error {
	if !(scale > 0) || math.IsInf(scale, 1) {
		return fmt.Errorf("%s: gradient scale %v: it must be finite and positive: %w", e.config.Name, scale, ErrConfig)
	}
	e.scale = scale
	return nil
}

// step makes a step with the bound memory. It writes nothing before the last exchange, so that an
// error changes nothing.
func (e *engine) step() error {
	if e.swapped {
		return fmt.Errorf("the weights are averages: swap them back: %w", ErrSwapped)
	}
	e.gradScale = e.scale
	if e.config.Measures() {
		if err := e.measure(); err != nil {
			return err
		}
		if e.norm-e.norm != 0 {
			return e.refuse()
		}
		if e.config.ClipNorm > 0 {
			e.gradScale *= clipFactor(e.config.ClipNorm, e.norm)
		}
	}
	if err := e.terms(); err != nil {
		return err
	}
	e.crew.run(len(e.spans), e.passes.update)
	e.zeroShared()
	e.steps++
	return nil
}

// refuse ends a step whose norm is not finite: with an error, or as a skipped step. All ranks
// decide equally.
func (e *engine) refuse() error {
	if !e.config.SkipNonFinite {
		return e.blame()
	}
	for i := range e.params {
		if p := &e.params[i]; p.zero != zeroNever {
			clear(p.f32.grad)
			clear(p.f64.grad)
		}
	}
	e.skipped++
	return nil
}

// terms sets up the rules for a step, and the rate of each parameter if the rules adapt it.
func (e *engine) terms() error {
	rate, scale := e.LearningRate(), e.gradScale
	if e.config.ClipValue > 0 {
		scale = 1 // the bounded gradients include the scale
	}
	for i, r := range e.rules {
		_, factor := e.config.ofGroup(i)
		r.prepare(rate*factor, scale, e.steps+1)
	}
	if e.adapts {
		return e.adapt()
	}
	return nil
}

// grad32 and grad64 return the gradients of a span as the rules use them.
func (e *engine) grad32(worker int, p *param, sp span) []float32 {
	if e.config.ClipValue == 0 {
		return p.f32.grad[sp.lo:sp.hi]
	}
	return clampPass32(float32(e.gradScale), float32(e.config.ClipValue), e.bounded.f32[worker], p.f32.grad[sp.lo:sp.hi])
}

func (e *engine) grad64(worker int, p *param, sp span) []float64 {
	if e.config.ClipValue == 0 {
		return p.f64.grad[sp.lo:sp.hi]
	}
	return clampPass(e.gradScale, e.config.ClipValue, e.bounded.f64[worker], p.f64.grad[sp.lo:sp.hi])
}

// updateSpan updates the weights of one span. It also zeroes the gradients and moves the averages,
// while they are in the cache: that costs almost nothing compared with a pass of its own.
func (e *engine) updateSpan(worker, i int) {
	sp, p, _ := e.span(i)
	r := e.rules[p.group]
	averaged := e.config.EMADecay > 0
	if p.dtype == gtensor.Float32 {
		if averaged && e.steps == 0 {
			startAverages(&p.f32, sp)
		}
		r.update32(&p.f32, e.grad32(worker, p, sp), sp.lo, sp.hi)
		if p.zero == zeroInPass {
			clear(p.f32.grad[sp.lo:sp.hi])
		}
		if averaged {
			moveAverages32(float32(1-e.config.EMADecay), &p.f32, sp)
		}
		return
	}
	if averaged && e.steps == 0 {
		startAverages(&p.f64, sp)
	}
	r.update64(&p.f64, e.grad64(worker, p, sp), sp.lo, sp.hi)
	if p.zero == zeroInPass {
		clear(p.f64.grad[sp.lo:sp.hi])
	}
	if averaged {
		moveAverages(1-e.config.EMADecay, &p.f64, sp)
	}
}

// zeroShared zeroes the gradients that several parameters share.
func (e *engine) zeroShared() {
	for i := range e.params {
		if p := &e.params[i]; p.zero == zeroAfterPass {
			clear(p.f32.grad)
			clear(p.f64.grad)
		}
	}
}

// region is the memory of one weight or gradient.
type region struct {
	lo, hi uintptr
	param  int
	grad   bool
}

// checkOverlap marks gradients that share memory, such as the gradients of a and b in a+b: they
// must be zeroed after the last use. Errors: ErrUnsupported if a weight shares memory with another
// weight or a gradient.
func (e *engine) checkOverlap(params []param) error {
	e.regions = e.regions[:0]
	for i := range params {
		p := &params[i]
		weight := flat{dtype: p.dtype, f32: p.f32.weight, f64: p.f64.weight}
		grad := flat{dtype: p.dtype, f32: p.f32.grad, f64: p.f64.grad}
		lo, hi := weight.bounds()
		e.regions = append(e.regions, region{lo: lo, hi: hi, param: i})
		lo, hi = grad.bounds()
		e.regions = append(e.regions, region{lo: lo, hi: hi, param: i, grad: true})
	}
	slices.SortFunc(e.regions, func(a, b region) int { return cmp.Compare(a.lo, b.lo) })
	last := e.regions[0] // the region so far with the highest end
	for _, r := range e.regions[1:] {
		if r.lo < last.hi && r.lo < r.hi {
			if !r.grad || !last.grad {
				return fmt.Errorf("%v and %v share memory: give each its own, and a weight used twice only once: %w", last, r, ErrUnsupported)
			}
			for _, i := range [...]int{r.param, last.param} {
				params[i].zero = max(params[i].zero, zeroAfterPass)
			}
		}
		if r.hi > last.hi {
			last = r
		}
	}
	return nil
}

// String returns the region for errors.
func (r region) String() string {
	if r.grad {
		return fmt.Sprintf("gradient of parameter %d", r.param)
	}
	return fmt.Sprintf("weight of parameter %d", r.param)
}

// averages returns an error if no averages are kept.
func (e *engine) averages() error {
	if e.config.EMADecay == 0 {
		return fmt.Errorf("no averages are kept: set EMADecay: %w", ErrConfig)
	}
	return nil
}

// swap exchanges the bound weights and their averages.
func (e *engine) swap() {
	for i := range e.params {
		p := &e.params[i]
		if len(p.f32.slots) > 0 {
			exchange(p.f32.weight, averagesOf(&p.f32))
		}
		if len(p.f64.slots) > 0 {
			exchange(p.f64.weight, averagesOf(&p.f64))
		}
	}
	e.swapped = !e.swapped
}
