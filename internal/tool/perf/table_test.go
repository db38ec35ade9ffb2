package perf

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func table(t *testing.T, cfg Config, r Result) string {
	t.Helper()
	var out bytes.Buffer
	tab := NewTable(&out, "symgrad v1.2.3", cfg)
	tab.Begin(r)
	for _, row := range r.Rows {
		tab.Row(row)
	}
	if err := tab.End(r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTablesAreGolden(t *testing.T) {
	both := Config{Ops: []Op{AllReduce, Broadcast, Barrier, Atomics}, Both: true}
	golden(t, "both.txt", []byte(table(t, both, example())))

	one := example()
	one.Rows, one.Settings = one.Rows[1:2], Settings{Backend: "sim", Ranks: 2, Style: BackToBack, Private: true, Queued: true, Checks: 2}
	golden(t, "in-place.txt", []byte(table(t, Config{InPlace: true, StepBytes: 1 << 20, Iters: 20, Warmup: -1}, one)))

	device := example()
	device.Settings = Settings{
		Backend: "cuda", Ranks: 2, Style: BackToBack, Queued: true, Checks: 1, Symmetric: true, Graph: 20, Rounds: 3,
		Timing: "events", Engines: []string{"nccl", "oneshot"}, MaxCTAs: 32,
	}
	device.Ranks[0].LaunchUS = 1.8
	device.Ranks[0].Device, device.Ranks[1].Device = "NVIDIA H200 [0000:1b:00.0]", "NVIDIA H200 [0000:43:00.0]"
	device.Rows = device.Rows[:2]
	for i, row := range device.Rows[:2] {
		device.Rows[i].Engine = "nccl"
		row.Engine, row.Skipped, row.Wrong, row.TimeUS, row.AlgBW, row.BusBW = "oneshot", "not supported: too large", nil, 0, 0, 0
		device.Rows = append(device.Rows, row)
	}
	golden(t, "device.txt", []byte(table(t, Config{Both: true, Queued: true}, device)))

	unchecked := example()
	unchecked.Rows, unchecked.Settings.Checks = unchecked.Rows[3:4], 0
	golden(t, "unchecked.txt", []byte(table(t, Config{Ops: []Op{Broadcast}}, unchecked)))
}

// Rows of operations that are measured in place only are in the columns for that, and never on the
// line of another operation.
func TestRowsStandUnderTheirPlace(t *testing.T) {
	na := []string{"N/A", "N/A", "N/A", "N/A"}
	rows := []Row{
		{Op: "alltoall", Bytes: 64, Count: 8, DType: "f32", RedOp: "none", Root: -1, TimeUS: 5},
		{Op: "allreduce", Bytes: 64, Count: 16, DType: "f32", RedOp: "sum", Root: -1, InPlace: true, TimeUS: 7},
	}
	first, second := append([]string{"5.00", "N/A", "N/A", "N/A"}, na...), append(slices.Clone(na), "7.00", "N/A", "N/A", "N/A")
	for name, tc := range map[string]struct {
		cfg  Config
		want [][]string
	}{
		"mixed": {Config{Ops: []Op{AllToAll, AllReduce}, Within: []Op{AllReduce}}, [][]string{first, second}},
		"both":  {Config{Ops: []Op{AllToAll, AllReduce}, Within: []Op{AllReduce}, Both: true}, [][]string{first, second}},
		"alone": {Config{Within: []Op{AllReduce}}, [][]string{second[4:]}},
	} {
		text := table(t, tc.cfg, Result{Rows: rows[len(rows)-len(tc.want):]})
		var got [][]string
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); !strings.HasPrefix(line, "#") {
				got = append(got, words[5:])
			}
		}
		if !slices.EqualFunc(got, tc.want, slices.Equal) {
			t.Errorf("%s: %q, want %q in\n%s", name, got, tc.want, text)
		}
		if head := strings.Contains(text, "out-of-place"); head != (len(tc.want) == 2) || !strings.Contains(text, " in-place\n") {
			t.Errorf("%s: the heads of\n%s", name, text)
		}
	}
}

// Columns stand under their names, whatever the numbers are.
func TestColumnsAreAligned(t *testing.T) {
	var widths []int
	for line := range strings.Lines(table(t, Config{Both: true}, example())) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "#       size") || strings.HasPrefix(line, " ") {
			widths = append(widths, len(line))
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("%q ends in spaces", line)
		}
	}
	for _, w := range widths {
		if w != widths[0] {
			t.Fatalf("widths of lines: %v", widths)
		}
	}
}

func TestNumbersFitTheirColumns(t *testing.T) {
	for _, c := range []struct {
		x     float64
		width int
		want  string
	}{
		{0, 6, "0.0000"},
		{0.0057, 6, "0.0057"},
		{0.1024, 7, "0.102"},
		{1.005, 7, "1.00"},
		{12.345, 6, "12.35"},
		{1234.56, 6, "1234.6"},
		{12345.6, 6, "12346"},
		{1234567.8, 7, "1234568"},
		{123456789, 7, "1.2e+08"},
		{123456789, 6, "1e+08"},
	} {
		if got := number(c.x, c.width); got != c.want || len(got) > c.width {
			t.Errorf("%v in %d: %q, want %q", c.x, c.width, got, c.want)
		}
	}
}
