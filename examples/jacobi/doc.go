// Command jacobi solves Laplace's equation on the unit square by Jacobi's iteration, with the rows of the grid divided
// between the ranks. It shows a halo exchange by put-with-signal on the symmetric heap, hidden behind the computation by
// two streams.
//
//	go run ./examples/jacobi -n 2 --nx 2048 --ny 2048 --iters 300 --verify
//	go run ./examples/jacobi -n 2 --nx 2048 --ny 2048 --iters 300 --no-overlap
//	go run ./examples/jacobi -n 2 --backend cuda --nx 8192 --ny 8192 --iters 1000 --verify
//	symgrad run -n 4 -- bin/jacobi --tol 1e-4
//
// The first prints something like
//
//	jacobi: 2048 x 2048 points, 2 ranks on shm, 1023 rows each, halo exchange on a stream of its own
//	iteration    100  largest change 0.00242
//	iteration    200  largest change 0.00121
//	iteration    300  largest change 0.000806
//	300 iterations, largest change 0.000806, 0.779 s, 25.8 GB/s, 1.61 Gpoint/s
//	communication: 226 ms a rank, 88% of it while the interior was computed
//	verify: the bits of the serial solution in all 4194304 points
//
// Waiting is most of the communication: to wait longer beside the interior costs nothing, while what --no-overlap waits
// is all lost. With more streams than cores, the waiting and the computing share a core, and less of it is hidden.
//
// One iteration of a rank, on its two streams:
//
//	halo stream     wait for the neighbours' rows | first and last own row | put them to the neighbours, with a signal
//	compute stream  all rows between them
//
// Each stream then waits for what the other has computed, never for what it has sent. Two copies of the grid take turns.
// That is all the flow control there is: a rank sends its row of iteration k after it has read, for k, the halo that its
// neighbour overwrites in k+1. The neighbour waits for that row before it computes k+1, so it cannot be too early.
//
// Every point is computed by the same operations in the same order whatever the number of ranks, and the norm is a
// maximum, which is exact in any order. So the ranks stop where one would, with the bits that one would have.
//
// Read it in this order:
//
//	main.go     the command line, and what a rank does
//	serial.go   the problem, solved by one rank: what the others must equal
//	strip.go    the rows of one rank in the symmetric heap
//	halo.go     rows to the neighbours and from them
//	solve.go    the iteration on two streams
//	meter.go    how much of the communication was hidden
//	verify.go   rank 0 gets all rows and compares
//	device.go   the same on GPUs, where
//	jacobi.cu   a kernel computes the rows and writes those at the borders into the neighbours' memory
//
// On GPUs a kernel is one iteration. Its first blocks compute the rows at the borders, piece by piece: each waits for the
// same piece of the neighbour's row, which is all that it reads of it, and puts its own into the neighbour's halo with
// a signal, while other blocks compute the rows between. The flow control is the one above, for each piece by itself.
//
// Sources: NVIDIA, "GPU Communication Libraries for Accelerating HPC and AI Applications", HOT Interconnects 2025, labs
// 3 and 4; github.com/NVIDIA/multi-gpu-programming-models.
package main
