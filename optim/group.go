package optim

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
)

// Group is a set of parameters with a weight decay or rate of their own. The usual group has the
// biases and the scales of norms: Group{MaxDims: 1, NoWeightDecay: true}.
type Group struct {
	Names         []string // path.Match patterns for names of parameters; * stops at a slash; empty means all
	MaxDims       int      // at most this many dims larger than 1: a bias of shape (1, 10) has one; 0 means any
	NoWeightDecay bool     // no weight decay
	WeightDecay   float64  // instead of Config.WeightDecay; 0 means Config.WeightDecay
	RateScale     float64  // factor of the learning rate; 0 means 1
}

// Of returns the weight decay of a parameter and the factor of its learning rate: those of the
// first of c.Groups that matches name and shape, otherwise Config.WeightDecay and 1.
func (c Config) Of(name string, shape []int) (weightDecay, rateScale float64) {
	return c.ofGroup(c.group(name, shape))
}

// group returns the number of the first group that matches, or len(c.Groups).
func (c Config) group(name string, shape []int) int {
	for i, g := range c.Groups {
		if g.matches(name, shape) {
			return i
		}
	}
	return len(c.Groups)
}

// ofGroup is Of for the parameters of group i.
func (c Config) ofGroup(i int) (weightDecay, rateScale float64) {
	weightDecay, rateScale = c.WeightDecay, 1
	if i == len(c.Groups) {
		return weightDecay, rateScale
	}
	g := c.Groups[i]
	switch {
	case g.NoWeightDecay:
		weightDecay = 0
	case g.WeightDecay != 0:
		weightDecay = g.WeightDecay
	}
	if g.RateScale != 0 {
		rateScale = g.RateScale
	}
	return weightDecay, rateScale
}

func (g Group) matches(name string, shape []int) bool {
	dims := 0
	for _, d := range shape {
		if d != 1 {
			dims++
		}
	}
	if g.MaxDims != 0 && dims > g.MaxDims {
		return false
	}
	return len(g.Names) == 0 || slices.ContainsFunc(g.Names, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil // Validate rejects bad patterns
	})
}

func (g Group) equal(o Group) bool {
	return slices.Equal(g.Names, o.Names) && g.MaxDims == o.MaxDims && g.NoWeightDecay == o.NoWeightDecay &&
		g.WeightDecay == o.WeightDecay && g.RateScale == o.RateScale
}

// String returns g on one line, without spaces and unset fields.
func (g Group) String() string {
	var parts []string
	if len(g.Names) > 0 {
		parts = append(parts, "names="+strings.Join(g.Names, "|"))
	}
	if g.MaxDims != 0 {
		parts = append(parts, fmt.Sprintf("max_dims=%d", g.MaxDims))
	}
	if g.NoWeightDecay {
		parts = append(parts, "weight_decay=0")
	}
	if g.WeightDecay != 0 {
		parts = append(parts, fmt.Sprintf("weight_decay=%g", g.WeightDecay))
	}
	if g.RateScale != 0 {
		parts = append(parts, fmt.Sprintf("rate_scale=%g", g.RateScale))
	}
	return "(" + strings.Join(parts, ",") + ")"
}

// validateGroups rejects groups with wrong settings, groups that no parameter can reach, and a last
// group that changes nothing. An earlier group that changes nothing is useful, as an exception from
// the groups after it. A group without weight decay is accepted where nothing decays, so that a
// sweep over weight decays can start at 0.
func (c Config) validateGroups() error {
	for i, g := range c.Groups {
		if err := g.validate(); err != nil {
			return fmt.Errorf("%s: group %d: %w", c.Name, i, err)
		}
		if len(g.Names) == 0 && g.MaxDims == 0 && i < len(c.Groups)-1 {
			return fmt.Errorf("%s: group %d has no effect: group %d before it matches all parameters: %w", c.Name, i+1, i, ErrConfig)
		}
	}
	if last := len(c.Groups) - 1; last >= 0 {
		if decay, scale := c.ofGroup(last); decay == c.WeightDecay && scale == 1 && !c.Groups[last].NoWeightDecay {
			return fmt.Errorf("%s: group %d %v has no effect: weight decay is %v and the rate's factor 1 without it: %w",
				c.Name, last, c.Groups[last], decay, ErrConfig)
		}
	}
	return nil
}

func (g Group) validate() error {
	for _, pattern := range g.Names {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w: %w", pattern, err, ErrConfig)
		}
	}
	switch {
	case g.MaxDims < 0:
		return fmt.Errorf("max dims %d: use 0 for any or a positive number: %w", g.MaxDims, ErrConfig)
	case !(g.WeightDecay >= 0) || math.IsInf(g.WeightDecay, 1):
		return fmt.Errorf("weight decay %v is out of range: %w", g.WeightDecay, ErrConfig)
	case !(g.RateScale >= 0) || math.IsInf(g.RateScale, 1):
		return fmt.Errorf("rate scale %v is out of range: %w", g.RateScale, ErrConfig)
	case g.NoWeightDecay && g.WeightDecay != 0:
		return fmt.Errorf("no weight decay excludes weight decay, which is %v: %w", g.WeightDecay, ErrConfig)
	}
	return nil
}
