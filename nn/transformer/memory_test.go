package transformer

import (
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/machine"
)

// A GPU that multiplies bf16 needs no memory for the scores of a head: four times the tokens of a
// sample do not take sixteen times the memory.
func TestScoresTakeNoMemoryInBF16(t *testing.T) {
	for name, c := range map[string]Config{
		"gpt2":  {Family: GPT2, Vocabulary: 64, Context: 1024, Width: 256, Layers: 2, Heads: 4, Tied: true},
		"llama": {Family: Llama, Vocabulary: 64, Context: 1024, Width: 256, Layers: 2, Heads: 4, KVHeads: 2, Inner: 512},
	} {
		arena := func(tokens int, compute string) int64 {
			m, err := New(c, Options{Batch: 4, Tokens: tokens, Train: true, Shapes: true})
			if err != nil {
				t.Fatal(err)
			}
			grads, err := G.Grad(m.Cost, m.Params...)
			if err != nil {
				t.Fatal(err)
			}
			f, err := machine.Foresee(m.Cost.Graph(), machine.Config{Device: machine.CUDA, Compute: compute}, append(G.Nodes{m.Cost}, grads...)...)
			if err != nil {
				t.Fatal(err)
			}
			return f.Arena
		}
		short, long := arena(256, "bf16"), arena(1024, "bf16")
		if long > 5*short {
			t.Errorf("%s: 1024 tokens take %d bytes, 256 take %d", name, long, short)
		}
		if f32 := arena(1024, "f32"); f32 < 2*long {
			t.Errorf("%s: in f32, with scores, %d bytes; in bf16 %d", name, f32, long)
		}
	}
}
