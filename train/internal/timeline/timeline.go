package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/trace"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/output"
)

// Spans records the actions of a rank, in the steps of the timeline.
type Spans struct {
	on     bool // this step is part of the timeline
	rank   int
	origin time.Time // time 0 of ddp and the recorder
	wall   time.Time // origin on the clock of this host, which later changes of that clock do not move
	step   int
	runs   []time.Time // start and end of each run of the graph in this step
	all    []trace.Span
	clocks []trace.Clock // of all ranks, on several hosts
}

// New returns the spans of this rank, none so far.
func New(w *dist.World) *Spans {
	origin := w.Recorder().Epoch()
	return &Spans{rank: w.Rank(), origin: origin, wall: origin.Round(0)}
}

// at returns a time of this process on the clock of its host.
func (s *Spans) at(t time.Time) time.Time { return s.wall.Add(t.Sub(s.origin)) }

// Begin starts a step; on means that the step is part of the timeline.
func (s *Spans) Begin(step int, on bool) { s.on, s.step, s.runs = on, step, s.runs[:0] }

// Add records an action from start to end.
func (s *Spans) Add(stream, name string, start, end time.Time) {
	if s.on {
		s.all = append(s.all, trace.Span{
			Rank: s.rank, Stream: stream, Name: name, Start: s.at(start), End: s.at(end), Args: map[string]any{"step": s.step},
		})
	}
}

// Ran records a run of the graph.
func (s *Spans) Ran(start, end time.Time) {
	if s.on {
		s.runs = append(s.runs, start, end)
	}
}

// Queued records how long the host took to queue runs on a GPU; it cannot see their execution.
func (s *Spans) Queued() {
	for i := 0; i+1 < len(s.runs); i += 2 {
		s.Add("compute", "queue", s.runs[i], s.runs[i+1])
	}
}

// Exchange records the phases of the step's runs and the buckets. Only the last run of a step
// communicates.
func (s *Spans) Exchange(d *ddp.DDP) {
	if !s.on || len(s.runs) == 0 {
		return
	}
	last := len(s.runs) - 2
	for i := 0; i < last; i += 2 {
		s.Add("compute", "forward and backward, accumulated", s.runs[i], s.runs[i+1])
	}
	t := d.Timeline()
	at := func(since time.Duration) time.Time { return s.origin.Add(since) }
	s.Add("compute", "forward", s.runs[last], at(t.BackwardStart))
	s.Add("compute", "backward", at(t.BackwardStart), at(t.BackwardEnd))
	s.Add("compute", "wait", at(t.BackwardEnd), s.runs[last+1])
	plan := d.Plan()
	for _, b := range t.Buckets {
		if b.Ended == 0 {
			continue // the recorder's ring is shorter than a step
		}
		s.Add("communication", fmt.Sprintf("bucket %d", b.Bucket), at(b.Started), at(b.Ended))
		args := s.all[len(s.all)-1].Args
		args["bytes"] = b.Bytes
		args["queued_us"] = (b.Started - b.Ready).Microseconds()
		args["parameters"] = bucketNames(plan, b.Bucket)
	}
}

func bucketNames(p ddp.Plan, bucket int) string {
	var names []string
	for _, i := range p.Buckets[bucket].Params {
		names = append(names, p.Params[i].Name)
	}
	return strings.Join(names, " ")
}

// Write writes the spans of all ranks to one file, on rank 0.
//
// Collective: all ranks.
func (s *Spans) Write(k *exchange.Values, path string) error {
	mine, err := json.Marshal(s.all)
	if err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	parts, err := exchange.Gather(k, "timeline", mine)
	if err != nil || s.rank != 0 {
		return err
	}
	var all []trace.Span
	for r, part := range parts {
		var of []trace.Span
		if err := json.Unmarshal(part, &of); err != nil {
			return fmt.Errorf("timeline of rank %d: %w", r, err)
		}
		all = append(all, of...)
	}
	var text bytes.Buffer
	if err := trace.Write(&text, all, s.clocks); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	return output.Replace(path, text.Bytes())
}
