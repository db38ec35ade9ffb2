// Package symmetric is the contract of the symmetric heap: memory that every rank allocates in the same order and with
// the same sizes, so that one offset names the same object on all of them.
//
// A Heap belongs to one group of ranks. Alloc and Free are collective: every rank calls them, in one order, with one
// size; ranks that differ all get an error. The Region that Alloc returns gives this rank's part (Local), the parts of
// its peers where the hardware can address them (Peer), and one-sided copies (Put, Get).
//
// # Ordering
//
// A Put has left when it returns: src may be changed at once. It is visible to the peer after a Fence followed by a
// later Put to the same peer, after Quiet, or after a barrier of the group. On a host heap peers are plain memory:
// Put is a copy by this CPU, and Fence and Quiet are memory barriers.
//
// # Backends
//
// A backend implements Heap and Region over its own memory and takes its offsets from an Arena, whose first-fit order
// is the same on every rank because the calls are.
//
// Source: OpenSHMEM 1.5 section 9.3 (memory management), NVSHMEM "Memory Management" (collective malloc and free, the
// pair of address and PE names remote data).
package symmetric
