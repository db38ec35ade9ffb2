package probe

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// handlers are the addresses of the handlers of the watched signals, as the kernel has them.
type handlers [len(watched)]uintptr

// watched are the signals whose handlers Go needs, and those that MPI libraries are known to
// replace.
var watched = [...]struct {
	number uintptr
	name   string
}{
	{uintptr(unix.SIGHUP), "SIGHUP"},
	{uintptr(unix.SIGILL), "SIGILL"},
	{uintptr(unix.SIGABRT), "SIGABRT"},
	{uintptr(unix.SIGBUS), "SIGBUS"},
	{uintptr(unix.SIGFPE), "SIGFPE"},
	{uintptr(unix.SIGSEGV), "SIGSEGV"},
	{uintptr(unix.SIGUSR1), "SIGUSR1"},
	{uintptr(unix.SIGTERM), "SIGTERM"},
	{uintptr(unix.SIGURG), "SIGURG"}, // Go preempts goroutines with it
}

// kernelSigaction is the kernel's struct sigaction of amd64. On arm64 the mask is in the place of
// restorer, which is not read.
type kernelSigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// signalHandlers asks the kernel, not the C library, whose answers some libraries change.
func signalHandlers() handlers {
	var h handlers
	for i, s := range watched {
		var old kernelSigaction
		const maskBytes = 8
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, s.number, 0, uintptr(unsafe.Pointer(&old)), maskBytes, 0, 0); errno == 0 {
			h[i] = old.handler
		}
	}
	return h
}

// changed returns the names of the signals whose handlers differ.
func (h handlers) changed(after handlers) []string {
	var names []string
	for i, s := range watched {
		if h[i] != after[i] {
			names = append(names, s.name)
		}
	}
	return names
}
