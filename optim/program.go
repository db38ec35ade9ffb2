package optim

// A machine that has the update among the steps of its programs, as on a GPU, does what New's solvers do. What it needs to
// know of a Config beyond the fields is here.

// WithDefaults is c with every zero that means a default replaced by it.
func (c Config) WithDefaults() Config { return c.withDefaults() }

// Slots is the names of what the rule keeps for each weight, in the order of ParamState.Slots.
func (c Config) Slots() []string { return newRule(c.withDefaults()).slots() }
