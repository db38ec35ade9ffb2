package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/nn/transformer"
)

// trained returns the weights in a folder: of Hugging Face, of one checkpoint, or of several, of
// which it takes the newest.
//
// Returns: also the path that was read.
func trained(dir string) (w *transformer.Weights, path string, err error) {
	if _, err := os.Stat(filepath.Join(dir, transformer.ConfigName)); err == nil {
		w, err = transformer.Load(dir)
		return w, dir, err
	}
	c, err := checkpoint.Open(dir)
	if errors.Is(err, checkpoint.ErrNone) {
		return nil, dir, fmt.Errorf("%w, and no %s: name a folder of checkpoints (checkpoint.dir), or of Hugging Face", err, transformer.ConfigName)
	}
	if err != nil {
		return nil, dir, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	cfg, err := transformer.ConfigOf(c)
	if err != nil {
		return nil, dir, err
	}
	w, err = transformer.FromCheckpoint(c, cfg)
	return w, c.Path(), err
}
