package blas

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeMKL builds a libmkl_rt with the named parts in its folder: files whose existence decides the
// layers, or libraries that it loads.
func fakeMKL(t *testing.T, defines []string, parts ...string) string {
	t.Helper()
	path := fake(t, "libmkl_rt.so.2", defines...)
	for _, p := range parts {
		file := filepath.Join(filepath.Dir(path), p)
		if strings.HasPrefix(p, "libmkl_") {
			if err := os.WriteFile(file, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.Rename(fake(t, p), file); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestMKLChoosesTheThreadingThatIsThere(t *testing.T) {
	base := []string{"libmkl_core.so.2", "libmkl_intel_lp64.so.2", "libmkl_avx2.so.2"}
	intel := []string{"libmkl_intel_thread.so.2", "libiomp5.so"}
	sequential := "libmkl_sequential.so.2"
	tests := []struct {
		name    string
		parts   []string
		threads int
		layer   int32
		want    string
	}{
		{"several threads", append(intel, sequential), 3, mklThreadingIntel, "3 threads"},
		{"its own choice", append(intel, sequential), 0, mklThreadingIntel, "8 threads"},
		{"one thread needs no OpenMP", append(intel, sequential), 1, mklThreadingSequential, "1 thread"},
		{"one thread without the sequential part is an error of its own", nil, 1, -1, ""},
		{"GNU's OpenMP", []string{"libmkl_intel_thread.so.2", "libmkl_gnu_thread.so.2", "libgomp.so.1", sequential}, 2, mklThreadingGNU, "2 threads"},
		{"only sequential", []string{sequential}, 3, mklThreadingSequential, "1 thread"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := fakeMKL(t, []string{"-DMKL=0"}, append(base, tt.parts...)...)
			impl, err := Open(Config{Path: path, Threads: tt.threads})
			if tt.layer < 0 {
				if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "none of its threading layers is complete (libmkl_intel_thread.so.2 with libiomp5.so") {
					t.Errorf("got %v, want ErrRejected", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := impl.String(), "mkl 2024.2, "+tt.want+", "+path; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if got := observe(t, path).layer(); got != tt.layer {
				t.Errorf("threading layer %d, want %d", got, tt.layer)
			}
			multiply(t, impl)
		})
	}
}

// Missing parts make MKL end the process at its first call, so there must be none.
func TestMKLWithoutItsPartsIsNotCalled(t *testing.T) {
	tests := []struct {
		name  string
		parts []string
		want  string
	}{
		{"alone", nil, "libmkl_core.so.2 is missing in its folder"},
		{"no interface", []string{"libmkl_core.so.2"}, "libmkl_intel_lp64.so.2 is missing in its folder"},
		{"no kernels", []string{"libmkl_core.so.2", "libmkl_intel_lp64.so.2"}, "no libmkl_def.so.2, libmkl_avx2.so.2 or libmkl_avx512.so.2 in its folder"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := fakeMKL(t, []string{"-DMKL=0"}, tt.parts...)
			_, err := Open(Config{Path: path})
			if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want ErrRejected with %q", err, tt.want)
			}
			if c := observe(t, path); c.calls() != 0 || c.layer() != -1 {
				t.Errorf("%d routine calls, layer %d: the library was used", c.calls(), c.layer())
			}
		})
	}
}

func TestMKLRefusesForeignInterfaces(t *testing.T) {
	parts := []string{"libmkl_core.so.2", "libmkl_intel_lp64.so.2", "libmkl_def.so.2", "libmkl_sequential.so.2"}
	tests := []struct {
		name    string
		defines []string
		want    string // empty: taken
	}{
		{"LP64", []string{"-DMKL=0"}, ""},
		{"LP64 of the GNU kind", []string{"-DMKL=2"}, ""},
		{"ILP64 chosen elsewhere", []string{"-DMKL=1"}, "its integers have 64 bits"},
		{"ILP64 of the GNU kind", []string{"-DMKL=3"}, "its integers have 64 bits"},
		{"interface refused", []string{"-DMKL=-1"}, "MKL does not set its interface layer"},
		{"threading refused", []string{"-DMKL=0", "-DMKL_THREADING=-1"}, "MKL does not set its threading layer to 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(Config{Path: fakeMKL(t, tt.defines, parts...), Threads: 1})
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want ErrRejected with %q", err, tt.want)
			}
		})
	}
}

func TestMKLIsLoadedThroughItsDispatcher(t *testing.T) {
	_, err := Open(Config{Path: fake(t, "libmkl_intel_lp64.so.2", "-DMKL=0")})
	if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "MKL is loaded through libmkl_rt, this is libmkl_intel_lp64.so.2") {
		t.Errorf("got %v", err)
	}
}

func TestMKLVersionIsTheNumber(t *testing.T) {
	for text, want := range map[string]string{
		"Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64 architecture applications": "2024.2",
		"Intel(R) Math Kernel Library Version 2019.0.5 Product Build 20190808":                                                "2019.0.5",
		"something else": "something else",
		"":               "",
	} {
		if got := mklVersion(text); got != want {
			t.Errorf("mklVersion(%q) = %q, want %q", text, got, want)
		}
	}
}
