package cudnn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// major is the supported major version of cuDNN.
const major = 9

// Config says where cuDNN is. The zero value searches for it.
type Config struct {
	Path string   // of libcudnn, or a bare soname; "" searches the loader's places and then Dirs
	Dirs []string // folders and patterns to search, as from dl.Places; nil means dl.Places without an environment
	CUDA int      // cuda.Driver.Version: a cuDNN for a later major is refused; 0 means any
}

// Validate reports invalid settings. Errors: cuda.ErrInvalid.
func (c Config) Validate() error {
	if c.CUDA != 0 && c.CUDA < 12000 {
		return fmt.Errorf("cudnn: %w: CUDA is %d, want 0 or a version like 13000, 12000 at least", cuda.ErrInvalid, c.CUDA)
	}
	if err := (dl.Search{Name: "cuDNN", Override: c.Path, Sonames: []string{"libcudnn.so.9"}, Dirs: c.Dirs}).Validate(); err != nil {
		return fmt.Errorf("cudnn: %w: %w", cuda.ErrInvalid, err)
	}
	return nil
}

// Version is a version of cuDNN in the form of cudnnGetVersion: 91300 is 9.13.0, and before 9, 8907
// is 8.9.7.
type Version int

// Parts returns the major, minor and patch number.
func (v Version) Parts() (major, minor, patch int) {
	n := int(v)
	if n < 90000 {
		return n / 1000, n / 100 % 10, n % 100
	}
	return n / 10000, n / 100 % 100, n % 100
}

// String returns "9.13.0".
func (v Version) String() string {
	major, minor, patch := v.Parts()
	return fmt.Sprintf("%d.%d.%d", major, minor, patch)
}

// Library is the cuDNN of this process. It is safe for concurrent use, and stays loaded until the
// process ends (see internal/dl).
type Library struct {
	lib     *dl.Library
	f       front
	t       table
	version Version
	cuda    int    // major version of the CUDA that it was built with
	name    string // for errors
	notes   string // libraries that it needs and that could not be loaded
}

// Open loads cuDNN: c.Path, or the first one that is found.
//
// Errors: ErrLibrary if none is found (dl.ErrNotFound, with every place that was tried), if its
// version is not 9, if it needs a newer CUDA than the driver's, or if it lacks functions
// (dl.ErrUnsupported, with their names); cuda.ErrInvalid for an invalid c.
func Open(c Config) (*Library, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Dirs == nil {
		c.Dirs = dl.Places(os.DirFS("/"), nil)
	}
	lib, err := dl.Open(dl.Search{Name: "cuDNN", Override: c.Path, Sonames: []string{"libcudnn.so.9"}, Dirs: c.Dirs})
	if err != nil {
		return nil, fmt.Errorf("cudnn: %w: %w: get it from developer.nvidia.com/cudnn or the Python wheel nvidia-cudnn-cu13 or -cu12",
			ErrLibrary, err)
	}
	return use(lib, c)
}

// use binds a loaded library.
func use(lib *dl.Library, c Config) (*Library, error) {
	l := &Library{lib: lib}
	if err := lib.Bind(&l.f); err != nil {
		return nil, fmt.Errorf("cudnn: %w: %w", ErrLibrary, err)
	}
	l.identify(Version(l.f.version()), int(l.f.cudart())/1000)
	if err := l.fits(c); err != nil {
		return nil, err
	}
	if err := lib.Bind(&l.t); err != nil {
		return nil, fmt.Errorf("cudnn: %w: %s: %w", ErrLibrary, l.name, err)
	}
	l.notes = l.loadParts(c.Dirs)
	return l, nil
}

// identify sets version, CUDA and name.
func (l *Library) identify(v Version, cudaMajor int) {
	l.version, l.cuda = v, cudaMajor
	l.name = fmt.Sprintf("cuDNN %v for CUDA %d (%s)", v, cudaMajor, l.lib.Path())
}

// fits returns nil if the library works with a driver for CUDA c.CUDA.
func (l *Library) fits(c Config) error {
	have, _, _ := l.version.Parts()
	switch {
	case have < major:
		return fmt.Errorf("cudnn: %w: %w: %s, and %d is needed: pip install nvidia-cudnn-cu%d", ErrLibrary, cuda.ErrTooOld, l.name, major, max(l.cuda, 12))
	case have > major:
		return fmt.Errorf("cudnn: %w: %s, and %d is needed: set the path of a libcudnn.so.%d", ErrLibrary, l.name, major, major)
	case c.CUDA != 0 && l.cuda > c.CUDA/1000:
		return fmt.Errorf("cudnn: %w: %s is for a newer CUDA than the driver, which runs CUDA %d: update the driver, or pip install nvidia-cudnn-cu%d",
			ErrLibrary, l.name, c.CUDA/1000, c.CUDA/1000)
	}
	return nil
}

// needed are libraries that cuDNN loads by bare name, of the CUDA that it was built with.
var needed = [...]string{"libcublasLt.so.%d", "libcublas.so.%d", "libnvrtc.so.%d"}

// parts are the libraries of cuDNN for convolutions and pooling, in order of dependency. Two of
// them came with 9.24.
var parts = [...]struct {
	name  string
	since Version
}{
	{"libcudnn_graph.so.9", 90000},
	{"libcudnn_ext.so.9", 92400},
	{"libcudnn_ops.so.9", 90000},
	{"libcudnn_engines_precompiled.so.9", 90000},
	{"libcudnn_engines_runtime_compiled.so.9", 90000},
	{"libcudnn_engines_tensor_ir.so.9", 92400},
	{"libcudnn_heuristic.so.9", 90000},
	{"libcudnn_cnn.so.9", 90000},
}

// loadParts loads the libraries that cuDNN would only search in the loader's places, so that it
// finds them loaded. Missing ones may not matter: cuDNN reports those that it needs.
//
// Returns: the libraries that could not be loaded, as text.
func (l *Library) loadParts(dirs []string) string {
	var missing []error
	for _, pattern := range needed {
		_, err := dl.Open(dl.Search{Name: "cuDNN's library", Sonames: []string{fmt.Sprintf(pattern, l.cuda)}, Dirs: dirs})
		missing = append(missing, err)
	}
	folder := filepath.Dir(l.lib.Path())
	for _, p := range parts {
		if l.version < p.since {
			continue
		}
		_, err := dl.Open(dl.Search{Name: "cuDNN's part", Override: filepath.Join(folder, p.name)})
		missing = append(missing, err)
	}
	if err := errors.Join(missing...); err != nil {
		return "not found: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return ""
}

// Version returns the version of the loaded library.
func (l *Library) Version() Version { return l.version }

// CUDA returns the major version of the CUDA that the library was built for: 13.
func (l *Library) CUDA() int { return l.cuda }

// Path returns the file that the library was loaded from.
func (l *Library) Path() string { return l.lib.Path() }

// String returns "cuDNN 9.13.0 for CUDA 13 (/usr/lib/x86_64-linux-gnu/libcudnn.so.9.13.0)".
func (l *Library) String() string { return l.name }
