package mpi

import (
	"syscall"
	"unsafe"
)

// action is the kernel's struct sigaction on amd64 and arm64.
type action struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// signals has the handlers of signals 1 to 64.
type signals [65]action

// sigaction sets and gets the handler of a signal; nil means not to.
func sigaction(signal int, set, get *action) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)),
		unsafe.Sizeof(action{}.mask), 0, 0)
}

// saveSignals returns all handlers.
func saveSignals() *signals {
	all := new(signals)
	for s := 1; s < len(all); s++ {
		sigaction(s, nil, &all[s])
	}
	return all
}

// restore puts back the handlers that a library changed, and returns their number. UCX takes
// SIGSEGV and others when it is loaded, and MPICH takes SIGUSR1 in MPI_Init. Their handlers end the
// process, also because they run on a goroutine's small stack. A handler of Go that is new is the
// work of os/signal in another goroutine, and stays.
func (before *signals) restore() int {
	ofGo := before[syscall.SIGURG].handler // Go always handles SIGURG, with the handler of all signals
	changed := 0
	for s := 1; s < len(before); s++ {
		var now action
		sigaction(s, nil, &now)
		if now.handler == before[s].handler && now.flags == before[s].flags || now.handler == ofGo {
			continue
		}
		sigaction(s, &before[s], nil)
		changed++
	}
	return changed
}
