// Package hosts joins the ranks of several hosts in one group. Ranks of one host meet by an inner
// transport (shm), and hosts exchange messages over a wire (mpi, ucx).
//
// # How a collective works
//
// The ranks of a host share a board: memory with a header and a place for data for every rank of
// the group. A collective is a number of exchanges. In an exchange each rank writes its call and
// its data to its place. The first rank of each host, its leader, sends the block of its host to
// the other leaders, and writes their blocks to its board. Then every rank sees the calls and the
// data of all: it compares the calls, and computes its own result. So sums are taken in rank order,
// with the bits of one host, in every layout of ranks over hosts.
//
// A large collective compares the calls in an exchange, and then moves its data in another way:
//
//   - A reduction of two ranks on two hosts is a pair: each sends its elements to the other.
//   - Reductions in parts, in every layout: each rank gets one part of the elements of all.
//   - Larger reductions over hosts whose ranks follow each other go along a chain of hosts.
//   - Copies go from rank to rank, once to each host that needs them.
//
// A blocking operation runs on its caller. A wait for another host polls the wire, and soon lets
// other threads use the processor between two polls. A wait for ranks of this host does not poll.
//
// # How a symmetric heap works
//
// A heap over hosts is one of package farheap: near ranks use a heap of the inner transport, and
// requests to a far rank go to its own process, which applies them. All requests have two tags on
// the wire, and every goroutine that polls the wire handles them. A barrier of a group first
// completes the one-sided calls of its ranks on all heaps.
//
// # Groups on one host
//
// A group whose ranks are all on one host is a group of the inner transport, with its collectives,
// messages and heaps. Only deaths that the wire finds come from outside: see local.
//
// # How failures are found
//
//   - The calls of all ranks are compared in the first exchange of every collective.
//   - A rank that waits longer than the step timeout breaks the group on all ranks.
//   - A process that ends is found by the inner transport on its host, and by the wire on others.
//   - A cut link or a stopped host is found by missing heartbeats. All its ranks count as dead.
//   - A rank that waits for a message, and its peer in a collective that waits for this rank, find
//     each other by a hint.
//
// Whoever finds a failure reports it to all ranks of the group by a control message. They arrive
// while no operation runs, because each process has a goroutine that makes progress.
//
//	config.go     settings, Open, places of ranks
//	process.go    this process's part: its goroutine, control messages
//	lost.go       ranks that are gone
//	beats.go      heartbeats
//	transport.go  dist.Transport: order of operations, Abort, Close
//	inline.go     operations on their caller
//	board.go      shared memory and exchanges
//	move.go       collectives by exchanges
//	pair.go       large reductions of two ranks
//	parts.go      reductions in parts
//	chain.go      reductions over a chain of hosts
//	direct.go     large copies
//	moves.go      messages between two ranks
//	split.go      parts of a group
//	local.go      groups on one host
//	spans.go      exchanges that end although the group is broken
//	left.go       ranks that left during an operation
//	heap.go       symmetric heaps
//	await.go      waits
//	peers.go      the state of the other ranks
package hosts
