package nccl

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// defaultInitTimeout limits the start of a communicator. NCCL needs half a second on one host, and
// much longer when a container first reads the library's kernels from a cold disk.
const defaultInitTimeout = time.Minute

// CTAPolicy is NCCL's balance between speed and used multiprocessors.
type CTAPolicy int

// The policies of nccl.h.
const (
	PolicyDefault    CTAPolicy = 0
	PolicyEfficiency CTAPolicy = 1 // fewer multiprocessors at little cost in speed
	PolicyZero       CTAPolicy = 2 // copy engines if possible: allgather and alltoall on windows
)

// Config has the settings of Open and of communicators. The zero value searches for the library and
// leaves every choice to NCCL. Ranks of a group must have equal settings.
type Config struct {
	Path string   // of the library, or a bare soname; "" searches the loader's directories and then Dirs
	Dirs []string // folders and patterns to search, as from dl.Places; nil means dl.Places without an environment

	MinCTAs, MaxCTAs int       // least and most thread blocks of a kernel; 0 means NCCL's choice. NCCL_MIN_CTAS and NCCL_MAX_CTAS override them
	ClusterSize      int       // blocks that are scheduled together on Hopper and later; 0 means NCCL's 4
	TrafficClass     int       // of network packets; 0 means the network's default
	Policy           CTAPolicy // PolicyDefault means NCCL's choice

	InitTimeout time.Duration // for a communicator to come up; 0 means one minute
}

// Validate reports the first wrong setting. Errors: dist.ErrInvalid.
func (c Config) Validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"MinCTAs", c.MinCTAs}, {"MaxCTAs", c.MaxCTAs}, {"ClusterSize", c.ClusterSize}, {"TrafficClass", c.TrafficClass}} {
		if f.value < 0 {
			return fmt.Errorf("nccl: %w: %s is %d, want 0 or more", dist.ErrInvalid, f.name, f.value)
		}
	}
	switch {
	case c.MaxCTAs > 0 && c.MinCTAs > c.MaxCTAs:
		return fmt.Errorf("nccl: %w: MinCTAs is %d, more than MaxCTAs, %d", dist.ErrInvalid, c.MinCTAs, c.MaxCTAs)
	case c.Policy < PolicyDefault || c.Policy > PolicyZero:
		return fmt.Errorf("nccl: %w: Policy is %d, want 0, 1 or 2", dist.ErrInvalid, c.Policy)
	case c.InitTimeout < 0:
		return fmt.Errorf("nccl: %w: InitTimeout is %v", dist.ErrInvalid, c.InitTimeout)
	}
	return nil
}

// Library is the NCCL of this process. It is safe for concurrent use, and stays loaded until the
// process ends (see internal/dl).
type Library struct {
	lib     *dl.Library
	t       table
	version Version
	cfg     Config

	mu      sync.Mutex
	members map[*dist.Group]*member // ranks of groups, by their control group; looked up, never ranged over
	ranges  *ranges                 // nil until the first use

	names names
}

// Open loads NCCL: c.Path, or the one that is already loaded, or the first that it finds.
//
// Errors: ErrLibrary if none is found (with all searched locations), if it is older than 2.14.3, or
// if a different NCCL file is loaded in this process; dist.ErrInvalid for a wrong c;
// dist.ErrUnsupported for a setting that the library is too old for.
func Open(c Config) (*Library, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	loaded, err := processFiles()
	if err != nil {
		return nil, fmt.Errorf("nccl: %w: looking for a loaded library: %w", ErrLibrary, err)
	}
	file, err := wanted(c.Path, loaded)
	if err != nil {
		return nil, fmt.Errorf("nccl: %w", err)
	}
	if c.Dirs == nil {
		c.Dirs = dl.Places(os.DirFS("/"), nil)
	}
	if err := setEnviron(); err != nil {
		return nil, fmt.Errorf("nccl: %w: %w", ErrLibrary, err)
	}
	// NVSHMEM, which also looks for libnccl.so.2, gets this one from the loader, because the soname
	// is already loaded.
	lib, err := dl.Open(dl.Search{Name: "nccl", Override: file, Sonames: dl.NCCL.Sonames, Dirs: c.Dirs})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLibrary, err)
	}
	if loaded, err = processFiles(); err != nil {
		return nil, fmt.Errorf("nccl: %w: looking for a loaded library: %w", ErrLibrary, err)
	}
	if err := onlyOne(loaded); err != nil {
		return nil, fmt.Errorf("nccl: %w", err)
	}
	return use(lib, c)
}

// use binds a loaded library.
func use(lib *dl.Library, c Config) (*Library, error) {
	l := &Library{lib: lib, cfg: c, members: map[*dist.Group]*member{}}
	var f front
	if err := lib.Bind(&f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLibrary, err)
	}
	var code int32
	if r := f.version(&code); r != resultSuccess {
		return nil, fmt.Errorf("%w: ncclGetVersion of %s returned %d", ErrLibrary, lib.Path(), r)
	}
	l.version = Version(code)
	if err := l.version.need(leastVersion, "symgrad"); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLibrary, lib.Path(), err)
	}
	if err := lib.Bind(&l.t); err != nil {
		return nil, fmt.Errorf("%w: NCCL %v: %w", ErrLibrary, l.version, err)
	}
	if err := c.fits(l.version); err != nil {
		return nil, err
	}
	return l, nil
}

// Version returns the version of the loaded library.
func (l *Library) Version() Version { return l.version }

// Path returns the file that the library was loaded from.
func (l *Library) Path() string { return l.lib.Path() }

// String returns "NCCL 2.28.3 (/usr/lib/libnccl.so.2.28.3)".
func (l *Library) String() string { return fmt.Sprintf("NCCL %v (%s)", l.version, l.Path()) }

// NewUniqueID returns a meeting point, made by one rank for all. The process of that rank runs a
// thread for it, so it must live until all have met.
//
// Errors: *Error.
func (l *Library) NewUniqueID() (UniqueID, error) {
	var id [idBytes]byte
	err := dl.OnThread(func() error {
		if r := l.t.uniqueID(&id); r != resultSuccess {
			return l.failure("ncclGetUniqueId", r, "", -1, 0, 0)
		}
		return nil
	})
	return id, err
}

// Missing returns an error for each function that this library is too old for, with the version
// that added it.
func (l *Library) Missing() []error {
	var missing []error
	for _, p := range []*dl.Proc{
		&l.t.initScalable, &l.t.split, &l.t.memAlloc, &l.t.register, &l.t.allToAll, &l.t.gather, &l.t.scatter,
		&l.t.peerPointer,
	} {
		if err := p.Err(); err != nil {
			missing = append(missing, err)
		}
	}
	return missing
}

// onDevice runs fn with the device's context current on a locked thread.
func onDevice(v *cuda.Device, fn func() error) (err error) {
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	return fn()
}

// IsUnavailable reports whether err, from Open, means that this machine has no usable NCCL.
func IsUnavailable(err error) bool {
	return errors.Is(err, ErrLibrary) || errors.Is(err, dl.ErrUnsupported)
}

// failure returns the Error of an unsuccessful result.
func (l *Library) failure(call string, code int32, what string, rank, size int, comm uintptr) error {
	e := &Error{
		Call: call, Code: int(code), What: what, Rank: rank, Size: size, Version: l.version, Path: l.Path(),
		Text: l.t.errorString(code),
	}
	if l.t.lastError != nil {
		e.Detail = strings.TrimSpace(l.t.lastError(comm))
	}
	e.Hint = hint(code, e.Detail, sharedMemoryFree)
	return e
}

// unsupported returns the error of a function that the loaded library lacks, with dist's sentinel.
func (l *Library) unsupported(err error) error {
	return fmt.Errorf("nccl: %w; this is NCCL %v: %w", err, l.version, dist.ErrUnsupported)
}

// Allocator returns the allocator "nccl". Its memory comes from ncclMemAlloc and is one window, so
// that peers' parts can be addressed.
func (l *Library) Allocator() gpu.Allocator { return allocator{l} }
