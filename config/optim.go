package config

import (
	"fmt"
	"math"
	"strings"
)

// Vectors in optim.no_decay means all parameters of at most one dimension.
const Vectors = "vectors"

// NoDecayPatterns returns the items of optim.no_decay.
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

// defaultDecay returns the weight decay if optim.weight_decay is not set: PyTorch's.
func (o Optim) defaultDecay() float64 {
	if o.Name == "adamw" {
		return 0.01 // https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
	}
	return 0
}

// largestScale is the largest factor of a loss, and the inverse of the smallest one.
const largestScale = math.MaxFloat32

// isFloat32 reports whether x rounds to a finite float32, which is 0 only if x is 0.
func isFloat32(x float64) bool {
	f := float64(float32(x))
	return (f == 0) == (x == 0) && !math.IsInf(f, 0)
}

// Scale returns the factor of optim.loss_scale, 0 for none. dynamic means an adaptive factor.
//
// Errors: invalid text, with the valid forms.
func (o Optim) Scale() (scale float64, dynamic bool, err error) {
	if o.LossScale == "dynamic" {
		return 0, true, nil
	}
	v, err := parseKind(kindFloat, o.LossScale)
	scale, ok := v.(float64)
	if err != nil || !ok || scale < 0 {
		return 0, false, fmt.Errorf("invalid factor %q: use dynamic, 0 for none, or a positive number", o.LossScale)
	}
	if scale > 0 && (scale < 1/largestScale || scale > largestScale) {
		return 0, false, fmt.Errorf("%q is out of the range of float32, the dtype of losses: use a factor such as 1024", o.LossScale)
	}
	return scale, false, nil
}
