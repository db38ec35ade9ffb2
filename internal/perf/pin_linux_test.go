package perf

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPinKeepsAThreadOnOneCore(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, during, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	cores := members(&before)
	last := len(cores) - 1
	core, undo := pinThread(last, len(cores))
	if err := unix.SchedGetaffinity(0, &during); err != nil {
		t.Fatal(err)
	}
	if core != cores[last] || during.Count() != 1 || !during.IsSet(core) {
		t.Errorf("pinned to %d, on %v, want %d", core, members(&during), cores[last])
	}
	if again, _ := pinThread(0, len(cores)+1); len(cores) > 1 && again != core {
		t.Errorf("a thread that is bound to core %d counts as on %d", core, again)
	}
	undo()
	if err := unix.SchedGetaffinity(0, &after); err != nil {
		t.Fatal(err)
	}
	if after != before {
		t.Errorf("afterwards on %v, before on %v", members(&after), cores)
	}
}

func TestPinLeavesMoreRanksThanCoresFree(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if runtime.NumCPU() == 1 {
		t.Skip("one core: every thread is bound to it")
	}
	core, undo := pinThread(0, 1<<10)
	undo()
	if core != -1 {
		t.Errorf("one of 1024 ranks has core %d for itself", core)
	}
}
