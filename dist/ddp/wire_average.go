package ddp

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// Average is the method of combining ranks' gradients. Let w_r be the weight of rank r, g_r the
// gradient of its mean cost, W the sum of the weights and n the number of ranks. Products are
// rounded to the gradient's dtype before they are added. With accumulation, w g is a rank's sum
// over its micro-batches.
type Average uint8

// The averages.
const (
	// Mean is sum (w_r/W) g_r: the gradient of the mean cost over the whole batch.
	Mean Average = iota
	// Sum is sum w_r g_r: the gradient of the summed cost if weights are numbers of samples.
	Sum
	// PreMulSum is sum (f_r w_r) g_r, with f_r the Factor of rank r, which may differ between
	// ranks.
	PreMulSum
	// PreDivide is the mean, divided by the Factor d before the sum and by the rest after it: (d/n)
	// sum (n w_r/(W d)) g_r. Parts and sum leave the range of a narrow WireDType later than those
	// of a mean or of a sum.
	PreDivide
)

var averageNames = [...]string{"mean", "sum", "premulsum", "predivide"}

// String returns the lower-case name: "premulsum".
func (a Average) String() string {
	if int(a) >= len(averageNames) {
		return fmt.Sprintf("average(%d)", uint8(a))
	}
	return averageNames[a]
}

// ParseAverage is the inverse of String. The empty string is Mean.
//
// Errors: dist.ErrInvalid for an unknown name.
func ParseAverage(s string) (Average, error) {
	for i, name := range averageNames {
		if name == s {
			return Average(i), nil
		}
	}
	if s == "" {
		return Mean, nil
	}
	return 0, fmt.Errorf("average %q: %w: want mean, sum, premulsum or predivide", s, dist.ErrInvalid)
}

// divides reports whether the average divides by the sum of weights.
func (a Average) divides() bool { return a == Mean || a == PreDivide }

// rest returns the factor of the sum.
func (a Average) rest(ranks, factor float64) float64 {
	if a == PreDivide {
		return factor / ranks
	}
	return 1
}

// defaultFactor replaces a Config.Factor of 0. For PreDivide it is that of PyTorch's FSDP
// (torch/distributed/fsdp/_runtime_utils.py, _get_gradient_predivide_factor).
func (a Average) defaultFactor(ranks int) float64 {
	f := 1
	for a == PreDivide && ranks%f == 0 && ranks/f > f {
		f *= 2
	}
	return float64(f)
}
