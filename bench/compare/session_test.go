package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	nearProbe = `{"round_trip_ns": 120, "near": true}`
	farProbe  = `{"round_trip_ns": 410, "near": false}`
)

// fake is a session folder in the making.
type fake struct {
	t      *testing.T
	folder string
	n      int // batches
}

func newFake(t *testing.T, engines ...string) *fake {
	f := &fake{t: t, folder: t.TempDir()}
	f.write("session.json", fmt.Sprintf(`{"date": "2026-01-02T03:04:05Z", "near_ns": [60, 200], "machine": {"cores": 2},
		"versions": {"go": "go1.26"}, "engines": ["%s"]}`, strings.Join(engines, `", "`)))
	return f
}

func (f *fake) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// batch is a batch whose cores were near. files are names and texts.
func (f *fake) batch(u unit, files ...string) {
	f.t.Helper()
	f.probed(u, nearProbe, nearProbe, files...)
}

// probed is a batch with answers of the probe; "" is none.
func (f *fake) probed(u unit, before, after string, files ...string) {
	f.t.Helper()
	name := fmt.Sprintf("batch-%04d/", f.n)
	f.n++
	f.write(name+"unit.json", fmt.Sprintf(`{"ranks": %d, "fresh": %v, "in_place": %v}`, u.Ranks, u.Fresh, u.InPlace))
	if before != "" {
		f.write(name+"before.json", before)
	}
	if after != "" {
		f.write(name+"after.json", after)
	}
	for i := 0; i < len(files); i += 2 {
		f.write(name+files[i], files[i+1])
	}
}

func (f *fake) read() *session {
	f.t.Helper()
	s, err := readSession(f.folder)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// rowText is a row of either program.
func rowText(u unit, op string, bytes int64, us float64, wrong int) string {
	return fmt.Sprintf(`{"kind": "row", "op": "%s", "bytes": %d, "in_place": %v, "time_us": %v, "wrong": %d}`,
		op, bytes, u.InPlace, us, wrong)
}

// collbench is the output of collbench.
func collbench(u unit, rows ...string) string {
	header := fmt.Sprintf(`{"kind": "header", "ranks": %d, "fresh": %v, "in_place": %v, "clock": {"name": "tsc", "read_ns": 10}}`,
		u.Ranks, u.Fresh, u.InPlace)
	lines := append([]string{header}, rows...)
	return strings.Join(append(lines, `{"kind": "end", "wrong": 0}`), "\n") + "\n"
}

// symgradBench is the file of symgrad bench.
func symgradBench(u unit, rows ...string) string {
	return fmt.Sprintf(`{"machine": {"host": "h"}, "libraries": {"symgrad": "v1"}, "settings": {"ranks": %d, "fresh": %v},
		"clock": {"name": "tsc", "read_ns": 9}, "rows": [%s]}`, u.Ranks, u.Fresh, strings.Join(rows, ","))
}

var plain = unit{Ranks: 2}

func TestOnlyBatchesBetweenTwoNearProbesCount(t *testing.T) {
	row := rowText(plain, "allreduce", 8, 1, 0)
	files := []string{"openmpi.jsonl", collbench(plain, row), "symgrad.json", symgradBench(plain, row)}
	for _, tc := range []struct {
		name          string
		before, after string
		kept          int
	}{
		{"near and near", nearProbe, nearProbe, 1},
		{"far before", farProbe, nearProbe, 0},
		{"far after", nearProbe, farProbe, 0},
		{"broken off before the second probe", nearProbe, "", 0},
		{"broken off before the first probe", "", "", 0},
		{"broken off in the second probe", nearProbe, `{"near": tr`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t, "symgrad", "openmpi")
			f.probed(plain, tc.before, tc.after, files...)
			s := f.read()
			want := []count{{plain, tc.kept, 1 - tc.kept}}
			if !slices.Equal(s.counts, want) {
				t.Errorf("counts %v, want %v", s.counts, want)
			}
			if len(s.samples) != 2*tc.kept {
				t.Errorf("%d samples of %d batches that count", len(s.samples), tc.kept)
			}
			if len(s.roundTrips) != 2*tc.kept {
				t.Errorf("%d round trips of %d batches that count", len(s.roundTrips), tc.kept)
			}
		})
	}
}

func TestSamplesCarryTheirUnitAndEngine(t *testing.T) {
	fresh := unit{Ranks: 4, Fresh: true, InPlace: true}
	f := newFake(t, "symgrad", "mpich")
	f.batch(plain, "mpich.jsonl", collbench(plain, rowText(plain, "barrier", 0, 0.5, 0)), "symgrad.json", symgradBench(plain))
	f.batch(fresh,
		"mpich.jsonl", collbench(fresh, rowText(fresh, "allreduce", 64, 2, 0)),
		"symgrad.json", symgradBench(fresh, rowText(fresh, "allreduce", 64, 1, 0)))
	s := f.read()
	want := []sample{
		{key{plain, "barrier", 0}, "mpich", 0.5},
		{key{fresh, "allreduce", 64}, "symgrad", 1},
		{key{fresh, "allreduce", 64}, "mpich", 2},
	}
	if !slices.Equal(s.samples, want) {
		t.Errorf("samples %v\nwant %v", s.samples, want)
	}
	if got := s.clocks["mpich"]; got != (clock{"tsc", 10}) {
		t.Errorf("clock of mpich %v", got)
	}
	if got := s.clocks["symgrad"]; got != (clock{"tsc", 9}) {
		t.Errorf("clock of symgrad %v", got)
	}
	if string(s.libraries) != `{"symgrad": "v1"}` {
		t.Errorf("libraries %s", s.libraries)
	}
}

func TestAnEngineWithoutAWholeResultIsNoted(t *testing.T) {
	row := rowText(plain, "allreduce", 8, 1, 0)
	whole := collbench(plain, row)
	for _, tc := range []struct {
		name string
		file string // "" is none
	}{
		{"no file", ""},
		{"no end", strings.Split(whole, `{"kind": "end"`)[0]},
		{"half a line", whole[:len(whole)/2]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t, "symgrad", "openmpi", "mpich")
			files := []string{"symgrad.json", symgradBench(plain, row), "mpich.jsonl", whole}
			if tc.file != "" {
				files = append(files, "openmpi.jsonl", tc.file)
			}
			f.batch(plain, files...)
			s := f.read()
			if len(s.partial) != 1 || !strings.Contains(s.partial[0], "of openmpi (2 ranks, osu, out of place)") {
				t.Errorf("notes %q, want one about openmpi", s.partial)
			}
			if len(s.samples) != 2 {
				t.Errorf("%d samples, want those of the two others", len(s.samples))
			}
		})
	}
}

func TestWrongResultsAreNotedAndLeftOut(t *testing.T) {
	right := rowText(plain, "barrier", 0, 1, 0)
	f := newFake(t, "symgrad", "openmpi")
	f.batch(plain,
		"symgrad.json", symgradBench(plain,
			rowText(plain, "allreduce", 8, 1, 3), rowText(plain, "allreduce", 32, 1, 1), rowText(plain, "alltoall", 8, 1, 2), right),
		"openmpi.jsonl", collbench(plain, rowText(plain, "allreduce", 8, 1, 1), right))
	s := f.read()
	want := []string{
		"batch-0000: results of symgrad are wrong at 2 sizes of allreduce (2 ranks, osu, out of place)",
		"batch-0000: results of symgrad are wrong at 1 sizes of alltoall (2 ranks, osu, out of place)",
		"batch-0000: results of openmpi are wrong at 1 sizes of allreduce (2 ranks, osu, out of place)",
	}
	if !slices.Equal(s.wrong, want) {
		t.Errorf("notes %q\nwant %q", s.wrong, want)
	}
	if len(s.samples) != 2 {
		t.Errorf("samples %v, want the two right ones", s.samples)
	}
}

func TestReadSessionRefuses(t *testing.T) {
	row := rowText(plain, "allreduce", 8, 1, 0)
	fresh := unit{Ranks: 2, Fresh: true}
	for _, tc := range []struct {
		name string
		file string
		text string
		want string // in the error
	}{
		{"a session that is no JSON", "session.json", "{", "session.json"},
		{"a unit that is no JSON", "batch-0000/unit.json", "2 ranks", "unit.json"},
		{"collbench of another unit", "batch-0000/openmpi.jsonl", collbench(fresh, row), "of 2 ranks, fresh, out of place"},
		{"symgrad of another number of ranks", "batch-0000/symgrad.json", symgradBench(unit{Ranks: 4}, row), "of 4 ranks"},
		{
			"symgrad in place by mistake", "batch-0000/symgrad.json",
			symgradBench(plain, rowText(unit{InPlace: true}, "allreduce", 8, 1, 0)), "in place",
		},
		{
			"symgrad without a check", "batch-0000/symgrad.json",
			symgradBench(plain, strings.Replace(row, `"wrong": 0`, `"wrong": null`, 1)), "not checked",
		},
		{"a time of nothing", "batch-0000/openmpi.jsonl", collbench(plain, rowText(plain, "barrier", 0, 0, 0)), "0 us"},
		{"a row of nothing", "batch-0000/openmpi.jsonl", collbench(plain, rowText(plain, "", 8, 1, 0)), `operation ""`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t, "symgrad", "openmpi")
			f.batch(plain, "symgrad.json", symgradBench(plain, row), "openmpi.jsonl", collbench(plain, row))
			f.read() // the only reason for rejection is the next change
			f.write(tc.file, tc.text)
			if _, err := readSession(f.folder); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
	t.Run("no batches", func(t *testing.T) {
		if _, err := readSession(newFake(t, "openmpi").folder); err == nil || !strings.Contains(err.Error(), "no batches") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		if _, err := readSession(filepath.Join(t.TempDir(), "none")); err == nil {
			t.Error("no error")
		}
	})
}
