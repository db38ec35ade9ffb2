package main

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/data/bpe"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/nn/transformer"
)

func (f *use) sampleFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.prompt, "prompt", "", "start of the text; empty means the start of any text")
	flags.IntVarP(&f.n, "tokens", "n", 100, "number of tokens to add; the end of a text ends them earlier")
	flags.Float64Var(&f.temperature, "temperature", 0.8, "divides the logits: 0 takes the most likely token, 1 draws with the model's probabilities")
	flags.IntVar(&f.topK, "top-k", 50, "draw from so many of the most likely tokens; 0 means all")
	flags.Int64Var(&f.seed, "seed", 1, "seed of the draws")
	flags.IntVar(&f.window, "window", 0, "most tokens that the model sees; 0 means its context")
	flags.StringVar(&f.encoding, "encoding", "r50k_base", "encoding of the tokens")
	f.deviceFlags(flags)
}

// sample prints the prompt, and the text that the model adds.
func (f *use) sample(out io.Writer) (err error) {
	enc, err := bpe.Open(f.encoding)
	if err != nil {
		return cli.Usage("--encoding: %w", err)
	}
	if f.n < 0 || f.window < 0 {
		return cli.Usage("--tokens %d, --window %d: want 0 or more", f.n, f.window)
	}
	s, err := transformer.NewSampler(transformer.SampleConfig{Temperature: f.temperature, TopK: f.topK, Vocabulary: enc.Vocabulary(), Seed: f.seed})
	if err != nil {
		return cli.AsUsage(err)
	}
	text, err := enc.Encode(f.prompt)
	if err != nil {
		return cli.Usage("--prompt: %w", err)
	}
	text = append([]int{enc.EndOfText()}, text...) // as symgrad data tokenize begins a text
	w, _, err := trained(f.from)
	if err != nil {
		return err
	}
	window := min(w.Config.Context, len(text)+f.n)
	if f.window > 0 {
		window = min(window, f.window)
	}
	m, err := transformer.New(w.Config, transformer.Options{Batch: 1, Tokens: window, Positions: 1, Weights: w.Values})
	if err != nil {
		return err
	}
	vm, err := f.machine("sample", m.Logits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	p := &printer{out: out, enc: enc}
	if _, err := io.WriteString(out, f.prompt); err != nil {
		return err
	}
	if err := transformer.Generate(m, vm, s, text, f.n, p.token); err != nil && !errors.Is(err, errEnd) {
		return err
	}
	return p.end()
}

// errEnd ends a text.
var errEnd = errors.New("the text has ended")

// printer prints tokens as text. A character may have several tokens.
type printer struct {
	out  io.Writer
	enc  *bpe.Encoding
	rest string // bytes of a character that is not complete
}

func (p *printer) token(token int) error {
	if token == p.enc.EndOfText() {
		return errEnd
	}
	text, err := p.enc.Decode([]int{token})
	if err != nil {
		return err
	}
	text = p.rest + text
	whole := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if c := text[len(text)-i:]; utf8.RuneStart(c[0]) {
			if !utf8.FullRuneInString(c) {
				whole -= i
			}
			break
		}
	}
	p.rest = text[whole:]
	_, err = io.WriteString(p.out, text[:whole])
	return err
}

func (p *printer) end() error {
	_, err := fmt.Fprintln(p.out, p.rest)
	return err
}
