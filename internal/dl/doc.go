// Package dl opens shared libraries at run time and calls them without cgo. It is the only importer
// of github.com/ebitengine/purego, so that what a foreign call may do is decided in one place.
//
// # From a name to a call
//
// A [Search] says what a library is called and where it may lie; [Open] turns it into a [Library],
// which knows the file it really came from. A package that wraps a library keeps its symbols in one
// table:
//
//	type api struct {
//		version func(out *int32) int32 `dl:"ncclGetVersion"`
//		allRed  dl.Proc                `dl:"ncclAllReduce"`
//		shrink  dl.Proc                `dl:"ncclCommShrink,optional,since=2.27"`
//	}
//	lib, err := dl.Open(dl.Search{Name: "nccl", Override: cfg.NCCL, Sonames: []string{"libnccl.so.2"}})
//	var t api
//	err = lib.Bind(&t)
//
// A required symbol that is missing is an error of [Library.Bind]. An optional one is a nil func, a
// zero address, or a [Proc] whose Call answers [ErrUnsupported] with library, file, symbol and the
// version that has it.
//
// Which files there are, before any is loaded, is a question for [Search.Find]; [Places] and
// [LoaderDirs] say where toolkits, wheels of Python and the loader keep libraries. They read a file
// system and an environment that they are given.
//
// # Typed funcs or Proc
//
// A typed func converts its arguments by reflection, which costs three times a Proc's call and
// more, the longer the argument list (170 ns against 60 ns for one argument on an EPYC,
// BenchmarkCall), and some small allocations. It is the only way to pass or return floats and
// structs by value. A Proc passes machine words: integers and pointers. Setup goes through typed
// funcs, the hot path through Procs.
//
// C functions with a variable argument list cannot be called with floats (the caller has to count
// them in the AL register and purego clears it), so Bind refuses variadic signatures. It also
// refuses func parameters: each call would make a new callback out of the at most 2000 that a
// process has. Make one with [Callback] and pass its address.
//
// # Memory
//
// A library may use Go memory until the call returns and not longer: memory that it keeps must be
// its own or C memory. To hand the address of a Go variable to [Proc.Call], convert it in the call
// itself:
//
//	p.Call(uintptr(unsafe.Pointer(&x[0])), uintptr(len(x)))
//
// Then the compiler keeps x alive, and off the stack, until Call returns (rule 4 of package
// unsafe). A uintptr made earlier does not. Call's argument list is one small allocation.
// [Proc.CallWords] allocates nothing; it is for words that are not addresses of Go memory (device
// pointers, counts, handles). [Proc.Status] is the same for a function that returns an int, and a
// shorter way into C; [Proc.Status2], for two words, is the shortest way there and back.
//
// # Threads
//
// Go moves goroutines between OS threads; C libraries keep state per thread (the current CUDA
// device, error text, an open NCCL group). Calls that belong together sit in one [OnThread]. The
// loader's own error text is such state: Open and Lookup take care of it.
//
// # Why is nothing ever closed?
//
// There is no Library.Close. OpenBLAS, CUDA, NCCL, UCX and most others start threads, register exit
// handlers and thread-local destructors; unmapping code that a thread still runs, or will run at
// exit, is a crash with no cause in sight. A library stays loaded as long as the process lives;
// opening it again gives the same one.
//
// # Platforms
//
// linux/amd64, with CGO_ENABLED=0 and 1. The CGO_ENABLED=0 program is linked dynamically, against
// glibc. Elsewhere the package compiles and Open returns [ErrUnsupported]. [Proc.Status] and
// [Proc.Status2] call runtime.cgocall by its name, as purego does.
package dl
