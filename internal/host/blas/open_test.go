package blas

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/gonum/blas"

	"github.com/symgrad/symgrad/internal/dl"
)

// multiply checks a product that is large enough for every library's threshold.
func multiply(t *testing.T, impl *Implementation) {
	t.Helper()
	const n = 64
	a, b, c := whole[float32](n*n), make([]float32, n*n), make([]float32, n*n)
	for i := range n {
		b[i*n+i] = 1
	}
	impl.Sgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, a, n, b, n, 0, c, n)
	for i := range c {
		if c[i] != a[i] {
			t.Fatalf("A times 1 differs from A at %d: %v, want %v", i, c[i], a[i])
		}
	}
}

func TestConfigValidate(t *testing.T) {
	tests := []struct {
		config Config
		want   string
	}{
		{Config{}, ""},
		{Config{Path: "libx.so", Threads: 3}, ""},
		{Config{Disable: true, Dirs: []string{"/lib"}}, ""},
		{Config{Threads: -1}, "blas: -1 threads: want 1 or more, or 0 for the library's own choice"},
		{Config{Path: "libx.so", Disable: true}, "blas: a library path is set, and libraries are disabled: remove one of the two"},
		{Config{Dirs: []string{"/[a"}}, `blas: dl: mkl: directory pattern "/[a": syntax error in pattern`},
	}
	for _, tt := range tests {
		if tt.want == "" {
			if err := tt.config.Validate(); err != nil {
				t.Errorf("%+v: %v", tt.config, err)
			}
			continue
		}
		impl, err := Open(tt.config)
		if impl != nil || err == nil || err.Error() != tt.want {
			t.Errorf("Open(%+v) = %v, %v, want %q", tt.config, impl, err, tt.want)
		}
	}
}

func TestOpenFallsBackToGonum(t *testing.T) {
	nothing := []dl.Search{
		{Name: "one", Sonames: []string{"libabsent-one.so.1"}},
		{Name: "two", Sonames: []string{"libabsent-two.so.2"}, Dirs: []string{t.TempDir()}},
	}
	impl, err := openFirst(nothing, 2)
	if err != nil {
		t.Fatal(err)
	}
	info := impl.Info()
	if info.Name != "gonum" || info.Path != "" || info.Threads != runtime.GOMAXPROCS(0) || !strings.HasPrefix(impl.String(), "gonum") {
		t.Errorf("got %+v (%s), want gonum", info, impl)
	}
	if len(info.Rejected) != 2 || !strings.HasPrefix(info.Rejected[0], "dl: one: ") || !strings.HasPrefix(info.Rejected[1], "dl: two: ") {
		t.Errorf("rejected %q, want a reason for each of the two", info.Rejected)
	}
	multiply(t, impl)
	info.Rejected[0] = "changed"
	if impl.Info().Rejected[0] == "changed" {
		t.Error("Info hands out its own slice")
	}
}

func TestOpenDisabledLooksForNothing(t *testing.T) {
	impl := mustOpen(t, Config{Disable: true})
	if info := impl.Info(); info.Name != "gonum" || len(info.Rejected) != 1 || info.Rejected[0] != "libraries are disabled by configuration" {
		t.Errorf("got %+v", info)
	}
	multiply(t, impl)
}

func TestOpenWithoutAPathIsNeverAnError(t *testing.T) {
	impl := mustOpen(t, Config{})
	if impl.Info().Name == "" || impl.String() == "" {
		t.Errorf("Info %+v", impl.Info())
	}
	multiply(t, impl)
}

func TestOpenOfABadPathIsAnError(t *testing.T) {
	notALibrary := filepath.Join(t.TempDir(), "libblas.so")
	if err := os.WriteFile(notALibrary, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/absent/libopenblas.so.0", "libabsent.so.0", notALibrary} {
		impl, err := Open(Config{Path: path})
		if impl != nil || (!errors.Is(err, dl.ErrNotFound) && !errors.Is(err, dl.ErrUnsupported)) {
			t.Fatalf("Open(%s) = %v, %v, want dl.ErrNotFound", path, impl, err)
		}
		if errors.Is(err, dl.ErrNotFound) && !strings.Contains(err.Error(), path) {
			t.Errorf("message %q does not name %s", err, path)
		}
	}
}

func TestOpenRefusesLibrariesThatWillNotDo(t *testing.T) {
	tests := []struct {
		name    string
		defines []string
		want    string
	}{
		{"64-bit integers, by trial", []string{"-DINTEGER=long"}, "its integers have 64 bits"},
		{"64-bit OpenBLAS", []string{`-DOPENBLAS="OpenBLAS 0.3.21 USE64BITINT NO_AFFINITY"`}, "its integers have 64 bits"},
		{"64-bit OpenBLAS that does not say so", []string{`-DOPENBLAS="OpenBLAS 0.3.21"`, "-DINTEGER=long"}, "its integers have 64 bits"},
		{"64-bit BLIS", []string{"-DBLIS=64"}, "its integers have 64 bits"},
		{"no double", []string{"-DONLY_SINGLE"}, `symbol "dgemm_": unsupported`},
		{"wrong scal", []string{"-DWRONG=1"}, "sscal and dscal make 43 and 43 of 2 times 21"},
		{"wrong axpy", []string{"-DWRONG=2"}, "saxpy computes wrong numbers"},
		{"wrong dot", []string{"-DWRONG=3"}, "sdot computes wrong numbers"},
		{"wrong ger", []string{"-DWRONG=4"}, "sger computes wrong numbers"},
		{"wrong gemv", []string{"-DWRONG=5"}, "sgemv computes wrong numbers"},
		{"wrong gemm", []string{"-DWRONG=6"}, "sgemm computes wrong numbers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := fake(t, "libfake.so", tt.defines...)
			impl, err := Open(Config{Path: path, Threads: 1})
			if impl != nil || !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("Open = %v, %v, want ErrRejected with %s and %q", impl, err, path, tt.want)
			}
		})
	}
}

// Debian has these builds in addition to the usual ones.
func TestOpenRefusesInstalledLibrariesWith64BitIntegers(t *testing.T) {
	for _, soname := range []string{"libopenblas64.so.0", "libblis64.so.4"} {
		t.Run(soname, func(t *testing.T) {
			impl, err := Open(Config{Path: soname})
			if errors.Is(err, dl.ErrNotFound) || errors.Is(err, dl.ErrUnsupported) && !errors.Is(err, ErrRejected) {
				t.Skipf("not installed: %v", err)
			}
			if impl != nil || !errors.Is(err, ErrRejected) {
				t.Errorf("Open = %v, %v, want ErrRejected", impl, err)
			}
		})
	}
}

func TestOpenGoesOnPastARejectedLibrary(t *testing.T) {
	bad, good := fake(t, "libbad.so", "-DINTEGER=long"), fake(t, "libgood.so")
	impl, err := openFirst([]dl.Search{
		{Name: "absent", Sonames: []string{"libabsent.so.1"}},
		{Name: "bad", Sonames: []string{"libbad.so"}, Dirs: []string{filepath.Dir(bad)}},
		{Name: "good", Sonames: []string{"libgood.so"}, Dirs: []string{filepath.Dir(good)}},
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := impl.Info()
	if info.Path != good || info.Name != "blas" || info.Threads != 0 || impl.String() != "blas, "+good {
		t.Errorf("took %+v (%s), want %s", info, impl, good)
	}
	if len(info.Rejected) != 2 || !strings.HasPrefix(info.Rejected[0], "dl: absent: library not found") ||
		!strings.HasPrefix(info.Rejected[1], bad+": library rejected: its integers have 64 bits") {
		t.Errorf("rejected %q", info.Rejected)
	}
	multiply(t, impl)
	if n := observe(t, good).calls(); n == 0 {
		t.Error("the library that was taken was not called")
	}
}

func TestOpenFindsALibraryInConfiguredDirs(t *testing.T) {
	path := fake(t, "libopenblas.so.0.conda", `-DOPENBLAS="OpenBLAS 9.9.9 NO_AFFINITY"`)
	searches := known([]string{filepath.Dir(path)})
	if searches[0].Name != "mkl" || searches[1].Name != "openblas" || searches[2].Name != "blis" {
		t.Errorf("order of search %+v", searches)
	}
	search := searches[1]
	search.Sonames = []string{filepath.Base(path)} // a name that no system library has
	impl, err := openFirst([]dl.Search{search}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := impl.String(), "openblas 9.9.9 Abacus, 8 threads, "+path; got != want {
		t.Errorf("took %q, want %q", got, want)
	}
}

func TestThreadsAreSetAndReported(t *testing.T) {
	tests := []struct {
		name    string
		defines []string
		threads int
		want    string
	}{
		{"openblas", []string{`-DOPENBLAS="OpenBLAS 0.3.21 NO_AFFINITY"`}, 3, "openblas 0.3.21 Abacus, 3 threads, "},
		{"openblas, its own choice", []string{`-DOPENBLAS="OpenBLAS 0.3.21 NO_AFFINITY"`}, 0, "openblas 0.3.21 Abacus, 8 threads, "},
		{"openblas with OpenMP", []string{`-DOPENBLAS="OpenBLAS 0.3.21 USE_OPENMP"`, "-DOPENMP", "-DPER_THREAD"}, 2, "openblas 0.3.21 Abacus, 2 threads, "},
		{"blis", []string{"-DBLIS=32"}, 3, "blis 1.2.3 abacus, 3 threads, "},
		{"blis, its own choice", []string{"-DBLIS=32"}, 0, "blis 1.2.3 abacus, 1 thread, "},
		{"blis per thread", []string{"-DBLIS=32", "-DPER_THREAD"}, 3, "blis 1.2.3 abacus, 3 threads, "},
		{"unknown", nil, 3, "blas, "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := fake(t, "libfake.so", tt.defines...)
			// A library that keeps the number per thread tells it of the calling thread.
			err := dl.OnThread(func() error {
				impl, err := Open(Config{Path: path, Threads: tt.threads})
				if err == nil && impl.String() != tt.want+path {
					t.Errorf("got %q, want %q", impl, tt.want+path)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// A goroutine calls from whatever OS thread it is on. A library that keeps its number of threads
// per OS thread must not fall back to all cores there.
func TestThreadsHoldOnEveryOSThread(t *testing.T) {
	tests := []struct {
		name    string
		defines []string
	}{
		{"openblas with OpenMP", []string{`-DOPENBLAS="OpenBLAS 0.3.21 USE_OPENMP"`, "-DOPENMP", "-DPER_THREAD"}},
		{"blis per thread", []string{"-DBLIS=32", "-DPER_THREAD"}},
		{"openblas", []string{`-DOPENBLAS="OpenBLAS 0.3.21"`}},
		{"blis", []string{"-DBLIS=32"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := fake(t, "libfake.so", tt.defines...)
			impl := takeAll(mustOpen(t, Config{Path: path, Threads: 2}))
			c := observe(t, path)
			// Calls of Open itself, before it knew, do not count.
			calls, unset := c.calls(), c.callsWith8Thread()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					runtime.LockOSThread() // and never unlocked: each goroutine has a new thread
					for range 5 {
						multiply(t, impl)
						impl.Ddot(3, whole[float64](3), 1, whole[float64](3), 1)
					}
				})
			}
			wg.Wait()
			if got := c.calls() - calls; got != 80 {
				t.Errorf("the library was called %d times, want 80", got)
			}
			if got := c.callsWith8Thread() - unset; got != 0 {
				t.Errorf("%d calls ran with the library's own number of threads", got)
			}
		})
	}
}

func TestKernelsOfOldProcessorsAreOutdated(t *testing.T) {
	for _, c := range []struct {
		info Info
		want bool
	}{
		{Info{Name: "openblas", Version: "0.3.21 Prescott"}, true},
		{Info{Name: "openblas", Version: "0.3.21 Opteron_SSE3"}, true},
		{Info{Name: "openblas", Version: "0.3.21 Haswell"}, false},
		{Info{Name: "openblas", Version: "0.3.21"}, false},
		{Info{Name: "openblas"}, false},
		{Info{Name: "blis", Version: "0.9.0 Prescott"}, false},
		{Info{Name: "gonum"}, false},
	} {
		if got := c.info.Outdated(); got != c.want {
			t.Errorf("%v: %v", c.info, got)
		}
	}
}
