package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/internal/tool/perf"
)

// maxed is a transport that reduces by the wrong operation.
type maxed struct{ dist.Transport }

func (m maxed) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	if op.Kind == dist.KindAllReduce && op.Count >= 64 { // those that are measured
		op.Red = dist.Max
	}
	return m.Transport.Start(op, s)
}

// parsedBench returns a bench with the flags of a command line.
func parsedBench(t *testing.T, line string) *bench {
	t.Helper()
	f := newBenchFlags()
	cmd := newBenchCommand()
	cmd.ResetFlags()
	f.addTo(cmd)
	if err := errors.Join(cmd.ParseFlags(strings.Fields(line)), f.parse()); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return &bench{flags: f}
}

// measureWrong runs a bench on two ranks that reduce wrongly.
// Returns: the output of rank 0 and the error.
func measureWrong(t *testing.T, line string) (table string, err error) {
	t.Helper()
	ends, err := sim.Transports(2, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var errs [2]error
	var outs [2]bytes.Buffer
	var wg sync.WaitGroup
	for r, end := range ends {
		b := parsedBench(t, line)
		b.stdout = &outs[r]
		w, err := dist.NewWorld(maxed{end}, dist.LocalInfo{Rank: r, Size: 2}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { errs[r] = errors.Join(b.rank(t.Context(), w, perf.Setup{}, nil), w.Close()) })
	}
	wg.Wait()
	if errs[1] != nil || outs[1].Len() > 0 {
		t.Errorf("rank 1: %v, output %q", errs[1], &outs[1])
	}
	return outs[0].String(), errs[0]
}

const wrongLine = "-b 4K -e 4K --iters 2 --pin=false --private"

// Wrong results are an error of a rank, unless who has started it takes the verdict.
func TestBenchRankLeavesAVerdict(t *testing.T) {
	table, err := measureWrong(t, wrongLine)
	var wrong wrongResults
	if !errors.As(err, &wrong) || wrong < 100 || !strings.Contains(table, fmt.Sprintf(": %d FAILED\n", int64(wrong))) {
		t.Errorf("without a place for it: %v, table\n%s", err, table)
	}
	file := filepath.Join(t.TempDir(), "verdict")
	if _, err := measureWrong(t, wrongLine+" --verdict="+file); err != nil {
		t.Errorf("with a place for it: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != fmt.Sprintln(int64(wrong)) {
		t.Errorf("the verdict is %q, %v, want %d", text, err, int64(wrong))
	}
	none := filepath.Join(t.TempDir(), "none", "verdict")
	if _, err := measureWrong(t, wrongLine+" --verdict="+none); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "write the verdict") {
		t.Errorf("a verdict in no folder: %v", err)
	}
}

// fakeRanks is a program that is started as ranks of a bench: rank 0 prints a table and leaves a
// verdict as a rank does. It gets a temporary directory of its own, which must be empty at the end.
func fakeRanks(t *testing.T, body string) (program string) {
	t.Helper()
	dir, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	text := "#!/bin/sh\n[ \"$SYMGRAD_RANK\" = 0 ] || exit 0\nfor a; do :; done\n" + body + "\n" // $a is the last argument
	program = filepath.Join(dir, "ranks")
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
			t.Errorf("%v are left in the temporary directory, %v", left, err)
		}
	})
	return program
}

// The table of a bench with wrong results is printed once, and one line says that they are wrong.
func TestBenchShowsAWrongTableOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "verdict")
	table, err := measureWrong(t, wrongLine+" --verdict="+file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const leave = `printf '%s' "$TABLE"; printf '%s' "$VERDICT" > "${a#--verdict=}"`
	t.Setenv("TABLE", table)
	t.Setenv("VERDICT", string(text))
	program := fakeRanks(t, leave)
	var stdout, stderr bytes.Buffer
	b := parsedBench(t, wrongLine)
	b.stdout, b.stderr = &stdout, &stderr
	err = b.spawn(t.Context(), program)
	var wrong wrongResults
	if !errors.As(err, &wrong) || fmt.Sprintln(int64(wrong)) != string(text) || errors.As(err, new(*exitError)) {
		t.Errorf("error %v, want %s wrong elements", err, text)
	}
	if stdout.String() != table || stderr.Len() > 0 {
		t.Errorf("stdout %q, want the table once; stderr %q, want nothing", &stdout, &stderr)
	}
}

// A rank without a verdict is right, one that fails is reported by the launcher, and a verdict is a
// number.
func TestBenchWithoutWrongResults(t *testing.T) {
	for body, want := range map[string]struct {
		err    string
		stderr string
	}{
		"echo table":                          {},
		"echo table; echo broken >&2; exit 3": {stderr: "its last lines:"},
		`echo many > "${a#--verdict=}"`:       {err: "read the verdict"},
	} {
		t.Run(body, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			b := parsedBench(t, wrongLine)
			b.stdout, b.stderr = &stdout, &stderr
			err := b.spawn(t.Context(), fakeRanks(t, body))
			var exit *exitError
			switch {
			case want.stderr != "":
				if !errors.As(err, &exit) || exit.code != 3 || exit.err != nil || !strings.Contains(stderr.String(), want.stderr) {
					t.Errorf("error %#v, stderr %q", err, &stderr)
				}
			case want.err != "":
				if err == nil || !strings.Contains(err.Error(), want.err) {
					t.Errorf("error %v, want %q", err, want.err)
				}
			case err != nil || stdout.String() != "table\n" || stderr.Len() > 0:
				t.Errorf("error %v, stdout %q, stderr %q", err, &stdout, &stderr)
			}
		})
	}
}
