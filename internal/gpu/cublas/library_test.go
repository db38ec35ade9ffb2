package cublas

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

func TestMissingLibraryIsAnErrorWithEverythingThatWasTried(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "libcublas.so.13")
	_, err := Open(Config{Path: path})
	if !errors.Is(err, ErrLibrary) || !errors.Is(err, dl.ErrNotFound) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "nvidia-cublas") {
		t.Errorf("error %v, want ErrLibrary that names %s and the remedy", err, path)
	}
	if !IsUnavailable(err) || IsUnavailable(cuda.ErrInvalid) {
		t.Error("IsUnavailable does not tell a missing library from a mistake")
	}
	// A search in folders looks for both parts of all versions that the driver can run.
	_, _, err = Config{Dirs: []string{dir}, CUDA: 12040}.load()
	if err != nil && (!strings.Contains(err.Error(), "libcublasLt.so.12") || strings.Contains(err.Error(), "libcublasLt.so.13")) {
		t.Errorf("error %v, want one that names what a driver for CUDA 12 can run", err)
	}
}

func TestFileThatIsNoLibraryIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcublas.so.13")
	if err := os.WriteFile(path, []byte("not an object"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: path}); !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want ErrLibrary that names %s", err, path)
	}
}

// Any library will do that is on every machine and is not cuBLAS.
func TestLibraryThatIsNotCuBLASIsRefused(t *testing.T) {
	_, err := Open(Config{Path: "libm.so.6"})
	if !errors.Is(err, ErrLibrary) || !errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), "cublasLtGetProperty") {
		t.Errorf("error %v, want ErrLibrary that names the missing symbol", err)
	}
	m, err := dl.Open(dl.Search{Name: "cuBLAS", Sonames: []string{"libm.so.6"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := use(m, m, Config{}); !errors.Is(err, ErrLibrary) || !errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), "cublasGetProperty") {
		t.Errorf("error %v, want ErrLibrary that names the missing symbol", err)
	}
	// All symbols of the tables are looked for, and their types are such that can be called.
	for _, table := range []any{&table{}, &ltTable{}} {
		err := m.Bind(table)
		if !errors.Is(err, dl.ErrUnsupported) || strings.Contains(err.Error(), "symbol \"cublas") == false || strings.Contains(err.Error(), "as func") {
			t.Errorf("error %v, want one about missing symbols only", err)
		}
	}
}

func TestConfigsThatCannotBeAreRefused(t *testing.T) {
	for name, c := range map[string]Config{"cuda": {CUDA: 13}, "old": {CUDA: 11080}, "NUL": {Path: "a\x00"}, "pattern": {Dirs: []string{"/a[b"}}} {
		if _, err := Open(c); !errors.Is(err, cuda.ErrInvalid) || errors.Is(err, ErrLibrary) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
}

func TestLibrariesForTheDriversCUDAComeFirst(t *testing.T) {
	for version, want := range map[int][]int{0: {13, 12}, 12040: {12}, 13000: {13, 12}, 14000: {13, 12}} {
		if got := (Config{CUDA: version}).majors(); !slices.Equal(got, want) {
			t.Errorf("CUDA %d: %v, want %v", version, got, want)
		}
	}
}

func TestVersionsThatDoNotFitAreRefused(t *testing.T) {
	for _, c := range []struct {
		cuda int
		v    Version
		why  string // nothing when it fits
	}{
		{0, Version{13, 0, 2}, ""},
		{0, Version{14, 0, 0}, ""},
		{13000, Version{13, 1, 0}, ""},
		{13000, Version{12, 6, 4}, ""},
		{12080, Version{13, 0, 0}, "newer than the driver, which runs CUDA 12: update the driver, or install the one of CUDA 12"},
		{0, Version{11, 11, 3}, "12 or later is needed"},
	} {
		err := Config{CUDA: c.cuda}.accepts(c.v, "cuBLAS "+c.v.String()+" (x)")
		if c.why == "" {
			if err != nil {
				t.Errorf("%v on CUDA %d: %v", c.v, c.cuda, err)
			}
			continue
		}
		if !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), c.v.String()) {
			t.Errorf("%v on CUDA %d: error %v, want ErrLibrary with %q", c.v, c.cuda, err, c.why)
		}
	}
}

func TestGPUsThatAreTooOldAreNamed(t *testing.T) {
	for _, c := range []struct {
		v            Version
		major, minor int
		ok           bool
	}{
		{Version{13, 0, 0}, 9, 0, true},
		{Version{13, 0, 0}, 7, 5, true},
		{Version{13, 0, 0}, 7, 0, false},
		{Version{12, 6, 0}, 7, 0, true},
		{Version{12, 6, 0}, 3, 5, false},
		{Version{13, 0, 0}, 10, 0, true},
	} {
		l := &Library{version: c.v, name: "cuBLAS " + c.v.String() + " (x)"}
		err := l.serves(c.major, c.minor)
		if c.ok != (err == nil) || err != nil && (!errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), l.name)) {
			t.Errorf("%v on %d.%d: %v", c.v, c.major, c.minor, err)
		}
	}
}

func TestErrorsSayEverythingAndMatchWhatIsLeftToDo(t *testing.T) {
	e := &Error{
		Call: "cublasGemmEx", Code: 15, Name: "CUBLAS_STATUS_NOT_SUPPORTED", Text: "the functionality is not supported",
		What: "gemm f32 1x2x3 nn", Library: "cuBLAS 13.0.2 (/lib/libcublas.so.13)",
	}
	want := "cublasGemmEx for gemm f32 1x2x3 nn: the functionality is not supported (CUBLAS_STATUS_NOT_SUPPORTED, 15), cuBLAS 13.0.2 (/lib/libcublas.so.13): "
	if !strings.HasPrefix(e.Error(), want) || e.Remedy() == "" || !strings.HasSuffix(e.Error(), e.Remedy()) {
		t.Errorf("%q, want %q and the remedy", e.Error(), want)
	}
	e = &Error{Call: "cublasSetStream_v2", Code: 14, Name: "CUBLAS_STATUS_INTERNAL_ERROR", Text: "an internal operation failed", Library: "x"}
	if got := e.Error(); got != "cublasSetStream_v2: an internal operation failed (CUBLAS_STATUS_INTERNAL_ERROR, 14), x" {
		t.Errorf("%q", got)
	}
	sentinels := []error{dl.ErrUnsupported, cuda.ErrMemory, cuda.ErrInvalid}
	for code, want := range map[int]error{1: nil, 3: cuda.ErrMemory, 7: cuda.ErrInvalid, 8: dl.ErrUnsupported, 13: nil, 14: nil, 15: dl.ErrUnsupported} {
		for _, s := range sentinels {
			if got := errors.Is(&Error{Code: code}, s); got != (s == want) {
				t.Errorf("code %d matches %v: %t", code, s, got)
			}
		}
	}
	// Before the library's texts are bound there is still an error.
	if err := (&Library{name: "cuBLAS (x)"}).check("cublasCreate_v2", 1); err == nil || !strings.Contains(err.Error(), "cublasCreate_v2") {
		t.Errorf("error %v", err)
	}
}
