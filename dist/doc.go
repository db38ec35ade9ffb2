// Package dist is communication between the ranks of a job: worlds, groups, streams and collectives.
//
// A World is all ranks; a Group is some of them (Split). The verbs of a Group take tensor.Buffers, check them, and queue
// an Op on a Stream. They return a Work when the operation is queued, never waiting for a peer; Work.Wait tells the
// outcome. A backend is a Transport: dist knows none of them, package dist/backend chooses one.
//
//	w, err := g.AllReduce(tensor.Of(dst), tensor.Of(src), dist.Sum)
//	if err != nil { ... }           // a wrong argument: nothing was sent
//	if err := w.Wait(); err != nil { ... } // a peer disagreed, died, or was too late
//
// # The caller's duties
//
//  1. Every rank of a group calls the same collectives in the same order, with the same count, dtype, reduction and
//     root. Ranks that do not all get ErrMismatch, naming the difference, while checking is on (it is by default).
//  2. Buffers belong to the group from the call to Work.Wait.
//  3. Close the world. What was made from it (subgroups, heaps) is closed with it.
//
// # Counts
//
// Count is what one rank contributes or receives; n is the number of ranks.
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
// A count of zero is legal when all ranks pass it, and does nothing but check that they do. Buffers that a rank does not
// use are ignored there and may be the zero Buffer.
//
// # Errors and death
//
// Wrong arguments are ErrInvalid and its kinds, raised before anything is sent. After ErrMismatch, ErrAborted or
// ErrTimeout a group is broken for good: every rank gets an error from every pending and later operation, naming the
// rank that died or the difference found. No call waits longer than the backend's step timeout.
//
// # Arithmetic
//
// On the host, reductions combine in rank order, 0 first, so that a result depends neither on chunking nor on which
// backend ran it; f16 and bf16 accumulate in float32 and are rounded once.
//
// Sources: NCCL 2.28 user guide (collectives, in-place operations, group calls), NVSHMEM 3.4 (teams, collectives).
package dist
