package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/tensor"
)

// File is an open safetensors file. Its methods are safe for concurrent use.
type File struct {
	f      *os.File
	name   string // for errors
	header *Header
}

// OpenFile opens a safetensors file of any program. It lists tensors of dtypes without a Type, but
// Read returns an error for them.
//
// Owns: the caller closes it. Errors: ErrCorrupt, also for a pipe, a device, a folder, or a file of
// another format, which it names; ErrUnsupported on a machine that is not little-endian; those of
// the file system.
func OpenFile(path string) (*File, error) {
	if err := checkByteOrder(); err != nil {
		return nil, err
	}
	f, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return f, nil
}

func openFile(path string) (*File, error) {
	f, err := foreign.Open(path)
	if errors.Is(err, foreign.ErrIrregular) {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	var h *Header
	if err == nil {
		h, err = ReadHeader(f, info.Size())
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return &File{f: f, name: filepath.Base(path), header: h}, nil
}

// Header returns the file's header, which belongs to f.
func (f *File) Header() *Header { return f.header }

// Read fills dst with the elements of a tensor, starting at offset.
//
// Errors: ErrInvalid for an unknown name, another dtype or elements beyond the end; ErrUnsupported
// for a dtype without a Type; ErrCorrupt for a file that has become shorter; ErrClosed.
func (f *File) Read(name string, offset int, dst tensor.Buffer) error {
	e := f.header.Find(name)
	if e == nil {
		return fmt.Errorf("checkpoint: %s: %w: there is no tensor %q", f.name, ErrInvalid, name)
	}
	if e.Type == NoType {
		return fmt.Errorf("checkpoint: %s: tensor %q: elements of dtype %s are %w", f.name, name, e.Other, ErrUnsupported)
	}
	if err := readable(e.Type.DType(), e.Len(), offset, dst); err != nil {
		return fmt.Errorf("checkpoint: %s: tensor %q: %w", f.name, name, err)
	}
	if err := f.readAt(e, offset, dst.Raw()); err != nil {
		return fmt.Errorf("checkpoint: %s: tensor %q: %w", f.name, name, err)
	}
	return nil
}

// readAt fills p with whole elements, starting at element offset.
func (f *File) readAt(e *Entry, offset int, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	at := f.header.Start + e.Offset + int64(offset)*int64(e.Type.DType().Size())
	_, err := f.f.ReadAt(p, at)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: the file has become shorter", ErrCorrupt)
	}
	return unlessClosed(err)
}

// unlessClosed returns ErrClosed for the error of a closed file, otherwise err.
func unlessClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return ErrClosed
	}
	return err
}

// readable checks dtype, device and range of a read.
func readable(dt tensor.DType, n, offset int, dst tensor.Buffer) error {
	switch {
	case dst.DType() != dt:
		return fmt.Errorf("%w: it is %v, not %v: read it as it is and convert", ErrInvalid, dt, dst.DType())
	case dst.Device() != tensor.Host:
		return fmt.Errorf("%w: cannot read into %v: read into host memory", ErrInvalid, dst)
	case offset < 0 || dst.Len() > n || offset > n-dst.Len():
		return fmt.Errorf("%w: it has %d elements, not %d from %d on", ErrInvalid, n, dst.Len(), offset)
	}
	return nil
}

// Close closes the file. Idempotent.
func (f *File) Close() error {
	if err := f.f.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// NamedTensor is a tensor for WriteFile.
type NamedTensor struct {
	Name  string
	Type  Type // NoType means that of Data
	Shape []int
	Data  tensor.Buffer // in host memory
}

// WriteFile writes a safetensors file that every program can read: the whole file, durably, or
// nothing. If path is a device or a pipe, it writes to that. If path is a link, it writes the
// link's target.
//
// Errors: ErrInvalid for names, shapes and data that do not fit, and for a path that ends with a
// slash; those of the file system.
func WriteFile(path string, metadata map[string]string, tensors []NamedTensor) error {
	if err := checkByteOrder(); err != nil {
		return err
	}
	entries := make([]Entry, len(tensors))
	for i, t := range tensors {
		if t.Type == NoType {
			t.Type = TypeOf(t.Data.DType())
		}
		entries[i] = Entry{Name: t.Name, Type: t.Type, Shape: t.Shape}
	}
	err := writeEntries(path, metadata, entries, func(i int, w *summed) error { return w.write(tensors[i].Data.Raw()) }, func(i int) error {
		d, e := tensors[i].Data, &entries[i]
		if d.Bytes() != e.Bytes || d.DType() != e.Type.DType() && e.Bytes > 0 || d.Device() != tensor.Host {
			return fmt.Errorf("%w: tensor %q is %v%v, its data %v", ErrInvalid, e.Name, e.Type, e.Shape, d)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	return nil
}

// writeEntries computes the layout of entries, checks each and writes the file; data writes the
// bytes of one.
func writeEntries(path string, metadata map[string]string, entries []Entry, data func(i int, w *summed) error, check func(i int) error) error {
	if path == "" || os.IsPathSeparator(path[len(path)-1]) {
		return fmt.Errorf("%w: the path is not a file name", ErrInvalid)
	}
	order, err := layOut(entries)
	if err != nil {
		return err
	}
	for i := range entries {
		if err := check(i); err != nil {
			return err
		}
	}
	header, err := encodeHeader(metadata, entries, order)
	if err != nil {
		return err
	}
	fill := func(w file) error {
		out := summed{w: w}
		if err := out.write(header); err != nil {
			return err
		}
		for _, i := range order {
			if err := data(i, &out); err != nil {
				return err
			}
		}
		return nil
	}
	path = linked(path)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return writeInto(path, fill)
	}
	return writeWhole(disk{}, filepath.Dir(path), filepath.Base(path), fill)
}

// linked returns the target of path if path is a link, such as /dev/stdout. It returns path if it
// is no link or a link without a target.
func linked(path string) string {
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink == 0 {
		return path
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path // for a pipe, the link in /proc is no path
}

// writeInto writes to an existing device, pipe or other special file, which must not be replaced.
func writeInto(path string, fill func(w file) error) (err error) {
	f, err := disk{}.Create(path)
	if err != nil {
		return explain(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return explain(fill(f))
}
