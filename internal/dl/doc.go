// Package dl opens shared libraries at run time and calls them without cgo. It alone imports
// github.com/ebitengine/purego, so that one place controls foreign calls.
//
// # From a name to a call
//
// A [Search] has a library's names and possible places. [Open] turns it into a [Library], which
// knows the file that it came from. A package that wraps a library keeps its symbols in one table:
//
//	type api struct {
//		version func(out *int32) int32 `dl:"ncclGetVersion"`
//		allRed  dl.Proc                `dl:"ncclAllReduce"`
//		shrink  dl.Proc                `dl:"ncclCommShrink,optional,since=2.27"`
//	}
//	search := dl.Search{Name: "nccl", Override: cfg.NCCL, Sonames: []string{"libnccl.so.2"}}
//	lib, err := dl.Open(search)
//	var t api
//	err = lib.Bind(&t)
//
// A missing required symbol is an error of [Library.Bind]. A missing optional one is a nil func, a
// zero address, or a [Proc] whose Call returns [ErrUnsupported] with library, file, symbol and the
// version that has it.
//
// [Search.Find] lists files without loading them. [Places] and [LoaderDirs] return the folders
// where toolkits, Python wheels and the loader keep libraries. They read the file system and the
// environment that the caller passes.
//
// # Typed funcs or Proc
//
// A typed func converts its arguments by reflection. That takes at least three times as long as a
// Proc's call, more with many arguments (170 ns against 60 ns for one argument on an EPYC,
// BenchmarkCall), and some small allocations. Only typed funcs can pass or return floats and
// structs by value. A Proc passes machine words: integers and pointers. Use typed funcs for setup
// and Procs on the hot path.
//
// C functions with a variable argument list cannot be called with floats: the caller must count
// them in the AL register, which purego clears. Bind therefore rejects variadic signatures. It also
// rejects func parameters: each call would make a new callback, of which a process has at most
// 2000. Make one with [Callback] and pass its address.
//
// # Memory
//
// A library may use Go memory only until the call returns. Memory that it keeps must be its own or
// C memory. To pass the address of a Go variable to [Proc.Call], convert it in the call itself:
//
//	p.Call(uintptr(unsafe.Pointer(&x[0])), uintptr(len(x)))
//
// Then the compiler keeps x alive, and off the stack, until Call returns (rule 4 of package
// unsafe). A uintptr made earlier does not. Call's argument list is one small allocation.
// [Proc.CallWords] allocates nothing, for words that are not addresses of Go memory (device
// pointers, counts, handles). [Proc.Status] does the same on a shorter path, for functions that
// return an int. [Proc.Status2], for two words, is the shortest.
//
// # Threads
//
// Go moves goroutines between OS threads. C libraries keep state per thread: the current CUDA
// device, error text, an open NCCL group. Put calls that belong together into one [OnThread]. Open
// and Lookup do so for the loader's own error text.
//
// # Why is nothing ever closed?
//
// There is no Library.Close. OpenBLAS, CUDA, NCCL, UCX and most others start threads, and register
// exit handlers and thread-local destructors. Unmapping code that a thread still runs, or will run
// at exit, crashes without a visible cause. A library stays loaded until the process ends; opening
// it again returns the same one.
//
// # Platforms
//
// linux/amd64, with CGO_ENABLED=0 and 1. The CGO_ENABLED=0 program is linked dynamically, against
// glibc. On other platforms the package compiles and Open returns [ErrUnsupported]. [Proc.Status]
// and [Proc.Status2] call runtime.cgocall by its name, as purego does.
package dl
