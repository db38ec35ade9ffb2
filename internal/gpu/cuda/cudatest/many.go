package cudatest

import (
	"testing"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Many is Devices for a test of several sizes. Every test machine has must GPUs, so for n up to
// must it is Devices. A larger test is skipped, even if Required, on a machine that has at least
// must but fewer than n GPUs.
func Many(t testing.TB, n, must int) []*cuda.Device {
	t.Helper()
	Devices(t, min(n, must))
	if have := Driver(t).Count(); have < n {
		t.Skipf("needs %d GPUs, there are %d; the same test with fewer GPUs must run", n, have)
	}
	return Devices(t, n)
}
