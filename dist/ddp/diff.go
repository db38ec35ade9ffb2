package ddp

import (
	"fmt"
	"math"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// Diff is the largest difference between two sets of gradients, and its parameter.
type Diff struct {
	Relative float64 // max |got - want| / max |want| over the elements of the parameter; NaN if any is
	Param    int     // its index
	Name     string  // its name; "" if it has none
}

// MaxRelDiff compares the gradients got with the gradients want, parameter by parameter.
// Differences are relative to the largest element of the parameter's gradient, since small elements
// are sums of large terms. If want is all zeros they are absolute.
//
// Use it to verify a run on many ranks against one on a single rank over the same global batch:
//
//	diff, err := ddp.MaxRelDiff(d.Model(), gorgonia.NodesToValueGrads(single))
//
// Shapes: as many parameters, each of the same length and dtype, in one order. Errors:
// dist.ErrInvalid for a parameter without a gradient, dist.ErrCount and dist.ErrDType for sets that
// do not match.
func MaxRelDiff(got, want []gorgonia.ValueGrad) (Diff, error) {
	if len(got) != len(want) || len(want) == 0 {
		return Diff{}, fmt.Errorf("diff: %w: gradients of %d and of %d parameters", dist.ErrCount, len(got), len(want))
	}
	worst := Diff{Relative: -1}
	for i := range want {
		name := ""
		if n, ok := want[i].(interface{ Name() string }); ok && !strings.HasPrefix(n.Name(), "%!") { // gorgonia's text for no name
			name = n.Name()
		}
		rel, err := gradDiff(got[i], want[i])
		if err != nil {
			return Diff{}, fmt.Errorf("diff of parameter %d %q: %w", i, name, err)
		}
		if rel > worst.Relative || math.IsNaN(rel) {
			worst = Diff{Relative: rel, Param: i, Name: name}
		}
		if math.IsNaN(rel) {
			break
		}
	}
	return worst, nil
}

func gradDiff(got, want gorgonia.ValueGrad) (float64, error) {
	var bufs [2]tensor.Buffer
	for i, p := range [...]gorgonia.ValueGrad{got, want} {
		v, err := p.Grad()
		if err == nil {
			bufs[i], err = ops.Elements(v)
		}
		if err != nil {
			return 0, err
		}
	}
	a, b := bufs[0], bufs[1]
	switch {
	case a.DType() != b.DType():
		return 0, fmt.Errorf("%w: gradients are %v and %v", dist.ErrDType, a.DType(), b.DType())
	case a.Len() != b.Len():
		return 0, fmt.Errorf("%w: gradients have %d and %d elements", dist.ErrCount, a.Len(), b.Len())
	case a.DType() == tensor.F32:
		return bufferDiff[float32](a, b)
	}
	return bufferDiff[float64](a, b)
}

func bufferDiff[T float32 | float64](got, want tensor.Buffer) (float64, error) {
	a, err := tensor.Data[T](got)
	if err != nil {
		return 0, err
	}
	b, err := tensor.Data[T](want)
	if err != nil {
		return 0, err
	}
	diff, size := 0.0, 0.0
	for i := range b { // max keeps a NaN
		diff = max(diff, math.Abs(float64(a[i])-float64(b[i])))
		size = max(size, math.Abs(float64(b[i])))
	}
	if size == 0 {
		return diff, nil
	}
	return diff / size, nil
}
