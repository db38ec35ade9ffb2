package train

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func at(step int) status {
	return status{
		Step: step, Steps: 200, Epoch: 2, Epochs: 3, Loss: 0.34567, LearningRate: 0.001, SamplesPerSec: 4210.4,
		ExposedPercent: 2.34, Elapsed: time.Duration(step) * 30 * time.Millisecond,
	}
}

func TestPlainProgressIsALineWheneverLossesAreShared(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, "auto", 0)
	for step := 1; step <= 200; step++ {
		p.step(at(step), step%50 == 0)
	}
	p.end()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if want := "step  50/200  loss 0.3457  epoch 2/3  4210 samples/s  exposed 2.3%  lr 1.00e-03"; len(lines) != 4 || lines[0] != want {
		t.Errorf("%d lines, the first %q, want 4 and %q", len(lines), lines[0], want)
	}
	if strings.Contains(out.String(), "\r") {
		t.Error("a carriage return in plain lines")
	}
}

func TestNoProgressIsNothing(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, "none", 80)
	p.step(at(50), true)
	p.end()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

// A bar is drawn over itself, not more often than an eye can follow, and ends on a full one.
func TestBarIsOneLine(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, "auto", 100)
	for step := 1; step <= 200; step++ {
		p.step(at(step), step%50 == 0)
	}
	p.end()
	text, ok := strings.CutSuffix(out.String(), "\n")
	if !ok || strings.Contains(text, "\n") {
		t.Fatalf("more or less than one line: %q", out.String())
	}
	drawings := strings.Split(text, "\r")[1:]
	if len(drawings) < 40 || len(drawings) > 61 { // 6 s of 100 ms, the first, the last
		t.Errorf("drawn %d times in 6 s", len(drawings))
	}
	last := drawings[len(drawings)-1]
	if !strings.HasPrefix(last, "[=") || strings.Contains(last[:strings.Index(last, "]")], " ") || !strings.Contains(last, "200/200  loss 0.3457") {
		t.Errorf("the last is %q", last)
	}
}

// Whatever the width, a drawing fits, hides the one before, and tells at least the step.
func TestBarFitsItsTerminal(t *testing.T) {
	for columns := 1; columns < 200; columns++ {
		var out strings.Builder
		p := newProgress(&out, progressBar, columns)
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
		if columns > 10 && !strings.Contains(drawings[0], "100/200") {
			t.Errorf("%d columns: no step in %q", columns, drawings[0])
		}
	}
}

func TestNothingIsMadeUpBeforeTheFirstShare(t *testing.T) {
	s := at(1)
	s.Loss, s.SamplesPerSec = math.NaN(), 0
	if got := (&progress{}).plain(s); got != "step   1/200  epoch 2/3  lr 1.00e-03" {
		t.Errorf("%q", got)
	}
	s = at(3)
	s.ExposedPercent = math.NaN()
	if got := (&progress{}).plain(s); strings.Contains(got, "exposed") || !strings.Contains(got, "samples/s  lr ") {
		t.Errorf("nobody sees what is exposed: %q", got)
	}
	s.Epochs = 0
	if got := (&progress{}).plain(s); !strings.Contains(got, "epoch 2  ") {
		t.Errorf("without a limit of epochs: %q", got)
	}
}
