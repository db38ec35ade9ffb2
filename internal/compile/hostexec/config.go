package hostexec

import (
	"fmt"
	"runtime"

	"github.com/symgrad/symgrad/internal/host/blas"
)

// Config says how a program is run. The zero value is all cores and this package's own matrix
// products.
type Config struct {
	// Threads is the number of goroutines that compute, including the caller's. 0 means GOMAXPROCS.
	// Results do not depend on it, except for products by a library.
	Threads int

	// BLAS multiplies large matrices if it has found a library (MKL, OpenBLAS, BLIS) that is
	// faster: with one thread on a processor without AVX-512, or on one without AVX2. nil, or
	// gonum's, leaves all products to the kernels of this package. The package comment has the
	// measurements.
	BLAS *blas.Implementation
}

// Validate reports invalid settings.
func (c Config) Validate() error {
	if c.Threads < 0 {
		return fmt.Errorf("hostexec: %d threads; 0 means one for each core", c.Threads)
	}
	return nil
}

func (c Config) threads() int {
	if c.Threads == 0 {
		return runtime.GOMAXPROCS(0)
	}
	return c.Threads
}

// library returns the BLAS if it uses a library, else nil.
func (c Config) library() *blas.Implementation {
	if c.BLAS == nil || c.BLAS.Info().Name == "gonum" {
		return nil
	}
	return c.BLAS
}
