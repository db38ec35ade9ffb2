package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// Every flag that makes no sense is one line, and exit code 2.
func TestTuneRefusesFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(file, []byte(`{"version": 7}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"extra":                       `unexpected argument "extra"`,
		"-n 0":                        "-n 0: want 1 rank or more",
		"-n 4097":                     "-n 4097: want at most 4096 ranks",
		"--op allreduction":           `--op: unknown name "allreduction": use one of allreduce, reduce,`,
		"--op sendrecv":               "--op: sendrecv has one engine only, or no sizes: use some of allreduce,reducescatter,allgather",
		"--op onesided":               "has one engine only",
		"-d float128":                 `--datatype: unknown name "float128": use one of f16,`,
		"-o nand":                     `--redop: unknown name "nand": use one of sum,`,
		"-o xor":                      "--redop: xor shares the table class of prod: use prod",
		"-o premulsum":                "--redop: premulsum shares the table class of avg: use avg",
		"-o sum,min,max":              "--redop: max shares a table class with an earlier one",
		"-b 3K":                       "are not powers of two",
		"-b 0":                        "--minbytes 0: want 1 or more",
		"-e 64T":                      `--maxbytes: "64T" is no size`,
		"-b 1M -e 1K":                 "sizes from 1048576 B down to 1024 B",
		"--rounds -1":                 "want 0 or more",
		"--out=":                      "--out is empty",
		"--merge --out " + file:       "--merge: backend: " + file,
		"--merge --out no/such/x -n0": "-n 0: want 1 rank or more",
		"--no-such-flag":              "unknown flag: --no-such-flag",
	} {
		var stdout, stderr bytes.Buffer
		code := execute(newRootCommand(), append([]string{"tune"}, strings.Fields(line)...), &stdout, &stderr)
		text := stderr.String()
		if code != exitUsage || !strings.Contains(text, want) || strings.Count(text, "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%s: code %d, stdout %q, stderr %q, want one line with %q", line, code, &stdout, text, want)
		}
	}
}

func TestTuneFlagsBecomeATuning(t *testing.T) {
	cmd := newTuneCommand()
	u := &tune{source: newSource()}
	cmd.ResetFlags()
	u.addTo(cmd)
	if err := errors.Join(cmd.ParseFlags(strings.Fields("--op allreduce,alltoall -d half,u8 -o sum,max,avg -b 8 -e 64M --rounds 7 --set gpu.nccl=/a,b.so --set run.seed=3 --set comm.max_ctas=32 --merge")), u.parse()); err != nil {
		t.Fatal(err)
	}
	g := u.tuning
	if !slices.Equal(g.Kinds, []dist.Kind{dist.KindAllReduce, dist.KindAllToAll}) || !slices.Equal(g.DTypes, []tensor.DType{tensor.F16, tensor.U8}) {
		t.Errorf("%+v", g)
	}
	if len(g.Reductions) != 3 || g.Reductions[1].Kind != dist.RedMax || g.Smallest != 8 || g.Largest != 64<<20 || g.Rounds != 7 || u.earlier != nil {
		t.Errorf("%+v", g)
	}
	// The command line of the ranks means the same as this one, including lists.
	again := &tune{source: newSource()}
	second := newTuneCommand()
	second.ResetFlags()
	again.addTo(second)
	if err := errors.Join(second.ParseFlags(u.args()), again.parse(), again.settings()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.source.Set, u.source.Set) || again.cfg.NCCL != "/a,b.so" || again.cfg.Backend != "cuda" || again.cfg.MaxCTAs != 32 || !again.merge || again.tuning.Rounds != 7 {
		t.Errorf("%q becomes %+v", u.args(), again)
	}
}

func TestBothBuffersLieInOneStepOfTheHeap(t *testing.T) {
	for largest, want := range map[int64]int64{1: 2 << 30, 512 << 20: 2 << 30, 1 << 30: 4 << 30, 1 << 61: backend.MaxHeapStep} {
		if got := heapStep(largest); got != want {
			t.Errorf("up to %d B: %d, want %d", largest, got, want)
		}
	}
}

// On a machine without a driver each rank says so, and the exit code is that of a failure.
func TestTuneWithoutADriver(t *testing.T) {
	var stdout, stderr bytes.Buffer
	out := filepath.Join(t.TempDir(), "t.json")
	code := execute(newRootCommand(), []string{"tune", "-n", "1", "--set", "gpu.driver=/absent/libcuda.so.1", "--out", out}, &stdout, &stderr)
	for _, want := range []string{"backend cuda, rank 0 of 1", "/absent/libcuda.so.1", "NVIDIA's driver"} {
		if code != exitFailure || !strings.Contains(stderr.String(), want) {
			t.Errorf("code %d, stderr %q, want %q", code, &stderr, want)
		}
	}
	if _, err := os.Stat(out); err == nil || stdout.Len() > 0 {
		t.Errorf("a table was written: %q", &stdout)
	}
}

// A file that cannot be written is reported before minutes of measuring, not after.
func TestFilesThatCannotBeWrittenAreToldFirst(t *testing.T) {
	dir := t.TempDir()
	for line, want := range map[string]string{
		"tune -n 1 --out " + dir + "/none/t.json":                            "--out: open " + dir + "/none/t.json: no such file or directory",
		"tune -n 1 --out " + dir:                                             "--out: open " + dir + ": is a directory",
		"bench --backend sim --iters 1 -e 8 --json " + dir:                   "--json: open " + dir + ": is a directory",
		"bench --backend sim --iters 1 -e 8 --plot " + dir + "/none/now.svg": "--plot: open " + dir + "/none/now.svg: no such file or directory",
	} {
		var stdout, stderr bytes.Buffer
		code := execute(newRootCommand(), strings.Fields(line), &stdout, &stderr)
		if code != exitFailure || stderr.String() != "symgrad: "+want+"\n" || stdout.Len() > 0 {
			t.Errorf("%s: code %d, stdout %q, stderr %q, want %q", line, code, &stdout, &stderr, want)
		}
	}
}

// aTable returns a table measured on 2 and on 4 GPUs.
func aTable() *gpu.Table {
	row := func(ranks int, bytes int64, symmetric bool, timings ...gpu.Timing) gpu.Row {
		return gpu.Row{Kind: "allreduce", DType: "f32", Reduction: "sum", Symmetric: symmetric, Ranks: ranks, Bytes: bytes, Timings: timings}
	}
	return &gpu.Table{
		Version: 1, Machine: "NVIDIA H200",
		Rows: []gpu.Row{
			row(2, 2048, true, gpu.Timing{Engine: "oneshot", Microseconds: 5.5}, gpu.Timing{Engine: "nccl", Microseconds: 10}),
			row(2, 1024, true, gpu.Timing{Engine: "nccl", Microseconds: 10}, gpu.Timing{Engine: "oneshot", Microseconds: 5.4}),
			row(2, 4096, true, gpu.Timing{Engine: "nccl", Microseconds: 9}, gpu.Timing{Engine: "oneshot", Microseconds: 9.5}),
			row(4, 1024, false, gpu.Timing{Engine: "twoshot", Microseconds: 7}, gpu.Timing{Engine: "nccl", Microseconds: 7}),
		},
		Rules: []gpu.Rule{
			{Ranks: 2, Bytes: 1 << 20, Engines: []string{"oneshot", "nccl"}},
			{Kinds: []string{"broadcast", "reduce"}, Bytes: 2 << 20, Engines: []string{"ll", "nccl"}},
			{Engines: []string{"nccl"}},
		},
	}
}

func TestTableTextNamesTheFastest(t *testing.T) {
	want := []string{
		"allreduce f32 sum, symmetric, 2 ranks: oneshot to 2K, nccl to 4K",
		"allreduce f32 sum, private, 4 ranks: nccl to 1K",
		"other reductions: as sums; other types: as bf16 if they have two bytes, else as f32",
		"others, 2 ranks, to 1M: oneshot, nccl",
		"broadcast and reduce, if not measured, to 2M: ll, nccl",
		"others: nccl",
		"during computation, symmetric, from 32M: copy, if it can",
	}
	if got := tableText(aTable(), 0); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := tableText(aTable(), 4); !slices.Equal(got, []string{want[1], want[2], want[4], want[5], want[6]}) {
		t.Errorf("for 4 ranks: %q", got)
	}
	if got := tableText(&gpu.Table{}, 0); len(got) != 0 {
		t.Errorf("of an empty table: %q", got)
	}
}

func TestTunePrinterMarksTheFastest(t *testing.T) {
	var b bytes.Buffer
	p := &tunePrinter{w: &b}
	for _, r := range aTable().Rows {
		p.row(r)
	}
	want := `
allreduce f32 sum, symmetric, 2 ranks
       2K  *oneshot 5.5 us   nccl 10.0 us
       1K   nccl 10.0 us  *oneshot 5.4 us
       4K  *nccl 9.0 us   oneshot 9.5 us

allreduce f32 sum, private, 4 ranks
       1K   twoshot 7.0 us  *nccl 7.0 us
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
	full := &tunePrinter{w: fullDisk{}}
	full.row(aTable().Rows[0])
	if full.err == nil {
		t.Error("a full disk is not noticed")
	}
}

func TestMergedKeepsWhatWasNotMeasuredAgain(t *testing.T) {
	later := aTable()
	later.Rows = later.Rows[:1]
	later.Rows[0].Timings[0].Microseconds = 4
	all, err := merged(aTable(), later)
	if err != nil || len(all.Rows) != 4 || all.Rows[0].Timings[0].Microseconds != 4 || len(later.Rows) != 1 {
		t.Errorf("%v, %+v", err, all)
	}
	other := aTable()
	other.Machine = "NVIDIA L4"
	if _, err := merged(other, later); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `"NVIDIA L4"`) {
		t.Errorf("tables of two kinds of GPU: %v", err)
	}
}

// The whole command on two GPUs: see the script.
func TestTuneOnGPUs(t *testing.T) {
	if d := cudatest.Driver(t); d.Count() < 2 {
		cudatest.Missing(t, "needs 2 GPUs, there are %d", d.Count())
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/gpu", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error { // where libraries are found, and compiled kernels kept
			for _, name := range []string{"LD_LIBRARY_PATH", "CUDA_HOME", "NCCL_HOME", "NVSHMEM_HOME", "VIRTUAL_ENV", "PYTHONPATH", "CUDA_VISIBLE_DEVICES"} {
				if v, ok := os.LookupEnv(name); ok {
					e.Setenv(name, v)
				}
			}
			e.Setenv("XDG_CACHE_HOME", e.WorkDir)
			return nil
		},
	})
}
