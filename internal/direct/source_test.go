package direct

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// clang compiles device code to PTX without CUDA; it stands in for NVRTC where there is none. NVRTC's own names are in
// testdata/prelude.h.
func clang(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("clang")
	if err != nil {
		t.Skip("no clang")
	}
	if out, err := exec.Command(path, "--print-targets").Output(); err != nil || !strings.Contains(string(out), "nvptx64") {
		t.Skip("clang has no PTX")
	}
	return path
}

// ptx is what clang makes of a kernel.
func ptx(t *testing.T, compiler string, v variant) string {
	t.Helper()
	prelude, err := os.ReadFile("testdata/prelude.h")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kernel.cu")
	if err := os.WriteFile(file, append(prelude, v.source().Text...), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"-x", "cuda", "--cuda-gpu-arch=sm_80", "-Xclang", "-target-feature", "-Xclang", "+ptx75", "-std=c++17", "-nocudainc",
		"-nocudalib", "--cuda-device-only", "-S", "-O1", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unknown-cuda-version",
		"-Wno-pass-failed", "-o", "-", file,
	}, v.defines()...)
	var errs strings.Builder
	cmd := exec.Command(compiler, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", v, err, errs.String())
	}
	return string(out)
}

func TestKernelsCompileAndFuseNothing(t *testing.T) {
	compiler := clang(t)
	var all []variant
	for i, dt := range tensor.DTypes() {
		for j := range 2 {
			all = append(all, variant{program((i + 3*j) % int(push)), 2 + i%7, dt, dist.RedKind((i + j) % int(redNone))})
		}
	}
	for _, prog := range []program{onceShort, onceLine, pull, push} {
		all = append(all, variant{prog, 1, tensor.Invalid, redNone}, variant{prog, 4, tensor.Invalid, redNone})
	}
	for _, v := range all {
		t.Run(strings.ReplaceAll(v.String(), " ", "_"), func(t *testing.T) {
			t.Parallel()
			text := ptx(t, compiler, v)
			if !strings.Contains(text, ".visible .entry "+entryName) {
				t.Errorf("no kernel %q", entryName)
			}
			for _, bad := range []string{"fma.", ".ftz", "multimem", "div.approx", "div.full"} {
				if strings.Contains(text, bad) {
					t.Errorf("the kernel has %q", bad)
				}
			}
		})
	}
}

func TestVariantsDoNotShareAnIndex(t *testing.T) {
	seen := map[int]string{}
	for prog := range programs {
		for dt := tensor.Invalid; dt <= tensor.U64; dt++ {
			for red := dist.RedSum; red <= redNone; red++ {
				v := variant{prog, 2, dt, red}
				name := fmt.Sprint(prog, dt, red)
				if other, ok := seen[v.index()]; ok {
					t.Fatalf("%s and %s have index %d", name, other, v.index())
				}
				seen[v.index()] = name
			}
		}
	}
	if want := len((&state{}).kernels); len(seen) != want {
		t.Errorf("%d indices for %d kernels", len(seen), want)
	}
}

func TestSourceHasNothingThatNVRTCLacks(t *testing.T) {
	for prog := range programs {
		v := variant{prog, 2, tensor.F32, dist.RedSum}
		text := v.source().Text
		for _, bad := range []string{"#include", "multimem", "std::", "printf"} {
			if strings.Contains(text, bad) {
				t.Errorf("%v has %q", v, bad)
			}
		}
		for _, name := range []string{"MAX_BLOCKS", "MAX_THREADS", "HELLO_AT", "SCALARS_AT", "CLOSE_AT", "OPEN_AT", "EPOCHS_AT", "TABLE_AT"} {
			if !strings.Contains(text, name) {
				t.Errorf("%v does not use %s", v, name)
			}
		}
	}
}
