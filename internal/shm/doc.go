// Package shm is the backend for ranks of one host: real processes, or goroutines in tests, that share memory.
//
// # Parts
//
//	segment.go    shared memory: a sealed memfd, a file in a chosen tmpfs, or Go memory for the race detector
//	link.go       how ranks hand segments to each other and notice death: unix sockets, or a registry in one process
//	open.go       meeting through a dist.Store; worlds of goroutines for tests
//	control.go    the layout of a group's control segment: flags, headers, staging slots, channels
//	wait.go       waiting for a peer: spin, yield, futex; abort, timeout and deadlock are noticed here
//	transport.go  dist.Transport: turns, Split, Heap, Abort, Close
//	coll.go       collectives: staged through the control segment, or directly between heaps
//	p2p.go        send and receive through one small ring per pair of ranks
//	heap.go       symmetric.Heap over one segment per heap
//
// # How a collective runs
//
// Every rank has one flag, a counter that only it writes. A round is: write what the others will read, add one to the
// own flag, wait until all flags have got there. The first round of an operation publishes a header (signature, premulsum
// scalar, where the buffers lie); all ranks compare all headers, so a disagreement is seen by all of them before any
// element moves. If all buffers lie in symmetric heaps, ranks then read and write each other's heaps directly and one
// more round ends the operation. Otherwise the data goes through two alternating staging slots per rank, one round a
// chunk: a slot is written again only after a round that every reader entered when it had finished reading.
//
// Sums are taken in rank order in every path, so bits depend neither on the path nor on chunk sizes.
//
// # Death
//
// Every pair of ranks keeps a unix socket open. The kernel closes it when a process ends, however it ends; the reader
// then stores who died into the control segments of the groups that had both, where every waiter looks at least every
// 10 ms. Nothing has a name in any file system that outlives the processes.
package shm
