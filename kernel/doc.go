// Package kernel runs CUDA C of one's own on a group's GPU, on memory that the group shares: a
// kernel gets the address of its rank's part of a symmetric region, and those of all its peers'
// parts, which it reads and writes directly.
//
//	m, err := kernel.Compile(g.Stream(), kernel.Source{Name: "shift.cu", Text: `
//	#include "symgrad.h"
//	extern "C" __global__ void shift(int *const *destination, int rank, int ranks) {
//	    *destination[(rank + 1) % ranks] = rank;
//	}`})
//	defer m.Close()
//	f, err := m.Function("shift")
//	peers, err := kernel.Peers(g, region) // the address of region on every rank, as an array on the device
//	defer peers.Close()
//	err = f.Launch(g.Stream(), kernel.Shape{}, peers, int32(g.Rank()), int32(g.Size()))
//	_, err = g.Barrier()
//
// It is the driver's cuModuleLoadData and cuLaunchKernel with the pointers of this library, and
// nothing is different from what those who know them expect:
//
//   - Text is compiled by NVRTC (libnvrtc, of CUDA or of a Python package) for the stream's GPU, at
//     run time; neither nvcc nor headers are needed. What has been compiled once is found again on
//     disk, by content, options, architecture and version of the compiler; what includes other
//     files (an option can say where they are) is compiled each time.
//   - Function takes the name in the image. C++ mangles names: say extern "C".
//   - Launch queues the kernel on the stream and returns. What goes wrong while it runs is an error
//     of a later call on the device, as always with CUDA, and breaks the device's context for the
//     process.
//   - An argument is as wide as its Go type, and is passed by its bits. There is no conversion: a
//     kernel that declares double wants a float64. int and uint are refused, because C's int is
//     another type than Go's. Where the driver tells how many and how wide a kernel's parameters
//     are, since CUDA 12.4, other arguments are an error instead of a surprise.
//
// # Arguments
//
//	Go                                                              CUDA C
//	int8, uint8, bool, int16, uint16, int32, uint32, int64, uint64  char ... unsigned long long
//	float32, float64                                                float, double
//	tensor.Float16, tensor.BFloat16                                 __half, __nv_bfloat16, or unsigned short
//	tensor.Buffer on the stream's device                            T *
//	symmetric.Region                                                T *, this rank's part
//	*Table, of Peers                                                T *const *, the part of every rank by its number
//	uintptr                                                         an address that one vouches for
//	nil                                                             a null pointer
//
// # What a kernel may do with its peers' memory
//
// Loads, stores and atomics on a peer's address reach that GPU directly. As with all one-sided
// access, somebody must order them: a Barrier of the group on the stream behind the kernel, or
// signals. The header symgrad.h is a handful of functions for that. The text of a Source includes
// it with no option; files that the text includes cannot:
//
//	symgrad_signal(u64 *word, u64 v)              *word = v, visible to all ranks after what this thread wrote before
//	symgrad_signal_add(u64 *word, u64 v)          *word += v, likewise
//	symgrad_read(const u64 *word)                 *word; what was written before the signal that set it is visible after
//	symgrad_wait(const u64 *word, u64 v, u64 ns)  wait until *word >= v; false after ns nanoseconds
//	symgrad_now()                                 nanoseconds of the GPU's clock
//
// u64 being unsigned long long. A signal covers the writes of the thread that gives it and, after a
// __syncthreads(), those of its block. It lies at a multiple of 8 in symmetric memory, and its user
// is one rank at a time.
//
// A kernel that waits for a peer holds its place on the GPU. It must not wait for what is queued
// behind it, on this rank or through another; and no more blocks may wait for each other than the
// GPU runs at once: Shape.Together makes sure of that, and Function.Resident tells how many those
// are. A wait has a limit because nothing ends a kernel from outside: a peer that died would leave
// it running for as long as the process lives.
//
// # NVSHMEM on the device
//
// With Source.NVSHMEM a text may include nvshmem.h and nvshmemx.h, and call what they declare:
// nvshmem_int_p, nvshmemx_putmem_signal_block, nvshmem_barrier_all and so on. It is compiled with
// the headers beside the library, libnvshmem_device.a is linked in by nvJitLink, and the module
// gets the library's state. The stream is a group's own, of backend nvshmem, or of cuda where the
// library is there. Pointers are those of regions of its heap, and ranks are those of the world
// (NVSHMEM_TEAM_WORLD). The library checks nothing on the device: an address that is in no region
// ends in a fault of the GPU. So does nvshmem_global_exit, unless
// NVSHMEM_DISABLE_LOCAL_ONLY_PROXY=0 is in the environment of the program. Collective calls want a
// launch on each rank, and Shape.Together. Such text is compiled each time, which takes seconds.
//
//	m, err := kernel.Compile(g.Stream(), kernel.Source{NVSHMEM: true, Text: `
//	#include <nvshmem.h>
//	extern "C" __global__ void shift(int *destination) {
//	    nvshmem_int_p(destination, nvshmem_my_pe(), (nvshmem_my_pe() + 1) % nvshmem_n_pes());
//	}`})
//
// # Without a kernel
//
// OnStream is a view of a region whose puts, gets, signals and waits are queued on a stream,
// between kernels and collectives. Copy queues a copy; Mark is the Work of what is queued so far,
// and Elapsed is the time of an operation.
//
// # Lifetime
//
// A Module belongs to one device and is closed by who made it, before its world: Close unloads the
// code, so launches must be over: Synchronize the streams first. Functions end with their module. A
// Table belongs to the group it was made with and must not outlive the region. Buffers and regions
// stay whose they are: Launch keeps no reference, and whoever frees memory first waits for the
// kernels that use it.
//
// Modules, functions and tables may be used from several goroutines. Nothing here is collective:
// ranks that do not run a kernel need not compile it.
//
// Launch allocates nothing on the Go heap.
package kernel
