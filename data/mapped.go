package data

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/foreign"
)

// mapped is a file in memory. Its pages come from the file when they are read, and ranks of one
// host share them. On Windows it is read into memory.
type mapped struct {
	path  string
	bytes []byte
	unmap func() error
}

// openMapped maps a file.
//
// Owns: the caller calls unmap. Errors: those of foreign.Open; dist.ErrInvalid for an empty file,
// naming it.
func openMapped(path string) (m mapped, err error) {
	f, err := foreign.Open(path)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // the mapping stays
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		err = fmt.Errorf("%w: the file is empty", dist.ErrInvalid)
	}
	if err == nil {
		m.path = path
		m.bytes, m.unmap, err = mapFile(f, info.Size())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return m, err
}

// onFault makes the fault of a mapped page a panic, which catch turns into an error.
//
//	defer catch(&err)
//	defer debug.SetPanicOnFault(onFault())
func onFault() (old bool) { return debug.SetPanicOnFault(true) }

// catch turns the fault of a mapped page that cannot be read into an error.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		*err = errors.New("the file was cut since it was opened, or its disk fails")
	default:
		*err = fmt.Errorf("BUG: %v", r)
	}
}

// kindOf returns ": it is ..." for a format that package foreign knows.
func kindOf(b []byte) string {
	if name := foreign.Sniff(b[:min(len(b), foreign.SniffBytes)]); name != "" {
		return ": it is " + name
	}
	return ""
}
