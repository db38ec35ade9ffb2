package dl

import (
	"fmt"
	"unsafe"
)

// maxArgs is how many words one call can pass (purego's own limit).
const maxArgs = 32

// Proc is one C function to be called with machine words, or the reason why it cannot be called. It
// is the hot path: no reflection. The zero Proc is a function that nobody looked up; calling it is
// an error.
type Proc struct {
	addr uintptr
	err  error // why addr is zero
}

// Proc looks a symbol up for calls with machine words; since is the version that brought it, or
// empty. Returns: always a Proc; that of a missing symbol answers each Call with ErrUnsupported.
func (l *Library) Proc(symbol, since string) Proc {
	if addr := l.find(symbol); addr != 0 {
		return Proc{addr: addr}
	}
	return Proc{err: l.missing(symbol, since)}
}

// ProcAt makes a Proc of a function's address that came from C (cuGetProcAddress and the like);
// name is for messages. Returns: a Proc; that of address zero answers each Call with
// ErrUnsupported.
func ProcAt(addr uintptr, name string) Proc {
	if addr == 0 {
		return Proc{err: fmt.Errorf("dl: %s has no address: %w", name, ErrUnsupported)}
	}
	return Proc{addr: addr}
}

// Addr is the function's address, zero if it is missing.
func (p Proc) Addr() uintptr { return p.addr }

// Err is nil if the function can be called, else the error that Call returns.
func (p Proc) Err() error {
	if p.addr != 0 {
		return nil
	}
	if p.err == nil {
		return fmt.Errorf("dl: call of a function that was never looked up: %w", ErrUnsupported)
	}
	return p.err
}

// Call calls the function with up to 32 words: integers, handles, and pointers, the last converted
// in the call expression itself (see Memory in the package comment). It cannot pass or return
// floats.
//
// Returns: the result register. A C function that returns void leaves anything there, and one that
// returns int leaves anything in its upper half: convert with int32(r). Owns: the callee may use Go
// memory until Call returns. Errors: ErrUnsupported when the function is missing or there are too
// many words.
//
//go:uintptrescapes
func (p Proc) Call(args ...uintptr) (uintptr, error) {
	if p.addr == 0 {
		return 0, p.Err()
	}
	if len(args) > maxArgs {
		return 0, fmt.Errorf("dl: call with %d words, at most %d fit: %w", len(args), maxArgs, ErrUnsupported)
	}
	return sysCall(p.addr, args), nil
}

// CallWords is Call for words none of which is the address of Go memory that only the words keep:
// handles, counts, addresses of devices and of C memory, and of Go memory on the heap that the
// caller keeps alive otherwise. It allocates nothing.
//
// Returns: as Call. Errors: as Call.
func (p Proc) CallWords(args ...uintptr) (uintptr, error) {
	if p.addr == 0 {
		return 0, p.Err()
	}
	if len(args) > maxArgs {
		return 0, fmt.Errorf("dl: call with %d words, at most %d fit: %w", len(args), maxArgs, ErrUnsupported)
	}
	return sysCall(p.addr, unkept(args)), nil
}

// Status is CallWords for a function that returns an int, such as a status. Up to six words take a
// shorter way than purego's, which has room for all that can be passed: less than half the time
// (BenchmarkCall).
//
// Returns: the int. Errors: as Call.
func (p Proc) Status(args ...uintptr) (int32, error) {
	if p.addr != 0 && len(args) <= statusWords {
		return sysStatus(p.addr, args), nil
	}
	r, err := p.CallWords(args...)
	return int32(r), err
}

// Status2 is Status for two words, compiled into who calls it. After a long call of C the processor
// no longer knows where the functions return to that led there, so that each of them costs some ten
// nanoseconds on the way back.
//
// Returns: the int; -1 where the function is missing: Err tells.
func (p *Proc) Status2(a, b uintptr) int32 { return sysStatus2(p.addr, a, b) }

// unkept is args, unseen by the analysis that would otherwise move the list to the heap: purego's
// pragma tells it that every word may be kept, and the list with them, while what is done with the
// list is to copy it before the call.
//
//go:nosplit
func unkept(args []uintptr) []uintptr {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(args)))
	return unsafe.Slice(*(**uintptr)(unsafe.Pointer(&at)), len(args))
}
