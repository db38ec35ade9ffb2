package cudnn

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

func TestMissingLibraryIsAnErrorWithEverythingThatWasTried(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcudnn.so.9")
	_, err := Open(Config{Path: path})
	if !errors.Is(err, ErrLibrary) || !errors.Is(err, dl.ErrNotFound) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "nvidia-cudnn-cu13") {
		t.Errorf("error %v, want ErrLibrary that names %s and the remedy", err, path)
	}
	if !IsUnavailable(err) || IsUnavailable(cuda.ErrInvalid) || !IsUnavailable(&Error{Code: 3000}) {
		t.Error("IsUnavailable does not tell a missing library from a mistake")
	}
}

func TestFileThatIsNoLibraryIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcudnn.so.9")
	if err := os.WriteFile(path, []byte("not an object"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: path}); !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want ErrLibrary that names %s", err, path)
	}
}

// Any library will do that is on every machine and is not cuDNN.
func TestLibraryThatIsNotCuDNNIsRefused(t *testing.T) {
	_, err := Open(Config{Path: "libm.so.6"})
	if !errors.Is(err, ErrLibrary) || !errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), "cudnnGetVersion") {
		t.Errorf("error %v, want ErrLibrary that names the missing symbol", err)
	}
	m, err := dl.Open(dl.Search{Name: "cuDNN", Sonames: []string{"libm.so.6"}})
	if err != nil {
		t.Fatal(err)
	}
	// All symbols of the table are looked for, and their types are such that can be called.
	symbols := reflect.TypeFor[table]().NumField()
	if err := m.Bind(&table{}); !errors.Is(err, dl.ErrUnsupported) || strings.Contains(err.Error(), "as func") || strings.Count(err.Error(), "symbol \"cudnn") != symbols {
		t.Errorf("error %v, want one about %d missing symbols only", err, symbols)
	}
	l := &Library{lib: m}
	l.identify(92600, 13)
	notes := l.loadParts(nil)
	for _, part := range []string{"libcublasLt.so.13", "libnvrtc.so.13", "libcudnn_graph.so.9", "libcudnn_engines_tensor_ir.so.9"} {
		_, beside := dl.Open(dl.Search{Name: "part", Override: filepath.Join(filepath.Dir(m.Path()), part)})
		_, found := dl.Open(dl.Search{Name: "part", Sonames: []string{part}})
		if beside == nil || found == nil {
			continue // this machine has CUDA
		}
		if !strings.Contains(notes, part) {
			t.Errorf("%q lacks %s", notes, part)
		}
	}
	if strings.Contains(notes, "\n") {
		t.Errorf("%q has several lines", notes)
	}
	l.identify(90600, 13)
	if notes := l.loadParts(nil); strings.Contains(notes, "libcudnn_engines_tensor_ir.so.9") {
		t.Errorf("%q names what came later", notes)
	}
}

func TestConfigsThatCannotBeAreRefused(t *testing.T) {
	for name, c := range map[string]Config{"cuda": {CUDA: 13}, "NUL": {Path: "a\x00"}, "pattern": {Dirs: []string{"/a[b"}}} {
		if _, err := Open(c); !errors.Is(err, cuda.ErrInvalid) || errors.Is(err, ErrLibrary) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
}

func TestVersionsThatDoNotFitAreRefused(t *testing.T) {
	m, err := dl.Open(dl.Search{Name: "cuDNN", Sonames: []string{"libm.so.6"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		v       Version
		built   int // for this CUDA
		driver  int
		text    string
		refusal string // nothing when it fits
	}{
		{91300, 13, 13000, "9.13.0", ""},
		{90100, 12, 13000, "9.1.0", ""},
		{92602, 13, 0, "9.26.2", ""},
		{91300, 13, 12080, "9.13.0", "newer CUDA than the driver, which runs CUDA 12: update the driver, or pip install nvidia-cudnn-cu12"},
		{8907, 12, 13000, "8.9.7", "9 is needed: pip install nvidia-cudnn-cu12"},
		{100000, 14, 0, "10.0.0", "9 is needed: set the path"},
	} {
		l := &Library{lib: m}
		l.identify(c.v, c.built)
		if l.Version().String() != c.text || !strings.Contains(l.String(), "cuDNN "+c.text) || !strings.Contains(l.String(), m.Path()) || l.CUDA() != c.built {
			t.Errorf("%v, want version %s", l, c.text)
		}
		err := l.fits(Config{CUDA: c.driver})
		if c.refusal == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), c.refusal) || !strings.Contains(err.Error(), l.String()) {
			t.Errorf("%v: error %v, want ErrLibrary with %q", l, err, c.refusal)
		}
	}
}

func TestErrorsSayEverythingAndMatchWhatIsLeftToDo(t *testing.T) {
	e := &Error{
		Call: "cudnnConvolutionForward", Code: 3007, Text: "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH", Detail: "why", What: "conv f32",
		Library: "cuDNN 9.13.0 for CUDA 13 (/lib/libcudnn.so.9)",
	}
	want := "cudnnConvolutionForward for conv f32: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH (3007): why; cuDNN 9.13.0 for CUDA 13 (/lib/libcudnn.so.9): " + e.Remedy()
	if e.Error() != want || e.Remedy() == "" {
		t.Errorf("%q, want %q", e.Error(), want)
	}
	e = &Error{Call: "cudnnSetStream", Code: 4000, Text: "CUDNN_STATUS_INTERNAL_ERROR", Library: "x", Notes: "not found: y"}
	if got := e.Error(); got != "cudnnSetStream: CUDNN_STATUS_INTERNAL_ERROR (4000); x; not found: y" {
		t.Errorf("%q", got)
	}
	sentinels := []error{dl.ErrUnsupported, cuda.ErrMemory, cuda.ErrInvalid}
	for code, want := range map[int]error{
		1001: nil, 1002: dl.ErrUnsupported, 1008: dl.ErrUnsupported, 2000: cuda.ErrInvalid, 2008: cuda.ErrInvalid, 3000: dl.ErrUnsupported,
		3007: dl.ErrUnsupported, 3009: dl.ErrUnsupported, 4000: nil, 4003: cuda.ErrMemory, 4004: cuda.ErrMemory, 5000: nil,
	} {
		for _, s := range sentinels {
			if got := errors.Is(&Error{Code: code}, s); got != (s == want) {
				t.Errorf("code %d matches %v: %t", code, s, got)
			}
		}
	}
	if (&Error{Code: 5003}).Remedy() == "" || (&Error{Code: 4000}).Remedy() != "" {
		t.Error("remedies are wrong")
	}
	l := &Library{name: "cuDNN (x)", notes: "not found: y"}
	for code, noted := range map[int32]bool{1001: true, 1008: true, 3009: true, 2000: false} {
		if err := l.check("cudnnCreate", code); err == nil || strings.Contains(err.Error(), l.notes) != noted {
			t.Errorf("code %d: %v", code, err)
		}
	}
}
