package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newGPUFolder is the folder of a session of bench/gpu.sh in the making.
func newGPUFolder(t *testing.T) *fake {
	f := &fake{t: t, folder: t.TempDir()}
	f.write("session.json", `{"date": "2026-01-02T03:04:05Z", "host": {"kernel": "6.1", "driver": "580.1", "gpus": ["G 0", "G 1"]},
		"settings": {"table": "sha256:01"}}`)
	return f
}

// gpuRowText is a row as programs write it.
func gpuRowText(op, dtype, engine string, bytes int64, us float64, rest string) string {
	return fmt.Sprintf(`{"op": %q, "dtype": %q, "engine": %q, "bytes": %d, "median_us": %v, "in_place": %v, "wrong": 0%s}`,
		op, dtype, engine, bytes, us, op == "allreduce", rest)
}

func gpuResultText(ranks, graph int, rows ...string) string {
	return fmt.Sprintf(`{"settings": {"ranks": %d, "graph": %d}, "libraries": {"nccl": "2.28.3"}, "rows": [%s]}`,
		ranks, graph, strings.Join(rows, ",\n"))
}

func TestGPUTablesShowEveryEngineAndTheBest(t *testing.T) {
	f := newGPUFolder(t)
	f.write("symgrad-queued-1.json", gpuResultText(2, 0,
		gpuRowText("allreduce", "f32", "nccl", 1024, 10, ""), gpuRowText("allreduce", "f32", "auto", 1024, 5, `, "host_us": 2`),
		gpuRowText("allreduce", "f32", "oneshot", 1024, 5.5, ""),
		gpuRowText("broadcast", "f32", "auto", 1024, 5, ""), // of no interest
		`{"op": "allgather", "dtype": "f32", "engine": "oneshot", "bytes": 1024, "median_us": 0, "skipped": "too small"}`))
	f.write("symgrad-queued-2.json", gpuResultText(2, 0,
		gpuRowText("allreduce", "f32", "nccl", 1024, 12, ""), gpuRowText("allreduce", "f32", "auto", 1024, 5.5, "")))
	f.write("symgrad-graph-1.json", gpuResultText(2, 20, gpuRowText("allreduce", "f32", "auto", 1024, 3, "")))
	f.write("torch-queued-1.json", `{"settings": {"ranks": 2, "graph": 0}, "notes": ["no symm_mem"], "libraries": {"torch": "2.11"}, "rows": [
		{"op": "allreduce", "dtype": "f32", "engine": "torch-one-shot", "bytes": 1024, "median_us": 8.4, "in_place": false}]}`)
	f.write("broken.json", `{"settings": {`)
	f.write("nccl-tests.allreduce.1.txt", `# nThread 1 nGpus 2 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
        1024           256     float     sum      -1    21.60    0.05    0.05       0    20.10    0.05    0.05       0
        1024           256    double     sum      -1    21.60    0.05    0.05       0    20.10    0.05    0.05       0
# Out of bounds values : 0 OK
`)
	code, got, _ := runCompare("gpu", f.folder)
	want := `2 GPUs; microseconds of one operation on the slowest rank, medians; sizes are those of the larger buffer of a rank

== queued, allreduce f32, in place
  size   nccl  torch-one-shot  nccl-tests  oneshot  auto      best other  faster
    1K  11.00            8.40       20.10     5.50  5.25  torch-one-shot   1.600

== graph, allreduce f32, in place
  size  nccl  torch-one-shot  nccl-tests  oneshot  auto  best other  faster
    1K     -               -           -        -  3.00           -       -

note: broken.json: incomplete result
note: no symm_mem
note: oneshot cannot allgather f32: too small
faster is the time of the best other engine over the time of auto; above 1 auto is faster
FAILS  queued allreduce f32 up to 8M: at least 1.600 times faster (1K, torch-one-shot), limit 1.150; not measured: 13 sizes from 2K to 8M
`
	if !strings.HasPrefix(got, want) || code != exitFailure {
		t.Errorf("code %d, printed\n%s\nwant it to begin with\n%s", code, got, want)
	}
}

// gpuEverything returns a session with measurements of all sizes of the criteria. auto takes 5 us
// up to 64 KiB and more above, the others take faster times as long. change may change auto's time.
func gpuEverything(ranks int, faster float64, change func(k gpuKey, us float64) float64) *gpuSession {
	s := &gpuSession{ranks: ranks, engines: []string{"nccl", "torch", auto}}
	for _, mode := range []string{modeQueued, modeGraph} {
		for _, op := range gpuOperations {
			for _, dtype := range []string{"f32", "bf16"} {
				for bytes := int64(gpuLowest); bytes <= gpuHighest; bytes *= 2 {
					k := gpuKey{mode, op.name, dtype, bytes}
					us := 5 * max(1, float64(bytes)/(64<<10))
					s.samples = append(s.samples, gpuSample{k, "nccl", us * faster, 9}, gpuSample{k, "torch", 9 * us * faster, 0})
					if change != nil {
						us = change(k, us)
					}
					if us > 0 {
						s.samples = append(s.samples, gpuSample{k, auto, us, 2.5})
					}
				}
			}
		}
	}
	return s
}

func TestGPUCriteria(t *testing.T) {
	at := func(mode, op, dtype string, bytes int64, factor float64) func(gpuKey, float64) float64 {
		return func(k gpuKey, us float64) float64 {
			if k == (gpuKey{mode, op, dtype, bytes}) {
				return us * factor
			}
			return us
		}
	}
	for _, tc := range []struct {
		name   string
		ranks  int
		change func(gpuKey, float64) float64
		want   []string // the verdicts that do not hold
	}{
		{"all is well", 2, nil, nil},
		{"all is well on four", 4, nil, nil},
		{
			"a little too slow at one size", 2, at(modeQueued, "allreduce", "f32", 8<<20, 1.05),
			[]string{"FAILS  queued allreduce f32 up to 8M: at least 1.143 times faster (8M, nccl), limit 1.150"},
		},
		{"the same on four, where that size is none of the claim", 4, at(modeQueued, "allreduce", "f32", 32<<20, 1.1), nil},
		{
			"slower than others", 4, at(modeGraph, "allgather", "bf16", 256<<20, 1.3),
			[]string{"FAILS  graph allgather bf16 up to 256M: at least 0.923 times faster (256M, nccl), limit 0.980"},
		},
		{
			"too long, but faster than others", 2, at(modeQueued, "allreduce", "f32", 32<<10, 1.21),
			[]string{
				"FAILS  queued allreduce f32 up to 8M: at least 0.992 times faster (32K, nccl), limit 1.150",
				"FAILS  queued allreduce f32 up to 64M: at least 0.992 times faster (32K, nccl), limit 1.050",
				"FAILS  queued allreduce f32 up to 64K: at most 6.05 us (32K), limit 6",
			},
		},
		{
			"not measured", 2, at(modeQueued, "reducescatter", "bf16", 2<<20, 0),
			[]string{"FAILS  queued reducescatter bf16 up to 256M: at least 1.200 times faster (1K, nccl), limit 0.980; not measured: 2M"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := gpuEverything(tc.ranks, 1.2, tc.change)
			var failing []string
			for _, v := range judgeGPUs(s, newGPUTables(s)) {
				if !v.Holds {
					failing = append(failing, v.String())
				}
			}
			if strings.Join(failing, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("these do not hold:\n%s\nwant\n%s", strings.Join(failing, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
	slow := gpuEverything(2, 1.2, nil)
	slow.launch = 2.2
	for i := range slow.samples {
		if x := &slow.samples[i]; x.engine == auto && x.gpuKey == (gpuKey{modeQueued, "allreduce", "f32", 4096}) {
			x.host = 3.1
		}
	}
	seen := 0
	for _, v := range judgeGPUs(slow, newGPUTables(slow)) {
		if v.HLimit > 0 {
			seen++
		}
		if want := "FAILS  queued allreduce f32 up to 64K: queued by the host in at most 3.10 us (4K), limit 3; an empty launch takes 2.20 us"; !v.Holds && v.String() != want {
			t.Errorf("got %s, want %s", v, want)
		} else if v.HLimit > 0 && (v.Holds || v.Mode != modeQueued) {
			t.Errorf("%s: the host takes too long, and in a graph it has no part", v)
		}
	}
	if seen != 1 {
		t.Errorf("%d verdicts on the host, want 1", seen)
	}
	for i := range slow.samples {
		slow.samples[i].host = 0
	}
	for _, v := range judgeGPUs(slow, newGPUTables(slow)) {
		if v.HLimit > 0 && (v.Holds || !strings.HasPrefix(v.Missing, "7 sizes from 1K to 64K")) {
			t.Errorf("nobody says what the host takes: %s", v)
		}
	}
	if list := judgeGPUs(&gpuSession{ranks: 2}, nil); len(list) == 0 || list[0].Holds {
		t.Errorf("nothing measured holds: %v", list)
	}
}

func TestGPUResultIsWritten(t *testing.T) {
	f := newGPUFolder(t)
	first := gpuResultText(2, 0, gpuRowText("allreduce", "f32", "nccl", 1024, 10, ""), gpuRowText("allreduce", "f32", "auto", 1024, 5, `, "host_us": 2`))
	f.write("a.json", strings.Replace(first, "{", `{"ranks": [{"rank": 0, "launch_us": 1.8}, {"rank": 1, "launch_us": 1.75}, {"rank": 2}], `, 1))
	f.write("b.json", gpuResultText(2, 0, gpuRowText("allreduce", "f32", "auto", 1024, 5, `, "host_us": 2.5`)))
	file := filepath.Join(f.folder, "out", "result.json")
	code, stdout, stderr := runCompare("gpu", "-o", file, f.folder)
	if code != exitFailure || stderr != "" || !strings.Contains(stdout, "written to "+file) {
		t.Errorf("code %d, %q, %q", code, stdout, stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Date      string
		Ranks     int
		Libraries map[string]string
		Settings  map[string]any
		Host      struct{ GPUs []string }
		Verdicts  []gpuVerdict
		Rows      []gpuRowJSON
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(got.Verdicts, func(v gpuVerdict) bool { return v.HLimit > 0 }); i < 0 || got.Verdicts[i].Launch != 1.8 {
		t.Errorf("verdicts %+v: want the time of a launch on the slowest rank with that on the host", got.Verdicts)
	}
	if got.Ranks != 2 || got.Libraries["nccl"] != "2.28.3" || got.Settings["table"] != "sha256:01" || len(got.Host.GPUs) != 2 || len(got.Verdicts) == 0 ||
		len(got.Rows) != 1 || *got.Rows[0].Faster != 2 || got.Rows[0].US["auto"] != 5 || got.Rows[0].Host != 2.25 {
		t.Errorf("%+v", got)
	}
}

func TestGPUFoldersThatAreWrong(t *testing.T) {
	good := gpuResultText(2, 0, gpuRowText("allreduce", "f32", "auto", 1024, 5, ""))
	for name, c := range map[string]struct {
		file, text string
		want       string
	}{
		"no results":             {"x.md", "", "has no results"},
		"one rank":               {"x.json", gpuResultText(1, 0), "result of 1 ranks"},
		"another number":         {"x.json", gpuResultText(4, 0), "result of 4 ranks in a session of 2"},
		"a row without a name":   {"x.json", gpuResultText(2, 0, gpuRowText("", "f32", "auto", 8, 1, "")), "invalid row: operation \"\""},
		"a row without a time":   {"x.json", gpuResultText(2, 0, gpuRowText("allreduce", "f32", "auto", 8, 0, "")), "has no time"},
		"a table without a time": {"nccl-tests.allreduce.1.txt", "8 2 float sum -1 x 0 0 0 1 0 0 0\n", "invalid syntax"},
	} {
		f := newGPUFolder(t)
		if name != "no results" {
			f.write("a.json", good)
		}
		f.write(c.file, c.text)
		if code, _, stderr := runCompare("gpu", f.folder); code != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: code %d, %q, want %q", name, code, stderr, c.want)
		}
	}
	for _, args := range [][]string{{"gpu"}, {"gpu", "a", "b"}, {"gpu", "-x"}, {"gpu", t.TempDir()}} {
		if code, _, _ := runCompare(args...); code != exitUsage {
			t.Errorf("%v: code %d", args, code)
		}
	}
}

func TestWrongResultsOfGPUsFailTheComparison(t *testing.T) {
	f := newGPUFolder(t)
	wrong := strings.Replace(gpuRowText("allreduce", "f32", "nvshmem", 1024, 5, ""), `"wrong": 0`, `"wrong": 3`, 1)
	f.write("a.json", gpuResultText(2, 0, gpuRowText("allreduce", "f32", "auto", 1024, 5, ""), wrong))
	code, got, _ := runCompare("gpu", f.folder)
	if code != exitFailure || !strings.Contains(got, "WRONG: a.json: 3 elements of allreduce f32, 1K, by nvshmem\n") || strings.Contains(got, "  nvshmem  ") {
		t.Errorf("code %d, printed\n%s", code, got)
	}
}
