package blas

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Info describes the BLAS in use, for `symgrad doctor` and the head of a run's log.
type Info struct {
	Name    string // "mkl", "openblas", "blis", "blas" (a library of no known vendor) or "gonum"
	Version string // with its processor kernels, if known: "0.3.21 Haswell"
	Path    string // the file, links resolved; empty for gonum
	Threads int    // per call, as the library reports it; 0 if unknown

	// Rejected has the reason for each library that was tried and not taken, in the
	// order of the search.
	Rejected []string
}

// String returns one line: "openblas 0.3.21 Haswell, 2 threads,
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

// beforeAVX are the kernels of OpenBLAS for processors without AVX, by the names of
// openblas_get_corename. Source: the file of OpenBLAS 0.3.21 has these names.
var beforeAVX = []string{
	"Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Core2", "Penryn", "Dunnington", "Nehalem",
	"Athlon", "Opteron", "Opteron_SSE3", "Barcelona", "Bobcat", "Nano", "Atom",
}

// Outdated reports whether this is OpenBLAS with kernels for processors without AVX. OpenBLAS uses
// them for any processor that it does not know, even a new one. They are slow, and the bits of
// their dot products depend on addresses. Version names the kernels, and OPENBLAS_CORETYPE in the
// environment selects others.
func (i Info) Outdated() bool {
	_, kernels, _ := strings.Cut(i.Version, " ")
	return i.Name == "openblas" && slices.Contains(beforeAVX, kernels)
}

// Info returns a description of this BLAS. The caller owns it.
func (i *Implementation) Info() Info {
	info := i.info
	info.Rejected = append([]string(nil), info.Rejected...)
	return info
}

// String returns Info's line.
func (i *Implementation) String() string { return i.info.String() }

// gonumInfo returns the Info of gonum without a library. It multiplies on as many goroutines as
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
