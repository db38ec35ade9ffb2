package optim

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestLossScaleGrowsAndBacksOff(t *testing.T) {
	s, err := NewLossScaler(LossScalerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	good := func(n int) {
		for range n {
			s.Update(false)
		}
	}
	check := func(what string, want float64) {
		t.Helper()
		if s.Scale() != want {
			t.Errorf("%s: scale %v, want %v", what, s.Scale(), want)
		}
	}
	check("at the start", 65536)
	good(1999)
	check("after 1999 good steps", 65536)
	good(1)
	check("after 2000", 131072)
	good(1999)
	s.Update(true)
	check("after one that was skipped", 65536)
	good(1999)
	check("its count begins anew", 65536)
	good(1)
	check("after 2000 more", 131072)
	for range 30 {
		s.Update(true)
	}
	check("after many that were skipped", 1)
}

func TestLossScaleOfOnesOwn(t *testing.T) {
	s, err := NewLossScaler(LossScalerConfig{Scale: 8, Growth: 3, Backoff: 0.25, Interval: 2, Floor: 4})
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, skipped := range []bool{false, false, false, true, true, false, false} {
		s.Update(skipped)
		got = append(got, s.Scale())
	}
	for i, want := range []float64{8, 24, 24, 6, 4, 4, 12} {
		if got[i] != want {
			t.Fatalf("scales %v, want %v at %d", got, want, i)
		}
	}
	if err := s.SetState(LossScalerState{Scale: math.MaxFloat64, Good: 1}); err != nil {
		t.Fatal(err)
	}
	if s.Update(false); s.Scale() != math.MaxFloat64 {
		t.Errorf("the scale grew to %v", s.Scale())
	}
}

func TestStaticLossScaleStays(t *testing.T) {
	s, err := NewLossScaler(LossScalerConfig{Scale: 128, Static: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		s.Update(i%100 == 0)
	}
	if err := s.SetState(LossScalerState{Scale: 2}); err != nil || s.Scale() != 128 {
		t.Errorf("scale %v, error %v", s.Scale(), err)
	}
}

func TestLossScalerGoesOnFromItsState(t *testing.T) {
	a, err := NewLossScaler(LossScalerConfig{Interval: 7})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewLossScaler(LossScalerConfig{Interval: 7})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if i == 20 {
			if err := b.SetState(a.State()); err != nil {
				t.Fatal(err)
			}
		}
		a.Update(i%20 == 19)
		if i >= 20 {
			b.Update(i%20 == 19)
		}
	}
	if a.State() != b.State() || a.Scale() == 65536 {
		t.Errorf("states %+v and %+v", a.State(), b.State())
	}
}

func TestLossScalesOutOfRangeAreNamed(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		config LossScalerConfig
		says   string
	}{
		{LossScalerConfig{Scale: -1}, "loss scale -1"},
		{LossScalerConfig{Scale: nan}, "loss scale NaN"},
		{LossScalerConfig{Scale: inf, Static: true}, "loss scale +Inf"},
		{LossScalerConfig{Growth: 1}, "growth 1"},
		{LossScalerConfig{Growth: inf}, "growth +Inf"},
		{LossScalerConfig{Backoff: 1}, "backoff 1"},
		{LossScalerConfig{Backoff: -0.5}, "backoff -0.5"},
		{LossScalerConfig{Interval: -1}, "interval of -1 steps"},
		{LossScalerConfig{Floor: nan}, "floor NaN"},
		{LossScalerConfig{Scale: 2, Floor: 4}, "floor 4 is not between 0 and the scale 2"},
		{LossScalerConfig{Static: true, Growth: 2}, "have no effect"},
		{LossScalerConfig{Static: true, Interval: 2000}, "have no effect"},
	} {
		s, err := NewLossScaler(c.config)
		if s != nil || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: error %v, want ErrConfig saying %q", c.config, err, c.says)
		}
	}
	s, err := NewLossScaler(LossScalerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []LossScalerState{{}, {Scale: nan}, {Scale: inf}, {Scale: 1, Good: -1}} {
		if err := s.SetState(st); !errors.Is(err, ErrMismatch) || s.Scale() != 65536 {
			t.Errorf("%+v: scale %v, error %v", st, s.Scale(), err)
		}
	}
}

// A state from below the floor, as of a run whose floor was lower, must not make a skipped step
// raise the scale.
func TestLossScalesAreNeverBelowTheFloor(t *testing.T) {
	s, err := NewLossScaler(LossScalerConfig{Floor: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetState(LossScalerState{Scale: 0.5, Good: 3}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.State(), (LossScalerState{Scale: 4, Good: 3}); got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
	if s.Update(true); s.Scale() != 4 {
		t.Errorf("scale %v after a step that was skipped, want 4", s.Scale())
	}
}
