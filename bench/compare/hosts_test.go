package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// oursRun and libraryRun are results of one size.
func oursRun(ranks int, bytes int64, us float64) string {
	return fmt.Sprintf(`{"libraries": {"go": "go1.26"}, "settings": {"ranks": %d}, "clock": {"name": "tsc", "read_ns": 20},
		"rows": [{"op": "allreduce", "bytes": %d, "time_us": %v, "wrong": 0}]}`, ranks, bytes, us)
}

func libraryRun(ranks int, bytes int64, us float64) string {
	return fmt.Sprintf("{\"kind\": \"header\", \"ranks\": %d}\n{\"kind\": \"row\", \"op\": \"allreduce\", \"bytes\": %d, \"time_us\": %v}\n{\"kind\": \"end\"}\n",
		ranks, bytes, us)
}

func TestHostsAreComparedWithTheBetterLibrary(t *testing.T) {
	f := newFake(t)
	for name, text := range map[string]string{
		"symgrad-ucx.2x1.0.json":     oursRun(2, 8, 12),
		"symgrad-ucx.2x1.2.json":     oursRun(2, 8, 9),
		"symgrad-ucx.2x1.1.json":     oursRun(2, 64<<20, 70),
		"symgrad-openmpi.2x1.0.json": oursRun(2, 8, 20),
		"openmpi.2x1.0.json":         libraryRun(2, 8, 10),
		"openmpi.2x1.1.json":         libraryRun(2, 64<<20, 100),
		"mpich.2x1.0.json":           libraryRun(2, 8, 15),
		"mpich.2x1.1.json":           libraryRun(2, 64<<20, 110),
		"mpich.2x1.3.err":            "no end",
		"predicted.2x1.json":         `{"net": {"hosts": 2}, "rows": [{"bytes": 8, "time_us": 11.25}, {"bytes": 67108864, "time_us": 60}]}`,
		"openmpi-yield.2x2.0.json":   libraryRun(4, 8, 15),
	} {
		f.write(name, text)
	}
	r, err := readHosts(f.folder)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	r.print(&b)
	for _, want := range []string{
		"| 8 | 10.0 | 15.0 | 9.00 | 20.0 | 0.90, 2.00, - | 11.2 |",
		"| 2 hosts x 2 | openmpi-yield |\n| --- | --- |\n| 8 | 15.0 |",
		"| 2 hosts x 1, from 1M | 0.80 | 0.70 at 64M | - | - |",
		"HOLDS  2 hosts x 1, from 8, symgrad-ucx: at most 0.900 (8), limit 1.1",
		"FAILS  2 hosts x 1, from 8, symgrad-openmpi: at most 2.000 (8), limit 1.1; not measured: above 8",
		"FAILS  2 hosts x 1, from 1M, symgrad-ucx: at most 0.700 (64M), limit 0.8; not measured: below 64M",
		"FAILS  2 hosts x 2, from 8, symgrad-ucx: at most 0.000 (0), limit 0.1; not measured: all sizes",
		"| 2 hosts x 1, from 8 | 0.30 | 0.25 at 8 |",
		"HOLDS  2 hosts x 1, from 8, prediction: at most 0.250 (8), limit 0.3",
		"FAILS  3 hosts x 1, from 8, prediction: at most 0.000 (0), limit 0.3; not measured: all sizes",
		"note: no complete result in mpich.2x1.3.err",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if r.holds() || r.runs["symgrad-ucx"] != 3 {
		t.Errorf("holds %v, runs %v", r.holds(), r.runs)
	}
	name := filepath.Join(f.folder, "result.json")
	if err := save(name, r.fields()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if tables, err := markdown(raw); err != nil || !strings.Contains(tables, "| 8 | 10.0 | 15.0 | 9.00 |") {
		t.Errorf("%v\n%s", err, tables)
	}
	f.write("mpich.2x1.2.json", libraryRun(4, 8, 15))
	if _, err := readHosts(f.folder); err == nil {
		t.Error("a result of four ranks was taken for one of two")
	}
}
