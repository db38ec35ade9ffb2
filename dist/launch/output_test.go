//go:build linux

package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/symgrad/symgrad/internal/tool/cli/clitest"
)

// scriptedOutput plays a list of "stream text" on a console: 0 and 1 are the stdout of those ranks,
// e0 and e1 their stderr, $ is the launcher, . ends a stream.
func scriptedOutput(terminal bool, script []string) (out, errOut string) {
	var o, e bytes.Buffer
	if terminal {
		c := &console{out: sink{w: &o, terminal: true}, err: sink{w: &o, terminal: true}}
		play(c, true, script)
		return o.String(), ""
	}
	c := &console{out: sink{w: &o}, err: sink{w: &e}}
	play(c, false, script)
	return o.String(), e.String()
}

func play(c *console, live bool, script []string) {
	ranks := []*rankOutput{{}, {}}
	streams := map[string]*stream{
		"0": {c: c, to: &c.out, rank: ranks[0], live: live}, "e0": {c: c, to: &c.err, rank: ranks[0]},
		"1": {c: c, to: &c.out, rank: ranks[1], prefix: "[1] "}, "e1": {c: c, to: &c.err, rank: ranks[1], prefix: "[1] "},
	}
	for _, line := range script {
		name, text, _ := strings.Cut(line, " ")
		switch {
		case name == "$":
			c.printf("%s", text)
		case name[0] == '.':
			streams[name[1:]].end()
		default:
			_, _ = streams[name].Write([]byte(text)) // it never fails
		}
	}
}

func TestOutputIsPassedOnByLines(t *testing.T) {
	for _, tc := range []struct {
		name          string
		script        []string
		out, errOut   string
		outOnTerminal string // both writers; "" if it is not of interest
	}{
		{
			name:   "lines of rank 0 are as they are, the others say whose they are",
			script: []string{"0 a\nb\n", "1 c\n", "e0 d\n", "e1 e\n"},
			out:    "a\nb\n[1] c\n", errOut: "d\n[1] e\n", outOnTerminal: "a\nb\n[1] c\nd\n[1] e\n",
		}, {
			name:   "an unfinished line waits for its end",
			script: []string{"0 a", "1 c", "1 d\n", "0 b\n"},
			out:    "[1] cd\nab\n", outOnTerminal: "a\r\x1b[K[1] cd\nab\n",
		}, {
			name:   "a last line without an end",
			script: []string{"0 a", "1 b", ".1", ".0"},
			out:    "[1] b\na", outOnTerminal: "a\r\x1b[K[1] b\na\n",
		}, {
			name:   "another line ends a last line",
			script: []string{"0 a", ".0", "1 b\n"},
			out:    "a\n[1] b\n", outOnTerminal: "a\n[1] b\n",
		}, {
			name:   "progress of rank 0 is drawn below the lines of others",
			script: []string{"0 \r10%", "0 \r20%", "1 x\n", "0 \r30%", "e1 y\n", "0 \rdone\n", "1 z\n"},
			out:    "[1] x\n\r10%\r20%\r30%\rdone\n[1] z\n", errOut: "[1] y\n",
			outOnTerminal: "\r10%\r20%\r\x1b[K[1] x\n20%\r30%\r\x1b[K[1] y\n30%\rdone\n[1] z\n",
		}, {
			name:   "progress that returns after itself",
			script: []string{"0 10%\r", "1 x\n", "0 20%\r", "0 \n", "1 y\n"},
			out:    "[1] x\n10%\r20%\r\n[1] y\n", outOnTerminal: "10%\r\r\x1b[K[1] x\n10%\r20%\r\n[1] y\n",
		}, {
			name:   "progress of another rank is its last state",
			script: []string{"1 \r10%", "1 \r20%", "1 \r30%\n", "1 dos line\r\n", "1 \n"},
			out:    "[1] 30%\n[1] dos line\n[1] \n", outOnTerminal: "[1] 30%\n[1] dos line\n[1] \n",
		}, {
			name:   "the launcher speaks above the progress",
			script: []string{"0 \r10%", "$ hello", ".0", "$ bye"},
			out:    "\r10%", errOut: "symgrad: hello\nsymgrad: bye\n",
			outOnTerminal: "\r10%\r\x1b[Ksymgrad: hello\n10%\nsymgrad: bye\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, errOut := scriptedOutput(false, tc.script)
			if out != tc.out || errOut != tc.errOut {
				t.Errorf("got %q and %q\nwant %q and %q", out, errOut, tc.out, tc.errOut)
			}
			if out, _ := scriptedOutput(true, tc.script); out != tc.outOnTerminal {
				t.Errorf("on a terminal got %q\nwant %q", out, tc.outOnTerminal)
			}
		})
	}
}

func TestLongLinesAreBroken(t *testing.T) {
	long := strings.Repeat("x", lineMax)
	out, _ := scriptedOutput(false, []string{"1 " + long + long + "y\n", "1 z\n"})
	if want := "[1] " + long + "\n[1] " + long + "\n[1] y\n[1] z\n"; out != want {
		t.Errorf("got %d B, want %d", len(out), len(want))
	}
	progress := strings.Repeat("x", 3*partialMax)
	out, _ = scriptedOutput(true, []string{"0 " + progress, "1 z\n"})
	if want := progress + "\r\x1b[K[1] z\n" + progress[:partialMax]; out != want {
		t.Errorf("got %d B, want %d", len(out), len(want))
	}
}

// However the bytes are cut, lines come out whole and in the order in which they ended.
func FuzzStream(f *testing.F) {
	f.Add("a\nb\rc\n", "d\n", uint8(2))
	f.Add("\r10%\r20%", "x\ny", uint8(1))
	f.Fuzz(func(t *testing.T, a, b string, cut uint8) {
		var script []string
		step := int(cut%7) + 1
		for i := 0; i < max(len(a), len(b)); i += step {
			if i < len(a) {
				script = append(script, "0 "+a[i:min(i+step, len(a))])
			}
			if i < len(b) {
				script = append(script, "1 "+b[i:min(i+step, len(b))])
			}
		}
		out, _ := scriptedOutput(false, append(script, ".0", ".1"))
		var want []string // of rank 1
		for line := range strings.Lines(b) {
			want = append(want, "[1] "+visible([]byte(strings.TrimSuffix(line, "\n")))+"\n")
		}
		rest := out
		for _, w := range want {
			before, after, ok := strings.Cut(rest, w)
			if !ok || (before != "" && !strings.HasSuffix(before, "\n")) {
				t.Fatalf("%q lacks the line %q (before it %q)", out, w, before)
			}
			rest = after
		}
		if !strings.Contains(a, "[1]") && strings.Count(out, "[1] ") < len(want) {
			t.Fatalf("%q has not %d lines of rank 1", out, len(want))
		}
	})
}

func TestTailKeepsTheEndAndTheStartOfACrash(t *testing.T) {
	lines := func(from, to int) []string {
		var out []string
		for i := from; i < to; i++ {
			out = append(out, fmt.Sprint("line ", i))
		}
		return out
	}
	crash := []string{"panic: out of luck", "", "goroutine 1 [running]:"}
	for _, tc := range []struct {
		name      string
		add, want []string
	}{
		{"nothing", nil, nil},
		{"few lines", lines(0, 3), lines(0, 3)},
		{"many lines", lines(0, 50), lines(30, 50)},
		{"a crash at the end", append(lines(0, 30), crash...), append(lines(13, 30), crash...)},
		{
			"a crash with a long dump", slices.Concat(lines(0, 30), crash, lines(100, 150)),
			slices.Concat(crash, lines(100, 107), []string{"..."}, lines(130, 150)),
		},
		{"a crash that runs into the end", slices.Concat(crash, lines(0, 25)), slices.Concat(crash, lines(0, 25))},
		{"a crash that just touches the end", slices.Concat(crash, lines(0, 27)), slices.Concat(crash, lines(0, 27))},
	} {
		var kept tail
		for _, l := range tc.add {
			kept.add(l)
		}
		if got := kept.last(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

// Four ranks write lines in pieces at the same time: each line comes out whole, in the order of its
// rank, once.
func TestOutputOfRanksIsNotMixed(t *testing.T) {
	const lines = 200
	logs := t.TempDir()
	job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 4, LogDir: logs})
	text := make([]string, 4)
	for rank := range ranks {
		for i := range lines {
			text[rank] += fmt.Sprintf("rank %d line %d %s end\n", rank, i, strings.Repeat("-", i))
		}
	}
	for at := 0; ; at += 97 {
		some := false
		for rank, r := range ranks {
			if at < len(text[rank]) {
				r.tell(fmt.Sprintf("out %q", text[rank][at:min(at+97, len(text[rank]))]))
				some = true
			}
		}
		if !some {
			break
		}
		for rank, r := range ranks {
			if at < len(text[rank]) && r.hear() != "<nil>" {
				t.Fatal("a rank cannot write")
			}
		}
	}
	for _, r := range ranks {
		r.tell("exit 0")
	}
	job.wait()
	got := make([]string, 4)
	for line := range strings.Lines(job.out.String()) {
		rank := 0
		if text, ok := strings.CutPrefix(line, "["); ok {
			rank, line = int(text[0]-'0'), text[3:]
		}
		got[rank] += line
	}
	for rank := range ranks {
		if got[rank] != text[rank] {
			t.Errorf("rank %d: got %d B, want %d", rank, len(got[rank]), len(text[rank]))
		}
		log, err := os.ReadFile(filepath.Join(logs, fmt.Sprintf("rank-%d.log", rank)))
		if err != nil || string(log) != text[rank] {
			t.Errorf("log of rank %d: got %d B, %v, want %d", rank, len(log), err, len(text[rank]))
		}
	}
}

// brokenWriter fails every write.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputThatCannotBeWrittenStopsNoRank(t *testing.T) {
	job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 2, Stdout: brokenWriter{}})
	for _, r := range ranks {
		r.make(fmt.Sprintf("out %q", strings.Repeat("x\n", 100<<10))) // more than the pipe holds
		r.tell("exit 0")
	}
	<-job.done
	if !errors.Is(job.fail, syscall.ENOSPC) || !strings.Contains(job.fail.Error(), "output of the ranks") || job.res.Code != 0 {
		t.Errorf("got %+v, %v", job.res, job.fail)
	}
}

func TestRankZeroKnowsTheTerminal(t *testing.T) {
	screen, terminal := clitest.Terminal(t, 100)
	job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 2, Stdout: terminal, Stderr: terminal})
	for rank, want := range []string{"Columns:100 ", "Columns:0 "} {
		if got := ranks[rank].ask("whoami"); !strings.Contains(got, want) {
			t.Errorf("rank %d: got %s, want %s", rank, got, want)
		}
	}
	see := func(want string) { // reads the screen
		t.Helper()
		got := make([]byte, len(want))
		for n := 0; n < len(got); {
			m, err := screen.Read(got[n:])
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
		if string(got) != want {
			t.Fatalf("the screen shows %q, want %q", got, want)
		}
	}
	ranks[0].make(`out "\r10%"`)
	see("\r10%")
	ranks[1].make(`err "word\n"`)
	see("\r\x1b[K[1] word\r\n10%")
	ranks[0].make(`out "\rdone\n"`)
	see("\rdone\r\n")
	for _, r := range ranks {
		r.tell("exit 0")
	}
	job.wait()
}
