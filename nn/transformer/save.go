package transformer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Save writes w to a folder that the transformers library loads: model.safetensors, in F32, and
// config.json. It makes the folder if it is missing, and replaces both files.
//
// Errors: dist.ErrInvalid for weights that do not fit the configuration, and for a folder with an
// index of other files of weights; those of JSON, of package checkpoint and of the file system. The
// folder then has no config.json of w.
func (w *Weights) Save(dir string) error {
	all, err := w.check()
	if err != nil {
		return err
	}
	text, err := w.Config.JSON()
	if err != nil {
		return err
	}
	index := filepath.Join(dir, indexName)
	if _, err := os.Stat(index); err == nil {
		return fmt.Errorf("transformer: %s: %w: the folder has a model in several files: use another folder", index, dist.ErrInvalid)
	}
	tensors := make([]checkpoint.NamedTensor, len(all))
	for i, p := range all {
		tensors[i] = checkpoint.NamedTensor{Name: p.Name, Shape: p.Shape, Data: tensor.Of(w.Values[i].Float32s())}
	}
	config := filepath.Join(dir, ConfigName)
	err = os.MkdirAll(dir, 0o777)
	if err == nil {
		if err = os.Remove(config); errors.Is(err, fs.ErrNotExist) { // so that it never describes other weights
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("transformer: %w", err)
	}
	// Readers require the format's name in the metadata.
	if err := checkpoint.WriteFile(filepath.Join(dir, weightsName), map[string]string{"format": "pt"}, tensors); err != nil {
		return fmt.Errorf("transformer: %w", err)
	}
	if err := replace(config, text); err != nil {
		return fmt.Errorf("transformer: %w", err)
	}
	return nil
}

// replace writes a whole file or nothing.
func replace(path string, text []byte) (err error) {
	temporary := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	defer func() {
		if err != nil {
			_ = os.Remove(temporary) // it may be missing
		}
	}()
	if err := os.WriteFile(temporary, text, 0o666); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
