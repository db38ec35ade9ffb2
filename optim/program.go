package optim

// A machine that has the update among the steps of its programs, as on a GPU, does what New's
// solvers do. What it needs to know of a Config beyond the fields is here.

// WithDefaults is c with every zero that means a default replaced by it.
func (c Config) WithDefaults() Config { return c.withDefaults() }

// Measures reports whether steps need the norm of all gradients.
func (c Config) Measures() bool { return c.ClipNorm > 0 || c.SkipNonFinite }

// Slots is the names of what is kept for each weight, in the order of ParamState.Slots: those of
// the rule, and "ema" last with EMADecay.
func (c Config) Slots() []string {
	slots := newRule(c.withDefaults(), 0).slots()
	if c.EMADecay > 0 {
		slots = append(slots, averageSlot)
	}
	return slots
}
