package cudagen

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clang compiles device code without CUDA, as a replacement of NVRTC. NVRTC's built-in names are in
// testdata/prelude.h.
func clang(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("clang")
	if err != nil {
		t.Skip("no clang: the generated text is checked only by NVRTC, on a GPU")
	}
	if out, err := exec.Command(path, "--print-targets").Output(); err != nil || !strings.Contains(string(out), "nvptx64") {
		t.Skip("this clang has no target nvptx64: the generated text is checked only by NVRTC, on a GPU")
	}
	return path
}

func TestClangTakesTheText(t *testing.T) {
	compiler := clang(t)
	prelude, err := os.ReadFile("testdata/prelude.h")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := made[i]()
			if m.err != nil {
				t.Fatal(m.err)
			}
			file := filepath.Join(t.TempDir(), "program.cu")
			if err := os.WriteFile(file, slices.Concat(prelude, []byte(m.text)), 0o600); err != nil {
				t.Fatal(err)
			}
			// The loop over the elements of an empty tensor divides by its lengths, but never runs.
			cmd := exec.Command(compiler, "-x", "cuda", "--cuda-gpu-arch=sm_80", "-Xclang", "-target-feature", "-Xclang", "+ptx75", "-std=c++17",
				"-nocudainc", "-nocudalib", "--cuda-device-only", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unknown-cuda-version", "-Wno-unused-variable",
				"-Wno-unused-function", "-Wno-division-by-zero", "-ferror-limit=5", file)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

func TestCasesAreValidPrograms(t *testing.T) {
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) { made[i]().valid(t) })
	}
}
