//go:build linux && amd64 && !android

package dl

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// sysOpen is dlopen. The loader keeps its error text per OS thread and purego reads it in a second
// call, hence the pinning: without it about one failing call in two hundred of many concurrent ones
// got another call's text, or none.
func sysOpen(file string, global bool) (handle uintptr, err error) {
	mode := purego.RTLD_NOW | purego.RTLD_LOCAL
	if global {
		mode = purego.RTLD_NOW | purego.RTLD_GLOBAL
	}
	err = OnThread(func() error {
		var err error
		handle, err = purego.Dlopen(file, mode)
		return err
	})
	return handle, err
}

// sysSymbol is dlsym, zero if there is no such symbol. It is pinned so that the error text of a
// miss is consumed on the thread that has it.
func sysSymbol(handle uintptr, symbol string) (addr uintptr) {
	_ = OnThread(func() error {
		var err error
		addr, err = purego.Dlsym(handle, symbol)
		return err
	})
	return addr
}

// linkMap is the public head of glibc's struct link_map (<link.h>): the loader's record of one
// loaded object.
type linkMap struct {
	addr uintptr // load bias
	name *byte   // the file's path as the loader found it
	dyn  uintptr
	next uintptr
	prev uintptr
}

const rtldDILinkMap = 2 // RTLD_DI_LINKMAP of <dlfcn.h>

// dlinfo is looked up at its first use; nil where the C library has none.
var dlinfo = sync.OnceValue(func() (fn func(handle uintptr, request int32, out unsafe.Pointer) int32) {
	if addr := sysSymbol(purego.RTLD_DEFAULT, "dlinfo"); addr != 0 {
		purego.RegisterFunc(&fn, addr)
	}
	return fn
})

// sysPath is the path that the loader found a library at, or empty.
func sysPath(handle uintptr) string {
	info := dlinfo()
	if info == nil {
		return ""
	}
	var lm *linkMap // points into the loader's memory, not Go's
	if info(handle, rtldDILinkMap, unsafe.Pointer(&lm)) != 0 || lm == nil || lm.name == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(lm.name), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(lm.name, n))
}

// sysCall calls addr with args; what keeps their memory alive is the uintptrescapes of Proc.Call.
func sysCall(addr uintptr, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(addr, args...)
	return r
}

// statusWords is how many words a C function takes in registers.
const statusWords = 6

// enterAt is the address of enter, which takes a C function and its words.
var enterAt uintptr

// cgocall is the runtime's way into C, which purego goes, too: it tells the scheduler, and calls fn
// with arg on the thread's own stack.
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// sysStatus is sysCall for up to statusWords words and a result of 32 bits. All is read before the
// call and nothing is written after it, so that it may lie on the goroutine's stack, which
// callbacks may move.
func sysStatus(addr uintptr, args []uintptr) int32 {
	var call [1 + statusWords]uintptr
	call[0] = addr
	copy(call[1:], args)
	return cgocall(enterAt, unsafe.Pointer(&call))
}

// sysStatus2 is sysStatus for two words, and -1 for no address.
func sysStatus2(addr, a, b uintptr) int32 {
	call := [1 + statusWords]uintptr{addr, a, b}
	return cgocall(enterAt, unsafe.Pointer(&call))
}

// sysRegister panics on a signature that purego does not know.
func sysRegister(fptr any, addr uintptr) { purego.RegisterFunc(fptr, addr) }

// sysCallback panics on a signature that purego does not know.
func sysCallback(fn any) (uintptr, error) { return purego.NewCallback(fn), nil }
