package main

import (
	"strings"
	"testing"

	"github.com/symgrad/symgrad/examples/internal/ranktest"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

func TestProgramVerifiesItself(t *testing.T) {
	small := []string{"--nx", "34", "--ny", "23", "--iters", "120", "--norm-every", "50", "--verify"}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-n", "3"}, "34 x 23 points, 3 ranks on shm, 7 rows each, halo by put on a separate stream"},
		{[]string{"-n", "3", "--halo", "sendrecv"}, "34 x 23 points, 3 ranks on shm, 7 rows each, halo by sendrecv on a separate stream"},
		{[]string{"-n", "3", "--halo", "device"}, "34 x 23 points, 3 ranks on shm, 7 rows each, halo by device on a separate stream"},
		{[]string{"-n", "2", "--no-overlap"}, "2 ranks on shm, 10 or 11 rows each, halo by put on the same stream"},
		{[]string{"-n", "1"}, "no communication: one rank has all rows"},
		{[]string{"-n", "4", "--backend", "sim"}, "4 ranks on sim, 5 or 6 rows each"},
	} {
		o := ranktest.Process(t, append(test.args, small...)...)
		o.Want(t, 0, test.want, "iteration    100  largest change ", "120 iterations", "GB/s", "verify: the bits of the serial solution in all 782 points")
		if o.Stderr != "" {
			t.Errorf("%v: stderr %q", test.args, o.Stderr)
		}
	}
}

func TestRanksOfALauncherSolveToo(t *testing.T) {
	args := []string{"--nx", "20", "--ny", "20", "--verify"}
	outcomes := ranktest.Launched(t, args, args)
	outcomes[0].Want(t, 0, "2 ranks on shm", "verify: the bits of the serial solution in all 400 points")
	if o := outcomes[1]; o != (ranktest.Outcome{}) {
		t.Errorf("rank 1 ended with %+v", o)
	}
}

func TestRanksThatWereToldDifferentGridsFail(t *testing.T) {
	for r, o := range ranktest.Launched(t, []string{"--nx", "20"}, []string{"--nx", "200"}) {
		if o.Code == 0 || !strings.Contains(o.Stderr, "heap") {
			t.Errorf("rank %d: code %d, %s", r, o.Code, o.Stderr)
		}
	}
}

func TestKilledRankEndsAll(t *testing.T) {
	for _, more := range []string{"--no-overlap=false", "--no-overlap", "--halo=sendrecv", "--halo=device"} {
		for victim := range 3 {
			ranktest.WantLost(t, "jacobi", victim, ranktest.Kill(t, 3, victim, "--iters", "1000000000", "--tol", "0", more))
		}
	}
}

func TestWrongSettingsAreOneLineAndCode2(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--nx 2", "--nx 2 --ny 512: want 3 to"},
		{"--ny 0", "want 3 to"},
		{"--ny 2000000", "want 3 to"},
		{"-n 4 --ny 5", "--ny 5 has 3 inner rows for 4 ranks: want at least one each"},
		{"--iters 0", "--iters 0: want 1 or more"},
		{"--halo get", "--halo get: want one of put, sendrecv, device"},
		{"--norm-every 0", "--norm-every 0: want 1 or more"},
		{"--tol -1", "--tol -1: want 0 or more"},
		{"--tol NaN", "--tol NaN: want 0 or more"},
		{"grid.txt", `unexpected argument "grid.txt"`},
	} {
		o := ranktest.Execute(execute, strings.Fields(test.args)...)
		o.Want(t, 2, test.want)
		if strings.Count(o.Stderr, "\n") != 1 || o.Stdout != "" {
			t.Errorf("%s: %q and %q", test.args, o.Stdout, o.Stderr)
		}
	}
}
