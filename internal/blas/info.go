package blas

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Info describes the chosen BLAS, for `symgrad doctor` and the head of a run's log.
type Info struct {
	Name    string // "mkl", "openblas", "blis", "blas" (a library of no known vendor) or "gonum"
	Version string // with the processor kernels it chose, where the library tells: "0.3.21 Haswell"
	Path    string // the file, links resolved; empty for gonum
	Threads int    // per call, as the library reports it; 0 where it does not tell

	// Rejected says, for each library that was looked for and not taken, why; in the order of the
	// search.
	Rejected []string
}

// String is one line: "openblas 0.3.21 Haswell, 2 threads,
// /usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so".
func (i Info) String() string {
	parts := []string{strings.TrimSpace(i.Name + " " + i.Version)}
	switch i.Threads {
	case 0:
	case 1:
		parts = append(parts, "1 thread")
	default:
		parts = append(parts, fmt.Sprintf("%d threads", i.Threads))
	}
	if i.Path != "" {
		parts = append(parts, i.Path)
	}
	return strings.Join(parts, ", ")
}

// beforeAVX is the kernels of OpenBLAS for processors without AVX, as openblas_get_corename names
// them. Source: OpenBLAS 0.3.21, whose file has these names.
var beforeAVX = []string{
	"Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Core2", "Penryn", "Dunnington", "Nehalem",
	"Athlon", "Opteron", "Opteron_SSE3", "Barcelona", "Bobcat", "Nano", "Atom",
}

// Outdated reports whether it is OpenBLAS with kernels for processors without AVX, which it takes
// for those that it does not know, however new they are: Version tells which. They are slow, and
// the bits of their dot products depend on addresses. OPENBLAS_CORETYPE in the environment names
// others.
func (i Info) Outdated() bool {
	_, kernels, _ := strings.Cut(i.Version, " ")
	return i.Name == "openblas" && slices.Contains(beforeAVX, kernels)
}

// Info says which BLAS this is. The caller owns the result.
func (i *Implementation) Info() Info {
	info := i.info
	info.Rejected = append([]string(nil), info.Rejected...)
	return info
}

// String is Info's line.
func (i *Implementation) String() string { return i.info.String() }

// gonumInfo is the Info of a gonum without any library. It multiplies on as many goroutines as
// there are processors.
func gonumInfo(rejected []string) Info {
	info := Info{Name: "gonum", Threads: runtime.GOMAXPROCS(0), Rejected: rejected}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if m.Path == "gonum.org/v1/gonum" {
				info.Version = m.Version
			}
		}
	}
	return info
}
