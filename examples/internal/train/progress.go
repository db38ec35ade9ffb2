package train

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// status is what there is to tell about a run at some moment.
type status struct {
	Step, Steps    int     // made, in all
	First          int     // made by a run before this one
	Epoch, Epochs  int     // from 1; 0 epochs means no limit
	Loss           float64 // of the last step that the ranks have added up, NaN before the first
	LearningRate   float64
	SamplesPerSec  float64 // all ranks
	ExposedPercent float64 // NaN where nobody sees it
	Elapsed        time.Duration
}

// The ways to show progress.
const (
	progressBar   = "bar"   // one line that is drawn over and over
	progressPlain = "plain" // a line every log.every steps
	progressNone  = "none"
)

// redraw is the shortest time between two drawings of a bar: fast enough to look alive, slow enough to cost nothing.
const redraw = 100 * time.Millisecond

// progress shows how far a run is, on rank 0.
type progress struct {
	out     io.Writer
	mode    string
	columns int           // of the terminal
	drawn   time.Duration // when, since the start of the run; 0 for never
	width   int           // of what is on the line of the bar
}

// newProgress is a progress in the mode that how asks for. Columns is the width of the terminal, 0 if there is none.
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

// plain is "step  50/1407  loss 0.3401  epoch 1/3  ...".
func (p *progress) plain(s status) string {
	width := len(fmt.Sprint(s.Steps))
	return strings.Join(append([]string{fmt.Sprintf("step %*d/%d", width, s.Step, s.Steps)}, p.facts(s)...), "  ")
}

// bar is a line with as many facts as fit, and a bar in what is left.
func (p *progress) bar(s status) string {
	room := p.columns - 1 // a full line would wrap on some terminals
	left := time.Duration(0)
	if s.Step > s.First {
		left = time.Duration(float64(s.Elapsed) / float64(s.Step-s.First) * float64(s.Steps-s.Step))
	}
	text := fmt.Sprintf("%d/%d", s.Step, s.Steps)
	for _, fact := range append(p.facts(s), left.Round(time.Second).String()+" left") {
		if len(text)+2+len(fact) > room {
			break
		}
		text += "  " + fact
	}
	const least = 6 // "[>   ] "
	if width := min(room-len(text)-3, 40); width >= least {
		full := width * s.Step / max(s.Steps, 1)
		text = "[" + strings.Repeat("=", full) + strings.Repeat(" ", width-full) + "] " + text
	}
	return text[:min(len(text), max(room, 0))]
}
