// Package bpe encodes text as the tokens of OpenAI's byte-pair encodings, and back. Their
// vocabularies are part of the package, so it needs no network.
//
//	enc, err := bpe.Open("r50k_base") // GPT-2's
//	tokens, err := enc.Encode("hello world") // 31373, 995
//	text, err := enc.Decode(tokens)
//
// The encoding itself is that of github.com/tiktoken-go/tokenizer.
package bpe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"

	"github.com/symgrad/symgrad/dist"
)

// encodings are the known ones. vocabulary counts special tokens too, as OpenAI's tiktoken does.
var encodings = map[string]struct {
	library    tokenizer.Encoding
	endOfText  int
	vocabulary int
}{
	"r50k_base":   {tokenizer.R50kBase, 50256, 50257},
	"p50k_base":   {tokenizer.P50kBase, 50256, 50281},
	"cl100k_base": {tokenizer.Cl100kBase, 100257, 100277},
	"o200k_base":  {tokenizer.O200kBase, 199999, 200019},
}

// Encoding is a byte-pair encoding with its vocabulary.
//
// Concurrency: Encode from any number of goroutines; Decode not.
type Encoding struct {
	name       string
	codec      tokenizer.Codec
	endOfText  int
	vocabulary int
}

// Names returns the names of all encodings, sorted.
func Names() []string { return slices.Sorted(maps.Keys(encodings)) }

// Open returns an encoding.
//
// Errors: dist.ErrInvalid for another name.
func Open(name string) (*Encoding, error) {
	e, ok := encodings[name]
	if !ok {
		return nil, fmt.Errorf("bpe: %w: no encoding %q: use one of %s", dist.ErrInvalid, name, strings.Join(Names(), ", "))
	}
	codec, err := tokenizer.Get(e.library)
	if err != nil {
		return nil, fmt.Errorf("bpe: %s: %w", name, err)
	}
	return &Encoding{name, codec, e.endOfText, e.vocabulary}, nil
}

// Name returns the encoding's name.
func (e *Encoding) Name() string { return e.name }

// Vocabulary returns the number of tokens, special ones too: tokens are 0 to Vocabulary-1.
func (e *Encoding) Vocabulary() int { return e.vocabulary }

// EndOfText returns the token between two texts, <|endoftext|>.
func (e *Encoding) EndOfText() int { return e.endOfText }

// Encode returns the tokens of text. Names of special tokens in it are ordinary text.
//
// The time grows with the square of the length of a word: a million letters without a space take
// hours. Errors: dist.ErrInvalid for text that is not UTF-8, naming the byte.
func (e *Encoding) Encode(text string) ([]int, error) { return e.encode(text, 0) }

// encode is Encode for a part of a text, from byte at on.
func (e *Encoding) encode(text string, at int64) ([]int, error) {
	if i := invalid(text); i >= 0 {
		return nil, fmt.Errorf("bpe: %w: byte %d is not UTF-8: is it a text?", dist.ErrInvalid, at+int64(i))
	}
	ids, _, err := e.codec.Encode(text)
	if err != nil {
		return nil, fmt.Errorf("bpe: %s: %w", e.name, err)
	}
	tokens := make([]int, len(ids))
	for i, id := range ids {
		tokens[i] = int(id)
	}
	return tokens, nil
}

// invalid returns the place of the first byte that is not UTF-8; -1 for none.
func invalid(text string) int {
	if utf8.ValidString(text) {
		return -1
	}
	for at, r := range text {
		if r != utf8.RuneError {
			continue
		}
		if _, n := utf8.DecodeRuneInString(text[at:]); n <= 1 {
			return at
		}
	}
	return -1
}

// Decode returns the text of tokens. Bytes that are no whole character, as after a cut between
// tokens, are in it as they are; EndOfText is <|endoftext|>. No other special token is known.
//
// Errors: dist.ErrInvalid for a token that the encoding does not have, naming its place.
func (e *Encoding) Decode(tokens []int) (string, error) {
	var text strings.Builder
	for i, token := range tokens {
		if token == e.endOfText {
			text.WriteString("<|endoftext|>")
			continue
		}
		piece, err := "", error(nil)
		if token >= 0 {
			piece, err = e.codec.Decode([]uint{uint(token)})
		}
		if token < 0 || err != nil {
			return "", fmt.Errorf("bpe: %w: token %d, number %d, is not in %s", dist.ErrInvalid, token, i, e.name)
		}
		text.WriteString(piece)
	}
	return text.String(), nil
}
