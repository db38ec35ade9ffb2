package blas

import (
	"errors"
	"fmt"
)

// Config says which BLAS Open uses. The zero value takes the first installed one of MKL, OpenBLAS
// and BLIS, else gonum.
type Config struct {
	// Path, if not empty, is the only library to try: a file, or a bare soname for the loader
	// ("libopenblas.so.0"). It needs the Fortran interface with 32-bit integers. An unusable one is
	// an error.
	Path string

	// Dirs are more directories, or patterns for them ("/opt/conda/lib",
	// "/opt/venv/lib/*/site-packages/*.libs"), for libraries that the loader does not find by
	// itself.
	Dirs []string

	// Threads is the number of threads of the library per call. 0 leaves it to the library: mostly
	// all cores, which is wrong for several ranks on one host. It applies to the whole process.
	Threads int

	// Disable uses gonum even if libraries are installed.
	Disable bool
}

// Validate reports settings that contradict each other.
func (c Config) Validate() error {
	if c.Threads < 0 {
		return fmt.Errorf("blas: %d threads: want 1 or more, or 0 for the library's own choice", c.Threads)
	}
	if c.Disable && c.Path != "" {
		return errors.New("blas: a library path is set, and libraries are disabled: remove one of the two")
	}
	return nil
}
