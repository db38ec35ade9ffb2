package bpe_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/symgrad/symgrad/data/bpe"
	"github.com/symgrad/symgrad/dist"
)

func open(t testing.TB, name string) *bpe.Encoding {
	t.Helper()
	e, err := bpe.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The tokens are those of OpenAI's tiktoken, as its documentation and GPT-2's release have them.
func TestTokensAreThoseOfTiktoken(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []int
	}{
		{"r50k_base", "hello world", []int{31373, 995}},
		{"r50k_base", "Hello, I'm a language model,", []int{15496, 11, 314, 1101, 257, 3303, 2746, 11}},
		{"r50k_base", "", nil},
		{"cl100k_base", "hello world", []int{15339, 1917}},
		{"o200k_base", "hello world", []int{24912, 2375}},
		{"p50k_base", "hello world", []int{31373, 995}},
	} {
		e := open(t, c.name)
		got, err := e.Encode(c.text)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q is %v (%v), want %v", c.name, c.text, got, err, c.want)
		}
	}
}

// TestTextsComeBack encodes texts with many kinds of characters, and decodes the tokens.
func TestTextsComeBack(t *testing.T) {
	stories, err := os.ReadFile("../../examples/lm/stories.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range bpe.Names() {
		e := open(t, name)
		for _, text := range []string{
			string(stories[:20_000]), "naïve Ελλάδα 東京 🙂🙂\r\n\tx  y   z\n\n\n", "<|endoftext|> is ordinary text", strings.Repeat(" ", 99) + "end", "\x00\x01",
		} {
			tokens, err := e.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Max(tokens) >= e.Vocabulary() || slices.Contains(tokens, e.EndOfText()) {
				t.Errorf("%s: tokens to %d of %d", name, slices.Max(tokens), e.Vocabulary())
			}
			if back, err := e.Decode(tokens); err != nil || back != text {
				t.Errorf("%s: %.60q came back as %.60q (%v)", name, text, back, err)
			}
		}
		if back, err := e.Decode([]int{e.EndOfText()}); err != nil || back != "<|endoftext|>" {
			t.Errorf("%s: %q, %v", name, back, err)
		}
	}
}

// words are parts of texts at which encodings split differently.
var words = []string{
	"a", "Word", " the", "!", ".", " ", "  ", "\t", "7", "é", "\r", "don't", "\u00a0", "\u2028", "/", "//", "}", "\n", "\n\n", "\r\n", "\n \n", "字", "\u0301", "\n// x",
}

// TestNoTokenGoesOnAtACut cuts texts of all kinds at every place where they may be cut.
func TestNoTokenGoesOnAtACut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []*bpe.Encoding
	for _, name := range bpe.Names() {
		all = append(all, open(t, name))
	}
	cuts := 0
	for range 2000 {
		var b strings.Builder
		for range 30 {
			b.WriteString(words[r.IntN(len(words))])
		}
		text := b.String()
		for cut := bpe.LastCut([]byte(text), 0); cut >= 0; cut = bpe.LastCut([]byte(text[:cut]), 0) {
			cuts++
			for _, e := range all {
				whole, err1 := e.Encode(text)
				first, err2 := e.Encode(text[:cut])
				second, err3 := e.Encode(text[cut:])
				if err := errors.Join(err1, err2, err3); err != nil || !slices.Equal(whole, append(first, second...)) {
					t.Errorf("%s: %q and %q have other tokens than together (%v)", e.Name(), text[:cut], text[cut:], err)
				}
			}
		}
	}
	if cuts < 500 {
		t.Errorf("%d cuts", cuts)
	}
}

// TestPartsHaveTheTokensOfTheWhole encodes texts of several parts from a reader.
func TestPartsHaveTheTokensOfTheWhole(t *testing.T) {
	bpe.SetPartBytes(t, 1<<12)
	e := open(t, "o200k_base")
	for _, line := range []string{"Some words of a line.\r\n", "no\nspaces\nhere\n", "one long line with words "} {
		text := strings.Repeat(line, 1<<15/len(line)) + "end"
		want, err := e.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		calls := 0
		err = e.EncodeAll(iotest.HalfReader(strings.NewReader(text)), func(tokens []int) error {
			calls++
			got = append(got, tokens...)
			return nil
		})
		if err != nil || !slices.Equal(got, want) || calls < 4 {
			t.Errorf("%q: %d tokens in %d parts (%v), want %d", line, len(got), calls, err, len(want))
		}
	}
}

func TestBadTextsAndTokensAreNamed(t *testing.T) {
	if _, err := bpe.Open("gpt2"); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "r50k_base") {
		t.Errorf("%v", err)
	}
	e := open(t, "r50k_base")
	if _, err := e.Encode("ab\ufffd\xff"); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "byte 5 is not UTF-8") {
		t.Errorf("%v", err)
	}
	for _, tokens := range [][]int{{1, -1}, {1, 50_257}} {
		if _, err := e.Decode(tokens); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "number 1, is not in r50k_base") {
			t.Errorf("%v: %v", tokens, err)
		}
	}
	bpe.SetPartBytes(t, 1<<12)
	long := strings.Repeat("x\n", 1<<13) + "\xff"
	drop := func([]int) error { return nil }
	if err := e.EncodeAll(strings.NewReader(long), drop); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "byte 16384 is not UTF-8") {
		t.Errorf("%v", err)
	}
	broken := errors.New("broken")
	if err := e.EncodeAll(iotest.ErrReader(broken), drop); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if err := e.EncodeAll(strings.NewReader("x"), func([]int) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
