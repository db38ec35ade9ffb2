// Package nccl uses NCCL for groups of GPUs. It provides two engines for package gpu, an allocator
// of symmetric memory, and plain communicators.
//
//	lib, err := nccl.Open(nccl.Config{})               // 2.14.3 or later, found at run time
//	engines, err := lib.Make(member)                    // "nccl", "nccl-window"; a gpu.Maker
//	slab, err := lib.Allocator().Alloc(member, bytes)   // "nccl": peers' parts have addresses
//
// The files: library.go and loaded.go find NCCL, api.go binds it; comm.go, calls.go and end.go are
// communicators; engine.go, enqueue.go and reduction_method.go the engines; member.go the part that
// a group's engines share; slab.go and window.go symmetric memory; tools.go the kernels around
// NCCL's reductions.
//
// # Why two communicators?
//
// A communicator uses other kernels for buffers in symmetric windows, and every rank decides for
// itself. If one rank's buffer is in a window and another's is not, the two run different kernels
// and hang. So "nccl" has a communicator without windows, and takes any buffers. "nccl-window" has
// its own communicator, and takes only operations that are promised to be symmetric
// (dist.Hints.Symmetric).
//
// # How do results compare with package dist?
//
// From NCCL's source, 2.28.3 and 2.30.7 (device/reduce_kernel.h, enqueue.cc); n is the number of
// ranks. The last column has the differences from package dist.
//
//	operation                         done as                  difference
//	copies, all types                 NCCL, 16 bits as f16     -
//	allreduce, reduce, reducescatter:
//	  any of i16, u16                 ErrUnsupported           NCCL has no such type
//	  sum, prod of i8 to u64          NCCL                     - (wrap around)
//	  min, max of integers            NCCL                     -
//	  avg of integers                 NCCL                     - (sum, then truncated quotient)
//	  premulsum of integers           NCCL                     - (wrap around)
//	  sum, prod of f32, f64           NCCL                     order of ranks, for n > 2
//	  sum, prod of f16, bf16          NCCL                     (1)
//	  sum of f16, bf16 in windows     NCCL                     order; f32, rounded once
//	  min, max of floats, n > 1       NCCL on integers, (2)    -
//	  avg of floats, n = 2, 4, 8, ... NCCL                     as sum, (3)
//	  avg of f32, f64, bf16, other n, NCCL's sum, then a       as sum; the division rounds
//	  and in windows                  kernel divides           bf16 again
//	  avg of f16, other n             NCCL                     (4)
//	  premulsum of f32, f64           NCCL                     order, (5)
//	  premulsum of f16, bf16          NCCL                     products and partial sums round
//	barrier, sync                     allreduce of one element -
//	messages                          NCCL, batches as groups  -
//
//	(1) order; each partial result is rounded to the type and may overflow it; equal for n = 2
//	(2) between two kernels: NCCL's own fmin and fmax drop a NaN if the other operand is a number
//	(3) each term is divided first, which is exact except for subnormal numbers
//	(4) each term is multiplied by 1/n in f16 and rounded
//	(5) product and sum may be one fused operation
//
// So floats have the bits of the host's backends for n = 2 without premulsum. Otherwise the error
// is at most n roundings of the type per element. All ranks get the same bits from an allreduce.
// The engines of package direct give bits in rank order.
//
// On one rank every operation is a copy, bit for bit, and premulsum scales.
//
// Reductions with kernels of this package need NVRTC at run time. They are ErrUnsupported on all
// ranks if one rank has none.
//
// "nccl-window" does operations that NCCL has window kernels for: allgather of all types; allreduce
// and reducescatter of f32, f16 and bf16 as sum, and as avg of f32 and bf16. With PolicyZero it
// does allgather and alltoall by copy engines. It returns ErrUnsupported for others, without a
// registered window, and while a slab exists that cannot have a window. Before 2.30.3 NCCL's window
// kernels are wrong for parts that are not a multiple of 8 B (allgather, reducescatter), which are
// ErrUnsupported there. They are also wrong for unaligned buffers, which use the communicator of
// "nccl".
//
// # Which versions?
//
//	2.14.3   the engine nccl, with all operations. Before 2.23.4 the unique id is passed by value
//	2.18.1   splits by ncclCommSplit; before, a subgroup meets at an id of its own
//	2.27.3   windows: the engine nccl-window
//	2.28.3   peers' addresses from the window's structure, verified before use; ncclAlltoAll,
//	         ncclGather, ncclScatter, which are groups of sends and receives before
//	2.29.2   peers' addresses by ncclGetPeerDevicePointer
//
// A call that the library is too old for returns dist.ErrUnsupported with both versions
// (Library.Missing lists them). Open refuses a setting that the library is too old for, because
// NCCL would ignore it silently.
//
// # Which library?
//
// Open uses Config.Path, or the NCCL that is already loaded (by NVSHMEM for instance), or the
// loader's choice, or a file in Config.Dirs. It refuses two different NCCL files in one process
// before it loads the second. It compares the inodes of mapped files (/proc/self/maps).
//
// Open sets two variables in the environment that NCCL reads. NCCL_NVLS_ENABLE=0 disables NVLink
// multicast. With NCCL_RUNTIME_CONNECT=0 ranks connect when they form a communicator, not in the
// first collective of each kind, which then waits for no peer. Only the first message between two
// ranks connects them within the call, and waits for the other end.
//
// # How does it end?
//
// Communicators block: NCCL's other kind starts a thread for each group call (group.cc). If a call
// hangs because a peer is gone, ncclCommAbort on another thread ends it by a flag that waits and
// kernels read. ncclCommAbort also frees the communicator that the call still uses. So Abort makes
// it part of a group: the flag is set at once, and the memory is freed at the group's end, after
// the call has returned.
//
// Close finishes and frees; ranks of one host close together. CUDA graphs with a communicator's
// operations are closed before it, or NCCL waits for them.
//
// With two ranks in one process NCCL 2.28.3 crashed in ncclCommDestroy of a communicator that had
// been shrunk, in 5 of some 65 runs with GOGC=3 and in none of 45 without. The last rank to close
// frees the memory of both, while a thread of NCCL's does so too, and they conflict in the driver
// (cuMemRetainAllocationHandle, cuMemAddressFree). One that had not been shrunk crashed once, in a
// run of all tests. Ranks in separate processes do not crash.
package nccl
