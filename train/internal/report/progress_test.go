package report

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func at(step int) Status {
	return Status{
		Step: step, Steps: 200, Epoch: 2, Epochs: 3, Loss: 0.34567, LearningRate: 0.001, SamplesPerSec: 4210.4,
		ExposedPercent: 2.34, Elapsed: time.Duration(step) * 30 * time.Millisecond,
	}
}

func TestPlainProgressIsALineWheneverLossesAreShared(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out, "auto", 0)
	for step := 1; step <= 200; step++ {
		p.Step(at(step), step%50 == 0)
	}
	p.End()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if want := "step  50/200 (25%)  loss 0.3457  epoch 2/3  4210 samples/s  exposed 2.3%  lr 1.00e-03  0:02 elapsed, 0:05 left"; len(lines) != 4 || lines[0] != want {
		t.Errorf("%d lines, the first %q, want 4 and %q", len(lines), lines[0], want)
	}
	if strings.Contains(out.String(), "\r") {
		t.Error("a carriage return in plain lines")
	}
}

func TestNoProgressIsNothing(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out, "none", 80)
	p.Step(at(50), true)
	p.End()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

// A bar is drawn over itself, not more often than an eye can follow, and ends on a full one.
func TestBarIsOneLine(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out, "auto", 100)
	for step := 1; step <= 200; step++ {
		p.Step(at(step), step%50 == 0)
	}
	p.End()
	text, ok := strings.CutSuffix(out.String(), "\n")
	if !ok || strings.Contains(text, "\n") {
		t.Fatalf("more or less than one line: %q", out.String())
	}
	drawings := strings.Split(text, "\r")[1:]
	if len(drawings) < 40 || len(drawings) > 61 { // 6 s of 100 ms, the first, the last
		t.Errorf("drawn %d times in 6 s", len(drawings))
	}
	last := drawings[len(drawings)-1]
	if !strings.HasPrefix(last, "[=") || strings.Contains(last[:strings.Index(last, "]")], " ") || !strings.Contains(last, "100%  0:06 elapsed, 0:00 left  200/200  loss 0.3457") {
		t.Errorf("the last is %q", last)
	}
}

// Whatever the width, a drawing fits, hides the one before, and has percent, elapsed time and time
// left.
func TestBarFitsItsTerminal(t *testing.T) {
	for columns := 1; columns < 200; columns++ {
		var out strings.Builder
		p := NewProgress(&out, progressBar, columns)
		long, short := at(100), at(1)
		short.Loss = math.NaN()
		p.draw(p.bar(long))
		p.draw(p.bar(short))
		drawings := strings.Split(out.String(), "\r")[1:]
		for i, d := range drawings {
			if n := utf8.RuneCountInString(d); n >= columns && columns > 1 {
				t.Errorf("%d columns: drawing %d has %d", columns, i, n)
			}
		}
		if len(drawings[1]) < len(drawings[0]) {
			t.Errorf("%d columns: %q leaves something of %q", columns, drawings[1], drawings[0])
		}
		want := "50% 0:03+0:03"
		if columns > 28 {
			want = "50%  0:03 elapsed, 0:03 left"
		}
		if columns > len(want) && !strings.Contains(drawings[0], want) {
			t.Errorf("%d columns: no %q in %q", columns, want, drawings[0])
		}
	}
}

func TestNothingIsMadeUpBeforeTheFirstShare(t *testing.T) {
	s := at(1)
	s.Loss, s.SamplesPerSec = math.NaN(), 0
	if got := (&Progress{}).plain(s); got != "step   1/200 (0%)  epoch 2/3  lr 1.00e-03  0:00 elapsed, 0:06 left" {
		t.Errorf("%q", got)
	}
	s = at(3)
	s.ExposedPercent = math.NaN()
	if got := (&Progress{}).plain(s); strings.Contains(got, "exposed") || !strings.Contains(got, "samples/s  lr ") {
		t.Errorf("nobody sees what is exposed: %q", got)
	}
	s.Epochs = 0
	if got := (&Progress{}).plain(s); !strings.Contains(got, "epoch 2  ") {
		t.Errorf("without a limit of epochs: %q", got)
	}
}

func TestTimesAreClocks(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0:00", 1499 * time.Millisecond: "0:01", 63 * time.Second: "1:03", time.Hour: "1:00:00", 27*time.Hour + 125*time.Second: "27:02:05",
	} {
		if got := clock(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
	s := Status{First: 100, Step: 150, Steps: 200, Elapsed: time.Minute} // goes on from a checkpoint
	if s.left() != time.Minute || s.percent() != 75 {
		t.Errorf("%v left at %d%%", s.left(), s.percent())
	}
}

func TestEvaluationsHaveALineOfTheirOwn(t *testing.T) {
	for mode, want := range map[string]string{
		"plain": "test  50/200  loss 0.2500  accuracy 0.9000\ntest 100/200  accuracy 1.0000\n", "none": "",
		"bar": "\rtest  50/200  loss 0.2500  accuracy 0.9000\n\rtest 100/200  accuracy 1.0000\n",
	} {
		var out strings.Builder
		p := NewProgress(&out, mode, 40)
		p.Tested(50, 200, 0.25, 0.9)
		p.Tested(100, 200, math.NaN(), 1)
		if out.String() != want {
			t.Errorf("%s: %q, want %q", mode, out.String(), want)
		}
	}
}
