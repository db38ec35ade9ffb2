package config

import (
	"fmt"
	"strings"
)

// Vectors is the word of optim.no_decay for all parameters of at most one dimension.
const Vectors = "vectors"

// NoDecayPatterns is the items of optim.no_decay.
func (o Optim) NoDecayPatterns() []string {
	if strings.TrimSpace(o.NoDecay) == "" {
		return nil
	}
	items := strings.Split(o.NoDecay, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// Scale is optim.loss_scale: the factor, or dynamic for one that adapts. It is 0 for none.
//
// Errors: what the text ought to be.
func (o Optim) Scale() (scale float64, dynamic bool, err error) {
	if o.LossScale == "dynamic" {
		return 0, true, nil
	}
	v, err := parseKind(kindFloat, o.LossScale)
	scale, ok := v.(float64)
	if err != nil || !ok || scale < 0 {
		return 0, false, fmt.Errorf("%q is no factor: use dynamic, 0 for none, or a positive number", o.LossScale)
	}
	return scale, false, nil
}
