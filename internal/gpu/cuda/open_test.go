package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/dl/dltest"
)

// library is a library that is not a driver and that every machine has.
func library(t *testing.T, soname string) *dl.Library {
	t.Helper()
	l, err := dl.Open(dl.Search{Name: soname, Sonames: []string{soname}})
	if errors.Is(err, dl.ErrUnsupported) {
		t.Skipf("no libraries on this platform: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestConfigRefusesWhatCannotBe(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"nothing set", Config{}, ""},
		{"all set", Config{Driver: "/lib/libcuda.so.1", NVRTC: "libnvrtc.so.13", CacheDir: "/var/cache/x", Dirs: []string{"/opt/*/lib"}}, ""},
		{"NUL in Driver", Config{Driver: "a\x00"}, `cuda: invalid argument: NUL byte in Driver "a\x00"`},
		{"NUL in NVRTC", Config{NVRTC: "a\x00"}, `cuda: invalid argument: NUL byte in NVRTC "a\x00"`},
		{"NUL in CacheDir", Config{CacheDir: "/a\x00"}, `cuda: invalid argument: NUL byte in CacheDir "/a\x00"`},
		{"relative CacheDir", Config{CacheDir: "cache"}, `cuda: invalid argument: CacheDir "cache" is not absolute`},
		{"malformed pattern", Config{Dirs: []string{"/a[b"}}, `cuda: invalid argument: dl: cuda: directory pattern "/a[b": syntax error in pattern`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.cfg.Validate()
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || err.Error() != tt.want || !errors.Is(err, ErrInvalid) {
				t.Errorf("Validate: %v, want %s", err, tt.want)
			}
			if d, err := Open(tt.cfg); d != nil || err == nil || err.Error() != tt.want {
				t.Errorf("Open: %v, want %s", err, tt.want)
			}
		})
	}
}

func TestCacheIsTheUsersUnlessItIsSet(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/home/u/.cache")
	if got := (Config{}).cacheDir(); got != "/home/u/.cache/symgrad/kernels" {
		t.Errorf("got %q", got)
	}
	if got := (Config{CacheDir: "/x"}).cacheDir(); got != "/x" {
		t.Errorf("got %q", got)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got := (Config{}).cacheDir(); got != "" {
		t.Errorf("without a home: %q, want none", got)
	}
}

func TestOpenWithoutADriverSaysWhatWasTried(t *testing.T) {
	library(t, "libm.so.6")
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	_, err := Open(Config{Driver: missing})
	if !errors.Is(err, dl.ErrNotFound) {
		t.Fatalf("got %v, want dl.ErrNotFound", err)
	}
	for _, want := range []string{missing, "cannot open shared object file", "install NVIDIA's driver"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestOpenRefusesWhatIsNoDriver(t *testing.T) {
	m := library(t, "libm.so.6")
	_, err := Open(Config{Driver: m.Path()})
	if !errors.Is(err, dl.ErrUnsupported) {
		t.Fatalf("got %v, want dl.ErrUnsupported", err)
	}
	for _, want := range []string{"cuda: " + m.Path() + " is not a library of the driver", "cuDriverGetVersion"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestDriversThatAreTooOldAreRefused(t *testing.T) {
	m := library(t, "libm.so.6")
	for version, ok := range map[int]bool{11080: false, 11999: false, 12000: true, 12040: true, 13000: true, 14010: true} {
		d := &Driver{lib: m}
		err := d.accept(version)
		if ok && (err != nil || d.Version() != version || d.String() != "CUDA "+versionText(version)+" ("+m.Path()+")") {
			t.Errorf("%d: %v, version %d, %s", version, err, d.Version(), d)
		}
		if !ok && (!errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(),
			m.Path()+" is a driver for CUDA "+versionText(version)+", the minimum is 12.0: update NVIDIA's driver to 525 or later")) {
			t.Errorf("%d: %v", version, err)
		}
	}
}

func TestOpenAsksTheDriverForItsVersionFirst(t *testing.T) {
	old := dltest.Compile(t, "libcuda.so.1", "testdata/version.c", "-DVERSION=11080")
	if _, err := Open(Config{Driver: old}); !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), old+" is a driver for CUDA 11.8") {
		t.Errorf("error %v, want ErrTooOld that names %s and its version", err, old)
	}
	empty := dltest.Compile(t, "libcuda.so.1", "testdata/version.c", "-DVERSION=13000")
	if _, err := Open(Config{Driver: empty}); !errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), "CUDA 13.0 ("+empty+")") {
		t.Errorf("error %v, want ErrUnsupported that names %s and what it lacks", err, empty)
	}
}

func TestDeviceNumbersAreThoseThatThereAre(t *testing.T) {
	d := &Driver{name: "CUDA 13.0 (libcuda)", devices: make([]*Device, 2)}
	for _, i := range []int{-1, 2, 1 << 40} {
		if v, err := d.Device(i); v != nil || !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "sees 2 devices, numbered from 0") {
			t.Errorf("Device(%d) = %v, %v", i, v, err)
		}
	}
}

func TestNVRTCIsTheDriversOrOlder(t *testing.T) {
	library(t, "libm.so.6")
	dir := t.TempDir()
	d := &Driver{version: 13000, cfg: Config{Dirs: []string{dir}}}
	for _, name := range []string{"libnvrtc.so.12", "libnvrtc.so.13"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("no library"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := d.openNVRTC()
	if err == nil {
		t.Skip("this machine has an NVRTC where the loader looks")
	}
	if !errors.Is(err, dl.ErrNotFound) {
		t.Fatalf("got %v, want dl.ErrNotFound", err)
	}
	newer, older := strings.Index(err.Error(), filepath.Join(dir, "libnvrtc.so.13")), strings.Index(err.Error(), filepath.Join(dir, "libnvrtc.so.12"))
	if newer < 0 || older < newer || !strings.Contains(err.Error(), "nvidia-cuda-nvrtc") {
		t.Errorf("%q does not name both, the newer first, and where it comes from", err)
	}
	d.version = 12040
	if _, err := d.openNVRTC(); err == nil || strings.Contains(err.Error(), "libnvrtc.so.13") {
		t.Errorf("for a driver of CUDA 12: %v, want it to look for 12 only", err)
	}
}

func TestNVRTCThatIsSetIsTheOnlyOne(t *testing.T) {
	m := library(t, "libm.so.6")
	missing := filepath.Join(t.TempDir(), "libnvrtc.so.13")
	d := &Driver{version: 13000, cfg: Config{NVRTC: missing}}
	if _, err := d.Compiler(); !errors.Is(err, dl.ErrNotFound) || !strings.Contains(err.Error(), missing) || strings.Contains(err.Error(), "libnvrtc.so.12") {
		t.Errorf("a missing one: %v", err)
	}
	d.cfg.NVRTC = m.Path()
	if _, err := d.Compiler(); !errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), m.Path()) || !strings.Contains(err.Error(), "nvrtcCompileProgram") {
		t.Errorf("another library: %v", err)
	}
}

func TestBuiltinsAreLookedForBesideNVRTC(t *testing.T) {
	m := library(t, "libm.so.6")
	c := &Compiler{lib: m, major: 13, minor: 7}
	err := c.openBuiltins(nil)
	beside := filepath.Join(filepath.Dir(m.Path()), "libnvrtc-builtins.so.13.7")
	if !errors.Is(err, dl.ErrNotFound) || !strings.Contains(err.Error(), beside) {
		t.Errorf("got %v, want dl.ErrNotFound with %s", err, beside)
	}
}

func TestSourceThatNoCompilerWouldTake(t *testing.T) {
	const text = "extern \"C\" __global__ void k() {}"
	tests := []struct {
		name string
		src  Source
		want string
	}{
		{"fine", Source{Text: text, Options: []string{"--std=c++17", "-DN=4"}}, ""},
		{"empty", Source{Name: "a.cu", Text: " \n"}, "cuda: invalid argument: a.cu is empty"},
		{"NUL in text", Source{Text: text + "\x00"}, "cuda: invalid argument: kernel.cu: NUL byte in its name, text or options"},
		{"NUL in option", Source{Text: text, Options: []string{"-D\x00"}}, "cuda: invalid argument: kernel.cu: NUL byte in its name, text or options"},
		{"architecture", Source{Text: text, Options: []string{"--gpu-architecture=sm_70"}}, "cuda: invalid argument: kernel.cu: option --gpu-architecture=sm_70: the architecture is the device's"},
		{"short for it", Source{Text: text, Options: []string{"-arch=sm_70"}}, "cuda: invalid argument: kernel.cu: option -arch=sm_70: the architecture is the device's"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.src.validate()
			if got := errorText(err); got != tt.want || err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestDeviceThatNVRTCDoesNotKnow(t *testing.T) {
	c := &Compiler{name: "NVRTC 12.2 (libnvrtc)", archs: []int{80, 90}}
	v := &Device{major: 10, name: "GPU", pci: "0000:01:00.0"}
	_, err := c.Compile(v, Source{Text: "x"})
	if want := "cuda: too old: NVRTC 12.2 (libnvrtc) compiles for sm_[80 90], and cuda:0 (GPU, 0000:01:00.0) is sm_100: install a newer one and set its path"; errorText(err) != want || !errors.Is(err, ErrTooOld) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestKernelsAreKeptByAllThatTheyDependOn(t *testing.T) {
	m := library(t, "libm.so.6")
	c := func(minor int) *Compiler { return &Compiler{lib: m, major: 13, minor: minor} }
	src := Source{Name: "a.cu", Text: "text"}
	keys := map[string]string{
		"reference":     c(0).key(src, []string{"sm_90", "-DN=1"}),
		"other version": c(1).key(src, []string{"sm_90", "-DN=1"}),
		"other arch":    c(0).key(src, []string{"sm_80", "-DN=1"}),
		"other option":  c(0).key(src, []string{"sm_90", "-DN=2"}),
		"no option":     c(0).key(src, []string{"sm_90"}),
		"other text":    c(0).key(Source{Name: "a.cu", Text: "text2"}, []string{"sm_90", "-DN=1"}),
		"other name":    c(0).key(Source{Name: "b.cu", Text: "text"}, []string{"sm_90", "-DN=1"}),
		"other library": (&Compiler{lib: library(t, "libc.so.6"), major: 13}).key(src, []string{"sm_90", "-DN=1"}),
	}
	for a, x := range keys {
		for b, y := range keys {
			if a != b && x == y {
				t.Errorf("%s and %s have one key", a, b)
			}
		}
	}
	if keys["reference"] != c(0).key(src, []string{"sm_90", "-DN=1"}) {
		t.Error("the same has another key")
	}
}
