// Package nvshmem makes NVSHMEM an engine for collectives between GPUs. It binds the library
// without cgo. It provides the engine and the allocator "nvshmem", and the library's one-sided
// calls on streams.
//
// # Files
//
//	layout.go      structs and constants of the library's headers (3.4.5)
//	calls.go       its functions, in tables
//	config.go      settings, and the environment that the library reads
//	library.go     finds and loads the library, its plugin and the NCCL inside it
//	process.go     C's environment and memory, and the files mapped by this process
//	caller.go      calls of the library, one at a time, and its first failure
//	driver.go      CUDA calls that check streams and addresses before NVSHMEM is called
//	runtime.go     the one runtime of a process: start by unique id
//	end.go         stopping the library, or leaving it to the end of the process
//	heap.go        symmetric memory: the allocator, its allocations, peers' addresses
//	area.go        the staging area of each team
//	rma.go         put, get, signals, quiet and barriers on streams
//	teams.go       the table of this rank's teams, and the plan of a group split
//	team.go        creation of teams
//	engine.go      the engine: supported operations, splits, abort and close
//	collective.go  reductions, gathers, broadcasts on symmetric memory or through the staging area
//	compose.go     operations that NVSHMEM lacks, as copies to peers between barriers
//	message.go     send and receive: a mailbox for each pair of ranks, and group calls
//	scale.go       avg and premulsum: our own kernels apply the factor
//	build.go       user code that calls the library on the device: headers, options, loading
//	link.go        links device code with the library's device part
//
// # Errors that end the process
//
// NVSHMEM ends the process with exit(-1) where other libraries return an error: a call outside of
// its lifetime, a pointer outside of its heap, an unknown team, an error of CUDA or NCCL inside a
// call. This package therefore checks every argument before a call. Ranks agree before every
// collective step, and no call is made after the device has reported an error.
//
// Finalizing is collective and waits for the device. It is done only if all ranks agree that no
// group was aborted and that the device is idle. Otherwise the library and its memory are left to
// the end of the process. os.Exit runs none of the library's exit handlers, and the driver ends
// kernels with the process. While operations of an aborted group may still run, no memory is
// allocated or freed and no group is split.
//
// There is one runtime per process and one GPU per rank. A second start during the life of the
// first is an error. The library's thread level is SERIALIZED, so one lock protects all of its
// calls.
//
// # Operations
//
//	operation                     how
//	allreduce sum prod min max    <T>_<op>_reduce_on_stream
//	reduce                        the same into the staging area; root copies it out
//	reducescatter                 <T>_<op>_reducescatter_on_stream
//	avg                           sum, then a kernel that divides
//	premulsum                     a kernel multiplies into the staging area, then sum
//	allgather                     fcollectmem_on_stream
//	broadcast, alltoall           broadcastmem_on_stream, alltoallmem_on_stream
//	gather, scatter               copies to peers' staging areas between sync and barrier
//	send, receive                 copies to mailboxes, with signals that say full and free
//	barrier, sync                 barrier_on_stream, team_sync_on_stream
//
// With dist.Op.Symmetric, and buffers in memory of the allocator, the library works on the buffers
// themselves. In-place operation is limited to broadcast, and to allreduce where NCCL does it: in
// all other cases source and destination must not overlap (OpenSHMEM 1.5, section 9.9). All other
// operations go through a symmetric staging area, one per team, in chunks on the stream.
//
// Reductions combine in the library's order and in the element's own type. A sum of f16 that
// overflows before an average stays infinite. Min and max follow C: a NaN loses against a number.
//
// # NCCL inside
//
// NVLink multicast is off, so the on-stream reductions, fcollect, broadcast and alltoall of NVSHMEM
// are NCCL's, on communicators that NVSHMEM makes for every team. It takes the libnccl.so.2 that
// the process has loaded, or the first that is found; Library.NCCL says which. Without NCCL, and
// for 16-bit integers, which NCCL lacks, it runs kernels of one block: correct but slow. This
// package composes their allgather, broadcast and alltoall from copies. It limits their
// reduce-scatter to the size of their scratch memory, because a larger one stops the device.
//
// No setting bounds the number of NCCL's blocks, as comm.max_ctas does for other engines: NVSHMEM
// makes its communicators itself.
//
// # Proxy
//
// NVSHMEM has a proxy thread in each process. It works for kernels whose peers are on other hosts,
// and ends the job when a kernel calls nvshmem_global_exit. It never sleeps. Between GPUs of one
// host only the second task remains, so the proxy is not started and such a kernel fails. A program
// that needs it sets NVSHMEM_DISABLE_LOCAL_ONLY_PROXY=0 in its environment.
//
// # Limits
//
// A runtime has Config.MaxTeams teams, of which 6 are NVSHMEM's own and one is the world. Every
// distinct list of ranks of a group takes one team for the life of the runtime. Groups of the same
// list that are open at the same time take one each. Only the world allocates memory. NVLink
// multicast (NVLS) stays off regardless of the environment: on a host whose fabric is shared it can
// put every GPU out of service.
//
// Sources: NVSHMEM 3.4.5 (headers, src/host), its API guide, OpenSHMEM 1.5, nvshmem4py 0.1.2.
package nvshmem
