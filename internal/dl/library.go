package dl

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Library is a shared library loaded into this process until the process ends. It is immutable and
// safe for concurrent use.
type Library struct {
	name   string
	path   string
	handle uintptr
}

func newLibrary(name, file string, handle uintptr) *Library {
	path := sysPath(handle)
	if path == "" {
		path = file
	}
	// A bare name is not made absolute with the working directory.
	if strings.ContainsRune(path, filepath.Separator) {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
	}
	return &Library{name: name, path: path, handle: handle}
}

// Name returns the Name of the Search.
func (l *Library) Name() string { return l.name }

// Path returns the file that the library was loaded from, with symbolic links resolved:
// "libopenblas.so.0" becomes "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so".
func (l *Library) Path() string { return l.path }

// String returns the name and the path: "openblas (/usr/lib/libopenblas.so.0.3)".
func (l *Library) String() string { return l.name + " (" + l.path + ")" }

// Lookup returns the address of a symbol of the library or of its dependencies. Returns: an
// address, not zero unless there is an error. Errors: ErrUnsupported if the symbol is not exported.
func (l *Library) Lookup(symbol string) (uintptr, error) {
	if addr := l.find(symbol); addr != 0 {
		return addr, nil
	}
	return 0, l.missing(symbol, "")
}

// Require checks a symbol that may be missing, before it is called; since is the version that
// introduced it, or empty. Returns: nil if the library exports the symbol. Errors: ErrUnsupported
// with library, file, symbol and version.
func (l *Library) Require(symbol, since string) error {
	if l.find(symbol) != 0 {
		return nil
	}
	return l.missing(symbol, since)
}

func (l *Library) find(symbol string) uintptr {
	if symbol == "" || strings.ContainsRune(symbol, 0) {
		return 0
	}
	return sysSymbol(l.handle, symbol)
}

func (l *Library) missing(symbol, since string) error {
	err := fmt.Errorf("dl: %s: symbol %q: %w", l, symbol, ErrUnsupported)
	if since != "" {
		err = fmt.Errorf("%w: needs %s %s or later", err, l.name, since)
	}
	return err
}
