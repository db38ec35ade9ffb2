// Package shm is the backend for ranks of one host: real processes, or goroutines in tests, that
// share memory.
//
// # Parts
//
//	segment.go    shared memory: a sealed memfd, a file in a chosen tmpfs, or Go memory for the race detector
//	link.go       how ranks hand segments to each other and notice death: unix sockets, or a registry in one process
//	open.go       meeting through a dist.Store; worlds of goroutines for tests
//	control.go    the layout of a group's control segment: words, announcements, headers, slots, channels
//	announce.go   rounds: how ranks meet, compare what they are doing, and know that memory may be used again
//	share.go      how a segment comes to all ranks of a group, or to none
//	wait.go       waiting for a peer: spin, yield, futex; abort and timeout are noticed here
//	deadlock.go   ranks that wait for each other: long waits are posted, and each rank looks for a circle that it is in
//	abort.go      how a group is broken, and the error that all ranks then have
//	transport.go  dist.Transport: turns, operations on the caller, Split, Heap, Abort, Close
//	coll.go       collectives directly between heaps, and the choice of the way
//	apart.go      allreduces out of place between two ranks, by the faster of two ways
//	small.go      collectives of up to 4 KiB, in one round
//	tiny.go       those on the caller, by the shortest way; the smallest sums
//	pair.go       the same for two ranks, and for broadcasts
//	staged.go     collectives of private memory, in chunks through slots
//	p2p.go        send and receive through one small ring per pair of ranks
//	lend.go       messages that the ring cannot hold: the receiver reads the sender's memory
//	heap.go       symmetric.Heap over one segment per heap; package hostheap has the calls
//	signal.go     how a rank that waits for a word of a heap sleeps, and is woken
//
// # How a collective runs
//
// Every collective is a round. A rank announces it by one cache line that only it writes: up to 56
// bytes of payload, the number of the round, and a hash of the signatures of all operations so far.
// Whoever needs something of a rank waits for its line, and compares hashes: a disagreement is seen
// before any element moves, and the signatures, which every rank keeps for its last eight rounds,
// tell which operation differs and how. To announce a round is also to say that all rounds before
// it have been read, so that their lines and slots can be used again; a rank can be seven rounds
// ahead.
//
// Small data travel in the line, or in a slot written before it, and the operation is over when all
// lines are there. For more, the line tells where the buffers lie. If all lie in symmetric heaps,
// ranks read and write each other's heaps directly and tell by a second word when they have
// finished. Otherwise the data go in chunks through four staging slots a rank.
//
// Ranks that share cores spend their time on waiting for a core: there, a rank with a small piece
// in a heap says that it is private memory, so that all of it is waited for once.
//
// With more than four ranks on a core a wait yields a few times only, and a caller that sleeps
// keeps its processor of the Go scheduler, whose monitor thread would otherwise run some ten times
// a sleep (futexWait).
//
// A barrier ends first on the root of the broadcast, or scatter, that was directly behind the last
// barrier, if one was, since programs repeat themselves: the others find its data when they have
// left, or get a core. Else it ends on all ranks as soon as it can.
//
// A rank that waits spins, then yields its core, then sleeps on a futex. It spins longer in an
// operation on its caller, who has nothing else to do, than beside a computation. When somebody who
// is not waiting keeps a yielded core, a data loader for example, ranks sleep at once for a while;
// what ranks that share a core had to do meanwhile does not count.
//
// Sums are taken in rank order in every path, so bits depend neither on the path nor on chunk
// sizes.
//
// # Lines that others have read
//
// A core that writes to a line which others have read waits until they have given it up, as long as
// it takes to get a line from them: 50 to 150 ns. Three things keep that out of what a rank waits
// for. At the end of an operation it claims the lines of its next announcement and slot, so that
// they are its own when it fills them (Transport.claim); the sum that stores to results of other
// ranks asks for those while it reads the sources (reduce.Claim); and the group's lock is given
// back by a plain store (asym.Mutex), which does not wait for what was written before. And of two
// ranks each moves what it has posted, up to 1 KiB, to a cache that both share, where the other
// finds it sooner (Transport.handOut).
//
// What a rank has posted it does not read again, but takes from its source: a line that one core
// has written and another is reading is slow for both. On processors of AMD lines that the other
// core has modified are filled faster than those that both have read. There, of two ranks, and of
// those that share cores, who has read a slot leaves its lines modified. And where one of two ranks
// would store to results that the other has read, it may let the other pull them (apart.go).
//
// # What the order of stores relies on
//
// A word is published by a plain store on amd64 (package asym), after what it stands for; a reader
// loads the word first. Where a sleeper must not be missed, the publisher looks for sleepers again
// after a fence: at its next wait, or at the end of the operation. One that runs on its caller
// leaves that to the next operation; a sleeper that is missed even so looks up every 10 ms. Ranks
// that share cores fence before the first look, and miss no sleeper.
//
// # Death
//
// Every pair of ranks keeps a unix socket open. The kernel closes it when a process ends, however
// it ends; the reader then stores who died into the control segments of the groups that had both,
// where every waiter looks at least every 10 ms. Nothing has a name in any file system that
// outlives the processes.
package shm
