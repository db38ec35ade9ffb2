package perf

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pinThread keeps the calling thread on one core of those it may use, if there is one for each of size ranks: the local-th, or, apart from
// those of the other ranks, one that shares nothing with theirs as far as that can be. A thread that its launcher has bound already
// stays where it is.
//
// Returns: the core, -1 if the thread is free to move; undo lets it go. The caller has locked the thread.
func pinThread(local, size int, apart bool) (core int, undo func()) {
	var before unix.CPUSet
	nothing := func() {}
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return -1, nothing
	}
	cores := members(&before)
	if len(cores) == 1 && size > 1 {
		return cores[0], nothing
	}
	if len(cores) < size {
		return -1, nothing
	}
	core = cores[local]
	if apart {
		core = distant(cores, os.DirFS("/sys/devices/system/cpu"), local, size)
	}
	var one unix.CPUSet
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return -1, nothing
	}
	return core, func() { _ = unix.SchedSetaffinity(0, &before) } // it was allowed before
}

// distant is the core of rank local of size, as far from those of the others as the order of cores tells: a virtual machine may have two
// threads of one core side by side and not say so (bench/results/again-2-2026-11-26.txt). Where the system, whose folder of processors sys is,
// does say it, and there are enough without, no two threads of one are taken.
func distant(cores []int, sys fs.FS, local, size int) int {
	var whole, firsts []int
	for _, c := range cores {
		if f := firstThread(sys, c); !slices.Contains(firsts, f) {
			whole, firsts = append(whole, c), append(firsts, f)
		}
	}
	if len(whole) >= size {
		cores = whole
	}
	return cores[local*len(cores)/size]
}

// firstThread is the first of the processors that are threads of the same core as c; c itself where nothing is known of it.
func firstThread(sys fs.FS, c int) int {
	text, err := fs.ReadFile(sys, fmt.Sprintf("cpu%d/topology/thread_siblings_list", c)) // such as "3,19" or "6-7"
	if err != nil {
		return c
	}
	digits, _, _ := strings.Cut(strings.TrimSpace(string(text)), ",")
	digits, _, _ = strings.Cut(digits, "-")
	first, err := strconv.Atoi(digits)
	if err != nil {
		return c
	}
	return first
}

// members is the cores of a set, ascending.
func members(set *unix.CPUSet) []int {
	var cores []int
	for i := 0; len(cores) < set.Count(); i++ {
		if set.IsSet(i) {
			cores = append(cores, i)
		}
	}
	return cores
}
