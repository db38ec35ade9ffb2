package blas

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/dl"
)

// known returns the libraries that Open looks for, in order. MKL comes first because it is
// installed for this purpose, while the other two come with a distribution.
func known(dirs []string) []dl.Search {
	return []dl.Search{
		{Name: "mkl", Sonames: []string{"libmkl_rt.so.2"}, Dirs: dirs},
		{Name: "openblas", Sonames: []string{"libopenblas.so.0"}, Dirs: dirs},
		{Name: "blis", Sonames: []string{"libblis.so.4"}, Dirs: dirs},
	}
}

// Open chooses a BLAS: the library at c.Path; or the first of MKL, OpenBLAS and BLIS that is
// installed, has 32-bit integers, and passes a trial; or gonum.
//
// Returns: an implementation. Without a library it is gonum's, and Info has the reason for each one
// that was not taken. Owns: a library stays loaded (see internal/dl), even if it was rejected.
// Errors: c.Path cannot be loaded (dl.ErrNotFound) or used (ErrRejected); c.Validate's.
func Open(c Config) (*Implementation, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	switch {
	case c.Disable:
		return &Implementation{info: gonumInfo([]string{"libraries are disabled by configuration"})}, nil
	case c.Path != "":
		return openPath(c.Path, c.Threads)
	}
	return openFirst(known(c.Dirs), c.Threads)
}

// openPath uses the library at a path, or fails.
func openPath(path string, threads int) (*Implementation, error) {
	lib, err := dl.Open(dl.Search{Name: "blas", Override: path})
	if err != nil {
		return nil, fmt.Errorf("blas: %w", err)
	}
	impl, err := use(lib, threads)
	if err != nil {
		return nil, fmt.Errorf("blas: %s: %w", lib.Path(), err)
	}
	return impl, nil
}

// openFirst uses the first library that works, else gonum.
func openFirst(searches []dl.Search, threads int) (*Implementation, error) {
	var rejected []string
	for _, s := range searches {
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("blas: %w", err) // a malformed pattern in Config.Dirs
		}
		lib, err := dl.Open(s)
		if err != nil {
			rejected = append(rejected, err.Error())
			continue
		}
		impl, err := use(lib, threads)
		if err != nil {
			rejected = append(rejected, fmt.Sprintf("%s: %v", lib.Path(), err))
			continue
		}
		impl.info.Rejected = rejected
		return impl, nil
	}
	return &Implementation{info: gonumInfo(rejected)}, nil
}

// use returns an implementation for a loaded library, or the reason why it is unusable.
func use(lib *dl.Library, threads int) (*Implementation, error) {
	v, err := identify(lib, threads)
	if err != nil {
		return nil, err
	}
	var t table
	if err := lib.Bind(&t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	if err := checkIntegers(t); err != nil {
		return nil, err
	}
	impl := &Implementation{info: Info{Name: v.name, Version: v.version, Path: lib.Path(), Threads: v.threads()}}
	impl.single.bind(v.before, t.sgemm, t.sgemv, t.sger, t.saxpy, t.sscal, t.sdot)
	impl.double.bind(v.before, t.dgemm, t.dgemv, t.dger, t.daxpy, t.dscal, t.ddot)
	if err := checkResults(impl); err != nil {
		return nil, err
	}
	impl.single.least, impl.double.least = measuredThresholds(v.name)
	return impl, nil
}

// table has the Fortran routines, under the names that all Fortran compilers on Linux use.
type table struct {
	sgemm dl.Proc        `dl:"sgemm_"`
	sgemv dl.Proc        `dl:"sgemv_"`
	sger  dl.Proc        `dl:"sger_"`
	saxpy dl.Proc        `dl:"saxpy_"`
	sscal dl.Proc        `dl:"sscal_"`
	sdot  dotOf[float32] `dl:"sdot_"`

	dgemm dl.Proc        `dl:"dgemm_"`
	dgemv dl.Proc        `dl:"dgemv_"`
	dger  dl.Proc        `dl:"dger_"`
	daxpy dl.Proc        `dl:"daxpy_"`
	dscal dl.Proc        `dl:"dscal_"`
	ddot  dotOf[float64] `dl:"ddot_"`
}

// dotOf is the Go type of the Fortran dot product.
type dotOf[T real] func(n *int32, x *T, incX *int32, y *T, incY *int32) T

// bind sets the routines of one element type. They take every size until thresholds are set.
func (r *routines[T]) bind(before perThread, gemm, gemv, ger, axpy, scal dl.Proc, dot dotOf[T]) {
	r.foreign = true
	r.gemmProc = entry{gemm, before}
	r.gemvProc = entry{gemv, before}
	r.gerProc = entry{ger, before}
	r.axpyProc = entry{axpy, before}
	r.scalProc = entry{scal, before}
	r.dotFunc = dotEntry[T]{dot, before}
}
