package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/examples/language"
	"github.com/symgrad/symgrad/nn/transformer"
	"github.com/symgrad/symgrad/train"
)

// findTokens reports missing files.
func findTokens(c *config.Config) error {
	for _, f := range []struct{ key, path string }{{"data.path", c.Data.Path}, {"data.val_path", c.Data.ValPath}} {
		if f.path == "" {
			continue
		}
		if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w; make tokens with symgrad data tokenize --encoding %s --out DIR TEXT...", f.key, err, c.Data.Encoding)
		}
	}
	return nil
}

// openTokens opens the files of tokens, which stay open. Sample i has the tokens from i*context on.
func openTokens(c *config.Config) (train.Problem, error) {
	m, err := language.ModelOf(c)
	if err != nil {
		return nil, train.Usage("%w", err)
	}
	p := &language.Problem{Model: m, Seed: c.Run.Seed, Context: c.Model.Context}
	if c.Model.Pretrained != "" {
		if p.Weights, err = transformer.Load(c.Model.Pretrained); err != nil {
			return nil, fmt.Errorf("model.pretrained: %w", err)
		}
	}
	tokens, samples, err := open("data.path", c.Data.Path, m.Vocabulary, p.Context, c.Data.Limit)
	if err != nil {
		return nil, err
	}
	p.Train, p.Samples = tokens, samples
	p.About = fmt.Sprintf("%s: %d tokens in %d files; %d training samples of %d", c.Data.Path, tokens.Len(), len(tokens.Shards()), samples, p.Context)
	if p.Source, err = digest(tokens); err != nil {
		return nil, errors.Join(err, tokens.Close())
	}
	if path := c.Data.ValPath; path != "" {
		held, n, err := open("data.val_path", path, m.Vocabulary, p.Context, c.Data.ValLimit)
		if err != nil {
			return nil, errors.Join(err, tokens.Close())
		}
		p.Held, p.Test = held, n
		p.About += fmt.Sprintf("; %s: %d test samples", path, n)
	}
	return p, nil
}

// open opens files of tokens. limit is the most samples of them; 0 means all.
//
// Owns: the caller closes the tokens.
func open(key, path string, vocabulary, context, limit int) (t *data.Tokens, samples int, err error) {
	t, err = data.OpenTokens(data.TokensConfig{Paths: []string{path}, Vocabulary: vocabulary})
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", key, err)
	}
	if samples = t.Samples(context); samples == 0 { // the last token of a sample needs a successor
		err := train.Usage("%s=%s has %d tokens: want at least %d, for a sample of %d (model.context)", key, path, t.Len(), context+1, context)
		return nil, 0, errors.Join(err, t.Close())
	}
	if limit > 0 {
		samples = min(samples, limit)
	}
	return t, samples, nil
}

// digest identifies tokens by the formats, lengths and first tokens of their files.
func digest(t *data.Tokens) (string, error) {
	h := sha256.New()
	at, start := 0, make([]int32, 256)
	for _, s := range t.Shards() {
		fmt.Fprintf(h, "%v %d\n", s.Format, s.Tokens)
		some := start[:min(len(start), s.Tokens)]
		if err := t.Read(at, some); err != nil {
			return "", err
		}
		for _, token := range some {
			h.Write(binary.LittleEndian.AppendUint32(nil, uint32(token)))
		}
		at += s.Tokens
	}
	return fmt.Sprintf("%d tokens in %d files, SHA-256 of lengths and starts %x", t.Len(), len(t.Shards()), h.Sum(nil)), nil
}
