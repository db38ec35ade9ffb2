// Package dist is communication between the ranks of a job: worlds, groups, streams and
// collectives.
//
// A World is all ranks; a Group is some of them (Split). Its operations are methods that check
// tensor.Buffers and queue an Op on a Stream. They return a Work once the operation is queued and
// never wait for a peer; Work.Wait returns the outcome. A backend implements Transport. dist
// imports none; package dist/backend chooses one.
//
//	w, err := g.AllReduce(tensor.Of(dst), tensor.Of(src), dist.Sum)
//	if err != nil { ... }           // a wrong argument: nothing was sent
//	if err := w.Wait(); err != nil { ... } // a peer disagreed, died, or was too late
//
// Group.Blocking returns a view whose operations run on the caller and return when they are done,
// as MPI's do: no overlap, least latency.
//
// # Files
//
//	world.go, group.go, split.go           World, Group and its views, subgroups
//	verbs.go, op.go, validate.go           collectives, their values, checks of arguments
//	stream.go, inline.go                   queued operations, operations of blocking views
//	transport.go, signature.go             interface of backends, comparison of operations
//	recorder.go, errors.go, context.go     flight recorder, sentinels, contexts of a group
//
// # Which duties has the caller?
//
//  1. Every rank of a group calls the same collectives in the same order, with equal count, dtype,
//     reduction and root. Otherwise all ranks get ErrMismatch, naming the difference, while
//     checking is on (the default). In a blocking view a rank that only sends (the root of a small
//     Broadcast) does not wait, and gets the error from its next operation.
//  2. Leave buffers to the group from the call to Work.Wait.
//  3. Close the world. That closes its subgroups and heaps too.
//
// # Counts
//
// Count is the elements that one rank contributes or receives; n is the number of ranks.
//
//	operation      source      destination   in place (else disjoint)
//	AllReduce      count       >= count      src == dst
//	Reduce         count       root: >= count    root: src == dst
//	Broadcast      root: count count         root: src == dst
//	AllGather      count       >= n*count    src == dst[rank*count:]
//	ReduceScatter  n*count     >= count      dst == src[rank*count:]
//	AllToAll       n*count     >= n*count    never
//	Gather         count       root: >= n*count  root: src == dst[rank*count:]
//	Scatter        root: n*count   count     root: dst == src[rank*count:]
//	Send, Recv     count       count         -
//
// A count of zero is legal if all ranks pass it, and only checks that they do. A buffer that a rank
// does not use is ignored there and may be the zero Buffer.
//
// # Errors and death
//
// Wrong arguments are ErrInvalid and its kinds, returned before anything is sent. After
// ErrMismatch, ErrAborted or ErrTimeout a group is broken permanently: on every rank, pending and
// later operations return an error that names the dead rank or the difference. No call waits longer
// than the backend's step timeout.
//
// # Cost on shared memory
//
// The table is the cost of an operation of backend shm, for n ranks and S bytes in the larger
// buffer of a rank. In a sync every rank writes one cache line and reads all others (log2 n of them
// for more than 64 ranks). Moved is the bytes loaded and stored between cores and memory by all
// ranks. A large operation takes moved divided by the bandwidth of all cores.
//
//	operation                   algorithm                             syncs  moved
//	any, up to 56 B             data in the sync's line               1      -
//	     up to 256 B            or on the next lines
//	any, up to 4 KiB            copied to a slot, read by all         1      2nS+n(n+1)S for sums
//	Broadcast, Scatter          of these: the root does not wait      1/2
//	AllReduce, in place         each rank sums a block of all heaps   2      2nS: each element read
//	                            and stores it to all of them                 and written once
//	AllReduce, out of place     as in place                           2      2nS
//	2 ranks, up to 1 MiB        or pulls the other's block:           3      6S
//	                            the faster one of late
//	ReduceScatter               the own block summed from all heaps   2      (n+1)S
//	AllGather, AllToAll         pulled from the heaps                 2      2nS
//	Broadcast                   pulled from the root's heap           1      2(n-1)S
//	                            from 256 KiB, in place, the root      2
//	                            stores 1/n of it to the others
//	private memory, 2 ranks     through slots, 64 KiB at a time       2 a    6nS: copied in, summed
//	                            (1 for one chunk, put before it)      chunk  with the other's
//	AllReduce, private, n > 2   the same, each rank sums a block of   3 a    6nS
//	                            the slots                             chunk
//
// If ranks outnumber cores, a sync costs context switches. Then up to 32 KiB (Broadcast: 64) are
// sent through slots from any memory.
//
// An in-place allreduce of S bytes by n ranks takes at least 2nS / B, where B is the bytes per
// second of all cores when they add two arrays. BenchmarkBound of internal/host/shm measures both
// in one run.
//
// # Groups of GPUs
//
// Buffers are in the memory of the rank's GPU, Group.Device, and streams are the GPU's; a group's
// own stream has the highest priority. A call returns when the operation is queued on the device.
// Work.Wait returns when the device has passed it and, while checking is on, all ranks have issued
// it. A view On another stream keeps the order of the group's operations. Hints, which
// Group.With takes, allow faster algorithms:
//   - Hints.Symmetric: buffers are at equal heap offsets on all ranks.
//   - Hints.Overlap: the GPU computes at the same time, so that algorithms should leave it
//     multiprocessors.
//
// Memory is from Group.Heap, or from another allocator on that GPU; package kernel runs kernels on
// it.
//
// # Arithmetic
//
// On the host, reductions combine in rank order, 0 first, so that a result depends neither on
// chunking nor on the backend; f16 and bf16 accumulate in float32 and are rounded once. On GPUs
// symgrad's kernels do the same. NCCL and NVSHMEM combine in other orders, and may round f16 and
// bf16 at every step. The backend chooses between these: see package dist/backend.
//
// Sources: NCCL 2.28 user guide (collectives, in-place operations, group calls), NVSHMEM 3.4
// (teams, collectives).
package dist
