// Package farheap implements the symmetric heap of a group whose ranks are on several hosts. Near
// ranks, those on one host, access each other's parts by address, through a heap of the host's own
// transport. Far ranks exchange messages on a wire, with the operation as a value: the owner of the
// memory applies it. It uses no remote memory access of a library, because atomics of libraries
// fail on some networks, and because their targets must make progress too.
//
// # Messages
//
// A Service is one process's end: it sends requests, and answers those of other processes. A
// request is a header of 64 bytes and at most 16 KiB of data; longer transfers are several
// requests. The owner applies the requests of one process in the order in which they were sent,
// with the calls of its own near heap. Words are therefore atomic there, and waits of its rank wake
// up.
//
// Calls that return a value wait for an answer. A put, a signal or a single word is copied to a
// buffer of the service, and its call returns. The owner acknowledges such requests after every
// 16th one, and when a Quiet asks for it. At most 32 requests to a process are without
// acknowledgement, so that a process buffers at most 512 KiB for each other process that writes to
// it.
//
// Nothing moves without Service.Progress. Calls that wait for an answer make it themselves; the
// owner needs a goroutine that makes it, also while its rank computes.
//
// # Ordering
//
// The ordering table of package symmetric holds. For far ranks more is true, as requests to one
// process are applied in order. Programs must not rely on it: near ranks differ.
//
//	call                      far rank, on return                     complete, visible to all
//	Put, PutNBI, IPut, P      src is copied                           after Quiet
//	PutSignal, PutSignalNBI   src is copied, the signal follows it    after Quiet
//	Signal                    sent                                    after Quiet
//	Get, IGet, G              dst is filled                           on return
//	GetNBI                    sent, dst belongs to the heap           after Quiet
//	Atomic                    applied, the old value is here          on return
//
// The guarantees of the calls:
//
//	Fence     a memory barrier for near ranks; far ranks need none
//	Quiet     all owners have applied all requests; every GetNBI has its data
//	Barrier   (of the group) its transport calls Flush first, so that it contains Quiet
//
// A request that the owner cannot apply, because it has closed the heap, is an error of the call
// or, for calls that do not wait, of the next Quiet.
//
// # Failures
//
// Config.Failed ends every call and every wait of a broken group. The loss of a process, which
// Service.Lost reports, ends calls to its ranks even earlier. A call without an answer in the step
// timeout ends with dist.ErrTimeout; its buffer is then free, since late answers are dropped.
//
// Region.Peer of a far rank is dist.ErrUnsupported, as the pointer of NVSHMEM is null.
package farheap
