package transformer_test

import (
	"fmt"
	"log"
	"os"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/nn/transformer"
)

// A folder of Hugging Face is loaded, and its model continues a text of tokens.
func Example() {
	dir := must(os.MkdirTemp("", "model"))
	defer os.RemoveAll(dir)
	small := transformer.Config{Family: transformer.Llama, Vocabulary: 16, Context: 8, Width: 8, Layers: 1, Heads: 4, KVHeads: 2, Inner: 24}
	check(must(transformer.Initial(small, 1)).Save(dir))

	text := []int{3, 1, 4}
	w := must(transformer.Load(dir))
	m := must(transformer.New(w.Config, transformer.Options{Batch: 1, Tokens: 8, Positions: 1, Weights: w.Values}))
	vm := must(machine.New(m.Logits.Graph(), machine.Config{Eval: true}, m.Logits))
	defer vm.Close()
	sampler := must(transformer.NewSampler(transformer.SampleConfig{Temperature: 0.8, TopK: 5, Seed: 1}))
	check(transformer.Generate(m, vm, sampler, []int{3, 1, 4}, 5, func(token int) error {
		text = append(text, token)
		return nil
	}))
	fmt.Println(len(text), "tokens")
	// Output: 8 tokens
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
