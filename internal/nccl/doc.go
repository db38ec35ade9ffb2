// Package nccl is NCCL for groups of GPUs: two engines, an allocator, and communicators for what no
// engine has.
//
//	lib, err := nccl.Open(nccl.Config{})               // 2.14.3 or later, found at run time
//	engines, err := lib.Make(member)                    // "nccl" and "nccl-window"; a gpu.Maker
//	slab, err := lib.Allocator().Alloc(member, bytes)   // "nccl": memory whose peers' parts have addresses
//
// # Why two communicators?
//
// A communicator picks other kernels for buffers that lie in symmetric windows, and every rank
// picks for itself. If one rank's buffer lies in a window and another's does not, the two run
// different kernels and hang. So "nccl" has a communicator that knows of no window and takes
// buffers anywhere, and "nccl-window" one of its own, and takes only operations that are promised
// to be symmetric (dist.Group.Symmetric).
//
// # What is the same as in package dist, and what is not?
//
// Read in NCCL's source, 2.28.3 and 2.30.7 (device/reduce_kernel.h, enqueue.cc); n is the number of
// ranks.
//
//	operation                           done as                   where it differs from package dist
//	copies, all types                   NCCL, i16 and u16 as f16  -
//	allreduce, reduce, reducescatter:
//	  any of i16, u16                   ErrUnsupported            NCCL has no such type
//	  sum, prod of i8 to u64            NCCL                      - (wrap around)
//	  min, max of integers              NCCL                      -
//	  avg of integers                   NCCL                      - (sum, then a quotient truncated toward zero)
//	  premulsum of integers             NCCL                      - (wrap around)
//	  sum, prod of f32, f64             NCCL                      order of the ranks: not 0, 1, ... for n > 2
//	  sum, prod of f16, bf16            NCCL                      the same, and each partial result is rounded to the type,
//	                                                              and may overflow it; equal for n = 2
//	  sum of f16, bf16 in windows       NCCL                      the order; accumulated in f32 and rounded once
//	  min, max of floats, n > 1         NCCL on integers, between - (NCCL's own fmin and fmax lose a NaN beside a number)
//	                                    two kernels
//	  avg of floats, n = 2, 4, 8, ...   NCCL                      as sum; each term is divided first, which is exact but
//	                                                              for subnormal numbers
//	  avg of f32, f64, bf16, other n,   NCCL's sum, then a        as sum; bf16 is rounded again by the division
//	  and in windows                    kernel divides
//	  avg of f16, other n               NCCL                      each term is multiplied by 1/n in f16 and rounded
//	  premulsum of f32, f64             NCCL                      the order; product and sum may be one fused operation
//	  premulsum of f16, bf16            NCCL                      products and partial sums are rounded to the type
//	barrier, sync                       allreduce of one element  -
//	messages                            NCCL, batches as groups   -
//
// So floats have the bits of the host's backends for n = 2 without premulsum, and otherwise an
// error of at most n roundings of the type per element. All ranks get the same bits from an
// allreduce. Bits in rank order are for engines with kernels of our own.
//
// On one rank every operation is a copy, bit for bit, and premulsum scales.
//
// Those that need a kernel are compiled at run time (NVRTC); without it they are ErrUnsupported, on
// all ranks when one has none.
//
// "nccl-window" does what NCCL has kernels for that use windows: allgather of all types; allreduce
// and reducescatter of f32, f16 and bf16 as sum, and as avg of f32 and bf16. With PolicyZero,
// allgather and alltoall by copy engines. It is ErrUnsupported for the rest, while no window is
// registered, and while there is a slab that NCCL can have no window on. Before 2.30.3 NCCL's
// kernels for windows are wrong for parts that are no multiple of 8 B (allgather, reducescatter),
// which are ErrUnsupported there, and for buffers off such multiples, which go to the communicator
// of "nccl".
//
// # Which versions?
//
//	2.14.3   the engine nccl, with all operations. Before 2.23.4 the unique id goes by value
//	2.18.1   splits by ncclCommSplit; before, a subgroup meets at an id of its own
//	2.27.3   windows: the engine nccl-window
//	2.28.3   addresses of peers, from the head of the structure behind a window, compared with what is there before use;
//	         ncclAlltoAll, ncclGather, ncclScatter, which are groups of sends and receives before
//	2.29.2   addresses of peers by ncclGetPeerDevicePointer
//
// A call that the library is too old for is dist.ErrUnsupported with both versions in it
// (Library.Missing lists them). A setting that it is too old for is refused by Open, because NCCL
// would drop it without a word.
//
// # Which library?
//
// Config.Path; or the NCCL that is loaded already, by NVSHMEM for instance; or what the loader
// finds; or what lies in Config.Dirs. Two different files of NCCL in one process are refused,
// before the second is loaded: what is mapped (/proc/self/maps) is compared by inode.
//
// Open sets two variables in the environment that NCCL reads. NVLink multicast stays off by
// NCCL_NVLS_ENABLE=0. With NCCL_RUNTIME_CONNECT=0 ranks connect when they form a communicator and
// not in the first collective of each kind, which then waits for no peer. Only the first message
// between two ranks connects them, inside of the call: it waits for the other end.
//
// # How does it end?
//
// Communicators block: NCCL's other kind starts a thread for each group call (group.cc). A call
// that hangs because a peer is gone can still be ended, by ncclCommAbort on another thread, which
// raises a flag that waits and kernels look at. It also frees the communicator under the feet of
// the call, so Abort makes it part of a group: what raises the flag happens at once, what frees at
// the group's end, when the call has returned.
//
// Close finishes and frees; ranks of one host close together. CUDA graphs with a communicator's
// operations in them are closed before it, or NCCL waits for them.
//
// With two ranks in one process NCCL 2.28.3 was seen to crash in ncclCommDestroy of a communicator
// that had been shrunk, in 5 of some 65 runs with GOGC=3 and in none of 45 without: the last rank
// to close frees the memory of both, and so does a thread of NCCL's, which meet in the driver
// (cuMemRetainAllocationHandle, cuMemAddressFree). One that had not been shrunk did once, in a run
// of all tests. Ranks of processes of their own do not.
package nccl
