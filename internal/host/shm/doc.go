// Package shm is the backend for ranks of one host. Ranks are processes, or goroutines in tests,
// that share memory.
//
// # Files
//
//	segment.go    shared memory: a sealed memfd, a tmpfs file, or Go memory for the race detector
//	link.go       passes segments and detects death: unix sockets, or a hub in one process
//	open.go       rendezvous through a dist.Store
//	node.go       node: the state that all groups of a rank share
//	local.go      worlds of goroutines for tests
//	control.go    control: a group's control segment with words, announcements, slots, channels
//	abort.go      breaks a group with one error for all ranks
//	member.go     member: a rank's place in a group; buffers of its peers
//	wait.go       waiter: waits for a peer by spin, yield, futex; checks for abort and timeout
//	deadlock.go   detects ranks that wait for each other in a cycle
//	announce.go   announcer: rounds, comparison of operations, reuse of memory
//	transport.go  Transport: dist.Transport, operations on the caller, Split, Heap, Abort, Close
//	turns.go      turns: the order of a group's operations on all streams
//	coll.go       choice of the route of a collective
//	share.go      passes a segment to all ranks of a group, or to none
//	reducer.go    reducer: sums of an operation
//	small.go      smallPath: collectives of up to 4 KiB, in one round
//	tiny.go       small collectives on the caller, by the shortest code path; the smallest sums
//	pair.go       the same for two ranks, and for broadcasts
//	staged.go     stagedPath: collectives of private memory, in chunks through slots
//	direct.go     directPath: collectives directly between heaps
//	apart.go      out-of-place allreduces between two ranks, by the faster of two routes
//	p2p.go        messenger: send and receive through one small ring per pair of ranks
//	lend.go       messages larger than the ring: the receiver reads the sender's memory
//	room.go       checks that shared memory fits into the process's limits
//	heap.go       symmetric.Heap over one segment per heap; package hostheap has the calls
//	signal.go     sleep and wake-up of a rank that waits for a word of a heap
//
// # Parts of a Transport
//
// A Transport holds its parts by value: each has fields that no other part changes. A call between
// them costs no load of a pointer on the shortest path, where every nanosecond counts:
//
//	Transport: turns, the choice of the route, splits, heaps
//	  smallPath: small slots; holds the reducer
//	    announcer: rounds
//	      waiter: waits of the running operation
//	        member: constants
//	  stagedPath, directPath, messenger: their state; pointers to the parts above that they use
//
// # How a collective runs
//
// Every collective is a round. A rank announces it with one cache line that only it writes. The
// line has up to 56 bytes of payload, the number of the round, and a hash of the signatures of all
// operations so far. A rank that needs data of a peer waits for the peer's line and compares
// hashes. It thus detects a disagreement before any element moves. Every rank keeps the signatures
// of its last eight rounds, which show how the operations differ. Announcing a round also confirms
// that all earlier rounds have been read, so their lines and slots can be reused. A rank can be
// seven rounds ahead.
//
// Small data is in the line, or in a slot written before it, and the operation ends when all lines
// have arrived. For larger data the line has the places of the buffers. If all are in symmetric
// heaps, ranks read and write each other's heaps directly and set a second word when they have
// finished. Otherwise the data moves in chunks through four staging slots per rank.
//
// Ranks that share cores spend most time waiting for a core. There a rank treats a small block in a
// heap as private memory, so that it waits only once for all data.
//
// With more than four ranks per core a wait yields only a few times. A sleeping caller then keeps
// its processor of the Go scheduler, whose monitor thread would otherwise run about ten times per
// sleep (futexWait).
//
// Programs repeat themselves: if a broadcast or scatter directly followed the last barrier, its
// root leaves the next barrier first. Its data is then ready when the others leave, or get a core.
// Otherwise a barrier ends on all ranks as soon as possible.
//
// A waiting rank spins, then yields its core, then sleeps on a futex. It spins longer in an
// operation on its caller, which has nothing else to do, than during a computation. If another
// process keeps a yielded core, for example a data loader, ranks sleep at once for a while. Work of
// ranks that share a core does not count as that.
//
// Sums are taken in rank order on every route, so their bits depend neither on the route nor on
// chunk sizes.
//
// # Lines that other ranks have read
//
// A core that writes to a line cached by other cores waits for its invalidation: 50 to 150 ns.
// Three measures keep that latency out of the critical path:
//
//   - At the end of an operation a rank claims the lines of its next announcement and slot
//     (smallPath.claim).
//   - A sum that stores to results of other ranks claims their lines while it reads the sources
//     (reduce.Claim).
//   - The group's lock is released by a plain store, which does not wait for earlier stores
//     (asym.Mutex).
//
// With two ranks, each moves its posted data of up to 1 KiB to a cache that both share, where the
// peer finds it sooner (smallPath.handOut).
//
// A rank does not read its posted data again, but its source: a line that one core has written and
// another is reading is slow for both. On AMD processors a line that the other core has modified is
// filled faster than one that both have read. There, with two ranks or shared cores, the reader of
// a slot leaves its lines modified. One of two ranks that would store to results read by the other
// may also let it pull them (apart.go).
//
// # Order of stores
//
// A word is published by a plain store on amd64 (package asym), after the data it announces; a
// reader loads the word first. If a sleeper must not be missed, the publisher checks for sleepers
// again after a fence: at its next wait, or at the end of the operation. An operation on its caller
// leaves that check to the next operation. A sleeper that is missed all the same checks every 10
// ms. Ranks that share cores fence before the first check, and miss no sleeper.
//
// # Death
//
// Every pair of ranks keeps a unix socket open. The kernel closes it when a process ends, for
// whatever reason. The peer then stores the dead rank into the control segments of their common
// groups, where every waiter looks at least every 10 ms. No name remains in a file system after the
// processes.
package shm
