package perf

import (
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/internal/cores"
)

// pinThread keeps the calling thread on one core of those it may use, if there is one for each of
// size ranks: the local-th, or, apart from those of the other ranks, one that shares nothing with
// theirs as far as that can be. A thread that its launcher has bound already stays where it is.
//
// Returns: the core, -1 if the thread is free to move; undo lets it go. The caller has locked the
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

// distant is the core of rank local of size, as far from those of the others as the order of cores
// tells: a virtual machine may have two threads of one core side by side and not say so. Where the
// system, whose folder of processors sys is, does say it, and there are enough without, no two
// threads of one are taken.
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
