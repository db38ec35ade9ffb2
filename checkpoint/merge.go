package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// Merge writes the tensors of the given roles (default: Param and Buffer) to one safetensors file
// for other programs: whole tensors under their names. The metadata has the step, and "format":
// "pt", which Hugging Face's loaders require.
//
// Returns: the number of tensors and their bytes. Errors: ErrInvalid if no tensor has one of the
// roles, or path is a file of the checkpoint; those of Read and of the file system.
func (c *Checkpoint) Merge(path string, only ...Role) (tensors int, bytes int64, err error) {
	if len(only) == 0 {
		only = []Role{Param, Buffer}
	}
	var entries []Entry
	for _, t := range c.tensors {
		if slices.Contains(only, t.Role) {
			entries = append(entries, Entry{Name: t.Name, Type: TypeOf(t.DType), Shape: slices.Clone(t.Shape)})
			bytes += t.Bytes()
		}
	}
	if len(entries) == 0 {
		return 0, 0, fmt.Errorf("checkpoint: %s: %w: no tensor has role %v", c.path, ErrInvalid, only)
	}
	if c.isOwn(path) {
		return 0, 0, fmt.Errorf("checkpoint: %s: %w: %s is a file of the checkpoint itself: choose another name", c.path, ErrInvalid, path)
	}
	metadata := map[string]string{"format": "pt", "step": fmt.Sprint(c.manifest.Step)}
	words := make([]uint64, chunk/8)
	err = writeEntries(path, metadata, entries, func(i int, w *summed) error { return c.copyTo(w, &entries[i], words) }, func(int) error { return nil })
	if err != nil {
		return 0, 0, fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	return len(entries), bytes, nil
}

// isOwn reports whether path is a file of the checkpoint, under any name of its folder, or a link
// to one.
func (c *Checkpoint) isOwn(path string) bool {
	path = linked(path)
	name := filepath.Base(path)
	if name != manifestName && !slices.ContainsFunc(c.manifest.Files, func(f FileInfo) bool { return f.Name == name }) {
		return false
	}
	here, err := os.Stat(c.path)
	there, missing := os.Stat(filepath.Dir(path))
	return err == nil && missing == nil && os.SameFile(here, there)
}

// copyTo writes all elements of a tensor to w, with words as the buffer.
func (c *Checkpoint) copyTo(w *summed, e *Entry, words []uint64) error {
	dt := e.Type.DType()
	raw := tensor.Of(words).Raw()
	for at, n := 0, e.Len(); at < n; {
		some := min(n-at, len(raw)/dt.Size())
		dst, err := bufferOver(raw, some, dt)
		if err == nil {
			err = c.Read(e.Name, at, dst)
		}
		if err == nil {
			err = w.write(dst.Raw())
		}
		if err != nil {
			return err
		}
		at += some
	}
	return nil
}
