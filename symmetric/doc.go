// Package symmetric defines the contract of the symmetric heap: memory that every rank allocates in
// the same order and with the same sizes, so that one offset names the same object on all ranks. A
// rank corresponds to a PE of OpenSHMEM and NVSHMEM, and the group that made the heap to a team.
//
// A Heap belongs to one group of ranks. Alloc, Calloc, Aligned and Free are collective: every rank
// calls them in the same order with the same arguments; ranks that differ all get an error. They
// return a Region with this rank's part (Local), direct views of its peers' parts (Peer), and
// one-sided calls. A one-sided call names a rank and an offset and needs no action of that rank.
// There are Put and Get with strided and non-blocking forms, single words (P, G), data followed by
// a signal (PutSignal), atomics (Add, Swap, ...) and waits for words of the own part (WaitUntil,
// ...). The functions with a type parameter are typed wrappers of Region's methods, which are all
// that a backend implements.
//
// # Ordering
//
// Transfers are unordered until an ordering call (OpenSHMEM 1.5, section 3.2; NVSHMEM, "Data
// Consistency"). Two accesses by one rank occur in order if one of these calls is between them:
//
//	first access                               second to the same rank     second to another rank
//	Put, P, IPut, PutSignal, atomic, signal    Fence, Quiet, Barrier       Quiet, Barrier
//	PutNBI, GetNBI, PutSignalNBI               Quiet, Barrier              Quiet, Barrier
//	Get, G, IGet, atomic that returns a value  its return                  its return
//
// The guarantees of the calls:
//
//	Fence     data sent to a peer before it is visible to that peer before data sent to it later
//	Quiet     everything that this rank sent, and every non-blocking call, is complete:
//	          src may be changed, dst is filled, every rank sees it, also direct stores through Peer
//	Sync      (of dist.Group) all ranks have arrived; it makes visible only this rank's direct
//	          stores to its own part
//	Barrier   (of dist.Group) Sync and Quiet: data sent by any rank is complete and visible to all
//
// In PutSignal the data is visible before the signal. Collectives of a group order themselves. The
// receiver orders its reads by a Wait or Test that saw the update: later reads see the data sent
// before it.
//
// The outcome of two simultaneous accesses to one place, one of them a write, is undefined. Two
// exceptions: atomics with atomics, P, G and waits on the same word; signals with waits on the same
// signal. Updates become visible eventually without further calls, and stay until replaced.
//
// # On a host heap
//
// Peers' parts are plain memory there. A Put is a copy by the calling CPU. Non-blocking calls are
// therefore complete when they return, and Fence and Quiet are full memory barriers. Barrier needs
// no Quiet, because its arrival orders all earlier stores. Programs that rely on more than the
// table work there and break on a network.
//
// # Errors and waits
//
// An invalid call returns an *AccessError with call, ranks, region, offset and sizes, and accesses
// no memory. A wait ends with an error if its context ends, a peer dies, the group is aborted or
// closed, or the step timeout expires.
//
// # Backends
//
// A backend implements Heap and Region over its own memory and takes its offsets from an Arena. The
// arena's first-fit order is the same on every rank because the calls are.
//
// Source: OpenSHMEM 1.5 sections 9.3 (memory management), 9.5 (put and get), 9.7 (atomics), 9.8
// (signals), 9.10 (waits), 9.11 (ordering); NVSHMEM "Memory Management" (collective malloc and
// free, the pair of address and PE names remote data).
package symmetric
