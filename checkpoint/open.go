package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/tensor"
)

// Checkpoint is a checkpoint that is open for reading. Its methods are safe for concurrent use. It
// stays readable when another process removes or renames it.
type Checkpoint struct {
	path     string
	manifest *Manifest
	tensors  []Tensor
	find     map[string]int // index in tensors and manifest.Tensors
	files    []*File
	rejected []Rejected
}

// Rejected is a checkpoint that Open skipped.
type Rejected struct {
	Path string
	Err  error
}

// Verify selects the checks of OpenAt.
type Verify uint8

const (
	VerifyAll   Verify = iota // every byte of every file
	VerifySizes               // the manifest, sizes and headers, if another rank has verified the rest
)

// Open opens the newest whole checkpoint of dir: the highest step with a valid manifest and
// unchanged files, checked byte by byte. If dir is itself the folder of a checkpoint, Open opens
// that one.
//
// To resume, one rank calls Open and sends Path to the others, which call OpenAt: so all ranks read
// the same checkpoint.
//
// Returns: the checkpoint; its Rejected lists newer, damaged ones. Owns: the caller closes it.
// Errors: ErrNone if no checkpoint is whole, with the errors of the damaged ones; those of the file
// system, also if a checkpoint that may be whole cannot be opened.
func Open(dir string) (*Checkpoint, error) {
	if Is(dir) {
		return OpenAt(dir, VerifyAll)
	}
	for tries := 2; ; tries-- {
		paths, err := List(dir)
		if err != nil {
			return nil, err
		}
		c, gone, err := openFirst(dir, paths)
		if gone && tries > 0 {
			continue // a Saver renamed or removed one meanwhile
		}
		return c, err
	}
}

// openFirst opens the first whole checkpoint of paths.
func openFirst(dir string, paths []string) (c *Checkpoint, gone bool, err error) {
	var rejected []Rejected
	errs := []error{fmt.Errorf("checkpoint: %w in %s", ErrNone, dir)}
	for _, path := range paths {
		c, err := OpenAt(path, VerifyAll)
		if err == nil {
			c.rejected = rejected
			return c, false, nil
		}
		if errors.Is(err, ErrUnsupported) || denied(err) {
			return nil, false, err // an older checkpoint would be a surprise
		}
		_, missing := os.Stat(path)
		gone = gone || errors.Is(missing, fs.ErrNotExist)
		rejected = append(rejected, Rejected{path, err})
		errs = append(errs, err)
	}
	return nil, gone, errors.Join(errs...)
}

// denied reports whether err comes from a limit or permission of this process, and so says nothing
// about the file's content.
func denied(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM},
		func(of error) bool { return errors.Is(err, of) })
}

// List returns the checkpoint folders in dir, the newest first, including unfinished and damaged
// ones. It omits checkpoints that are being removed.
//
// Errors: ErrNone if dir is missing; those of the file system.
func List(dir string) ([]string, error) {
	all, err := folders(disk{}, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("checkpoint: %w: %w", ErrNone, err)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	paths := make([]string, 0, len(all))
	for _, f := range all {
		if !f.removed {
			paths = append(paths, filepath.Join(dir, f.name))
		}
	}
	return paths, nil
}

// Is reports whether dir has a manifest or the name of a checkpoint's folder. The checkpoint need
// not be whole.
func Is(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, manifestName)); err == nil {
		return true
	}
	_, ok := parseFolder(filepath.Base(dir))
	return ok
}

// OpenAt opens the checkpoint in the folder path.
//
// Owns: the caller closes it. Errors: ErrNone if the folder is missing or being removed;
// ErrUnfinished if it is being written; ErrCorrupt, with the file and its fault; ErrUnsupported for
// a later version; those of the file system.
func OpenAt(path string, verify Verify) (*Checkpoint, error) {
	if err := checkByteOrder(); err != nil {
		return nil, err
	}
	f, named := parseFolder(filepath.Base(path))
	if f.removed {
		return nil, fmt.Errorf("checkpoint: %s: %w: it is being removed; the next save finishes the removal", path, ErrNone)
	}
	c, err := openAt(path)
	if err == nil && verify == VerifyAll {
		if err = c.verify(); err != nil {
			err = errors.Join(err, c.closeFiles())
		}
	}
	if err == nil {
		return c, nil
	}
	if _, gone := os.Stat(path); errors.Is(gone, fs.ErrNotExist) { // missing, or removed or renamed by a Saver meanwhile
		err = fmt.Errorf("%w: %w", ErrNone, gone)
	} else if named && f.tmp && errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: it is being written, or was when its program died (%v)", ErrUnfinished, err)
	}
	return nil, fmt.Errorf("checkpoint: %s: %w", path, err)
}

func openAt(path string) (*Checkpoint, error) {
	text, err := foreign.ReadFile(filepath.Join(path, manifestName), maxManifest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: it has no manifest, so it was not finished: %w", ErrCorrupt, err)
	case errors.Is(err, foreign.ErrIrregular), errors.Is(err, foreign.ErrTooLong):
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	case err != nil:
		return nil, err
	}
	m, err := decodeManifest(text)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{path: path, manifest: m, find: make(map[string]int, len(m.Tensors))}
	for i := range m.Tensors {
		t, err := m.Tensors[i].Tensor()
		if err != nil {
			return nil, err
		}
		c.tensors = append(c.tensors, t)
		c.find[t.Name] = i
	}
	if err := c.openFiles(); err != nil {
		return nil, errors.Join(err, c.closeFiles())
	}
	return c, nil
}

// openFiles opens the files of the manifest and compares their sizes and headers with it.
func (c *Checkpoint) openFiles() error {
	var errs []error
	for _, info := range c.manifest.Files {
		f, err := openFile(filepath.Join(c.path, info.Name))
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			errs = append(errs, err)
			continue
		}
		c.files = append(c.files, f)
		if n := f.header.Bytes(); n != info.Bytes {
			errs = append(errs, fmt.Errorf("%w: %s has %d B, the manifest says %d", ErrCorrupt, info.Name, n, info.Bytes))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.compare())
	}
	return errors.Join(errs...)
}

// compare checks that every run of the manifest is an entry of its file, with the right dtype and
// length.
func (c *Checkpoint) compare() error {
	for i := range c.tensors {
		t := &c.tensors[i]
		for _, r := range c.manifest.Tensors[i].Runs {
			f := c.files[r.File]
			e := f.header.Find(r.Entry)
			if e == nil {
				return fmt.Errorf("%w: tensor %s: %s has no entry %q", ErrCorrupt, t.Name, f.name, r.Entry)
			}
			if e.Type.DType() != t.DType || e.Type == Bool || e.Len() != r.Len {
				return fmt.Errorf("%w: tensor %s: entry %q of %s is %s%v, want %d %v", ErrCorrupt, t.Name, r.Entry, f.name, e.typeName(), e.Shape, r.Len, t.DType)
			}
		}
	}
	return nil
}

// Path returns the folder of the checkpoint.
func (c *Checkpoint) Path() string { return c.path }

// Manifest returns the manifest, which belongs to c.
func (c *Checkpoint) Manifest() *Manifest { return c.manifest }

// Rejected returns the damaged checkpoints that Open skipped before this one.
func (c *Checkpoint) Rejected() []Rejected { return slices.Clone(c.rejected) }

// Tensors returns all logical tensors, by name.
func (c *Checkpoint) Tensors() []Tensor {
	list := make([]Tensor, len(c.tensors))
	for i, t := range c.tensors {
		list[i] = t.clone()
	}
	return list
}

// Lookup returns the tensor of that name; false for an unknown name.
func (c *Checkpoint) Lookup(name string) (Tensor, bool) {
	i, ok := c.find[name]
	if !ok {
		return Tensor{}, false
	}
	return c.tensors[i].clone(), true
}

// Read fills dst with the elements of a tensor, starting at offset, in C order, from all files that
// have them.
//
// Errors: ErrInvalid for an unknown name, another dtype, elements beyond the end, or memory that is
// not on the host; ErrCorrupt for a file that has become shorter; ErrClosed; those of the file
// system.
func (c *Checkpoint) Read(name string, offset int, dst tensor.Buffer) error {
	i, ok := c.find[name]
	if !ok {
		return fmt.Errorf("checkpoint: %s: %w: there is no tensor %q%s", c.path, ErrInvalid, name, c.near(name))
	}
	t := &c.tensors[i]
	if err := readable(t.DType, t.Len(), offset, dst); err != nil {
		return fmt.Errorf("checkpoint: %s: tensor %s: %w", c.path, name, err)
	}
	runs, size, raw := c.manifest.Tensors[i].Runs, t.DType.Size(), dst.Raw()
	first, _ := slices.BinarySearchFunc(runs, offset, func(r RunInfo, at int) int { // the first run that ends after offset
		if r.Offset+r.Len <= at {
			return -1
		}
		return 1
	})
	for _, r := range runs[first:] {
		if len(raw) == 0 {
			break
		}
		f := c.files[r.File]
		n := min(len(raw), (r.Offset+r.Len-offset)*size)
		if err := f.readAt(f.header.Find(r.Entry), offset-r.Offset, raw[:n]); err != nil {
			return fmt.Errorf("checkpoint: %s: tensor %s: %s: %w", c.path, name, f.name, err)
		}
		raw, offset = raw[n:], offset+n/size
	}
	return nil
}

// near returns a hint for a name that differs in case only.
func (c *Checkpoint) near(name string) string {
	for i := range c.tensors {
		if strings.EqualFold(c.tensors[i].Name, name) {
			return fmt.Sprintf(": did you mean %q?", c.tensors[i].Name)
		}
	}
	return ""
}

// Close closes the files. Idempotent.
func (c *Checkpoint) Close() error {
	if err := c.closeFiles(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// closeFiles closes all files.
func (c *Checkpoint) closeFiles() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
