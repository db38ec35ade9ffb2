package main

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/symgrad/symgrad/examples/internal/ranktest"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// The same program on GPUs, whatever moves the bytes of its barriers. It needs GPUs: see cudatest.
func TestRingOfGPUs(t *testing.T) {
	for _, test := range []struct {
		n, bytes int
		backend  string
	}{
		{1, 8, "cuda"},
		{2, 8, "cuda"},
		{2, 1 << 20, "cuda"},
		{4, 4104, "cuda"},
		{2, 8, "nccl"},
		{4, 4104, "nccl"},
		{2, 8, "nvshmem"},
		{4, 4104, "nvshmem"},
	} {
		t.Run(fmt.Sprintf("%s/%d GPUs/%d B", test.backend, test.n, test.bytes), func(t *testing.T) {
			cudatest.Devices(t, test.n)
			o := ranktest.Process(t, "--backend", test.backend, "-n", fmt.Sprint(test.n), "--rounds", "100", "--bytes", fmt.Sprint(test.bytes))
			o.Want(t, 0)
			want := fmt.Sprintf("^ring: %d ranks on [a-z]+\n%stoken: 100 rounds, %d hops of %d B, [0-9.e+]+ us a hop\n$",
				test.n, received(test.n), 100*test.n, test.bytes)
			if !regexp.MustCompile(want).MatchString(o.Stdout) {
				t.Errorf("%q, want %s", o.Stdout, want)
			}
		})
	}
}

// Kernels that wait for a lost rank end, and the error names the rank.
func TestKilledGPUEndsAll(t *testing.T) {
	cudatest.Devices(t, 2)
	for victim := range 2 {
		ranktest.WantLost(t, "ring", victim, ranktest.Kill(t, 2, victim, "--backend", "cuda", "--rounds", "1000000000"))
	}
}
