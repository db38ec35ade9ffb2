package transformer

import (
	"errors"
	"math"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// Draws have the frequencies of the definition.
func TestDrawsFollowTemperatureAndTopK(t *testing.T) {
	logits := []float32{1, 3, 2, 9, -1} // the fourth is outside the vocabulary below
	softmax := func(temperature float64, tokens ...int) map[int]float64 {
		all, sum := map[int]float64{}, 0.0
		for _, i := range tokens {
			all[i] = math.Exp(float64(logits[i]) / temperature)
			sum += all[i]
		}
		for i := range all {
			all[i] /= sum
		}
		return all
	}
	for _, test := range []struct {
		c    SampleConfig
		want map[int]float64
	}{
		{SampleConfig{Vocabulary: 3}, map[int]float64{1: 1}},
		{SampleConfig{}, map[int]float64{3: 1}},
		{SampleConfig{Temperature: 1, TopK: 1, Vocabulary: 3}, map[int]float64{1: 1}},
		{SampleConfig{Temperature: 1, Vocabulary: 3}, softmax(1, 0, 1, 2)},
		{SampleConfig{Temperature: 2, TopK: 2, Vocabulary: 3}, softmax(2, 1, 2)},
		{SampleConfig{Temperature: 3, TopK: 9}, softmax(3, 0, 1, 2, 3, 4)},
	} {
		s, err := NewSampler(test.c)
		if err != nil {
			t.Fatal(err)
		}
		const draws = 20000
		counts := map[int]float64{}
		for range draws {
			token, err := s.Draw(logits)
			if err != nil {
				t.Fatal(err)
			}
			counts[token]++
		}
		for token := range logits {
			p := test.want[token]
			if d := counts[token] - p*draws; math.Abs(d) > 5*math.Sqrt(draws*p*(1-p))+1e-9 {
				t.Errorf("%+v: token %d came %v times of %d, want %v", test.c, token, counts[token], draws, p*draws)
			}
		}
	}
}

func TestDrawsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []SampleConfig{{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)}, {TopK: -1}, {Vocabulary: -1}} {
		if _, err := NewSampler(c); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	s, err := NewSampler(SampleConfig{Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, logits := range [][]float32{nil, {1, float32(math.NaN())}} {
		if _, err := s.Draw(logits); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%v: %v", logits, err)
		}
	}
}
