package nvshmem

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
)

// ErrLibrary is returned by Open when NVSHMEM cannot be used here: no file, a version that this
// package does not know, a missing plugin, two NCCLs.
var ErrLibrary = errors.New("nvshmem: library")

const (
	// The plugin by which ranks meet. It is loaded by path, because the library asks the loader for
	// a bare name, which finds nothing for a library that itself lies outside of the loader's
	// places, as Python's wheels do.
	plugin     = "nvshmem_bootstrap_uid.so.3"
	pluginBare = "nvshmem_bootstrap_uid.so"
)

// Version is the version of a library: major, minor, patch.
type Version [3]int

// String is "3.4.5".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// leastVersion is the first with the functions of table that are not optional, as far as its
// changelog tells.
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

// Library is the NVSHMEM of this process, loaded and not started. It stays loaded for good (see
// internal/dl).
type Library struct {
	cfg     Config // with its defaults
	lib     *dl.Library
	front   front
	t       table
	red     reductions
	version Version
	plugin  string
	nccl    *innerNCCL // nil where there is none
}

// innerNCCL is the NCCL that NVSHMEM finds when it starts.
type innerNCCL struct {
	lib  *dl.Library
	code int32
}

// Open loads NVSHMEM, the plugin beside it and the NCCL that it will use, after it has set the
// environment that they read. It starts nothing.
//
// Errors: ErrLibrary, with every place that was tried; dist.ErrInvalid for a wrong c.
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
	// Before the load, as the reference has it, though the library reads all of it later: the path
	// of the plugin is set when it is known.
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

// bind finds the functions.
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

// openPlugin loads the plugin by which ranks meet, from beside the library or, as a package of a
// distribution may keep it, from where the loader looks.
func (l *Library) openPlugin() error {
	lib, err := l.lib.OpenBeside("nvshmem bootstrap plugin", true, plugin, pluginBare)
	if err != nil {
		return fmt.Errorf("%w: %s: the plugin by which ranks meet: %w", ErrLibrary, l.lib.Path(), err)
	}
	l.plugin = lib.Path()
	return nil
}

// openNCCL loads the NCCL that NVSHMEM will find under its soname, so that it is the one that the
// rest of the process uses.
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
		return nil // NVSHMEM does without
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
		return fmt.Errorf("%w: ncclGetVersion of %s answers %d", ErrLibrary, lib.Path(), r)
	}
	if n.code/10000 == 2 { // NVSHMEM 3 takes no other
		l.nccl = n
	}
	return nil
}

// chooseNCCL is the file to load, given what was asked for and what is loaded; "" means to search.
func chooseNCCL(wanted string, loaded []string) (string, error) {
	if len(loaded) == 0 {
		return wanted, nil
	}
	for _, file := range loaded[1:] {
		if !sameFile(file, loaded[0]) {
			return "", fmt.Errorf("%w: two different NCCL libraries are loaded in this process, %s and %s: set the path of one for all that use NCCL",
				ErrLibrary, loaded[0], file)
		}
	}
	if wanted != "" && strings.ContainsRune(wanted, '/') && !sameFile(wanted, loaded[0]) {
		return "", fmt.Errorf("%w: NVSHMEM is to use the NCCL %s, and %s is already loaded in this process: set the path to that one, or leave it empty",
			ErrLibrary, wanted, loaded[0])
	}
	return loaded[0], nil
}

// Version is the version of the loaded library.
func (l *Library) Version() Version { return l.version }

// Path is the file that the library was loaded from.
func (l *Library) Path() string { return l.lib.Path() }

// Plugin is the file of the plugin by which ranks meet.
func (l *Library) Plugin() string { return l.plugin }

// Spec is the version of the OpenSHMEM specification that the library follows.
func (l *Library) Spec() (major, minor int) {
	var a, b int32
	l.front.spec(&a, &b)
	return int(a), int(b)
}

// NCCL is the NCCL that NVSHMEM uses inside, for its collectives: its file, and its version as
// ncclGetVersion gives it. Where ok is false it uses none.
func (l *Library) NCCL() (path string, version int, ok bool) {
	if l.nccl == nil {
		return "", 0, false
	}
	return l.nccl.lib.Path(), int(l.nccl.code), true
}

// String is "NVSHMEM 3.4.5 (/usr/lib/libnvshmem_host.so.3.4.5) with NCCL 2.28.3
// (/usr/lib/libnccl.so.2.28.3)".
func (l *Library) String() string {
	s := fmt.Sprintf("NVSHMEM %v (%s)", l.version, l.Path())
	if l.nccl == nil {
		return s + " without NCCL"
	}
	c := l.nccl.code
	return fmt.Sprintf("%s with NCCL %d.%d.%d (%s)", s, c/10000, c/100%100, c%100, l.nccl.lib.Path())
}

// Missing lists the functions that this library is too old for, each with the version that brought
// it.
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

// IsUnavailable reports whether err, from Open, says that this machine has no NVSHMEM to use, which
// is no fault of the caller's.
func IsUnavailable(err error) bool {
	return errors.Is(err, ErrLibrary) || errors.Is(err, dl.ErrUnsupported) || errors.Is(err, dist.ErrUnsupported)
}
