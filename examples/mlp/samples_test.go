package main

import (
	"errors"
	"math"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/train"
)

func TestSamplesThatNoMemoryHoldsAreRefused(t *testing.T) {
	for _, x := range []struct{ limit, width int }{
		{math.MaxInt, 512}, {math.MaxInt - testSamples + 1, 8}, {1e15, 512}, {0, math.MaxInt}, {0, math.MaxInt/classes + 1}, {1, 1 << 61},
	} {
		c := config.Default()
		c.Data.Limit, c.Model.Hidden = x.limit, []int{x.width}
		if _, err := openSamples(&c); !errors.Is(err, train.ErrUsage) {
			t.Errorf("%d samples of %d values: %v", x.limit, x.width, err)
		}
	}
}
