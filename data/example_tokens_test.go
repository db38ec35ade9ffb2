package data_test

import (
	"fmt"
	"log"
	"os"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/data/bpe"
)

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A text becomes tokens in files, which two ranks read in samples of 4 tokens.
func Example_tokens() {
	dir := must(os.MkdirTemp("", "tokens"))
	defer os.RemoveAll(dir)

	enc := must(bpe.Open("r50k_base"))
	w := must(data.NewTokenWriter(data.TokenWriterConfig{Dir: dir, Name: "train", Format: data.TokensHeaderUint16}))
	check(w.Write([]int{enc.EndOfText()}))
	check(w.Write(must(enc.Encode("The quick brown fox jumps over the lazy dog and sleeps in the sun until noon."))))
	check(w.Close())

	for rank := range 2 {
		const length = 4
		tokens := must(data.OpenTokens(data.TokensConfig{Paths: []string{dir}, Vocabulary: enc.Vocabulary()}))
		sampler := must(data.NewSampler(data.SamplerConfig{
			Samples: tokens.Samples(length), GlobalBatch: 2, Rank: rank, Size: 2, Seed: 1, Shuffle: true,
		}))
		inputs, targets := make([]int32, length), make([]int32, length)
		for _, i := range sampler.Next().Indices {
			check(tokens.Sample(i, inputs, targets))
			fmt.Println("rank", rank, "sample", i, inputs, targets)
		}
		check(tokens.Close())
	}
	// Output:
	// rank 0 sample 3 [287 262 4252 1566] [262 4252 1566 19613]
	// rank 1 sample 2 [16931 3290 290 44263] [3290 290 44263 287]
}
