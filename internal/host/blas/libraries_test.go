package blas

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/dl/dltest"
)

// requireEnv, set to 1, makes a test fail that would skip for want of a BLAS library. CI sets it,
// so that it cannot be green by skipping.
const requireEnv = "SYMGRAD_REQUIRE_BLAS"

// fake compiles testdata/fake.c with the given defines and returns the library's path, with the
// given name.
func fake(t testing.TB, name string, defines ...string) string {
	t.Helper()
	return dltest.Compile(t, name, filepath.Join("testdata", "fake.c"), defines...)
}

// counters are the fake library's observations.
type counters struct {
	calls            func() int   `dl:"fake_calls"`
	callsWith8Thread func() int   `dl:"fake_calls_with_8_threads"`
	layer            func() int32 `dl:"fake_layer"`
}

func observe(t testing.TB, path string) counters {
	t.Helper()
	lib, err := dl.Open(dl.Search{Name: "fake", Override: path})
	if err != nil {
		t.Fatal(err)
	}
	var c counters
	if err := lib.Bind(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

func mustOpen(t testing.TB, c Config) *Implementation {
	t.Helper()
	impl, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return impl
}

// takeAll makes the library take every size, so that a test of small sizes is a test of the
// library.
func takeAll(i *Implementation) *Implementation {
	i.single.least, i.double.least = thresholds{}, thresholds{}
	return i
}

// eachLibrary runs test as a subtest for the fake library and for every installed one; the library
// takes every size.
func eachLibrary(t *testing.T, threads int, test func(t *testing.T, impl *Implementation)) {
	t.Run("fake", func(t *testing.T) {
		test(t, takeAll(mustOpen(t, Config{Path: fake(t, "libfake.so")})))
	})
	installed := 0
	for _, s := range known(nil) {
		t.Run(s.Name, func(t *testing.T) {
			impl := installedLibrary(t, s, threads)
			installed++
			if s.Name == "blis" && threads > 1 {
				t.Skip("BLIS's threads spin while they wait for each other: with other work on the machine that takes minutes")
			}
			test(t, takeAll(impl))
		})
	}
	if installed == 0 && os.Getenv(requireEnv) == "1" && !t.Failed() {
		t.Errorf("%s=1 and none of the libraries is installed", requireEnv)
	}
}

// installedLibrary opens one of the known libraries, or skips: several are seldom installed
// together.
func installedLibrary(t testing.TB, s dl.Search, threads int) *Implementation {
	t.Helper()
	impl, err := Open(Config{Path: s.Sonames[0], Threads: threads})
	switch {
	case errors.Is(err, dl.ErrNotFound), errors.Is(err, dl.ErrUnsupported):
		t.Skipf("%s is not installed: %v", s.Name, err)
	case err != nil:
		t.Fatal(err)
	}
	return impl
}
