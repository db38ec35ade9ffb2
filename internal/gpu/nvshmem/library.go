package nvshmem

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
)

// ErrLibrary is returned by Open when NVSHMEM cannot be used here: no file, an unknown version, a
// missing plugin, or two different NCCLs.
var ErrLibrary = errors.New("nvshmem: library")

const (
	// The bootstrap plugin, by which ranks find each other. It is loaded by path: the library asks
	// the loader for a bare name, which fails if the library is outside of the loader's folders, as
	// in Python's wheels.
	plugin     = "nvshmem_bootstrap_uid.so.3"
	pluginBare = "nvshmem_bootstrap_uid.so"
)

// Version is the version of a library: major, minor, patch.
type Version [3]int

// String returns a version such as "3.4.5".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// leastVersion is the first version with all required functions of table, according to its
// changelog.
var leastVersion = Version{3, 0, 6}

// less reports whether v is older than o.
func (v Version) less(o Version) bool {
	for i := range v {
		if v[i] != o[i] {
			return v[i] < o[i]
		}
	}
	return false
}

// Library is the NVSHMEM of this process, loaded but not started. It is never unloaded (see
// internal/dl).
type Library struct {
	cfg     Config // with its defaults
	lib     *dl.Library
	front   front
	t       table
	red     reductions
	version Version
	plugin  string
	nccl    *innerNCCL // nil if NVSHMEM uses none
}

// innerNCCL is the NCCL that NVSHMEM finds when it starts.
type innerNCCL struct {
	lib  *dl.Library
	code int32
}

// Open sets the environment that NVSHMEM reads, and loads it, its bootstrap plugin and the NCCL
// that it will use. It starts nothing.
//
// Errors: ErrLibrary, with every place that was tried; dist.ErrInvalid for an invalid c.
func Open(c Config) (*Library, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := &Library{cfg: c.defaults()}
	if l.cfg.Dirs == nil {
		l.cfg.Dirs = dl.Places(os.DirFS("/"), nil)
	}
	libc, err := openC()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLibrary, err)
	}
	if err := l.openNCCL(libc); err != nil {
		return nil, err
	}
	// Set before the load, in the order of the reference, and again once the plugin's path is
	// known. The library reads all of it later.
	if err := errors.Join(libc.set(l.cfg.environment(plugin, l.nccl != nil)), libc.offer(offered)); err != nil {
		return nil, err
	}
	if l.lib, err = dl.Open(dl.Search{
		Name: "nvshmem", Override: c.Path, Sonames: dl.NVSHMEM.Sonames, Dirs: l.cfg.Dirs, Global: true,
	}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLibrary, err)
	}
	if err := l.bind(); err != nil {
		return nil, err
	}
	if err := l.openPlugin(); err != nil {
		return nil, err
	}
	return l, libc.set(l.cfg.environment(l.plugin, l.nccl != nil))
}

// bind looks up the functions and checks the version.
func (l *Library) bind() error {
	if err := l.lib.Bind(&l.front); err != nil {
		return fmt.Errorf("%w: %w: symgrad needs NVSHMEM %v or later", ErrLibrary, err, leastVersion)
	}
	var v [3]int32
	l.front.vendor(&v[0], &v[1], &v[2])
	l.version = Version{int(v[0]), int(v[1]), int(v[2])}
	if l.version.less(leastVersion) || l.version[0] >= maxVersionWord {
		return fmt.Errorf("%w: %s is version %v, want %v or later of version 3: set the path of another one", ErrLibrary,
			l.lib.Path(), l.version, leastVersion)
	}
	if err := l.lib.Bind(&l.t); err != nil {
		return fmt.Errorf("%w: NVSHMEM %v: %w", ErrLibrary, l.version, err)
	}
	l.red.bind(l.lib)
	return nil
}

// openPlugin loads the bootstrap plugin from the library's folder, or from the loader's folders,
// where packages of a distribution may have it.
func (l *Library) openPlugin() error {
	lib, err := l.lib.OpenBeside("nvshmem bootstrap plugin", true, plugin, pluginBare)
	if err != nil {
		return fmt.Errorf("%w: %s: bootstrap plugin: %w", ErrLibrary, l.lib.Path(), err)
	}
	l.plugin = lib.Path()
	return nil
}

// openNCCL loads the NCCL that NVSHMEM will later open by its soname. NVSHMEM then uses the same
// NCCL as the rest of the process.
func (l *Library) openNCCL(c *libc) error {
	if l.cfg.DisableNCCL {
		return nil
	}
	have, err := mappedHere("libnccl.so")
	if err != nil {
		return fmt.Errorf("%w: looking for a loaded NCCL: %w", ErrLibrary, err)
	}
	file, err := chooseNCCL(l.cfg.NCCL, have)
	if err != nil {
		return err
	}
	if err := c.set([]variable{{"NCCL_NVLS_ENABLE", "0"}}); err != nil {
		return err
	}
	lib, err := dl.Open(dl.Search{Name: "nccl", Override: file, Sonames: []string{"libnccl.so.2"}, Dirs: l.cfg.Dirs, Global: true})
	switch {
	case errors.Is(err, dl.ErrNotFound) && file == "":
		return nil // NVSHMEM works without it
	case err != nil:
		return fmt.Errorf("%w: the NCCL for NVSHMEM: %w", ErrLibrary, err)
	}
	var t struct {
		version func(*int32) int32 `dl:"ncclGetVersion"`
	}
	if err := lib.Bind(&t); err != nil {
		return fmt.Errorf("%w: the NCCL for NVSHMEM: %w", ErrLibrary, err)
	}
	n := &innerNCCL{lib: lib}
	if r := t.version(&n.code); r != 0 {
		return fmt.Errorf("%w: ncclGetVersion of %s returned %d", ErrLibrary, lib.Path(), r)
	}
	if n.code/10000 == 2 { // NVSHMEM 3 uses no other major version
		l.nccl = n
	}
	return nil
}

// chooseNCCL returns the file to load for the configured path and the files that are loaded; ""
// means to search.
func chooseNCCL(wanted string, loaded []string) (string, error) {
	if len(loaded) == 0 {
		return wanted, nil
	}
	for _, file := range loaded[1:] {
		if !sameFile(file, loaded[0]) {
			return "", fmt.Errorf("%w: two different NCCL libraries are loaded in this process, %s and %s: set one path for all users of NCCL",
				ErrLibrary, loaded[0], file)
		}
	}
	if wanted != "" && strings.ContainsRune(wanted, '/') && !sameFile(wanted, loaded[0]) {
		return "", fmt.Errorf("%w: NVSHMEM shall use the NCCL %s, but %s is already loaded in this process: set the path to that file, or leave it empty",
			ErrLibrary, wanted, loaded[0])
	}
	return loaded[0], nil
}

// Version returns the version of the loaded library.
func (l *Library) Version() Version { return l.version }

// Path returns the file that the library was loaded from.
func (l *Library) Path() string { return l.lib.Path() }

// Plugin returns the file of the bootstrap plugin.
func (l *Library) Plugin() string { return l.plugin }

// Spec returns the version of the OpenSHMEM specification that the library follows.
func (l *Library) Spec() (major, minor int) {
	var a, b int32
	l.front.spec(&a, &b)
	return int(a), int(b)
}

// NCCL returns the file of the NCCL that NVSHMEM uses for its collectives, and its version in the
// format of ncclGetVersion. ok is false if it uses none.
func (l *Library) NCCL() (path string, version int, ok bool) {
	if l.nccl == nil {
		return "", 0, false
	}
	return l.nccl.lib.Path(), int(l.nccl.code), true
}

// String returns a text such as "NVSHMEM 3.4.5 (/usr/lib/libnvshmem_host.so.3.4.5) with NCCL 2.28.3
// (/usr/lib/libnccl.so.2.28.3)".
func (l *Library) String() string {
	s := fmt.Sprintf("NVSHMEM %v (%s)", l.version, l.Path())
	if l.nccl == nil {
		return s + " without NCCL"
	}
	c := l.nccl.code
	return fmt.Sprintf("%s with NCCL %d.%d.%d (%s)", s, c/10000, c/100%100, c%100, l.nccl.lib.Path())
}

// Missing lists the functions that this library is too old for, each with the version that
// introduced it.
func (l *Library) Missing() []error {
	var missing []error
	for _, p := range []*dl.Proc{&l.t.teamID, &l.t.makeTeam, &l.t.moduleInit, &l.t.moduleEnd} {
		if err := p.Err(); err != nil {
			missing = append(missing, err)
		}
	}
	for dt := range l.red.reduce {
		for red := range l.red.reduce[dt] {
			for _, p := range []*dl.Proc{&l.red.reduce[dt][red], &l.red.scatter[dt][red]} {
				if err := p.Err(); err != nil && dt > 0 {
					missing = append(missing, err)
				}
			}
		}
	}
	return missing
}

// IsUnavailable reports whether err, from Open, says that this machine has no usable NVSHMEM.
func IsUnavailable(err error) bool {
	return errors.Is(err, ErrLibrary) || errors.Is(err, dl.ErrUnsupported) || errors.Is(err, dist.ErrUnsupported)
}
