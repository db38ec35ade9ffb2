// Package cores finds the processors that a process may use, and those that are threads of one
// core.
package cores

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Allowed returns the processors that the calling thread may use, ascending.
func Allowed() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	return Members(&set), nil
}

// Bind keeps the calling thread, and the processes that it starts, on the given processors.
func Bind(processors []int) error {
	var set unix.CPUSet
	for _, p := range processors {
		set.Set(p)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("sched_setaffinity to %v: %w", processors, err)
	}
	return nil
}

// Members returns the processors of a set, ascending.
func Members(set *unix.CPUSet) []int {
	var all []int
	for i := 0; len(all) < set.Count(); i++ {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all
}

// System returns the folder in which Linux describes the processors.
func System() fs.FS { return os.DirFS("/sys/devices/system/cpu") }

// FirstThread returns the first of the processors that are threads of the same core as c, or c
// itself if sys (see System) does not list them.
func FirstThread(sys fs.FS, c int) int {
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

// Deal divides the cores among size ranks: equal numbers of neighbouring cores, with all of their
// threads. Cores that are left over belong to no rank.
//
// Returns: the processors of each rank; nil if there are fewer cores than ranks.
func Deal(processors []int, sys fs.FS, size int) [][]int {
	var firsts []int
	threads := map[int][]int{}
	for _, p := range processors {
		f := FirstThread(sys, p)
		if !slices.Contains(firsts, f) {
			firsts = append(firsts, f)
		}
		threads[f] = append(threads[f], p)
	}
	each := len(firsts) / size
	if each == 0 {
		return nil
	}
	hands := make([][]int, size)
	for rank := range hands {
		for _, f := range firsts[rank*each:][:each] {
			hands[rank] = append(hands[rank], threads[f]...)
		}
	}
	return hands
}
