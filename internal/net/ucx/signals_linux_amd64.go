package ucx

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// sigaction is the kernel's struct sigaction on x86-64 (arch/x86/include/uapi/asm/signal.h), not
// that of the C library.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// signalStack is the kernel's stack_t (include/uapi/asm-generic/signal.h).
type signalStack struct {
	base  uintptr
	flags int32
	_     int32
	bytes uint64
}

// signals is the number of signals, which start at 1.
const signals = 64

// signalsMu lets one call of keepSignals run at a time.
var signalsMu sync.Mutex

// keepSignals runs fn, and restores the signal handlers and the thread's signal stack that fn
// changed. UCX takes them when it is loaded (ucs_debug_init in src/ucs/debug/debug.c). Then a nil
// dereference in Go would end the process, and so would SIGHUP, its DEBUG_SIGNO. Handlers that the
// Go runtime installs meanwhile stay.
func keepSignals(fn func() error) error {
	return dl.OnThread(func() error {
		signalsMu.Lock()
		defer signalsMu.Unlock()
		var stack signalStack
		var old [1 + signals]sigaction
		swapStack(nil, &stack)
		for s := 1; s <= signals; s++ {
			action(s, nil, &old[s])
		}
		err := fn()
		for s := 1; s <= signals; s++ {
			var now sigaction
			action(s, nil, &now)
			if now.handler != old[s].handler && now.handler != old[syscall.SIGURG].handler {
				action(s, &old[s], nil)
			}
		}
		swapStack(&stack, nil)
		return err
	})
}

// swapStack is sigaltstack(2).
func swapStack(set, old *signalStack) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_SIGALTSTACK, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 0)
}

// action is rt_sigaction(2).
func action(sig int, set, old *sigaction) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(old.mask), 0, 0)
}
