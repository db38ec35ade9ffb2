// Package perf measures collectives and one-sided operations of any backend: nccl-tests for a
// dist.Group. It chooses sizes, runs the timed loops, checks every result, and prints, stores,
// compares and draws the rows.
//
//	cfg := perf.Config{Ops: []perf.Op{perf.AllReduce}, MaxBytes: 64 << 20}
//	res, err := perf.Run(world, cfg, reporter) // collective: every rank calls it
//
// Config (config.go) lists the cases, Setup (device.go) the device and the Targets that do them.
// Run (run.go, rows.go, measure.go) returns a Result (result.go); a Reporter, such as Table
// (table.go), gets the rows during the run. Compare (compare.go) and Plot (plot.go) use Results.
//
// # Sizes and bandwidths
//
// The size of a row is the size of a rank's larger buffer. For t, the time of one operation, and n
// ranks, algbw is size/t. busbw is the traffic of each link of the bus, and can be compared with
// the hardware for any n (nccl-tests, doc/PERFORMANCE.md). GB are 10^9 bytes.
//
//	operation                              count of a row   busbw / algbw
//	allreduce                              size             2(n-1)/n
//	allgather, reducescatter               size/n           (n-1)/n
//	alltoall, gather, scatter              size/n           (n-1)/n
//	broadcast, reduce, sendrecv            size             1
//	put, get, put-bw, get-bw, pingpong     size             1
//	barrier, atomics                       -                none
//
// # Which time is measured?
//
// The clock is read before the call and after Work.Wait, on a thread that keeps its core. Style
// OSU, the default, runs an untimed barrier before every iteration; the time is the mean over
// iterations and ranks. Style BackToBack runs one barrier before all iterations. The clock is the
// processor's counter if usable; the cost of a reading is measured and reported, not subtracted.
//
// Fresh makes every rank read its last result and rewrite its input before each iteration, untimed,
// as a training step does. Otherwise the last inputs are still in the caches of the ranks that read
// them, and a design that reads its peers' memory looks better than it is.
//
// One-sided operations run between rank 0 and the last; times are rank 0's. Put and get are one
// operation and its completion; put-bw and get-bw are one of 64 before a Quiet. pingpong is one
// direction of a put with a signal, forth and back, as in osu_latency. atomics is one of 64
// fetch-adds of all ranks on one word, whose total must be exact. Its rate is the number of ranks
// over the time, which is meaningful if each rank has its own core.
//
// # Devices
//
// A Device accesses buffers of a group on a device by copies, for inputs and checks. Operations are
// queued on the group's stream back to back without single waits, or captured once and launched
// repeatedly (Graph), like nccl-tests -G. The time is the device's, between two marks on the
// stream, of the slowest rank. One untimed operation, or launch, precedes the first mark, so that
// the ranks meet on the device. Style OSU waits for each operation by the clock of the host.
//
// Several Targets, such as the engines of a backend, take turns at every size, and every round
// begins with another one. So a disturbance affects all of them. An unsupported operation gives a
// row with the reason. A round measures all rows, so a disturbance of a second affects one round of
// a row; rows are reported in the last round. A row is checked in the first round: before it is
// timed, and again afterwards, because many operations in a row, or a graph, may leave a bad state
// for the next one.
//
// # Which results are checked?
//
// Inputs are patterns with a prime period, small whole numbers for reductions. So every result is
// exact in every element type, and a misplaced block differs from the expected one. A check poisons
// the destination, runs the operation, compares every element, and looks for writes to the source
// and after the end of the destination.
package perf
