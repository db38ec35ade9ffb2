// Package dist is communication between the ranks of a job: worlds, groups, streams and
// collectives.
//
// A World is all ranks; a Group is some of them (Split). The verbs of a Group take tensor.Buffers,
// check them, and queue an Op on a Stream. They return a Work when the operation is queued, never
// waiting for a peer; Work.Wait tells the outcome. A backend is a Transport: dist knows none of
// them, package dist/backend chooses one.
//
//	w, err := g.AllReduce(tensor.Of(dst), tensor.Of(src), dist.Sum)
//	if err != nil { ... }           // a wrong argument: nothing was sent
//	if err := w.Wait(); err != nil { ... } // a peer disagreed, died, or was too late
//
// Group.Blocking is the view of a group whose verbs run on the caller and return when they are
// done, as MPI's do: no overlap, least latency.
//
// # The caller's duties
//
//  1. Every rank of a group calls the same collectives in the same order, with the same count,
//     dtype, reduction and root. Otherwise all ranks get ErrMismatch, which names the difference,
//     while checking is on (it is by default). In a blocking view a rank that only sends (the root
//     of a small Broadcast) does not wait for the others, and gets it from its next operation.
//  2. Buffers belong to the group from the call to Work.Wait.
//  3. Close the world. Its subgroups and heaps are closed with it.
//
// # Counts
//
// Count is the number of elements that one rank contributes or receives; n is the number of ranks.
//
//	verb           source      destination   in place (else disjoint)
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
// A count of zero is legal when all ranks pass it, and does nothing but check that they do. Buffers
// that a rank does not use are ignored there and may be the zero Buffer.
//
// # Errors and death
//
// Wrong arguments are ErrInvalid and its kinds, raised before anything is sent. After ErrMismatch,
// ErrAborted or ErrTimeout a group is broken for good: every rank gets an error from every pending
// and later operation, naming the rank that died or the difference found. No call waits longer than
// the backend's step timeout.
//
// # Cost on shared memory
//
// The cost of an operation of backend shm, for n ranks and S bytes in the larger buffer of a rank.
// A sync is one cache line written by every rank and read by every other (by log2 n of them for
// more than 64 ranks). Moved is the bytes between cores and memory, of all ranks together, loads
// and stores. The time of a large operation is moved divided by the bandwidth of all cores.
//
//	operation                   algorithm                             syncs  moved
//	any, up to 56 B             the data are in the sync's line,      1      -
//	     up to 256 B            or on the next ones
//	any, up to 4 KiB            copied to a slot, taken from all      1      2nS + n(n+1)S for sums
//	Broadcast, Scatter          of these: the root waits for no rank  1/2
//	AllReduce, in place         each rank sums a block of all heaps   2      2nS: each read and
//	                            and stores it to all of them                 written once
//	AllReduce, out of place     as in place                           2      2nS
//	2 ranks, up to 1 MiB        or the other's block is pulled:       3      6S
//	                            whichever was the faster lately
//	ReduceScatter               the own block summed from all heaps   2      (n+1)S
//	AllGather, AllToAll         pulled from the heaps                 2      2nS
//	Broadcast                   pulled from the root's heap           1      2(n-1)S
//	                            from 256 KiB, in place, the root      2
//	                            stores 1/n of it to the others
//	private memory, 2 ranks     through slots, 64 KiB at a time; one  2 a    6nS
//	                            chunk, put before the sync, needs 1   chunk
//	AllReduce, private, n > 2   the same, each rank sums a block of   3 a    6nS
//	                            the slots                             chunk
//
// Where ranks outnumber cores a sync costs switches of context, so that pieces of up to 32 KiB
// (Broadcast: 64) go through slots wherever they lie.
//
// An in-place allreduce of S bytes by n ranks therefore takes at least 2nS / B, where B is the
// bandwidth of all cores together when they add two arrays. BenchmarkBound of internal/shm measures
// both in one run.
//
// # Groups of GPUs
//
// Buffers are in the memory of the rank's GPU, Group.Device, and streams are those of the GPU: a
// group's own has the highest priority. A verb returns when the operation is queued on the device.
// Work.Wait returns when the device is past it and, while checking is on, all ranks have issued it.
// A view On another stream keeps the order of the group's operations. Three views are hints:
//
//	Group.Symmetric  buffers have equal offsets in the heap on all ranks: faster engines apply
//	Group.Beside     the GPU computes at the same time: copy engines may be better
//	Group.Along      the operation could have begun with the previous one: no rendezvous
//
// Memory comes from Group.Heap, or from another allocator of that GPU; package kernel runs kernels
// on it.
//
// # Arithmetic
//
// On the host, reductions combine in rank order, 0 first, so that a result depends neither on
// chunking nor on which backend ran it; f16 and bf16 accumulate in float32 and are rounded once. On
// GPUs our own kernels do the same. NCCL and NVSHMEM combine in orders of their own, and may round
// f16 and bf16 at every step. Which of these does an operation is for the backend to choose: see
// package dist/backend.
//
// Sources: NCCL 2.28 user guide (collectives, in-place operations, group calls), NVSHMEM 3.4
// (teams, collectives).
package dist
