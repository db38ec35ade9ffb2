// Package perf measures collectives and one-sided operations of any backend: the sizes to try, the
// timed loops, the check of every result, and what is printed, stored, compared and drawn
// afterwards. It is nccl-tests for a dist.Group.
//
//	cfg := perf.Config{Ops: []perf.Op{perf.AllReduce}, MaxBytes: 64 << 20}
//	res, err := perf.Run(world, cfg, func(row perf.Row) { ... }) // collective: every rank calls it
//
// # Sizes and bandwidths
//
// The size of a row is that of the larger buffer of a rank. With t the time of one operation and n
// the ranks, algbw is size/t and busbw is what each link of the bus would have to carry, so that a
// number can be held against the hardware whatever n is (nccl-tests, doc/PERFORMANCE.md); GB are
// 10^9 bytes.
//
//	operation                              count of a row   busbw / algbw
//	allreduce                              size             2(n-1)/n
//	allgather, reducescatter               size/n           (n-1)/n
//	alltoall, gather, scatter              size/n           (n-1)/n
//	broadcast, reduce, sendrecv            size             1
//	put, get, put-bw, get-bw, pingpong     size             1
//	barrier, atomics                       -                none
//
// # What is timed
//
// A reading of the clock before the call, one after Work.Wait, on a thread that keeps its core.
// Style OSU, the default, puts a barrier that is not timed before every iteration; time is the mean
// over iterations and ranks. Style BackToBack puts one barrier before all iterations. The clock is
// the processor's counter where that is usable; what one reading costs is measured and stated, not
// taken off.
//
// Fresh makes every rank read its last result and write its input anew before each iteration,
// untimed, as a training step does. Without it the inputs of the last iteration are still in the
// caches of the ranks that read them, and a design that reads its peers' memory looks better than
// it is.
//
// Operations of one side run between rank 0 and the last; times are rank 0's. Put and get are one
// operation and its completion; put-bw and get-bw are one of 64 before a Quiet; pingpong is one way
// of a put with a signal, to and fro, as in osu_latency; atomics is one of 64 fetch-adds, of all
// ranks on one word, whose total must be exact. Its rate is the number of ranks over the time,
// which means something where each has a core of its own.
//
// # Devices
//
// Buffers of a group on a device are reached through a Device: copied there, checked by copies
// back. There operations are queued on the group's stream back to back and not waited for one by
// one, or captured once and launched again (Graph), as nccl-tests does with -G; the time is the
// device's, between two marks on the stream, of the slowest rank. One operation, or launch, that is
// not timed goes before the first mark, so that the ranks meet on the device. Style OSU waits for
// each by the clock of the host. Several Targets, as the engines of a backend, take turns at every
// size, in every round beginning with another one, so that what disturbs one of them disturbs all;
// an operation that one of them does not support is a row that says so. A round goes through all
// rows, so that what disturbs the machine for a second meets one round of a row; rows are told in
// the last. A row is checked in the first: before it is timed, and once more behind it, because
// many operations in a row, or a graph, may leave behind what the next one stumbles over.
//
// # What is checked
//
// Inputs are patterns with a prime period, small whole numbers for reductions, so that every result
// is exact in every element type and what a misplaced block should have held differs from what it
// holds. A check poisons the destination, runs the operation, compares every element, and looks for
// writes to the source and behind the destination.
package perf
