package cublas

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Majors of CUDA whose cuBLAS this package supports. cuBLAS has the same majors.
const (
	leastMajor  = 12
	newestMajor = 13
)

// Config says where cuBLAS is. The zero value searches for it.
type Config struct {
	Path string   // of libcublas, or a bare soname; "" searches the loader's places and then Dirs
	Dirs []string // folders and patterns to search, as from dl.Places; nil means dl.Places without an environment
	CUDA int      // cuda.Driver.Version: a cuBLAS of a later major is refused; 0 means any
}

// Validate reports invalid settings. Errors: cuda.ErrInvalid.
func (c Config) Validate() error {
	if c.CUDA != 0 && c.CUDA < 1000*leastMajor {
		return fmt.Errorf("cublas: %w: CUDA is %d, want 0 or a version like 13000, 12000 at least", cuda.ErrInvalid, c.CUDA)
	}
	if err := (dl.Search{Name: "cuBLAS", Override: c.Path, Sonames: []string{"libcublas.so.13"}, Dirs: c.Dirs}).Validate(); err != nil {
		return fmt.Errorf("cublas: %w: %w", cuda.ErrInvalid, err)
	}
	return nil
}

// Version is a version of cuBLAS.
type Version struct{ Major, Minor, Patch int }

// String returns "13.0.2".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Library is the cuBLAS of this process, with its cuBLASLt. It is safe for concurrent use, and
// stays loaded until the process ends (see internal/dl).
type Library struct {
	lib, lt *dl.Library
	f       front
	t       table
	ltT     ltTable
	version Version
	name    string // for errors
}

// Open loads cuBLAS: c.Path, or the first one that is found, the newest CUDA's first.
//
// Errors: ErrLibrary if none is found (dl.ErrNotFound, with every place that was tried), if it is
// older than 12 or newer than the driver, or if it lacks functions (dl.ErrUnsupported, with their
// names); cuda.ErrInvalid for an invalid c.
func Open(c Config) (*Library, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Dirs == nil {
		c.Dirs = dl.Places(os.DirFS("/"), nil)
	}
	lib, lt, err := c.load()
	if err != nil {
		return nil, fmt.Errorf("cublas: %w: %w: install CUDA's toolkit or the Python wheel nvidia-cublas", ErrLibrary, err)
	}
	return use(lib, lt, c)
}

// majors returns the majors to look for, the best first.
func (c Config) majors() []int {
	var list []int
	for m := newestMajor; m >= leastMajor; m-- {
		if c.CUDA == 0 || m <= c.CUDA/1000 {
			list = append(list, m)
		}
	}
	return list
}

// load opens the two libraries.
func (c Config) load() (lib, lt *dl.Library, err error) {
	if c.Path != "" {
		return c.loadPath()
	}
	var tried []error
	for _, major := range c.majors() {
		lt, err := dl.Open(dl.Search{Name: "cuBLASLt", Sonames: []string{fmt.Sprintf("libcublasLt.so.%d", major)}, Dirs: c.Dirs})
		if err != nil {
			tried = append(tried, err)
			continue
		}
		soname := fmt.Sprintf("libcublas.so.%d", major)
		lib, failed := dl.Open(dl.Search{Name: "cuBLAS", Override: filepath.Join(filepath.Dir(lt.Path()), soname)})
		if failed == nil {
			return lib, lt, nil
		}
		// Debian's alternatives may link the two into different folders.
		if lib, err = dl.Open(dl.Search{Name: "cuBLAS", Sonames: []string{soname}, Dirs: c.Dirs}); err == nil {
			return lib, lt, nil
		}
		tried = append(tried, failed, err)
	}
	return nil, nil, errors.Join(tried...)
}

// loadPath opens the library at c.Path, and the cuBLASLt in its folder.
func (c Config) loadPath() (lib, lt *dl.Library, err error) {
	dir, file := filepath.Split(c.Path)
	name := dir + strings.Replace(file, "libcublas.", "libcublasLt.", 1)
	var missing error
	if name != c.Path {
		lt, missing = dl.Open(dl.Search{Name: "cuBLASLt", Override: name})
	}
	if lib, err = dl.Open(dl.Search{Name: "cuBLAS", Override: c.Path}); err != nil {
		return nil, nil, err
	}
	if lt == nil {
		// Libraries that libcublas depends on are loaded with it, and their symbols are found
		// through it.
		lt = lib
	}
	var f ltFront
	if err := lt.Bind(&f); err != nil {
		return nil, nil, errors.Join(err, missing)
	}
	return lib, lt, nil
}

// use binds loaded libraries.
func use(lib, lt *dl.Library, c Config) (*Library, error) {
	l := &Library{lib: lib, lt: lt, name: "cuBLAS (" + lib.Path() + ")"}
	if err := lib.Bind(&l.f); err != nil {
		return nil, fmt.Errorf("cublas: %w: %w", ErrLibrary, err)
	}
	var err error
	if l.version, err = l.ask(lib, "cublasGetProperty", l.f.property); err != nil {
		return nil, err
	}
	l.name = fmt.Sprintf("cuBLAS %v (%s)", l.version, lib.Path())
	if err := c.accepts(l.version, l.name); err != nil {
		return nil, err
	}
	if err := lib.Bind(&l.t); err != nil {
		return nil, fmt.Errorf("cublas: %w: %s: %w", ErrLibrary, l.name, err)
	}
	var f ltFront
	if err := lt.Bind(&f); err != nil {
		return nil, fmt.Errorf("cublas: %w: %s: %w", ErrLibrary, l.name, err)
	}
	other, err := l.ask(lt, "cublasLtGetProperty", f.property)
	if err != nil {
		return nil, err
	}
	if other.Major != l.version.Major || other.Minor != l.version.Minor {
		return nil, fmt.Errorf("cublas: %w: %s works with cuBLASLt %v.%v, and %s is %v: set the path of a libcublas with its own libcublasLt in the folder",
			ErrLibrary, l.name, l.version.Major, l.version.Minor, lt.Path(), other)
	}
	if err := lt.Bind(&l.ltT); err != nil {
		return nil, fmt.Errorf("cublas: %w: cuBLASLt %v: %w", ErrLibrary, other, err)
	}
	return l, nil
}

// ask returns the version of a library.
func (l *Library) ask(lib *dl.Library, call string, property func(which int32, out *int32) int32) (Version, error) {
	var parts [3]int32
	for i, which := range [...]int32{propertyMajor, propertyMinor, propertyPatch} {
		if r := property(which, &parts[i]); r != success {
			return Version{}, fmt.Errorf("cublas: %w: %s of %s returned %d", ErrLibrary, call, lib.Path(), r)
		}
	}
	return Version{int(parts[0]), int(parts[1]), int(parts[2])}, nil
}

// accepts returns nil if v works with a driver for CUDA c.CUDA. name is the library's.
func (c Config) accepts(v Version, name string) error {
	switch {
	case v.Major < leastMajor:
		return fmt.Errorf("cublas: %w: %w: %s, and %d or later is needed: install the one of CUDA %d",
			ErrLibrary, cuda.ErrTooOld, name, leastMajor, newestMajor)
	case c.CUDA != 0 && v.Major > c.CUDA/1000:
		return fmt.Errorf("cublas: %w: %s is newer than the driver, which runs CUDA %d: update the driver, or install the one of CUDA %d",
			ErrLibrary, name, c.CUDA/1000, c.CUDA/1000)
	}
	return nil
}

// Version returns the version of the loaded library.
func (l *Library) Version() Version { return l.version }

// Path returns the file that libcublas was loaded from.
func (l *Library) Path() string { return l.lib.Path() }

// LtPath returns the file that libcublasLt was loaded from, or Path if only libcublas finds it.
func (l *Library) LtPath() string { return l.lt.Path() }

// String returns "cuBLAS 13.0.2 (/usr/local/cuda/lib64/libcublas.so.13.0.2.14)".
func (l *Library) String() string { return l.name }
