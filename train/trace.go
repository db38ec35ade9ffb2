package train

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/timeline"
)

// Trace is a timeline of a script with a loop of its own, as log.trace makes one of a run from a
// file: forward and backward pass, each bucket's exchange, waits, and spans of the script. It is
// written in Chrome's trace format, for chrome://tracing and https://ui.perfetto.dev.
//
// Steps between Begin and End are recorded, others cost nothing. Not for concurrent use.
type Trace struct {
	values *exchange.Values
	spans  *timeline.Spans
	d      *ddp.DDP
	step   int
	open   bool // between Begin and End
}

// NewTrace returns a trace of the ranks of w, whose gradients d exchanges. On several hosts it
// compares their clocks.
//
// Collective: all ranks. Errors: dist.ErrInvalid if w or d is nil; those of the group.
func NewTrace(w *dist.World, d *ddp.DDP) (*Trace, error) {
	if w == nil || d == nil {
		return nil, fmt.Errorf("train: trace: %w: no world or no DDP", dist.ErrInvalid)
	}
	t := &Trace{values: exchange.New(w), spans: timeline.New(w), d: d}
	t.spans.Begin(0, true)
	err := t.spans.CompareClocks(t.values, w.Local())
	t.spans.Begin(0, false)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("train: trace: %w", err), t.values.Close())
	}
	return t, nil
}

// Begin starts a step: Run and Span record until End.
func (t *Trace) Begin(step int) {
	t.step, t.open = step, true
	t.spans.Begin(step, true)
}

// Run runs vm. Call it once for each run of the graph in a step, also inside NoSync.
//
// Errors: those of vm.RunAll.
func (t *Trace) Run(vm gorgonia.VM) error {
	start := time.Now()
	err := vm.RunAll()
	t.spans.Ran(start, time.Now())
	return err
}

// Span records work of the script from start until now, such as the optimizer's.
func (t *Trace) Span(name string, start time.Time) {
	t.spans.Add("compute", name, start, time.Now())
}

// End ends a step. On the host it records the passes of its runs, and the buckets of the last. A
// GPU works after the host has queued the runs, so it records the time of queueing there: see
// Profile.
func (t *Trace) End() {
	if !t.open {
		return
	}
	if t.values.World().Device() == tensor.Host {
		t.spans.Exchange(t.d)
	} else {
		t.spans.Queued()
	}
	t.open = false
	t.spans.Begin(t.step, false)
}

// Profile records a step on a GPU: each kernel and collective of machine.Profile, on streams of
// their own, from the time of the call on.
func (t *Trace) Profile(p machine.Timeline) { addProfile(t.spans, t.step, t.open, p) }

// addProfile adds the steps of p to spans. open restores the state of a step that is recorded.
func addProfile(spans *timeline.Spans, step int, open bool, p machine.Timeline) {
	if !open {
		spans.Begin(step, true)
		defer spans.Begin(step, false)
	}
	from := time.Now()
	for _, s := range p.Steps {
		spans.Add(fmt.Sprintf("gpu %v", s.Stream), cmp.Or(s.Name, s.Op), from.Add(s.Start), from.Add(s.End))
	}
}

// Write writes the timeline of all ranks to one file, on rank 0, and ends the trace.
//
// Collective: all ranks. Errors: on all ranks those of the group; on rank 0 those of the file.
func (t *Trace) Write(path string) error {
	err := errors.Join(t.spans.Write(t.values, path), t.values.Close())
	if err != nil {
		return fmt.Errorf("train: trace: %w", err)
	}
	return nil
}
