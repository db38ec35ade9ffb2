package train

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// status is the state of a run at some moment.
type status struct {
	Step, Steps    int     // made, in all
	First          int     // made by a run before this one
	Epoch, Epochs  int     // from 1; 0 epochs means no limit
	Loss           float64 // of the last step that the ranks have added up, NaN before the first
	LearningRate   float64
	SamplesPerSec  float64 // all ranks
	ExposedPercent float64 // NaN if unknown
	Elapsed        time.Duration
}

// The ways to show progress.
const (
	progressBar   = "bar"   // one line that is drawn over and over
	progressPlain = "plain" // a line every log.every steps
	progressNone  = "none"
)

// redraw is the shortest time between two drawings of a bar: fast enough to look alive, slow enough
// to cost nothing.
const redraw = 100 * time.Millisecond

// The least width of a bar, and the room from which on a line has one rather than the last of its
// facts.
const (
	leastBar   = 6
	roomForBar = 60
)

// progress shows how far a run is, on rank 0.
type progress struct {
	out     io.Writer
	mode    string
	columns int           // of the terminal
	drawn   time.Duration // when, since the start of the run; 0 for never
	width   int           // of the text on the line of the bar
}

// newProgress is a progress in the mode that how asks for. Columns is the width of the terminal, 0
// if there is none.
func newProgress(out io.Writer, how string, columns int) *progress {
	p := &progress{out: out, mode: how, columns: columns}
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

// step is called after each step; shared tells that s.Loss is of this one.
func (p *progress) step(s status, shared bool) {
	switch {
	case p.mode == progressPlain && shared:
		fmt.Fprintln(p.out, p.plain(s))
	case p.mode == progressBar && (p.drawn == 0 || s.Elapsed-p.drawn >= redraw || s.Step == s.Steps):
		p.drawn = s.Elapsed
		p.draw(p.bar(s))
	}
}

// end leaves the bar as it is and goes to a new line.
func (p *progress) end() {
	if p.mode == progressBar && p.drawn > 0 {
		fmt.Fprintln(p.out)
	}
}

// draw writes text over the line.
func (p *progress) draw(text string) {
	pad := max(0, p.width-len(text))
	p.width = len(text)
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", pad))
}

// facts are the parts of a line, most important first.
func (p *progress) facts(s status) []string {
	epoch := fmt.Sprintf("epoch %d", s.Epoch)
	if s.Epochs > 0 {
		epoch += fmt.Sprintf("/%d", s.Epochs)
	}
	rate := fmt.Sprintf("lr %.2e", s.LearningRate)
	if math.IsNaN(s.Loss) { // nothing has been shared yet
		return []string{epoch, rate}
	}
	facts := []string{fmt.Sprintf("loss %.4f", s.Loss), epoch, fmt.Sprintf("%.0f samples/s", s.SamplesPerSec)}
	if !math.IsNaN(s.ExposedPercent) {
		facts = append(facts, fmt.Sprintf("exposed %.1f%%", s.ExposedPercent))
	}
	return append(facts, rate)
}

// plain is "step  50/1407 (3%)  loss 0.3401  epoch 1/3  ...  0:03 elapsed, 1:21 left".
func (p *progress) plain(s status) string {
	width := len(fmt.Sprint(s.Steps))
	head := fmt.Sprintf("step %*d/%d (%d%%)", width, s.Step, s.Steps, s.percent())
	return strings.Join(append(append([]string{head}, p.facts(s)...), s.times()), "  ")
}

// percent is how much of the run is done.
func (s status) percent() int { return 100 * s.Step / max(s.Steps, 1) }

// left is the time that the steps to come take, if they take as long as those so far.
func (s status) left() time.Duration {
	if s.Step <= s.First {
		return 0
	}
	return time.Duration(float64(s.Elapsed) / float64(s.Step-s.First) * float64(s.Steps-s.Step))
}

// times is "0:03 elapsed, 1:21 left".
func (s status) times() string { return clock(s.Elapsed) + " elapsed, " + clock(s.left()) + " left" }

// clock is a duration as "1:02" or "1:02:03", in whole seconds.
func clock(d time.Duration) string {
	seconds := int64(d.Round(time.Second) / time.Second)
	if hours := seconds / 3600; hours > 0 {
		return fmt.Sprintf("%d:%02d:%02d", hours, seconds/60%60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

// bar is a line with the share that is done, the time so far and the time left, as many other facts
// as fit, and a bar in the rest. A narrow terminal has these three alone, as "42% 1:03+2:10".
func (p *progress) bar(s status) string {
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
