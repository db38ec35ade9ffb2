package cudatest

import (
	"testing"

	"github.com/symgrad/symgrad/internal/cuda"
)

// Many is Devices for a test that comes in several sizes, of which must is what every machine for
// tests has. Up to must it is Devices. A larger test is skipped on a machine that has must GPUs and
// not n, with the reason, even where Required.
func Many(t testing.TB, n, must int) []*cuda.Device {
	t.Helper()
	Devices(t, min(n, must))
	if have := Driver(t).Count(); have < n {
		t.Skipf("needs %d GPUs, there are %d; the same test with fewer is what has to run", n, have)
	}
	return Devices(t, n)
}
