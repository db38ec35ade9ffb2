package perf

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/internal/host/cores"
)

func TestPinKeepsAThreadOnOneCore(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, during, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	processors := cores.Members(&before)
	last := len(processors) - 1
	core, undo := pinThread(last, len(processors), false)
	if err := unix.SchedGetaffinity(0, &during); err != nil {
		t.Fatal(err)
	}
	if core != processors[last] || during.Count() != 1 || !during.IsSet(core) {
		t.Errorf("pinned to %d, on %v, want %d", core, cores.Members(&during), processors[last])
	}
	if again, _ := pinThread(0, len(processors)+1, true); len(processors) > 1 && again != core {
		t.Errorf("a thread that is bound to core %d counts as on %d", core, again)
	}
	undo()
	if err := unix.SchedGetaffinity(0, &after); err != nil {
		t.Fatal(err)
	}
	if after != before {
		t.Errorf("afterwards on %v, before on %v", cores.Members(&after), processors)
	}
}

func TestPinLeavesMoreRanksThanCoresFree(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if runtime.NumCPU() == 1 {
		t.Skip("one core: every thread is bound to it")
	}
	core, undo := pinThread(0, 1<<10, false)
	undo()
	if core != -1 {
		t.Errorf("one of 1024 ranks has core %d for itself", core)
	}
}

func TestRanksThatArePinnedApartShareNoCore(t *testing.T) {
	threads := func(lists ...string) fstest.MapFS {
		sys := fstest.MapFS{}
		for c, l := range lists {
			sys[fmt.Sprintf("cpu%d/topology/thread_siblings_list", c)] = &fstest.MapFile{Data: []byte(l + "\n")}
		}
		return sys
	}
	eight := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, c := range []struct {
		what  string
		cores []int
		sys   fstest.MapFS
		want  []int
	}{
		{"nothing known", eight, nil, []int{0, 4}},
		{"one thread a core", eight, threads("0", "1", "2", "3", "4", "5", "6", "7"), []int{0, 2, 4, 6}},
		{"threads side by side", eight, threads("0-1", "0-1", "2-3", "2-3", "4-5", "4-5", "6-7", "6-7"), []int{0, 4}},
		{"threads in two halves", eight, threads("0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"), []int{0, 2}},
		{"more ranks than cores", eight[:4], threads("0-1", "0-1", "2-3", "2-3"), []int{0, 1, 2}},
		{"cores that a launcher left", []int{3, 5, 6, 7}, threads("0-1", "0-1", "2-3", "2-3", "4-5", "4-5", "6-7", "6-7"), []int{3, 5}},
		{"no numbers", eight, threads("?", "-", "", "x,y"), []int{0, 4}},
	} {
		var got []int
		for local := range c.want {
			got = append(got, distant(c.cores, c.sys, local, len(c.want)))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: ranks on %v, want %v", c.what, got, c.want)
		}
	}
}
