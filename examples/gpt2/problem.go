package main

import (
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
			return fmt.Errorf("%s: %w; make tokens with symgrad data tokenize --encoding %s --out DIR TEXT", f.key, err, c.Data.Encoding)
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
	tokens, set, err := open("data.path", c.Data.Path, m.Vocabulary, p.Context, c.Data.Limit)
	if err != nil {
		return nil, err
	}
	p.Train = set
	p.About = fmt.Sprintf("%s: %d tokens in %d files; %d training samples of %d", c.Data.Path, tokens.Len(), len(tokens.Shards()), set.Len(), p.Context)
	if p.Source, err = tokens.Digest(); err != nil {
		return nil, errors.Join(err, tokens.Close())
	}
	if path := c.Data.ValPath; path != "" {
		if _, p.Held, err = open("data.val_path", path, m.Vocabulary, p.Context, c.Data.ValLimit); err != nil {
			return nil, errors.Join(err, tokens.Close())
		}
		p.About += fmt.Sprintf("; %s: %d test samples", path, p.Held.Len())
	}
	return train.FromDataset(p), nil
}

// open opens files of tokens. limit is the most samples of them; 0 means all.
//
// Owns: the caller closes the tokens.
func open(key, path string, vocabulary, context, limit int) (t *data.Tokens, set data.Dataset, err error) {
	t, err = data.OpenTokens(data.TokensConfig{Paths: []string{path}, Vocabulary: vocabulary})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", key, err)
	}
	n := t.Samples(context)
	if n == 0 { // the last token of a sample needs a successor
		err := train.Usage("%s=%s has %d tokens: want at least %d, for a sample of %d (model.context)", key, path, t.Len(), context+1, context)
		return nil, nil, errors.Join(err, t.Close())
	}
	if limit > 0 {
		n = min(n, limit)
	}
	if set, err = t.Dataset(context); err == nil {
		set, err = data.Subset(set, 0, n)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", key, err), t.Close())
	}
	return t, set, nil
}
