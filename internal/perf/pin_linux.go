package perf

import "golang.org/x/sys/unix"

// pinThread keeps the calling thread on one core, the local-th of those it may use, if there is one for each of size ranks.
// A thread that its launcher has bound already stays where it is.
//
// Returns: the core, -1 if the thread is free to move; undo lets it go. The caller has locked the thread.
func pinThread(local, size int) (core int, undo func()) {
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
	var one unix.CPUSet
	one.Set(cores[local])
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return -1, nothing
	}
	return cores[local], func() { _ = unix.SchedSetaffinity(0, &before) } // it was allowed before
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
