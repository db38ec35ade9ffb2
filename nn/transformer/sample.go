package transformer

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
)

// SampleConfig are the settings of a Sampler.
type SampleConfig struct {
	// Temperature divides logits: below 1 likely tokens become more likely. 0 takes the most likely
	// token.
	Temperature float64
	TopK        int   // the most likely tokens that are drawn from; 0 means all
	Vocabulary  int   // tokens from this number on are not drawn; 0 means all are
	Seed        int64 // of the draws
}

// Sampler draws tokens. Not for concurrent use.
type Sampler struct {
	c     SampleConfig
	rng   *rand.Rand
	order []int
}

// NewSampler returns a Sampler.
//
// Errors: dist.ErrInvalid for a negative setting, or a temperature that is not finite.
func NewSampler(c SampleConfig) (*Sampler, error) {
	if !(c.Temperature >= 0) || math.IsInf(c.Temperature, 1) || c.TopK < 0 || c.Vocabulary < 0 {
		return nil, fmt.Errorf("transformer: %w: temperature %v, top k %d, vocabulary %d: want finite numbers of at least 0", dist.ErrInvalid, c.Temperature, c.TopK, c.Vocabulary)
	}
	return &Sampler{c: c, rng: rand.New(rand.NewPCG(uint64(c.Seed), 0))}, nil
}

// Draw returns a token, with the probabilities softmax(logits/Temperature) of the TopK most likely
// tokens. Of equal logits, those of smaller tokens come first.
//
// Errors: dist.ErrInvalid for logits that are NaN, or no logits.
func (s *Sampler) Draw(logits []float32) (int, error) {
	if n := s.c.Vocabulary; n > 0 && n < len(logits) {
		logits = logits[:n]
	}
	if len(logits) == 0 || slices.ContainsFunc(logits, func(x float32) bool { return x != x }) {
		return 0, fmt.Errorf("transformer: %w: the logits are empty or have NaN: the weights are those of a training that failed", dist.ErrInvalid)
	}
	if s.c.Temperature == 0 {
		return slices.Index(logits, slices.Max(logits)), nil
	}
	s.order = s.order[:0]
	for i := range logits {
		s.order = append(s.order, i)
	}
	slices.SortFunc(s.order, func(a, b int) int { return cmp.Or(cmp.Compare(logits[b], logits[a]), cmp.Compare(a, b)) })
	order := s.order
	if k := s.c.TopK; k > 0 && k < len(order) {
		order = order[:k]
	}
	weight := func(token int) float64 {
		return math.Exp((float64(logits[token]) - float64(logits[order[0]])) / s.c.Temperature)
	}
	sum := 0.0
	for _, token := range order {
		sum += weight(token)
	}
	left := s.rng.Float64() * sum
	for _, token := range order {
		if left -= weight(token); left < 0 {
			return token, nil
		}
	}
	return order[0], nil // by rounding
}

// Generate continues a text of tokens with n tokens. vm runs the graph of m, whose options are a
// Batch of 1 and one of Positions, and which computes m.Logits. If the text is longer than the
// graph's Tokens, the last of them are used. Each new token is passed to each.
//
// Errors: dist.ErrInvalid for another graph, a text without tokens, or a token outside the
// vocabulary; those of vm, of Draw and of each.
func Generate(m *Model, vm G.VM, s *Sampler, text []int, n int, each func(token int) error) error {
	if m.Positions == nil || m.Logits == nil || m.Positions.Shape()[0] != 1 || m.Tokens.Shape()[0] != 1 {
		return fmt.Errorf("transformer: %w: Generate needs a graph with a Batch of 1 and one of Positions", dist.ErrInvalid)
	}
	vocabulary := m.Logits.Shape()[1]
	for i, token := range text {
		if token < 0 || token >= vocabulary {
			return fmt.Errorf("transformer: %w: token %d, number %d of the text; the vocabulary has %d", dist.ErrInvalid, token, i, vocabulary)
		}
	}
	if len(text) == 0 {
		return fmt.Errorf("transformer: %w: Generate needs one token or more to continue: use the token between texts", dist.ErrInvalid)
	}
	inputs, at := m.Tokens.Value().Data().([]int), m.Positions.Value().Data().([]int)
	text = slices.Clone(text)
	for range n {
		window := text[max(0, len(text)-len(inputs)):]
		clear(inputs[copy(inputs, window):]) // later tokens change nothing before them
		at[0] = len(window) - 1
		if err := vm.RunAll(); err != nil {
			vm.Reset()
			return fmt.Errorf("transformer: %w", err)
		}
		logits := m.Logits.Value()
		if logits == nil {
			return fmt.Errorf("transformer: %w: the machine computes no logits: make it with Model.Logits as an output", dist.ErrInvalid)
		}
		token, err := s.Draw(logits.Data().([]float32))
		vm.Reset()
		if err != nil {
			return err
		}
		text = append(text, token)
		if err := each(token); err != nil {
			return err
		}
	}
	return nil
}
