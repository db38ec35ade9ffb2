package blas

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/dl"
)

// Values of mkl_service.h.
const (
	mklInterfaceLP64  = 0
	mklInterfaceILP64 = 1 // a bit: with MKL_INTERFACE_GNU the value is 3

	mklThreadingIntel      = 0
	mklThreadingSequential = 1
	mklThreadingGNU        = 3
)

// identifyMKL chooses interface and threads of libmkl_rt before any call makes it load the rest of
// itself. If parts are missing then, it calls exit() ("Intel MKL FATAL ERROR: Cannot load ..."). So
// identifyMKL looks for the parts first.
func identifyMKL(lib *dl.Library, threads int) (vendor, error) {
	var api struct {
		setInterface func(int32) int32   `dl:"MKL_Set_Interface_Layer"`
		setThreading func(int32) int32   `dl:"MKL_Set_Threading_Layer"`
		setThreads   func(int32)         `dl:"MKL_Set_Num_Threads"`
		threads      func() int32        `dl:"MKL_Get_Max_Threads"`
		version      func([]byte, int32) `dl:"MKL_Get_Version_String,optional"`
	}
	if err := lib.Bind(&api); err != nil {
		return vendor{}, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	layer, err := mklThreading(lib.Path(), threads)
	if err != nil {
		return vendor{}, err
	}
	// If another part of the process has chosen before, the call returns that choice.
	switch got := api.setInterface(mklInterfaceLP64); {
	case got < 0:
		return vendor{}, fmt.Errorf("%w: MKL does not set its interface layer", ErrRejected)
	case got&mklInterfaceILP64 != 0:
		return vendor{}, errInt64
	}
	if got := api.setThreading(layer); got < 0 {
		return vendor{}, fmt.Errorf("%w: MKL does not set its threading layer to %d", ErrRejected, layer)
	}
	if threads > 0 {
		api.setThreads(int32(threads))
	}
	v := vendor{name: "mkl", threads: func() int { return int(api.threads()) }}
	if api.version != nil {
		buf := make([]byte, 256)
		api.version(buf, int32(len(buf)))
		text, _, _ := strings.Cut(string(buf), "\x00")
		v.version = mklVersion(text)
	}
	return v, nil
}

// mklThreading returns the threading layer whose parts are installed: without threads for one
// thread, else that of Intel's OpenMP or GNU's.
func mklThreading(path string, threads int) (layer int32, err error) {
	dir, file := filepath.Split(path)
	suffix, ok := strings.CutPrefix(file, "libmkl_rt")
	if !ok {
		return 0, fmt.Errorf("%w: MKL is loaded through libmkl_rt, this is %s", ErrRejected, file)
	}
	part := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, "libmkl_"+name+suffix))
		return err == nil
	}
	loads := func(soname string) bool {
		_, err := dl.Open(dl.Search{Name: "openmp", Sonames: []string{soname}, Dirs: []string{dir}})
		return err == nil
	}
	for _, name := range []string{"core", "intel_lp64"} {
		if !part(name) {
			return 0, fmt.Errorf("%w: libmkl_%s%s is missing in its folder: install all of MKL", ErrRejected, name, suffix)
		}
	}
	if !slices.ContainsFunc([]string{"def", "avx2", "avx512"}, part) {
		return 0, fmt.Errorf("%w: no libmkl_def%[2]s, libmkl_avx2%[2]s or libmkl_avx512%[2]s in its folder: install all of MKL", ErrRejected, suffix)
	}
	switch {
	case threads != 1 && part("intel_thread") && loads("libiomp5.so"):
		return mklThreadingIntel, nil
	case threads != 1 && part("gnu_thread") && loads("libgomp.so.1"):
		return mklThreadingGNU, nil
	case part("sequential"):
		return mklThreadingSequential, nil
	}
	return 0, fmt.Errorf("%w: none of its threading layers is complete (libmkl_intel_thread%[2]s with libiomp5.so, libmkl_gnu_thread%[2]s with libgomp.so.1, "+
		"libmkl_sequential%[2]s): install all of MKL", ErrRejected, suffix)
}

// mklVersion returns the number in "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product
// Build 20240605 for Intel(R) 64 architecture applications".
func mklVersion(text string) string {
	_, after, ok := strings.Cut(text, "Version ")
	if !ok {
		return text
	}
	number, _, _ := strings.Cut(after, " ")
	number, _, _ = strings.Cut(number, "-")
	return number
}
