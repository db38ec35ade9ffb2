// Package trace writes timelines in the Chrome trace format, which ui.perfetto.dev and
// chrome://tracing open: a process for each rank, and a thread for each stream.
//
// Source: "Trace Event Format", Google (complete events "X" and metadata events "M").
package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Span is an interval of time on a stream of a rank.
type Span struct {
	Rank   int
	Stream string // "compute", "communication"
	Name   string
	Start  time.Time
	End    time.Time
	Args   map[string]any // shown when the span is selected; may be nil
}

type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	TS    float64        `json:"ts"`            // microseconds
	Dur   *float64       `json:"dur,omitempty"` // microseconds
	Args  map[string]any `json:"args,omitempty"`
}

// Write writes spans as one trace; times count from the earliest one. Threads are numbered in the
// order in which their streams first appear. Spans of the ranks of clocks move to the clock of
// rank 0, and the trace keeps clocks as its metadata.
//
// Errors: a span that ends before it starts, and those of w.
func Write(w io.Writer, spans []Span, clocks []Clock) error {
	events := make([]event, 0, len(spans)+8)
	offset := map[int]time.Duration{}
	for _, c := range clocks {
		offset[c.Rank] = c.Offset
	}
	var zero time.Time
	for _, s := range spans {
		if start := s.Start.Add(-offset[s.Rank]); zero.IsZero() || start.Before(zero) {
			zero = start
		}
	}
	threads, ranks := map[string]int{}, map[int]bool{}
	named := map[[2]int]bool{}
	for _, s := range spans {
		if s.End.Before(s.Start) {
			return fmt.Errorf("trace: span %q of rank %d ends %v before it starts", s.Name, s.Rank, s.Start.Sub(s.End))
		}
		tid, ok := threads[s.Stream]
		if !ok {
			tid = len(threads)
			threads[s.Stream] = tid
		}
		if !ranks[s.Rank] {
			ranks[s.Rank] = true
			events = append(events, event{
				Name: "process_name", Phase: "M", PID: s.Rank,
				Args: map[string]any{"name": fmt.Sprintf("rank %d", s.Rank)},
			})
		}
		if key := [2]int{s.Rank, tid}; !named[key] {
			named[key] = true
			events = append(events, event{
				Name: "thread_name", Phase: "M", PID: s.Rank, TID: tid,
				Args: map[string]any{"name": s.Stream},
			})
		}
		dur := micros(s.End.Sub(s.Start))
		events = append(events, event{
			Name: s.Name, Phase: "X", PID: s.Rank, TID: tid,
			TS: micros(s.Start.Add(-offset[s.Rank]).Sub(zero)), Dur: &dur, Args: s.Args,
		})
	}
	file := map[string]any{"displayTimeUnit": "ms", "traceEvents": events}
	if len(clocks) > 0 {
		file["otherData"] = map[string]any{"clocks": clocks}
	}
	if err := json.NewEncoder(w).Encode(file); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
