package blas

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/symgrad/symgrad/internal/dl"
)

// ErrRejected is returned by Open if the library at Config.Path loads but is unusable: 64-bit
// integers, missing routines or parts, wrong results.
var ErrRejected = errors.New("library rejected")

// vendor has the properties of one library.
type vendor struct {
	name    string
	version string
	threads func() int // per call; 0 if unknown
	before  perThread
}

// identify finds the vendor of a library by its symbols, and sets its number of threads, unless
// that is 0. It refuses one that reports 64-bit integers.
func identify(lib *dl.Library, threads int) (vendor, error) {
	switch {
	case lib.Require("openblas_get_config", "") == nil:
		return identifyOpenBLAS(lib, threads)
	case lib.Require("MKL_Set_Interface_Layer", "") == nil:
		return identifyMKL(lib, threads)
	case lib.Require("bli_info_get_version_str", "") == nil:
		return identifyBLIS(lib, threads)
	}
	return vendor{name: "blas", threads: func() int { return 0 }}, nil
}

var errInt64 = fmt.Errorf("%w: its integers have 64 bits: install the build for 32-bit integers (LP64)", ErrRejected)

// openMPBuild is the result of openblas_get_parallel for a build with OpenMP; 0 is one thread, 1
// its own threads.
const openMPBuild = 2

func identifyOpenBLAS(lib *dl.Library, threads int) (vendor, error) {
	var api struct {
		config     func() string `dl:"openblas_get_config"`
		core       func() string `dl:"openblas_get_corename,optional"`
		parallel   func() int32  `dl:"openblas_get_parallel,optional"`
		setThreads func(int32)   `dl:"openblas_set_num_threads"`
		threads    func() int32  `dl:"openblas_get_num_threads"`
		omp        dl.Proc       `dl:"omp_set_num_threads,optional"`
	}
	if err := lib.Bind(&api); err != nil {
		return vendor{}, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	words := strings.Fields(api.config()) // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=64"
	v := vendor{name: "openblas", threads: func() int { return int(api.threads()) }}
	for i, w := range words {
		switch {
		case w == "USE64BITINT":
			return vendor{}, errInt64
		case i == 1:
			v.version = w
		}
	}
	if api.core != nil {
		v.version += " " + api.core()
	}
	if threads > 0 {
		api.setThreads(int32(threads))
		if api.parallel != nil && api.parallel() == openMPBuild && api.omp.Err() == nil {
			v.before = perThread{api.omp, []uintptr{uintptr(threads)}}
		}
	}
	return v, nil
}

func identifyBLIS(lib *dl.Library, threads int) (vendor, error) {
	var api struct {
		version    func() string      `dl:"bli_info_get_version_str"`
		intBits    func() int         `dl:"bli_info_get_blas_int_type_size"`
		setThreads dl.Proc            `dl:"bli_thread_set_num_threads"`
		threads    func() int         `dl:"bli_thread_get_num_threads"`
		arch       func() int32       `dl:"bli_arch_query_id,optional"`
		archName   func(int32) string `dl:"bli_arch_string,optional"`
	}
	if err := lib.Bind(&api); err != nil {
		return vendor{}, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	if api.intBits() != 32 {
		return vendor{}, errInt64
	}
	v := vendor{name: "blis", version: api.version()}
	if api.arch != nil && api.archName != nil {
		v.version += " " + api.archName(api.arch())
	}
	// It returns -1 until a caller or the environment sets a number; until then it uses one thread.
	v.threads = func() int { return max(1, api.threads()) }
	if threads > 0 {
		if _, err := api.setThreads.Call(uintptr(threads)); err != nil {
			return vendor{}, err
		}
		if onAnotherThread(api.threads) != threads {
			v.before = perThread{api.setThreads, []uintptr{uintptr(threads)}} // AMD's builds keep the number per OS thread
		}
	}
	return v, nil
}

// onAnotherThread calls fn on an OS thread that is not the caller's.
func onAnotherThread(fn func() int) (result int) {
	_ = dl.OnThread(func() error {
		var other sync.WaitGroup
		other.Go(func() { // cannot run on the caller's thread: that one is locked to its waiting goroutine
			_ = dl.OnThread(func() error {
				result = fn()
				return nil
			})
		})
		other.Wait()
		return nil
	})
	return result
}
