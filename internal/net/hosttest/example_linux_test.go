package hosttest_test

import (
	"testing"

	"github.com/symgrad/symgrad/internal/net/hosttest"
)

// TestHostsOfTheHowTo is the example of docs/how-to/test-on-several-hosts.md.
func TestHostsOfTheHowTo(t *testing.T) {
	h := hosttest.New(t, 2, hosttest.Options{})
	cmd := h.Command(1, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.Kill(1)
	if err := cmd.Wait(); err == nil {
		t.Error("the program survived its host")
	}
	h.Restart(1)
	out, err := h.MPIRun(hosttest.MPICH, []int{1, 1}, "hostname").CombinedOutput()
	if err != nil {
		t.Fatalf("mpiexec: %v: %s", err, out)
	}
}
