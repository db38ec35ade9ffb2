package optim

// Package machine updates weights as steps of its programs, for example on a GPU, with the results
// of New's solvers. This file has the parts of a Config that it needs in addition to the fields.

// WithDefaults returns c with each zero replaced by its default.
func (c Config) WithDefaults() Config { return c.withDefaults() }

// Measures reports whether steps need the norm of all gradients.
func (c Config) Measures() bool { return c.ClipNorm > 0 || c.SkipNonFinite }

// Slots returns the names of the state kept for each weight, in the order of ParamState.Slots:
// those of the rule, and "ema" last with EMADecay.
func (c Config) Slots() []string {
	slots := newRule(c.withDefaults(), 0).slots()
	if c.EMADecay > 0 {
		slots = append(slots, averageSlot)
	}
	return slots
}
