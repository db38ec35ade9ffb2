package direct

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// clang compiles device code to PTX without CUDA; it stands in for NVRTC where there is none.
// NVRTC's own names are in testdata/prelude.h.
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

// compile is the PTX of a text.
func compile(t *testing.T, compiler, text string, defines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kernel.cu")
	if err := os.WriteFile(file, []byte(prelude+text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"-x", "cuda", "--cuda-gpu-arch=sm_80", "-Xclang", "-target-feature", "-Xclang", "+ptx75", "-std=c++17", "-nocudainc",
		"-nocudalib", "--cuda-device-only", "-S", "-O1", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unknown-cuda-version",
		"-Wno-pass-failed", "-o", "-", file,
	}, defines...)
	var errs strings.Builder
	cmd := exec.Command(compiler, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return string(out)
}

// All of one rank; of each larger number two types and reductions, others for each: steps of 7 go
// through types and reductions at once.
func TestKernelsCompileAndFuseNothing(t *testing.T) {
	compiler := clang(t)
	all := unitsOf(1)
	for n := 2; n <= MaxRanks; n++ {
		units := unitsOf(n)
		reducing := units[1:]
		all = append(all, units[0], reducing[7*(n-1)%len(reducing)], reducing[(7*(n-1)+31)%len(reducing)])
	}
	for _, u := range all {
		t.Run(strings.ReplaceAll(u.String(), " ", "_"), func(t *testing.T) {
			t.Parallel()
			text := compile(t, compiler, u.source().Text, u.defines()...)
			for _, prog := range u.programs() {
				if !strings.Contains(text, ".visible .entry "+programNames[prog]+"(") {
					t.Errorf("no kernel %q", programNames[prog])
				}
			}
			if got := strings.Count(text, ".visible .entry "); got != len(u.programs()) {
				t.Errorf("%d kernels, want %d", got, len(u.programs()))
			}
			for _, bad := range []string{"fma.", ".ftz", "multimem", "div.approx", "div.full"} {
				if strings.Contains(text, bad) {
					t.Errorf("the kernels have %q", bad)
				}
			}
		})
	}
}

// Whatever Can allows has its kernel among those that are loaded with the group, wherever its
// buffers lie.
func TestEveryOperationHasItsKernel(t *testing.T) {
	for n := 1; n <= MaxRanks; n++ {
		there := map[variant]bool{}
		for _, u := range unitsOf(n) {
			for _, prog := range u.programs() {
				v := u.variant(prog)
				if there[v] {
					t.Fatalf("%v is there twice", v)
				}
				there[v] = true
			}
		}
		used := map[variant]bool{}
		s := &state{n: n, p: &gpu.Member{Size: n}, most: MaxBlocks}
		for w := range engineKinds {
			e := s.engine(w)
			for kind := dist.KindInvalid; kind <= dist.KindSplit; kind++ {
				for _, dt := range tensor.DTypes() {
					for _, red := range dist.RedKinds() {
						op := dist.Op{Kind: kind, Red: dist.RedOp{Kind: red}, Dst: hostBuffer(room(8), 1, dt)}
						if e.Can(&op) != nil || n == 1 && copies(&op) {
							continue
						}
						for _, block := range []uint64{0, 1, shortMost, shortMost + 1, 1 << 40} {
							prog := w.programOf(kind, n, block)
							progs := []program{prog, prog.apart(false, 0), prog.apart(true, place(1, 0))}
							if w == copier && w.native(kind) && n > 1 {
								if progs = append(progs, onceShort); kind.Reduces() {
									progs = append(progs, combine)
								}
							}
							for _, p := range progs {
								v := variantOf(p, n, &op)
								if used[v] = true; !there[v] {
									t.Fatalf("%s, %v of %v %v, %d B: no kernel %v", w.name(), kind, dt, red, block, v)
								}
							}
						}
					}
				}
			}
		}
		if len(used) != len(there) {
			t.Errorf("%d ranks: %d kernels are loaded, and %d can be used", n, len(there), len(used))
		}
	}
}

func TestIntegersShareKernelsWhereSignsDoNotMatter(t *testing.T) {
	for _, c := range []struct {
		dt, want tensor.DType
		red      dist.RedKind
	}{
		{tensor.I8, tensor.U8, dist.RedSum},
		{tensor.I16, tensor.U16, dist.RedProd},
		{tensor.I64, tensor.U64, dist.RedPreMulSum},
		{tensor.I32, tensor.I32, dist.RedAvg},
		{tensor.I32, tensor.I32, dist.RedMin},
		{tensor.I8, tensor.I8, dist.RedMax},
		{tensor.U32, tensor.U32, dist.RedSum},
		{tensor.F64, tensor.F64, dist.RedSum},
		{tensor.I8, tensor.U64, dist.RedAnd},
		{tensor.U32, tensor.U64, dist.RedOr},
		{tensor.I64, tensor.U64, dist.RedXor},
	} {
		if got := unsigned(c.dt, c.red); got != c.want || got.Size() != c.dt.Size() && !c.red.Bitwise() {
			t.Errorf("%v of %v is done by %v, want %v", c.red, c.dt, got, c.want)
		}
	}
}

func TestFloorKernelsCompile(t *testing.T) {
	compiler := clang(t)
	text := compile(t, compiler, floorSource, "-DBULK")
	for _, f := range flows {
		if f.name != "engine" && !strings.Contains(text, ".visible .entry "+f.name) {
			t.Errorf("no kernel %q", f.name)
		}
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
	if want := len((&kernels{}).entries); len(seen) != want {
		t.Errorf("%d indices for %d kernels", len(seen), want)
	}
}

func TestSourceHasNothingThatNVRTCLacks(t *testing.T) {
	for prog := range programs {
		v := variant{prog, 2, tensor.F32, dist.RedSum}
		text := sourceOf([]program{prog})
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
