package cuda

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// nvrtc holds the functions of libnvrtc that this package calls.
type nvrtc struct {
	version     func(major, minor *int32) int32                                                   `dl:"nvrtcVersion"`
	errorString func(code int32) string                                                           `dl:"nvrtcGetErrorString"`
	archCount   func(n *int32) int32                                                              `dl:"nvrtcGetNumSupportedArchs"`
	archs       func(list *int32) int32                                                           `dl:"nvrtcGetSupportedArchs"`
	create      func(prog *uintptr, text, name string, headers int32, texts, names uintptr) int32 `dl:"nvrtcCreateProgram"`
	destroy     func(prog *uintptr) int32                                                         `dl:"nvrtcDestroyProgram"`
	compile     func(prog uintptr, n int32, options unsafe.Pointer) int32                         `dl:"nvrtcCompileProgram"`
	logSize     func(prog uintptr, bytes *uint64) int32                                           `dl:"nvrtcGetProgramLogSize"`
	log         func(prog uintptr, log *byte) int32                                               `dl:"nvrtcGetProgramLog"`
	cubinSize   func(prog uintptr, bytes *uint64) int32                                           `dl:"nvrtcGetCUBINSize"`
	cubin       func(prog uintptr, cubin *byte) int32                                             `dl:"nvrtcGetCUBIN"`
}

// codeBuiltins is NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: libnvrtc-builtins was not found.
const codeBuiltins = 7

// Compiler is NVRTC. It is safe for concurrent use and needs no Close.
type Compiler struct {
	lib          *dl.Library
	api          nvrtc
	major, minor int
	archs        []int // supported architectures: 90 is sm_90
	name         string
	cache        cache
	builtins     error // why libnvrtc-builtins could not be loaded beforehand
}

// Source is the CUDA C of one file.
type Source struct {
	Name    string   // of the file, for the compiler's messages; "" means "kernel.cu"
	Text    string   // kernels are extern "C", so that Module.Function finds them by name
	Options []string // for NVRTC: "--std=c++17", "-DRANKS=4"; the architecture is the device's
}

// Compiler returns NVRTC, which the first call opens: Config.NVRTC, or the one for the newest CUDA
// that the driver can run.
//
// Errors: dl.ErrNotFound with every place that was tried, ErrTooOld, dl.ErrUnsupported for a
// library that is not NVRTC, *Error.
func (d *Driver) Compiler() (*Compiler, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.compiler != nil {
		return d.compiler, nil
	}
	lib, err := d.openNVRTC()
	if err != nil {
		return nil, err
	}
	c := &Compiler{lib: lib, cache: cache{dir: d.cfg.cacheDir()}}
	if err := lib.Bind(&c.api); err != nil {
		return nil, fmt.Errorf("cuda: NVRTC: %w", err)
	}
	if err := c.identify(); err != nil {
		return nil, err
	}
	if c.major > d.version/1000 {
		return nil, fmt.Errorf("cuda: %w: the driver is for CUDA %s and cannot run code of %s: set the path of an NVRTC of CUDA %d, or update the driver",
			ErrTooOld, versionText(d.version), c.name, d.version/1000)
	}
	c.builtins = c.openBuiltins(d.cfg.dirs())
	d.compiler = c
	return c, nil
}

// openNVRTC loads the library of the driver's CUDA version, or else of an older one.
func (d *Driver) openNVRTC() (*dl.Library, error) {
	search := dl.Search{Name: "NVRTC", Override: d.cfg.NVRTC, Dirs: d.cfg.dirs()}
	if search.Override != "" {
		lib, err := dl.Open(search)
		if err != nil {
			return nil, fmt.Errorf("cuda: %w", err)
		}
		return lib, nil
	}
	var tried []error
	for major := d.version / 1000; major >= leastDriver/1000; major-- {
		search.Sonames = []string{fmt.Sprintf("libnvrtc.so.%d", major)}
		lib, err := dl.Open(search)
		if err == nil {
			return lib, nil
		}
		tried = append(tried, err)
	}
	return nil, fmt.Errorf("cuda: %w: install CUDA's toolkit, or the Python wheel nvidia-cuda-nvrtc", errors.Join(tried...))
}

// identify reads the library's version and architectures.
func (c *Compiler) identify() error {
	var major, minor, n int32
	c.name = "NVRTC (" + c.lib.Path() + ")"
	if err := c.check("nvrtcVersion", c.api.version(&major, &minor), ""); err != nil {
		return err
	}
	c.major, c.minor = int(major), int(minor)
	c.name = fmt.Sprintf("NVRTC %d.%d (%s)", major, minor, c.lib.Path())
	if err := c.check("nvrtcGetNumSupportedArchs", c.api.archCount(&n), ""); err != nil {
		return err
	}
	list := make([]int32, n+1)
	if err := c.check("nvrtcGetSupportedArchs", c.api.archs(&list[0]), ""); err != nil {
		return err
	}
	for _, a := range list[:n] {
		c.archs = append(c.archs, int(a))
	}
	return nil
}

// openBuiltins loads the library that NVRTC would look for by its bare name at the first
// compilation: from NVRTC's folder, or else from dirs.
func (c *Compiler) openBuiltins(dirs []string) error {
	soname := fmt.Sprintf("libnvrtc-builtins.so.%d.%d", c.major, c.minor)
	_, err := dl.Open(dl.Search{Name: "NVRTC's builtins", Override: filepath.Join(filepath.Dir(c.lib.Path()), soname)})
	if err == nil {
		return nil
	}
	_, found := dl.Open(dl.Search{Name: "NVRTC's builtins", Sonames: []string{soname}, Dirs: dirs})
	if found == nil {
		return nil
	}
	return errors.Join(err, found)
}

// Version returns NVRTC's version: 13, 0.
func (c *Compiler) Version() (major, minor int) { return c.major, c.minor }

// Path returns the file that NVRTC was loaded from.
func (c *Compiler) Path() string { return c.lib.Path() }

// Archs returns the architectures that NVRTC compiles for, ascending: 90 is sm_90.
func (c *Compiler) Archs() []int { return slices.Clone(c.archs) }

// CacheDir returns the folder of compiled kernels; "" if they are not cached.
func (c *Compiler) CacheDir() string { return c.cache.dir }

// CacheError returns why the last compiled kernel could not be cached; nil if it was. The only cost
// is compiling again. For a folder or file that other users can change it is an ErrUntrusted,
// logged once: such a cache is neither read nor written.
func (c *Compiler) CacheError() error { return c.cache.failure() }

// String returns a text such as "NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13.0.48)".
func (c *Compiler) String() string { return c.name }

// Compile compiles src for v into machine code for Device.Load. Results are cached for all
// processes, by text, name, options, architecture and NVRTC. A source that includes files is
// compiled each time, since these may change.
//
// Errors: ErrInvalid for a source that every compiler would reject, ErrTooOld for a device that
// this NVRTC does not know, *Error with the compiler's log.
func (c *Compiler) Compile(v *Device, src Source) ([]byte, error) {
	if err := src.validate(); err != nil {
		return nil, err
	}
	arch := v.major*10 + v.minor
	if !slices.Contains(c.archs, arch) {
		return nil, fmt.Errorf("cuda: %w: %s compiles for sm_%v, and %s is sm_%d: install a newer one and set its path", ErrTooOld, c.name, c.archs, v, arch)
	}
	options := src.optionsFor(arch)
	kept, key := src.whole(), c.key(src, options)
	if kept {
		if image := c.cache.load(key); image != nil {
			return image, nil
		}
	}
	image, err := c.compile(src, options)
	if err != nil {
		return nil, fmt.Errorf("compile %s for sm_%d: %w", src.name(), arch, err)
	}
	if kept {
		c.cache.store(key, image)
	}
	return image, nil
}

// Cached returns Compile's result from the cache; nil if Compile would have to compile.
func (c *Compiler) Cached(v *Device, src Source) []byte {
	if !src.whole() {
		return nil
	}
	return c.cache.load(c.key(src, src.optionsFor(v.major*10+v.minor)))
}

// inclusion matches a directive that includes a file, or tests for one.
var inclusion = regexp.MustCompile(`(?m)^\s*#\s*include|__has_include`)

// whole reports whether the compiler reads nothing but src: no file is included by its text or by
// an option (--pre-include).
func (src Source) whole() bool {
	return !inclusion.MatchString(src.Text) && !slices.ContainsFunc(src.Options, func(o string) bool {
		return strings.HasPrefix(o, "-include") || strings.HasPrefix(o, "--pre-include")
	})
}

// optionsFor returns the options for sm_arch.
func (src Source) optionsFor(arch int) []string {
	return append([]string{fmt.Sprintf("--gpu-architecture=sm_%d", arch)}, src.Options...)
}

// key returns the cache key of a compilation.
func (c *Compiler) key(src Source, options []string) string {
	identity := fmt.Sprintf("%d.%d %s", c.major, c.minor, filepath.Base(c.lib.Path()))
	return cacheKey(append([]string{identity, src.name(), src.Text}, options...))
}

// compile calls NVRTC.
func (c *Compiler) compile(src Source, options []string) (image []byte, err error) {
	var prog uintptr
	if err := c.check("nvrtcCreateProgram", c.api.create(&prog, src.Text, src.name(), 0, 0, 0), ""); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.check("nvrtcDestroyProgram", c.api.destroy(&prog), "")) }()
	list := make([]*byte, len(options))
	for i, o := range options {
		list[i] = unsafe.SliceData(append([]byte(o), 0))
	}
	if r := c.api.compile(prog, int32(len(list)), unsafe.Pointer(unsafe.SliceData(list))); r != success {
		err := c.check("nvrtcCompileProgram", r, c.log(prog))
		if r == codeBuiltins && c.builtins != nil {
			err = fmt.Errorf("%w: a complete installation has it next to libnvrtc: %w", err, c.builtins)
		}
		return nil, err
	}
	var n uint64
	if err := c.check("nvrtcGetCUBINSize", c.api.cubinSize(prog, &n), ""); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("cuda: %s returned no machine code for options %q", c.name, options)
	}
	image = make([]byte, n)
	return image, c.check("nvrtcGetCUBIN", c.api.cubin(prog, &image[0]), "")
}

// log returns the compiler's messages; "" if they are unavailable.
func (c *Compiler) log(prog uintptr) string {
	var n uint64
	if c.api.logSize(prog, &n) != success || n == 0 {
		return ""
	}
	text := make([]byte, n)
	if c.api.log(prog, &text[0]) != success {
		return ""
	}
	return strings.TrimSpace(upToNUL(text))
}

// check returns nil for success, and otherwise an *Error with NVRTC's text, or with the log if
// there is one.
func (c *Compiler) check(call string, code int32, log string) error {
	if code == success {
		return nil
	}
	name := c.api.errorString(code)
	e := &Error{Call: call, Code: int(code), Name: name, Text: name, Library: c.name, compiler: true}
	if log != "" {
		e.Text = log
	}
	return fmt.Errorf("cuda: %w", e)
}

// name returns Name or its default.
func (src Source) name() string {
	if src.Name == "" {
		return "kernel.cu"
	}
	return src.Name
}

// validate reports errors that need no compiler. Errors: ErrInvalid.
func (src Source) validate() error {
	if strings.TrimSpace(src.Text) == "" {
		return fmt.Errorf("cuda: %w: %s is empty", ErrInvalid, src.name())
	}
	for _, s := range append([]string{src.Name, src.Text}, src.Options...) {
		if strings.ContainsRune(s, 0) {
			return fmt.Errorf("cuda: %w: %s: NUL byte in its name, text or options", ErrInvalid, src.name())
		}
	}
	for _, o := range src.Options {
		if strings.HasPrefix(o, "--gpu-architecture") || strings.HasPrefix(o, "-arch") {
			return fmt.Errorf("cuda: %w: %s: option %s: the architecture is the device's", ErrInvalid, src.name(), o)
		}
	}
	return nil
}
