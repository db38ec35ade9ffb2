package transformer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/foreign"
)

// The files of weights in a folder of Hugging Face.
const (
	weightsName = "model.safetensors"
	indexName   = "model.safetensors.index.json"
)

// maxIndex is the largest index in bytes: some hundred thousand tensors.
const maxIndex = 64 << 20

// folder is the opened files of weights in a folder.
type folder struct {
	path    string // of the folder, or of its only file
	files   []*checkpoint.File
	tensors []place
}

// openFolder opens model.safetensors or, if it is missing, the files of the index.
//
// Owns: the caller closes the folder.
func openFolder(dir string) (f *folder, err error) {
	f = &folder{path: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	whole := filepath.Join(dir, weightsName)
	if _, err := os.Stat(whole); err == nil {
		f.path = whole
		file, err := f.open(whole)
		if err != nil {
			return f, err
		}
		for i := range file.Header().Entries {
			f.tensors = append(f.tensors, place{whole, file, &file.Header().Entries[i]})
		}
		return f, nil
	}
	index := filepath.Join(dir, indexName)
	text, err := foreign.ReadFile(index, maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("%s: %w: neither %s nor %s is there%s", dir, dist.ErrInvalid, weightsName, indexName, otherWeights(dir))
	}
	if err != nil {
		return f, err
	}
	return f, f.openIndex(dir, index, text)
}

// otherWeights returns a remedy if dir has weights of another format.
func otherWeights(dir string) string {
	for _, name := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return fmt.Sprintf(", but %s: load it with the transformers library and call save_pretrained, which writes safetensors", name)
		}
	}
	return ": name the folder that save_pretrained of the transformers library wrote"
}

// open opens a file of f.
func (f *folder) open(path string) (*checkpoint.File, error) {
	file, err := checkpoint.OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Dir(path), err)
	}
	f.files = append(f.files, file)
	return file, nil
}

// openIndex opens the files of an index with this text.
func (f *folder) openIndex(dir, path string, text []byte) error {
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil || len(index.Files) == 0 {
		return fmt.Errorf("%s: %w: no weight_map with the file of each tensor", path, errors.Join(dist.ErrInvalid, err))
	}
	f.path = path
	opened := make(map[string]*checkpoint.File)
	for _, name := range slices.Sorted(maps.Keys(index.Files)) {
		base := index.Files[name]
		if base != filepath.Base(base) || !filepath.IsLocal(base) {
			return fmt.Errorf("%s: %w: tensor %q is in file %q: want a name without a folder", path, dist.ErrInvalid, name, base)
		}
		inside := filepath.Join(dir, base)
		if opened[base] == nil {
			file, err := f.open(inside)
			if err != nil {
				return fmt.Errorf("%s: %w", indexName, err)
			}
			opened[base] = file
		}
		e := opened[base].Header().Find(name)
		if e == nil {
			return fmt.Errorf("%s: %w: %s has no tensor %q: the index and its files are of different models", path, dist.ErrInvalid, base, name)
		}
		f.tensors = append(f.tensors, place{inside, opened[base], e})
	}
	return nil
}

// close closes the files.
func (f *folder) close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
