package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

var (
	// ErrIrregular is returned by Open and ReadFile for a pipe, a device, a socket or a folder.
	ErrIrregular = errors.New("not a regular file")
	// ErrTooLong is returned by ReadFile, ReadNamed and ReadAll for a text that is longer than its
	// bound.
	ErrTooLong = errors.New("too long")
)

// Open opens a regular file for reading, also through a symbolic link. It does not wait, whatever
// the file is, and does not open a device, since that alone can have effects.
//
// Owns: the caller closes the file.
// Errors: ErrIrregular, those of the file system.
func Open(path string) (*os.File, error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil, openError(path, info, err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|withoutWaiting, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat() // another file may have taken the name since
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(openError(path, info, err), f.Close())
	}
	return f, nil
}

// openError returns err as an error of opening path, or an ErrIrregular for a file that is not
// regular.
func openError(path string, info fs.FileInfo, err error) error {
	var of *fs.PathError
	switch {
	case err == nil:
		err = fmt.Errorf("%w: it is %s", ErrIrregular, Kind(info.Mode()))
	case errors.As(err, &of):
		err = of.Err
	}
	return &fs.PathError{Op: "open", Path: path, Err: err}
}

// Kind names the kind of a file: "a named pipe".
func Kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "of an unknown kind"
}

// ReadFile returns the content of a regular file of at most limit bytes. A longer file costs no
// memory.
//
// Errors: ErrIrregular, ErrTooLong, those of the file system.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	return readOpen(f, limit)
}

// ReadNamed is ReadFile for a file that the user of the program has named, which may be a pipe or a
// terminal: /dev/stdin, or the shell's <(...). It waits for the writer of a pipe.
//
// Errors: ErrTooLong, those of the file system.
func ReadNamed(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	return readOpen(f, limit)
}

// readOpen reads f to its end. The size of a regular file is compared with limit first.
func readOpen(f *os.File, limit int64) ([]byte, error) {
	info, err := f.Stat()
	if err == nil && info.Size() > limit {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("%w: %d B, at most %d are allowed", ErrTooLong, info.Size(), limit)}
	}
	if err != nil {
		return nil, err
	}
	text, err := readAll(f, info.Size(), limit)
	if errors.Is(err, ErrTooLong) {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return text, err
}

// ReadAll reads r to its end, at most limit bytes.
//
// Errors: ErrTooLong, those of r.
func ReadAll(r io.Reader, limit int64) ([]byte, error) { return readAll(r, 0, limit) }

// readAll is ReadAll for a text of about size bytes.
func readAll(r io.Reader, size, limit int64) ([]byte, error) {
	var text bytes.Buffer
	text.Grow(int(size) + bytes.MinRead) // so that the end is found without growing once more
	n, err := text.ReadFrom(io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		return nil, fmt.Errorf("%w: more than the %d B that are allowed", ErrTooLong, limit)
	}
	return text.Bytes(), err
}
