// Package symmetric is the contract of the symmetric heap: memory that every rank allocates in the
// same order and with the same sizes, so that one offset names the same object on all of them. What
// OpenSHMEM and NVSHMEM call a PE is a rank here, and what they call a team is the group that made
// the heap.
//
// A Heap belongs to one group of ranks. Alloc, Calloc, Aligned and Free are collective: every rank
// calls them, in one order, with the same arguments; ranks that differ all get an error. The Region
// they return gives this rank's part (Local), direct views of its peers' (Peer), and one-sided
// calls, which name a rank and an offset and need nothing of that rank: Put and Get, strided and
// non-blocking forms, single words (P, G), data with a signal behind it (PutSignal), atomics (Add,
// FetchAdd, Swap, CompareSwap, ...) and waits for words of the own part (WaitUntil, SignalWait,
// ...). The functions with a type parameter are the typed face of Region's methods, which are all
// that a backend implements.
//
// # Ordering
//
// Transfers are unordered until something orders them (OpenSHMEM 1.5, section 3.2; NVSHMEM, "Data
// Consistency"). Two accesses by one rank occur in order when one of these stands between them:
//
//	first access                               second to the same rank     second to another rank
//	Put, P, IPut, PutSignal, atomic, signal    Fence, Quiet, Barrier       Quiet, Barrier
//	PutNBI, GetNBI, PutSignalNBI               Quiet, Barrier              Quiet, Barrier
//	Get, G, IGet, atomic that gives a value    its return                  its return
//
// What each of them promises:
//
//	Fence     what this rank sent to one peer before it is visible to that peer before what it sends to it after
//	Quiet     what this rank sent before it, and every non-blocking call, is complete: src may be changed, dst is filled,
//	          and every rank can see it. It holds for direct stores through Peer as well
//	Sync      (of dist.Group) all ranks have arrived; only this rank's direct stores to its own part are visible
//	Barrier   (of dist.Group) Sync and Quiet: what any rank sent before it is complete and visible to all
//
// Within PutSignal the data is visible before the signal is. Collectives of a group are ordered by
// themselves. The receiving side orders its reads by a Wait or Test that saw the update: what comes
// after it sees what was sent before.
//
// Two calls that access one place at the same time, of which one writes, have no defined outcome.
// Two exceptions: atomics with atomics, P, G and waits on the same word; signals with waits on the
// same signal. Updates become visible in the end without further calls, and stay until replaced.
//
// # On a host heap
//
// Peers are plain memory there. A Put is a copy by the calling CPU, so non-blocking calls are
// complete when they return, Fence and Quiet are full memory barriers, and Barrier, whose arrival
// orders all earlier stores, needs no Quiet. Programs that rely on more than the table work there
// and break on a network.
//
// # Errors and waits
//
// A wrong call is an *AccessError that names call, ranks, region, offset and sizes, and touches no
// memory. A wait ends with an error when its context ends, a peer dies, the group is aborted or
// closed, or the step timeout is over.
//
// # Backends
//
// A backend implements Heap and Region over its own memory and takes its offsets from an Arena,
// whose first-fit order is the same on every rank because the calls are.
//
// Source: OpenSHMEM 1.5 sections 9.3 (memory management), 9.5 (put and get), 9.7 (atomics), 9.8
// (signals), 9.10 (waits), 9.11 (ordering); NVSHMEM "Memory Management" (collective malloc and
// free, the pair of address and PE names remote data).
package symmetric
