package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/tool/perf"
	"github.com/symgrad/symgrad/tensor"
)

// Every flag that makes no sense is one line, and exit code 2.
func TestBenchRefusesFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(file, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"extra":                          `unexpected argument "extra"`,
		"-n 0":                           "-n 0: want 1 rank or more",
		"-n 4097 --backend sim":          "-n 4097: want at most 4096 ranks",
		"-n two":                         `-n "two": want a whole number`,
		"--op allreduction":              `--op: unknown name "allreduction": use one of allreduce, reduce,`,
		"-d float128":                    `--datatype: unknown name "float128": use one of f16,`,
		"-o nand":                        `--redop: unknown name "nand": use one of sum,`,
		"--backend nccl3":                `unknown --backend "nccl3": use one of auto, shm, mpi, ucx, sim`,
		"-b -1":                          `--minbytes: "-1" is no size`,
		"-b 0":                           "--minbytes 0: want 1 or more",
		"-e 64T":                         `--maxbytes: "64T" is no size`,
		"-e 9999G":                       "want 0 to 1024G",
		"-b 1K -e 8":                     "the smallest size, 1K, is larger than the largest, 8",
		"-f 1":                           "-f 1: want 2 or more",
		"-i 1X":                          `--stepbytes: "1X" is no size`,
		"-i 1":                           "more than 65536 sizes",
		"-i 8 -f 2":                      "choose one",
		"--iters -1":                     "want 0 or more",
		"-w -1":                          "want 0 or more",
		"-c -1":                          "want 0 or more",
		"--iters 99999999":               "want 0 to 16777216",
		"-r 2":                           "root 2: want 0 to 1",
		"-G 1":                           "-G 1: backend auto has no graphs",
		"--rounds 0":                     "--rounds 0: want 1 or more",
		"--symmetric --private":          "choose one",
		"--engine nccl":                  "--engine nccl: backend auto has no engines: use --backend cuda, nccl or nvshmem",
		"--backend cuda --engine a,":     `--engine "a,": empty engine name`,
		"--backend cuda --engine a,b,a":  `--engine "a,b,a": a occurs twice`,
		"--backend shm --tune x":         "--tune: backend shm has no choice of engines",
		"--max-ctas 8":                   "--max-ctas 8: backend auto has no such setting: use --backend cuda or nccl",
		"--backend nvshmem --max-ctas 8": "--max-ctas 8: backend nvshmem has no such setting: use --backend cuda or nccl",
		"--backend cuda --max-ctas -1":   "--max-ctas -1: want 0 to 128",
		"--backend cuda --max-ctas 129":  "--max-ctas 129: want 0 to 128",
		"-G -1":                          "-G -1: want 0 or more",
		"--style mpi":                    `unknown style "mpi": use one of osu, back-to-back`,
		"--style=":                       "want osu or back-to-back",
		"--fresh --style back-to-back":   "fresh buffers need a moment",
		"--in-place --both":              "choose one",
		"--in-place-of all,none":         `--in-place-of: unknown name "none": use one of allreduce,`,
		"-n 1 --op pingpong":             "pingpong needs 2 ranks",
		"--op put --private":             "one-sided operations need the symmetric heap",
		"--in-place --op alltoall":       "has a form in place",
		"--op barrier --plot x.svg":      "--plot: barrier has no sizes",
		"--json x.svg --plot ./x.svg":    "--json and --plot: both are x.svg",
		"--plot x.pdf":                   `--plot x.pdf: unknown ending ".pdf": want .svg or .png`,
		"--plot x":                       "--plot x: the name has no ending: want .svg or .png",
		"--vs no-such-file":              "--vs: open no-such-file: no such file",
		"--vs " + file:                   "not a result of symgrad bench",
		"--no-such-flag":                 "unknown flag: --no-such-flag",
		"--op allreduce --json":          "flag needs an argument",
		"--datatype f32, --op=barrier,":  `--op: unknown name "": use one of`,
	} {
		var stdout, stderr bytes.Buffer
		code := execute(newRootCommand(), append([]string{"bench"}, strings.Fields(line)...), &stdout, &stderr)
		text := stderr.String()
		if code != exitUsage || !strings.Contains(text, want) || strings.Count(text, "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%s: code %d, stdout %q, stderr %q, want one line with %q", line, code, &stdout, text, want)
		}
	}
}

func TestBenchFlagsBecomeAConfig(t *testing.T) {
	parse := func(line string) perf.Config {
		t.Helper()
		f := newBenchFlags()
		cmd := newBenchCommand()
		cmd.ResetFlags()
		f.addTo(cmd)
		if err := errors.Join(cmd.ParseFlags(strings.Fields(line)), f.parse()); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return f.cfg
	}
	c := parse("-b 1K -e 1.5M -i 512 -w 0 -c 0 -d half,u8 -o mulsum,avg -r 1 --op gather --both --pin=false")
	if c.MinBytes != 1024 || c.MaxBytes != 3<<19 || c.StepBytes != 512 || c.Warmup != -1 || c.Checks != -1 || c.Root != 1 {
		t.Errorf("%+v", c)
	}
	if c.Ops[0] != perf.Gather || c.DTypes[1] != tensor.U8 || c.RedOps[0] != dist.RedPreMulSum || !c.Both || c.Pin {
		t.Errorf("%+v", c)
	}
	if c := parse(""); c.Warmup != 0 || c.Checks != 1 || !c.Pin || c.Style != "" || !c.Symmetric || c.Rounds != 1 || c.MaxBytes != 64<<20 {
		t.Errorf("without flags: %+v", c)
	}
	if a, b := parse("--warmup_iters 3"), parse("--warmup-iters=3"); a.Warmup != 3 || b.Warmup != 3 {
		t.Errorf("%d and %d iterations to warm up", a.Warmup, b.Warmup)
	}
}

// The command line of the ranks means the same as this one.
func TestBenchRanksGetTheSameFlags(t *testing.T) {
	first := newBenchCommand()
	f := newBenchFlags()
	first.ResetFlags()
	f.addTo(first)
	if err := first.ParseFlags(strings.Fields("-n 3 -e 4K --both -d f32,f64 --pin=false --warmup_iters 0 --backend cuda --max_ctas 32")); err != nil {
		t.Fatal(err)
	}
	g := newBenchFlags()
	second := newBenchCommand()
	second.ResetFlags()
	g.addTo(second)
	if err := errors.Join(second.ParseFlags(f.args()), f.parse(), g.parse()); err != nil {
		t.Fatal(err)
	}
	if g.ranks != 3 || g.cfg.Warmup != -1 || g.cfg.MaxBytes != f.cfg.MaxBytes || g.cfg.Pin || !g.cfg.Both || len(g.cfg.DTypes) != 2 {
		t.Errorf("%q becomes %+v", f.args(), g.cfg)
	}
	if w := g.world(nil); w.MaxCTAs != 32 || w.Backend != "cuda" || w.Validate() != nil {
		t.Errorf("%q opens %+v", f.args(), w)
	}
}

// Wrong results are exit code 1, after everything has been written.
func TestBenchFailsOnWrongResults(t *testing.T) {
	wrong := int64(7)
	res := perf.Result{
		Settings: perf.Settings{Ranks: 2, Checks: 1},
		Rows:     []perf.Row{{Op: "allreduce", Bytes: 8, TimeUS: 1, MedianUS: 1, Wrong: &wrong}},
	}
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "r.json")
	b := bench{flags: &benchFlags{json: file}, stdout: &out}
	err := b.finish(res, perf.NewTable(&out, "v", perf.Config{}))
	if !errors.As(err, new(wrongResults)) || err.Error() != "bench: 7 elements were wrong: see the table" {
		t.Errorf("error %v", err)
	}
	if back, err := readResult(file); err != nil || back.Wrong() != 7 || !strings.Contains(out.String(), ": 7 FAILED\n") {
		t.Errorf("written: %+v, %v, table %q", back, err, &out)
	}
	if errors.As(err, new(usageError)) || errors.As(err, new(*exitError)) {
		t.Error("wrong results are taken for a wrong command line")
	}
}

func TestBenchReportsAFullDisk(t *testing.T) {
	var stderr bytes.Buffer
	args := strings.Fields("bench --backend sim -n 2 -e 8 --iters 1")
	if code := execute(newRootCommand(), args, fullDisk{}, &stderr); code != exitFailure || !strings.Contains(stderr.String(), "write the output: no space left") {
		t.Errorf("code %d, stderr %q", code, &stderr)
	}
	b := bench{flags: &benchFlags{plot: filepath.Join(t.TempDir(), "none", "x.svg")}, stdout: io.Discard}
	if err := b.finish(perf.Result{}, perf.NewTable(io.Discard, "v", perf.Config{})); err == nil || !strings.Contains(err.Error(), "--plot: open ") {
		t.Errorf("a plot in no folder: %v", err)
	}
}
