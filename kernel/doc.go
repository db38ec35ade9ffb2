// Package kernel runs a user's CUDA C on a group's GPU, on memory that the group shares. A kernel
// gets the address of its rank's part of a symmetric region, and of all its peers' parts. It reads
// and writes these directly.
//
//	m, err := kernel.Compile(g.Stream(), kernel.Source{Name: "shift.cu", Text: `
//	#include "symgrad.h"
//	extern "C" __global__ void shift(int *const *destination, int rank, int ranks) {
//	    *destination[(rank + 1) % ranks] = rank;
//	}`})
//	defer m.Close()
//	f, err := m.Function("shift")
//	peers, err := kernel.Peers(g, region) // device array: the address of region on every rank
//	defer peers.Close()
//	err = f.Launch(g.Stream(), kernel.Shape{}, peers, int32(g.Rank()), int32(g.Size()))
//	_, err = g.Barrier()
//
// It uses the driver's cuModuleLoadData and cuLaunchKernel with the pointers of this library:
//
//   - NVRTC (libnvrtc, of CUDA or of a Python package) compiles the text for the stream's GPU at
//     run time; nvcc and headers are not needed. The result is cached on disk, by content, options,
//     architecture and compiler version. Text that includes other files (by an option) is compiled
//     each time.
//   - Function takes the name in the image. C++ mangles names: write extern "C".
//   - Launch queues the kernel on the stream and returns. As always with CUDA, an error of the
//     running kernel is returned by a later call on the device, and breaks the device's context for
//     the process.
//   - An argument has the width of its Go type, and is passed by its bits, without conversion: a
//     kernel that declares double needs a float64. int and uint are refused, because C's int is
//     another type than Go's. Since CUDA 12.4 the driver knows the number and widths of a kernel's
//     parameters, and other arguments are an error.
//
// # Arguments
//
//	Go                                             CUDA C
//	bool, int8 to int64, uint8 to uint64           char ... unsigned long long
//	float32, float64                               float, double
//	tensor.Float16, tensor.BFloat16                __half, __nv_bfloat16, or unsigned short
//	tensor.Buffer on the stream's device           T *
//	symmetric.Region                               T *, this rank's part
//	*Table, of Peers                               T *const *, the parts by rank
//	uintptr                                        an address, unchecked
//	nil                                            a null pointer
//
// # How does a kernel access its peers' memory?
//
// Loads, stores and atomics on a peer's address reach that GPU directly. As with all one-sided
// access, the program must order them: by a Barrier of the group on the stream after the kernel, or
// by signals. The header symgrad.h has functions for signals. The text of a Source includes it
// without an option; files that the text includes cannot:
//
//	symgrad_signal(u64 *word, u64 v)       *word = v, after all earlier writes of this thread
//	symgrad_signal_add(u64 *word, u64 v)   *word += v, likewise
//	symgrad_read(const u64 *word)          *word; writes before its signal are visible afterwards
//	symgrad_wait(const u64 *word, u64 v, u64 ns)
//	                                       waits until *word >= v; false after ns nanoseconds
//	symgrad_now()                          nanoseconds of the GPU's clock
//
// u64 is unsigned long long. A signal covers the writes of its thread and, after a __syncthreads(),
// those of the thread's block. The word is aligned to 8 bytes in symmetric memory, and one rank at
// a time uses it.
//
// A kernel that waits for a peer occupies its part of the GPU. It must not wait for later work of
// the stream, on this rank or through another. No more blocks may wait for each other than the GPU
// runs at once: Shape.Together checks that, and Function.Resident returns the number. Limit every
// wait, because nothing ends a kernel from outside: after a peer's death it would run until the
// process ends.
//
// # NVSHMEM on the device
//
// With Source.NVSHMEM a text may include nvshmem.h and nvshmemx.h, and call their functions:
// nvshmem_int_p, nvshmemx_putmem_signal_block, nvshmem_barrier_all and so on. It is compiled with
// the library's headers, nvJitLink links libnvshmem_device.a, and the module gets the library's
// state. The stream must be a group's own, of backend nvshmem, or of cuda if the library is
// present. Pointers must belong to regions of its heap, and ranks are those of the world
// (NVSHMEM_TEAM_WORLD). The library checks nothing on the device: an address outside of regions
// causes a fault of the GPU. So does nvshmem_global_exit, unless the program's environment has
// NVSHMEM_DISABLE_LOCAL_ONLY_PROXY=0. Collective calls need a launch on each rank, and
// Shape.Together. Such text is compiled each time, which takes seconds.
//
//	m, err := kernel.Compile(g.Stream(), kernel.Source{NVSHMEM: true, Text: `
//	#include <nvshmem.h>
//	extern "C" __global__ void shift(int *destination) {
//	    nvshmem_int_p(destination, nvshmem_my_pe(), (nvshmem_my_pe() + 1) % nvshmem_n_pes());
//	}`})
//
// # Without a kernel
//
// OnStream returns a view of a region whose puts, gets, signals and waits are queued on a stream,
// between kernels and collectives. Copy queues a copy; Mark returns the Work of all queued work,
// and Elapsed the time of an operation.
//
// # Lifetime
//
// A Module belongs to one device. Its creator closes it before its world. Close unloads the code,
// so launches must have ended: Synchronize the streams first. Functions end with their module. A
// Table belongs to the group it was made with and must not outlive the region. Launch keeps no
// reference to buffers and regions: before you free memory, wait for the kernels that use it.
//
// Modules, functions and tables may be used from several goroutines. Nothing here is collective:
// ranks that do not run a kernel need not compile it.
//
// Launch allocates nothing on the Go heap.
package kernel
