package config

import (
	"fmt"
	"math"
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

// defaultDecay returns the weight decay of a rule where optim.weight_decay is not set: PyTorch's.
func (o Optim) defaultDecay() float64 {
	if o.Name == "adamw" {
		return 0.01 // https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
	}
	return 0
}

// largestScale is the largest factor of a loss, and the inverse of the smallest.
const largestScale = math.MaxFloat32

// isFloat32 reports whether x rounds to a finite float32 that is 0 only where x is.
func isFloat32(x float64) bool {
	f := float64(float32(x))
	return (f == 0) == (x == 0) && !math.IsInf(f, 0)
}

// Scale is optim.loss_scale: the factor, or dynamic for one that adapts. It is 0 for none.
//
// Errors: the allowed texts.
func (o Optim) Scale() (scale float64, dynamic bool, err error) {
	if o.LossScale == "dynamic" {
		return 0, true, nil
	}
	v, err := parseKind(kindFloat, o.LossScale)
	scale, ok := v.(float64)
	if err != nil || !ok || scale < 0 {
		return 0, false, fmt.Errorf("%q is no factor: use dynamic, 0 for none, or a positive number", o.LossScale)
	}
	if scale > 0 && (scale < 1/largestScale || scale > largestScale) {
		return 0, false, fmt.Errorf("%q is no float32, which losses are: use a factor such as 1024", o.LossScale)
	}
	return scale, false, nil
}
