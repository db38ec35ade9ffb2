//go:build linux && amd64 && !android

package dl

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// sysOpen is dlopen. The loader keeps its error text per OS thread, and purego reads it in a second
// call, so the goroutine stays on its thread. Otherwise about one in two hundred concurrent failing
// calls got the text of another call, or none.
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

// sysSymbol is dlsym; it returns zero for a missing symbol. It stays on its thread to consume the
// error text there.
func sysSymbol(handle uintptr, symbol string) (addr uintptr) {
	_ = OnThread(func() error {
		var err error
		addr, err = purego.Dlsym(handle, symbol)
		return err
	})
	return addr
}

// linkMap is the public part of glibc's struct link_map (<link.h>): the loader's record of a loaded
// object.
type linkMap struct {
	addr uintptr // load bias
	name *byte   // the file's path as the loader found it
	dyn  uintptr
	next uintptr
	prev uintptr
}

const rtldDILinkMap = 2 // RTLD_DI_LINKMAP of <dlfcn.h>

// dlinfo is looked up at its first use; nil if the C library lacks it.
var dlinfo = sync.OnceValue(func() (fn func(handle uintptr, request int32, out unsafe.Pointer) int32) {
	if addr := sysSymbol(purego.RTLD_DEFAULT, "dlinfo"); addr != 0 {
		purego.RegisterFunc(&fn, addr)
	}
	return fn
})

// sysPath returns the path at which the loader found a library, or "".
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

// sysCall calls addr with args; the uintptrescapes of Proc.Call keeps their memory alive.
func sysCall(addr uintptr, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(addr, args...)
	return r
}

// statusWords is the most words of sysStatus: six in registers and two on the stack.
const (
	statusWords   = registerWords + 2
	registerWords = 6
)

// enterAt is the address of enter, which calls a C function with its words, and enterMoreAt of the
// same for more than registerWords.
var enterAt, enterMoreAt uintptr

// cgocall is the runtime's entry to C, which purego also uses: it informs the scheduler, and calls
// fn with arg on the thread's own stack.
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// sysStatus is sysCall for up to statusWords words and a 32-bit result. The array is read before
// the call and not written after it, so it may be on the goroutine's stack, which callbacks may
// move.
func sysStatus(addr uintptr, args []uintptr) int32 {
	var call [1 + statusWords]uintptr
	call[0] = addr
	copy(call[1:], args)
	if len(args) > registerWords {
		return cgocall(enterMoreAt, unsafe.Pointer(&call))
	}
	return cgocall(enterAt, unsafe.Pointer(&call))
}

// sysStatus2 is sysStatus for two words; it returns -1 for a zero addr.
func sysStatus2(addr, a, b uintptr) int32 {
	call := [1 + registerWords]uintptr{addr, a, b}
	return cgocall(enterAt, unsafe.Pointer(&call))
}

// sysRegister panics on a signature that purego does not support.
func sysRegister(fptr any, addr uintptr) { purego.RegisterFunc(fptr, addr) }

// sysCallback panics on a signature that purego does not support.
func sysCallback(fn any) (uintptr, error) { return purego.NewCallback(fn), nil }
