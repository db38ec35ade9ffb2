// Command jacobi solves Laplace's equation on the unit square by Jacobi's iteration, with the rows
// of the grid divided among the ranks. It shows three methods to exchange border rows, on the host
// and on GPUs, each overlapped with computation.
//
//	go run ./examples/jacobi -n 2 --nx 2048 --ny 2048 --iters 300 --verify
//	go run ./examples/jacobi -n 2 --nx 2048 --ny 2048 --iters 300 --verify --halo sendrecv
//	go run ./examples/jacobi -n 2 --nx 2048 --ny 2048 --iters 300 --no-overlap
//	go run ./examples/jacobi -n 2 --backend cuda --nx 8192 --ny 8192 --verify --halo device
//	symgrad run -n 4 -- bin/jacobi --tol 1e-4
//
// The first prints something like
//
//	jacobi: 2048 x 2048 points, 2 ranks on shm, 1023 rows each, halo by put on a separate stream
//	iteration    100  largest change 0.00242
//	iteration    200  largest change 0.00121
//	iteration    300  largest change 0.000806
//	300 iterations, largest change 0.000806, 0.779 s, 25.8 GB/s, 1.61 Gpoint/s
//	communication: 226 ms a rank, 88% of it while the interior was computed
//	verify: the bits of the serial solution in all 4194304 points
//
// Most of the communication is waiting. With two streams a rank waits while it computes the
// interior. With --no-overlap all of the waiting is exposed. With more streams than cores, waiting
// and computing share a core, and less of it is hidden.
//
// The flag --halo sets the method of exchange:
//
//	put       one-sided. The host puts a row with a signal; on GPUs the kernel that
//	          computes the border rows does both. Neighbours wait for the signal, and
//	          no rank waits for all others.
//	sendrecv  two-sided. Border rows are computed on the push stream, which then sends
//	          them and receives the neighbours' in one group call. On GPUs the push
//	          stream is the group's, of the highest priority; the compute stream has
//	          the lowest.
//	device    one-sided, with a barrier. The code that computes a border row stores it
//	          in the neighbour's halo, and a barrier on the stream completes the
//	          exchange. On GPUs the kernel calls NVSHMEM's put_nbi_block.
//
// One iteration of a rank, on its two streams:
//
//	push stream     wait for the neighbours' rows | first and last own row | send them
//	compute stream  all rows between them
//
// Each stream then waits for the rows that the other has computed. Two copies of the grid
// alternate. That is all the flow control that put needs: a rank sends its row of iteration k after
// it has read, for k, the halo that its neighbour overwrites in k+1. The neighbour waits for that
// row before it computes k+1, so it cannot be too early. With device the barrier of iteration k-1
// ensures the same order.
//
// Every point is computed by the same operations in the same order for any number of ranks, and the
// norm is a maximum, which is exact in any order. So several ranks stop after the same iteration as
// one, with the same bits.
//
// Read the files in this order:
//
//	main.go          the command line, and the function of a rank
//	serial.go        the problem, solved by one rank: the ranks' solution must equal it
//	strip.go         the rows of one rank in the symmetric heap
//	halo.go          the exchange of rows with the neighbours, by three methods
//	solve.go         the iteration on two streams
//	meter.go         the part of the communication that was hidden
//	verify.go        rank 0 gets all rows and compares
//	device.go        the same on GPUs
//	device_apart.go  the two streams of --halo sendrecv on a GPU
//	jacobi.cu        the kernel
//
// On GPUs one launch of the kernel is one iteration, except with sendrecv. With put its first
// blocks compute the border rows, in pieces. Each waits for the same piece of the neighbour's row,
// the only part of it that it reads. It puts its own piece into the neighbour's halo, followed by a
// signal, while other blocks compute the rows between. The flow control above applies to each piece
// separately.
//
// Sources: NVIDIA, "GPU Communication Libraries for Accelerating HPC and AI Applications", HOT
// Interconnects 2025, labs 3 (sendrecv) and 4 (device);
// github.com/NVIDIA/multi-gpu-programming-models.
package main
