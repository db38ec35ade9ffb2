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

// Checkpoint is one that is open to be read. Its methods may be called by several goroutines. It
// stays readable when a Saver of another process removes or renames it.
type Checkpoint struct {
	path     string
	manifest *Manifest
	tensors  []Tensor
	find     map[string]int // place in tensors and manifest.Tensors
	files    []*File
	rejected []Rejected
}

// Rejected is a checkpoint that was passed over.
type Rejected struct {
	Path string
	Err  error
}

// Verify is how much of a checkpoint OpenAt looks at.
type Verify uint8

const (
	VerifyAll   Verify = iota // every byte of every file
	VerifySizes               // the manifest, sizes and headers: for ranks that open what another has verified
)

// Open opens the newest whole checkpoint of dir: that of the highest step whose manifest and files
// are what was written, every byte of them. If dir is itself the folder of a checkpoint, it opens
// that one.
//
// When ranks resume, one of them calls Open and tells the others Path, for OpenAt: so all read the
// same.
//
// Returns: the checkpoint, whose Rejected tells what was newer and is broken. Owns: the caller
// closes it. Errors: ErrNone if there is none, with what is broken about those that are there;
// those of the file system, also where one that may be whole cannot be opened.
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
			continue // a Saver has renamed or removed one meanwhile
		}
		return c, err
	}
}

// openFirst opens the first of paths that is whole.
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
			return nil, false, err // to go on from an older one would be a surprise
		}
		_, missing := os.Stat(path)
		gone = gone || errors.Is(missing, fs.ErrNotExist)
		rejected = append(rejected, Rejected{path, err})
		errs = append(errs, err)
	}
	return nil, gone, errors.Join(errs...)
}

// denied reports whether err is of this process, which may not or cannot open a file, and says
// nothing about what is in it.
func denied(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM},
		func(of error) bool { return errors.Is(err, of) })
}

// List returns the folders in dir that have a checkpoint, or should have: the newest first,
// unfinished and broken ones as well. Checkpoints that are being removed are left out.
//
// Errors: ErrNone if dir is not there; those of the file system.
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

// Is reports whether dir is, or is called like, the folder of one checkpoint and not one of many.
// It need not be whole.
func Is(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, manifestName)); err == nil {
		return true
	}
	_, ok := parseFolder(filepath.Base(dir))
	return ok
}

// OpenAt opens the checkpoint in the folder path.
//
// Owns: the caller closes it. Errors: ErrNone if there is no such folder, and for one that is being
// removed; ErrUnfinished for one that is being written; ErrCorrupt, with the file and what is wrong
// with it; ErrUnsupported for a later version; those of the file system.
func OpenAt(path string, verify Verify) (*Checkpoint, error) {
	if err := checkByteOrder(); err != nil {
		return nil, err
	}
	f, named := parseFolder(filepath.Base(path))
	if f.removed {
		return nil, fmt.Errorf("checkpoint: %s: %w: it is being removed; the next save ends that", path, ErrNone)
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
	if _, gone := os.Stat(path); errors.Is(gone, fs.ErrNotExist) { // not there, or removed or renamed by a Saver meanwhile
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

// openFiles opens the files of the manifest and compares them with it.
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

// compare checks that every run of the manifest is an entry of its file, with the elements that it
// should have.
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

// Path is the folder of the checkpoint.
func (c *Checkpoint) Path() string { return c.path }

// Manifest is all but the elements; it belongs to c.
func (c *Checkpoint) Manifest() *Manifest { return c.manifest }

// Rejected is the checkpoints that Open looked at before this one and found broken.
func (c *Checkpoint) Rejected() []Rejected { return slices.Clone(c.rejected) }

// Tensors is all logical tensors, by name.
func (c *Checkpoint) Tensors() []Tensor {
	list := make([]Tensor, len(c.tensors))
	for i, t := range c.tensors {
		list[i] = t.clone()
	}
	return list
}

// Lookup is the tensor called name; false if there is none.
func (c *Checkpoint) Lookup(name string) (Tensor, bool) {
	i, ok := c.find[name]
	if !ok {
		return Tensor{}, false
	}
	return c.tensors[i].clone(), true
}

// Read fills dst with the elements of a tensor from offset on, in C order, whatever files have
// them.
//
// Errors: ErrInvalid for a name that is not there, another dtype, elements beyond the end, memory
// that is not on the host; ErrCorrupt for a file that has become shorter; ErrClosed; those of the
// file system.
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
	first, _ := slices.BinarySearchFunc(runs, offset, func(r RunInfo, at int) int { // the first that ends behind offset
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

// near is a hint at a name that differs in case only.
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

// closeFiles is Close, once.
func (c *Checkpoint) closeFiles() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
