package measure

import (
	"encoding/json"
	"math"
)

// Curve is a list of losses. In JSON, null is a loss that is not finite, of a skipped step.
type Curve []float64

// MarshalJSON implements json.Marshaler.
func (c Curve) MarshalJSON() ([]byte, error) {
	all := make([]*float64, len(c))
	for i := range c {
		if !math.IsNaN(c[i]) && !math.IsInf(c[i], 0) {
			all[i] = &c[i]
		}
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Curve) UnmarshalJSON(text []byte) error {
	var all []*float64
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*c = make(Curve, len(all))
	for i, x := range all {
		if (*c)[i] = math.NaN(); x != nil {
			(*c)[i] = *x
		}
	}
	return nil
}
