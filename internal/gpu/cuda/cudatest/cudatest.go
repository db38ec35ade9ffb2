// Package cudatest provides GPUs to tests. It is the only place where tests that need them are
// skipped.
package cudatest

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// open opens the driver of the test process, which lives as long as the process.
var open = sync.OnceValues(func() (*cuda.Driver, error) {
	return cuda.Open(cuda.Config{Dirs: dl.Places(os.DirFS("/"), os.Environ())})
})

// Driver returns the driver of this process, shared by all tests. Without one the test is skipped,
// or fails if SYMGRAD_REQUIRE names cuda.
//
// Owns: the process; do not close it.
func Driver(t testing.TB) *cuda.Driver {
	t.Helper()
	d, err := open()
	if err != nil {
		Missing(t, "no GPU: %v", err)
	}
	return d
}

// Devices returns the first n GPUs of this process. With fewer the test is skipped, or fails if
// SYMGRAD_REQUIRE names cuda.
func Devices(t testing.TB, n int) []*cuda.Device {
	t.Helper()
	d := Driver(t)
	if d.Count() < n {
		Missing(t, "needs %d GPUs, there are %d", n, d.Count())
	}
	devices := make([]*cuda.Device, n)
	for i := range devices {
		v, err := d.Device(i)
		if err != nil {
			t.Fatal(err)
		}
		devices[i] = v
	}
	return devices
}

// Compiler returns NVRTC. Without it the test is skipped, or fails if SYMGRAD_REQUIRE names cuda.
func Compiler(t testing.TB) *cuda.Compiler {
	t.Helper()
	c, err := Driver(t).Compiler()
	if err != nil {
		Missing(t, "no compiler for kernels: %v", err)
	}
	return c
}

// Kernel returns the kernel name of text, compiled for v. Its module is closed with the test.
func Kernel(t testing.TB, v *cuda.Device, text, name string) *cuda.Function {
	t.Helper()
	image, err := Compiler(t).Compile(v, cuda.Source{Name: t.Name() + ".cu", Text: text})
	if err != nil {
		t.Fatal(err)
	}
	m, err := v.Load(image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := m.Function(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Names of the variable. Programs under test take the first for a setting: see Hide.
const (
	requireVar = "SYMGRAD_REQUIRE"
	hiddenVar  = "SYMGRAD_TEST_REQUIRE"
)

// Required reports whether tests that need a GPU must not be skipped: SYMGRAD_REQUIRE is a list
// that contains cuda.
func Required() bool {
	list := os.Getenv(requireVar) + "," + os.Getenv(hiddenVar)
	return slices.Contains(strings.Split(list, ","), "cuda")
}

// Hide renames the variable SYMGRAD_REQUIRE to a name that programs ignore; Required knows both. A
// TestMain calls it if its tests run programs, in their own process or in others: a program rejects
// SYMGRAD_ variables that are not settings.
func Hide() {
	list, ok := os.LookupEnv(requireVar)
	if !ok {
		return
	}
	_, _ = os.Setenv(hiddenVar, list), os.Unsetenv(requireVar) // these fail only for invalid names
}

// Missing skips the test with a reason, or fails it if Required.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if Required() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
