// Package nvshmem is NVSHMEM as one of the ways between GPUs: the library bound without cgo, the
// engine and the allocator "nvshmem", and its one-sided calls on streams.
//
// # Parts
//
//	layout.go      structs and constants of the library's headers (3.4.5)
//	calls.go       its functions, in tables
//	config.go      settings, and the environment that the library reads
//	library.go     where the library, its plugin and the NCCL inside it come from
//	process.go     C's environment and memory, and which files this process has loaded
//	driver.go      what CUDA is asked before NVSHMEM is called
//	runtime.go     the one runtime of a process: start by unique id
//	end.go         when the library may be called and stopped, and when it is left to the end of the process
//	heap.go        symmetric memory: the allocator, what lives where, peers' addresses
//	area.go        the staging area of each team
//	rma.go         put, get, signals, quiet and barriers on streams
//	teams.go      teams of this rank, and what becomes of a group that is parted
//	team.go        how teams are made
//	engine.go      the engine: what it can do, splits, its end
//	collective.go  reductions, gathers, broadcasts on symmetric memory or through the staging area
//	compose.go     what NVSHMEM has no call for: copies to peers between barriers
//	message.go     send and receive: a mailbox for each pair of ranks, and group calls
//	scale.go       avg and premulsum: the factor, applied by a kernel of our own
//	build.go       text of users that calls the library on the device: headers, options, loading
//	link.go        device code linked against the library's device part
//
// # What the library does not forgive
//
// NVSHMEM ends the process, with exit(-1), where others return an error: a call before or after its
// lifetime, a pointer outside of its heap, a team that does not exist, an error of CUDA or of NCCL
// under one of its calls. Every argument is therefore checked here before a call, ranks agree
// before every collective step, and no call is made once the device has reported an error.
// Finalizing is collective as well, and waits for the device: it is done when all ranks agree that
// no group was aborted and that the device has nothing to do. Else the library is left to the end
// of the process, with what it holds: os.Exit runs none of the handlers that it has registered for
// exit, and the driver ends kernels with the process. While operations of an aborted group are
// under way, which nothing can end, no memory is allocated or freed either, and no group is split.
//
// It is one runtime per process, and one GPU per rank; a second start while the first one lives is
// an error. Its thread level is SERIALIZED, so one lock is held around all of its calls.
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
// themselves; in place only for broadcast, and for allreduce where NCCL does it, since otherwise
// source and destination must not overlap (OpenSHMEM 1.5, section 9.9). Everything else goes
// through a symmetric staging area that each team has for itself, in chunks, on the stream.
//
// Reductions combine in the library's order and in the element's own type; sums of f16 that
// overflow before an average is taken stay infinite. Min and max are those of C: a NaN loses
// against a number.
//
// # NCCL inside
//
// With NVLink multicast off, the on-stream reductions, fcollect, broadcast and alltoall of NVSHMEM
// are NCCL's, on communicators that it makes for every team. It takes the libnccl.so.2 that the
// process has, or the first that is found; Library.NCCL says which. Where there is none, and for
// 16-bit integers, which NCCL has not, it runs kernels of one block: right but slow. Their
// allgather, broadcast and alltoall are composed here instead, and their reduce-scatter is given no
// more than their scratch memory holds, beyond which they stop the device.
//
// No setting bounds how many blocks NCCL launches there, as comm.max_ctas does elsewhere: NVSHMEM
// makes its communicators itself.
//
// # Proxy
//
// NVSHMEM has a thread in each process, the proxy, that works for kernels whose peers are on other
// hosts, and ends the job for one that calls nvshmem_global_exit. It never sleeps. Between GPUs of
// one host it has the latter to do alone, and is not started: such a kernel then fails. A program
// that wants it has NVSHMEM_DISABLE_LOCAL_ONLY_PROXY=0 in its environment.
//
// # Limits
//
// A runtime has Config.MaxTeams teams, of which 6 are NVSHMEM's own and one is the world; every
// distinct list of ranks that a group was made of takes one, for the life of the runtime, and
// groups of the same list that are open at one time take one each. Memory is allocated by the world
// only. NVLink multicast (NVLS) stays off, whatever the environment says: on a host whose fabric is
// shared it can put every GPU out of service.
//
// Sources: NVSHMEM 3.4.5 (headers, src/host), its API guide, OpenSHMEM 1.5, nvshmem4py 0.1.2.
package nvshmem
