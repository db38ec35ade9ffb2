package perf

import (
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/internal/host/cores"
)

// pinThread binds the calling thread to one of its cores, if it has one for each of size ranks. It
// takes the local-th core, or with apart one as far from the other ranks' as possible. A thread
// that its launcher has bound stays where it is.
//
// Returns: the core, -1 for an unbound thread; undo restores the binding. The caller has locked the
// thread.
func pinThread(local, size int, apart bool) (core int, undo func()) {
	var before unix.CPUSet
	nothing := func() {}
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return -1, nothing
	}
	processors := cores.Members(&before)
	if len(processors) == 1 && size > 1 {
		return processors[0], nothing
	}
	if len(processors) < size {
		return -1, nothing
	}
	core = processors[local]
	if apart {
		core = distant(processors, cores.System(), local, size)
	}
	var one unix.CPUSet
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return -1, nothing
	}
	return core, func() { _ = unix.SchedSetaffinity(0, &before) } // it was allowed before
}

// distant returns the core of rank local of size, as far from the others as the order of cores
// allows. A virtual machine may have the two threads of a core at successive numbers without saying
// so. If the system, in its folder of processors sys, reports the threads, and there are enough
// cores, no two threads of one are used.
func distant(processors []int, sys fs.FS, local, size int) int {
	var whole, firsts []int
	for _, c := range processors {
		if f := cores.FirstThread(sys, c); !slices.Contains(firsts, f) {
			whole, firsts = append(whole, c), append(firsts, f)
		}
	}
	if len(whole) >= size {
		processors = whole
	}
	return processors[local*len(processors)/size]
}
