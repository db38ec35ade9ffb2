package blas

import (
	"errors"
	"fmt"
)

// Config says which BLAS Open looks for. The zero value takes the first installed one of MKL,
// OpenBLAS and BLIS, else gonum.
type Config struct {
	// Path, if not empty, is the one library to use: a file, or a bare soname for the loader
	// ("libopenblas.so.0"). It needs the Fortran interface with 32-bit integers. One that cannot be
	// used is an error.
	Path string

	// Dirs are further directories, or patterns for them ("/opt/conda/lib",
	// "/opt/venv/lib/*/site-packages/*.libs"), to look into for the libraries that the loader does
	// not find by itself.
	Dirs []string

	// Threads is how many threads the library may use for one call. 0 leaves that to the library:
	// mostly all cores, which is wrong for several ranks on one host. It is one setting for the
	// whole process.
	Threads int

	// Disable uses gonum whatever is installed.
	Disable bool
}

// Validate reports settings that contradict each other.
func (c Config) Validate() error {
	if c.Threads < 0 {
		return fmt.Errorf("blas: %d threads: want 1 or more, or 0 for the library's own choice", c.Threads)
	}
	if c.Disable && c.Path != "" {
		return errors.New("blas: a library path is set, and libraries are disabled: drop one of the two")
	}
	return nil
}
