package mpi

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// Config has the settings of Open. The zero value is usable, except for Environ.
type Config struct {
	// Library is the path or soname of the library; empty means the library of the launcher.
	Library string
	// Dirs are further folders to search, as from dl.Places.
	Dirs []string
	// Environ has the variables of this process, as from os.Environ. They name the launcher.
	Environ []string
	// CloseTimeout is the longest wait of Close for the other processes; 0 means 1 minute.
	CloseTimeout time.Duration
	// OnLost, if not nil, is called once for each process that the library finds gone, in
	// Wire.Progress.
	OnLost func(peer int, how string)
}

// Library describes a library.
type Library struct {
	ABI     string // "openmpi", "mpich" or "standard"
	Path    string // with links resolved
	Version string // first line: "Open MPI v4.1.4, package: ..."
}

// String returns the version and the path: "MPICH Version: 4.0.2 (/usr/lib/libmpich.so.12)".
func (l Library) String() string { return l.Version + " (" + l.Path + ")" }

// ErrNoLauncher is returned by Open if no launcher of MPI started this process and Config.Library
// is empty.
var ErrNoLauncher = errors.New("no launcher of MPI started this process: use mpirun, mpiexec or srun, or set the library")

// Find loads the library that Open would use, without beginning MPI. Without a launcher it is the
// first library that loads.
//
// Returns: the library. Errors: of a missing library, with the files that were tried.
func Find(cfg Config) (Library, error) {
	var l *library
	err := guarded(func() (err error) {
		l, err = load(cfg, launcherOf(cfg.Environ))
		return err
	})
	if err != nil {
		return Library{}, err
	}
	return l.Library, nil
}

// launcher is the program that started the processes of a job.
type launcher struct {
	name string // empty: none
	size int    // processes; 0 if unknown
	abis []*abi // of the libraries that understand it, the best first
	pmi  pmi
}

// launcherOf returns the launcher that set the variables of environ.
func launcherOf(environ []string) launcher {
	env := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			env[name] = value
		}
	}
	l := identifyLauncher(env)
	l.pmi = pmiOf(env)
	return l
}

// identifyLauncher returns the launcher that set the variables of env.
func identifyLauncher(env map[string]string) launcher {
	first := func(names ...string) string {
		for _, n := range names {
			if env[n] != "" {
				return n
			}
		}
		return ""
	}
	size := func(name string) int {
		n, err := strconv.Atoi(env[name])
		if err != nil {
			return 0
		}
		return n
	}
	slurm := env["SLURM_PROCID"] != ""
	switch {
	case env["OMPI_COMM_WORLD_SIZE"] != "":
		return launcher{name: "mpirun of Open MPI", size: size("OMPI_COMM_WORLD_SIZE"), abis: []*abi{&openMPI, &standard}}
	case slurm && first("PMIX_RANK", "PMI_RANK") != "":
		return launcher{name: "srun", size: size("SLURM_NTASKS"), abis: []*abi{&openMPI, &mpich, &standard}}
	case first("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS") != "":
		return launcher{name: "mpiexec of MPICH", size: size("PMI_SIZE"), abis: []*abi{&mpich, &standard}}
	case first("PMIX_RANK", "PMIX_NAMESPACE") != "":
		return launcher{name: "a launcher of PMIx", abis: []*abi{&openMPI, &mpich, &standard}}
	}
	return launcher{abis: []*abi{&openMPI, &mpich, &standard}}
}

// load loads the library of cfg, or else the first that the launcher's processes can use.
func load(cfg Config, from launcher) (*library, error) {
	if cfg.Library != "" {
		lib, err := dl.Open(dl.Search{Name: "mpi", Override: cfg.Library, Global: true})
		if err != nil {
			return nil, err
		}
		return bind(lib, nil)
	}
	var errs []error
	for _, a := range from.abis {
		lib, err := dl.Open(dl.Search{Name: a.product, Sonames: a.sonames, Dirs: cfg.Dirs, Global: a.global})
		if err == nil {
			return bind(lib, a)
		}
		errs = append(errs, fmt.Errorf("%w: %s", err, a.remedy))
	}
	if from.name != "" {
		return nil, fmt.Errorf("mpi: no library for %s: %w", from.name, errors.Join(errs...))
	}
	return nil, fmt.Errorf("mpi: no library: %w", errors.Join(errs...))
}

// versionText returns the first line of the library's version. It is valid before MPI begins.
func (l *library) versionText() string {
	const bytes = 8192 // MPI_MAX_LIBRARY_VERSION_STRING, at most
	text, n := make([]byte, bytes), new(int32)
	if _, err := l.version.Call(uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(n))); err != nil || *n < 0 || *n > bytes {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimRight(string(text[:*n]), "\x00"), "\n")
	return strings.Join(strings.Fields(line), " ")
}

// guarded runs fn, which loads libraries, on one thread, and puts back the signal handlers that it
// changes.
func guarded(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := saveSignals()
	defer before.restore()
	if err := quiet(); err != nil {
		return err
	}
	return fn()
}

// libc has the function that changes C's environment. os.Setenv does not reach it.
type libc struct {
	setenv func(name, value string, overwrite int32) int32 `dl:"setenv"`
}

// quiet makes UCX, which MPICH and Open MPI may load, leave signal handlers alone, and connect
// without waiting: else the first message to a host that is gone keeps the process in connect(2).
// Values of the user stay.
func quiet() error {
	lib, err := dl.Open(dl.Search{Name: "libc", Sonames: []string{"libc.so.6"}})
	if err != nil {
		return err
	}
	var c libc
	if err := lib.Bind(&c); err != nil {
		return err
	}
	if c.setenv("UCX_ERROR_SIGNALS", "", 0) != 0 || c.setenv("UCX_TCP_CONN_NB", "y", 0) != 0 {
		return errors.New("mpi: C's environment has no room for the settings of UCX")
	}
	return nil
}
