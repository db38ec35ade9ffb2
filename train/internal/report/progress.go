package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Status is the state of a run for a progress display.
type Status struct {
	Step, Steps    int     // done, total
	First          int     // done by the run that this one resumes
	Epoch, Epochs  int     // from 1; 0 epochs means no limit
	Loss           float64 // last shared loss, NaN before the first
	LearningRate   float64
	SamplesPerSec  float64 // of all ranks
	ExposedPercent float64 // NaN if unknown
	Elapsed        time.Duration
}

// The modes of log.progress.
const (
	progressBar   = "bar"   // one line that is redrawn
	progressPlain = "plain" // one line every log.every steps
	progressNone  = "none"
)

// redraw is the shortest time between two drawings of a bar: often enough to look alive, and cheap.
const redraw = 100 * time.Millisecond

// The least width of a bar, and the line width from which on the bar has priority over the last
// facts.
const (
	leastBar   = 6
	roomForBar = 60
)

// Progress shows the progress of a run on rank 0.
type Progress struct {
	out     io.Writer
	mode    string
	columns int           // of the terminal
	drawn   time.Duration // last drawing, since the start of the run; 0 for never
	width   int           // of the text on the line
}

// NewProgress returns a Progress in the given mode. columns is the width of the terminal; 0 means
// no terminal.
func NewProgress(out io.Writer, how string, columns int) *Progress {
	p := &Progress{out: out, mode: how, columns: columns}
	if how == "auto" {
		p.mode = progressPlain
		if columns > 0 {
			p.mode = progressBar
		}
	}
	if p.columns == 0 {
		p.columns = 80
	}
	return p
}

// Step is called after each step. shared means that s.Loss is the loss of this step.
func (p *Progress) Step(s Status, shared bool) {
	switch {
	case p.mode == progressPlain && shared:
		fmt.Fprintln(p.out, p.plain(s))
	case p.mode == progressBar && (p.drawn == 0 || s.Elapsed-p.drawn >= redraw || s.Step == s.Steps):
		p.drawn = s.Elapsed
		p.draw(p.bar(s))
	}
}

// Tested prints the result of an evaluation after so many of all steps; loss is NaN if it is
// unknown.
func (p *Progress) Tested(step, steps int, loss, accuracy float64) {
	if p.mode == progressNone {
		return
	}
	text := fmt.Sprintf("test %*d/%d  ", len(fmt.Sprint(steps)), step, steps)
	if !math.IsNaN(loss) {
		text += fmt.Sprintf("loss %.4f  ", loss)
	}
	text += fmt.Sprintf("accuracy %.4f", accuracy)
	if p.mode == progressPlain {
		fmt.Fprintln(p.out, text)
		return
	}
	p.draw(text) // over the bar, which the next step draws on a new line
	p.width = 0
	fmt.Fprintln(p.out)
}

// End leaves the bar in place and starts a new line.
func (p *Progress) End() {
	if p.mode == progressBar && p.drawn > 0 {
		fmt.Fprintln(p.out)
	}
}

// draw writes text over the line.
func (p *Progress) draw(text string) {
	pad := max(0, p.width-len(text))
	p.width = len(text)
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", pad))
}

// facts returns the parts of a line, most important first.
func (p *Progress) facts(s Status) []string {
	epoch := fmt.Sprintf("epoch %d", s.Epoch)
	if s.Epochs > 0 {
		epoch += fmt.Sprintf("/%d", s.Epochs)
	}
	rate := fmt.Sprintf("lr %.2e", s.LearningRate)
	if math.IsNaN(s.Loss) { // before the first share
		return []string{epoch, rate}
	}
	facts := []string{fmt.Sprintf("loss %.4f", s.Loss), epoch, fmt.Sprintf("%.0f samples/s", s.SamplesPerSec)}
	if !math.IsNaN(s.ExposedPercent) {
		facts = append(facts, fmt.Sprintf("exposed %.1f%%", s.ExposedPercent))
	}
	return append(facts, rate)
}

// plain returns the line "step 50/1407 (3%) loss 0.3401 epoch 1/3 ... 0:03 elapsed, 1:21 left",
// with two spaces between its parts.
func (p *Progress) plain(s Status) string {
	width := len(fmt.Sprint(s.Steps))
	head := fmt.Sprintf("step %*d/%d (%d%%)", width, s.Step, s.Steps, s.percent())
	return strings.Join(append(append([]string{head}, p.facts(s)...), s.times()), "  ")
}

// percent returns the finished part of the run.
func (s Status) percent() int { return 100 * s.Step / max(s.Steps, 1) }

// left returns the remaining time if the remaining steps take as long as the steps so far.
func (s Status) left() time.Duration {
	if s.Step <= s.First {
		return 0
	}
	return time.Duration(float64(s.Elapsed) / float64(s.Step-s.First) * float64(s.Steps-s.Step))
}

// times returns "0:03 elapsed, 1:21 left".
func (s Status) times() string { return clock(s.Elapsed) + " elapsed, " + clock(s.left()) + " left" }

// clock formats d as "1:02" or "1:02:03", in whole seconds.
func clock(d time.Duration) string {
	seconds := int64(d.Round(time.Second) / time.Second)
	if hours := seconds / 3600; hours > 0 {
		return fmt.Sprintf("%d:%02d:%02d", hours, seconds/60%60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

// bar returns a line with the percentage, the elapsed and remaining time, as many other facts as
// fit, and a bar in the remaining space. A narrow terminal gets only the first three, as "42%
// 1:03+2:10".
func (p *Progress) bar(s Status) string {
	room := p.columns - 1 // a full line would wrap on some terminals
	text := fmt.Sprintf("%d%%  %s", s.percent(), s.times())
	if len(text) > room {
		text = fmt.Sprintf("%d%% %s+%s", s.percent(), clock(s.Elapsed), clock(s.left()))
		return text[:min(len(text), max(room, 0))]
	}
	reserved := 0
	if room >= roomForBar {
		reserved = leastBar + len("[] ")
	}
	for _, fact := range append([]string{fmt.Sprintf("%d/%d", s.Step, s.Steps)}, p.facts(s)...) {
		if len(text)+2+len(fact) > room-reserved {
			break
		}
		text += "  " + fact
	}
	if width := min(room-len(text)-len("[] "), 40); width >= leastBar {
		full := width * s.Step / max(s.Steps, 1)
		text = "[" + strings.Repeat("=", full) + strings.Repeat(" ", width-full) + "] " + text
	}
	return text
}
