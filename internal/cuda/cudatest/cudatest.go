// Package cudatest is how a test asks for GPUs. It is the one place where tests that need them are
// skipped.
package cudatest

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/dl"
)

// open is the driver of the test's process, which lives as long as it does.
var open = sync.OnceValues(func() (*cuda.Driver, error) {
	return cuda.Open(cuda.Config{Dirs: dl.Places(os.DirFS("/"), os.Environ())})
})

// Driver is the driver of this process, one for all tests. Without one the test is skipped, or
// fails where the variable SYMGRAD_REQUIRE names cuda.
//
// Owns: the process; it is not to be closed.
func Driver(t testing.TB) *cuda.Driver {
	t.Helper()
	d, err := open()
	if err != nil {
		Missing(t, "no GPU: %v", err)
	}
	return d
}

// Devices is the first n GPUs of this process. With fewer the test is skipped, or fails where the
// variable SYMGRAD_REQUIRE names cuda.
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

// Compiler is NVRTC. Without it the test is skipped, or fails where the variable SYMGRAD_REQUIRE
// names cuda.
func Compiler(t testing.TB) *cuda.Compiler {
	t.Helper()
	c, err := Driver(t).Compiler()
	if err != nil {
		Missing(t, "no compiler for kernels: %v", err)
	}
	return c
}

// Kernel is the kernel called name in text, compiled for v. Its module is closed with the test.
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

// The variable, and what it is called where programs are tested, which take it for a setting: see
// Hide.
const (
	requireVar = "SYMGRAD_REQUIRE"
	hiddenVar  = "SYMGRAD_TEST_REQUIRE"
)

// Required reports whether what needs a GPU must not be skipped: the variable SYMGRAD_REQUIRE is a
// list with cuda in it.
func Required() bool {
	list := os.Getenv(requireVar) + "," + os.Getenv(hiddenVar)
	return slices.Contains(strings.Split(list, ","), "cuda")
}

// Hide gives the variable SYMGRAD_REQUIRE a name that settings leave to tests; Required knows both.
// A TestMain calls it whose tests run programs, in their own process or as others: a program
// refuses variables that are no settings.
func Hide() {
	list, ok := os.LookupEnv(requireVar)
	if !ok {
		return
	}
	_, _ = os.Setenv(hiddenVar, list), os.Unsetenv(requireVar) // which only fail for names that can be none
}

// Missing skips the test with a reason, or fails it where Required.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if Required() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
