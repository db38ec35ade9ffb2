package dl

import (
	"fmt"
	"unsafe"
)

// maxArgs is the largest number of words of a call (purego's limit).
const maxArgs = 32

// Proc is a C function to be called with machine words, or the reason why it cannot be called. It
// is for the hot path: no reflection. The zero Proc was never looked up; calling it is an error.
type Proc struct {
	addr uintptr
	err  error // why addr is zero
}

// Proc looks up a symbol for calls with machine words; since is the version that introduced it, or
// empty. Returns: always a Proc; for a missing symbol its Call returns ErrUnsupported.
func (l *Library) Proc(symbol, since string) Proc {
	if addr := l.find(symbol); addr != 0 {
		return Proc{addr: addr}
	}
	return Proc{err: l.missing(symbol, since)}
}

// ProcAt makes a Proc of a function address that came from C (cuGetProcAddress and similar); name
// is for messages. Returns: a Proc; for address zero its Call returns ErrUnsupported.
func ProcAt(addr uintptr, name string) Proc {
	if addr == 0 {
		return Proc{err: fmt.Errorf("dl: %s has no address: %w", name, ErrUnsupported)}
	}
	return Proc{addr: addr}
}

// Addr returns the function's address, zero if it is missing.
func (p Proc) Addr() uintptr { return p.addr }

// Err returns nil if the function can be called, otherwise the error of Call.
func (p Proc) Err() error {
	if p.addr != 0 {
		return nil
	}
	if p.err == nil {
		return fmt.Errorf("dl: call of a function that was never looked up: %w", ErrUnsupported)
	}
	return p.err
}

// Call calls the function with up to 32 words: integers, handles, and pointers, which must be
// converted in the call expression itself (see Memory in the package comment). It cannot pass or
// return floats.
//
// Returns: the result register. It is undefined for a C function that returns void, and its upper
// half for one that returns int: convert with int32(r). Owns: the callee may use Go memory until
// Call returns. Errors: ErrUnsupported if the function is missing or there are too many words.
//
//go:uintptrescapes
func (p Proc) Call(args ...uintptr) (uintptr, error) {
	if p.addr == 0 {
		return 0, p.Err()
	}
	if len(args) > maxArgs {
		return 0, fmt.Errorf("dl: call with %d words, the maximum is %d: %w", len(args), maxArgs, ErrUnsupported)
	}
	return sysCall(p.addr, args), nil
}

// CallWords is Call for words that do not keep Go memory alive: handles, counts, addresses of
// devices and of C memory, and of Go heap memory that the caller keeps alive otherwise. It
// allocates nothing.
//
// Returns: as Call. Errors: as Call.
func (p Proc) CallWords(args ...uintptr) (uintptr, error) {
	if p.addr == 0 {
		return 0, p.Err()
	}
	if len(args) > maxArgs {
		return 0, fmt.Errorf("dl: call with %d words, the maximum is %d: %w", len(args), maxArgs, ErrUnsupported)
	}
	return sysCall(p.addr, unkept(args)), nil
}

// Status is CallWords for a function that returns an int, such as a status. Up to eight words take
// a shorter path than purego's general one: less than half the time (BenchmarkCall).
//
// Returns: the int. Errors: as Call.
func (p Proc) Status(args ...uintptr) (int32, error) {
	if p.addr != 0 && len(args) <= statusWords {
		return sysStatus(p.addr, args), nil
	}
	r, err := p.CallWords(args...)
	return int32(r), err
}

// Status2 is Status for two words, inlined into its caller. After a long C call the processor has
// lost its predicted return addresses, and each return up the stack costs about ten nanoseconds.
//
// Returns: the int; -1 if the function is missing, see Err.
func (p *Proc) Status2(a, b uintptr) int32 { return sysStatus2(p.addr, a, b) }

// unkept returns args, hidden from escape analysis, which would otherwise move the list to the
// heap: purego's pragma says that every word may be kept. In fact the list is copied before the
// call.
//
//go:nosplit
func unkept(args []uintptr) []uintptr {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(args)))
	return unsafe.Slice(*(**uintptr)(unsafe.Pointer(&at)), len(args))
}
