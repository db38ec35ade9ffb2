package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/examples/internal/ranktest"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// On GPUs too the solution has the bits of the serial one: with rows of one piece and of many, with
// one row a rank, with rows that the ranks do not divide, with an end by the tolerance, and without
// overlap. It needs GPUs: see cudatest.
func TestGPUsHaveTheBitsOfOne(t *testing.T) {
	for _, test := range []struct {
		n       int
		backend string
		args    string
	}{
		{1, "cuda", "--nx 50 --ny 40 --iters 30"},
		{2, "cuda", "--nx 3 --ny 5 --iters 9 --norm-every 3"},
		{2, "cuda", "--nx 259 --ny 4 --iters 40 --norm-every 1"},
		{2, "cuda", "--nx 1000 --ny 777 --iters 300"},
		{2, "cuda", "--nx 1000 --ny 777 --iters 300 --no-overlap"},
		{4, "cuda", "--nx 600 --ny 6 --iters 200 --norm-every 1000"},
		{4, "cuda", "--nx 31 --ny 31 --iters 100000 --norm-every 10 --tol 1e-3"},
		{4, "cuda", "--nx 515 --ny 70 --iters 131 --no-overlap"},
		{2, "cuda", "--halo sendrecv --nx 1000 --ny 777 --iters 300"},
		{2, "cuda", "--halo sendrecv --nx 259 --ny 4 --iters 150 --norm-every 1 --no-overlap"},
		{4, "cuda", "--halo sendrecv --nx 515 --ny 70 --iters 131"},
		{4, "cuda", "--halo sendrecv --nx 600 --ny 6 --iters 200 --norm-every 1000"},
		{2, "cuda", "--halo device --nx 1000 --ny 777 --iters 300"},
		{4, "cuda", "--halo device --nx 515 --ny 70 --iters 131 --no-overlap"},
		{4, "cuda", "--halo device --nx 600 --ny 6 --iters 200 --norm-every 1000"},
		{2, "nccl", "--nx 300 --ny 300 --iters 150"},
		{2, "nccl", "--halo sendrecv --nx 300 --ny 300 --iters 150"},
		{2, "nvshmem", "--halo device --nx 300 --ny 300 --iters 150"},
		{2, "nvshmem", "--nx 300 --ny 300 --iters 150"},
	} {
		t.Run(fmt.Sprintf("%s/%d GPUs/%s", test.backend, test.n, test.args), func(t *testing.T) {
			cudatest.Devices(t, test.n)
			args := append([]string{"--backend", test.backend, "-n", fmt.Sprint(test.n), "--verify"}, strings.Fields(test.args)...)
			ranktest.Process(t, args...).Want(t, 0, ", halo by ", "largest change ", "verify: the bits of the serial solution in all ")
		})
	}
}

func TestRowsAreCutIntoPieces(t *testing.T) {
	for _, test := range []struct{ nx, want int }{
		{3, 1}, {pieceThreads + 2, 1}, {pieceThreads + 3, 2}, {2*pieceThreads + 2, 2}, {8192, 32},
	} {
		if got := pieces(test.nx); got != test.want {
			t.Errorf("%d points: %d pieces, want %d", test.nx, got, test.want)
		}
	}
}

// Kernels that wait for a lost rank end, and the error names the rank.
func TestKilledGPUEndsAll(t *testing.T) {
	cudatest.Devices(t, 2)
	for _, halo := range halos() {
		for victim := range 2 {
			ranktest.WantLost(t, "jacobi", victim, ranktest.Kill(t, 2, victim,
				"--backend", "cuda", "--halo", halo, "--iters", "1000000000", "--tol", "0"))
		}
	}
}
