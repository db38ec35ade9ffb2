package train

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/trace"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// spans records the actions of a rank, in the steps of the timeline.
type spans struct {
	on     bool // this step is part of the timeline
	rank   int
	origin time.Time // time 0 of ddp and the recorder
	wall   time.Time // origin on the clock of this host, which later changes of that clock do not move
	step   int
	runs   []time.Time // start and end of each run of the graph in this step
	all    []trace.Span
	clocks []trace.Clock // of all ranks, on several hosts
}

func newSpans(w *dist.World) *spans {
	origin := w.Recorder().Epoch()
	return &spans{rank: w.Rank(), origin: origin, wall: origin.Round(0)}
}

// at returns a time of this process on the clock of its host.
func (s *spans) at(t time.Time) time.Time { return s.wall.Add(t.Sub(s.origin)) }

// begin starts a step.
func (s *spans) begin(step int) { s.step, s.runs = step, s.runs[:0] }

// add records an action from start to end.
func (s *spans) add(stream, name string, start, end time.Time) {
	if s.on {
		s.all = append(s.all, trace.Span{
			Rank: s.rank, Stream: stream, Name: name, Start: s.at(start), End: s.at(end), Args: map[string]any{"step": s.step},
		})
	}
}

// ran records a run of the graph.
func (s *spans) ran(start, end time.Time) {
	if s.on {
		s.runs = append(s.runs, start, end)
	}
}

// queued records how long the host took to queue runs on a GPU; it cannot see their execution.
func (s *spans) queued() {
	for i := 0; i+1 < len(s.runs); i += 2 {
		s.add("compute", "queue", s.runs[i], s.runs[i+1])
	}
}

// exchange records the phases of the step's runs and the buckets. Only the last run of a step
// communicates.
func (s *spans) exchange(d *ddp.DDP) {
	if !s.on || len(s.runs) == 0 {
		return
	}
	last := len(s.runs) - 2
	for i := 0; i < last; i += 2 {
		s.add("compute", "forward and backward, accumulated", s.runs[i], s.runs[i+1])
	}
	t := d.Timeline()
	at := func(since time.Duration) time.Time { return s.origin.Add(since) }
	s.add("compute", "forward", s.runs[last], at(t.BackwardStart))
	s.add("compute", "backward", at(t.BackwardStart), at(t.BackwardEnd))
	s.add("compute", "wait", at(t.BackwardEnd), s.runs[last+1])
	plan := d.Plan()
	for _, b := range t.Buckets {
		if b.Ended == 0 {
			continue // the recorder's ring is shorter than a step
		}
		s.add("communication", fmt.Sprintf("bucket %d", b.Bucket), at(b.Started), at(b.Ended))
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

// writeTrace writes the spans of all ranks to one file, on rank 0.
//
// Collective: all ranks.
func (t *trainer) writeTrace(s *Summary) error {
	if t.rank0Settings.traceFirst < 0 {
		return nil
	}
	mine, err := json.Marshal(t.spans.all)
	if err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	parts, err := exchange.Gather(t.exchanger, "timeline", mine)
	if err != nil || t.w.Rank() != 0 {
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
	if err := trace.Write(&text, all, t.spans.clocks); err != nil {
		return err
	}
	s.Trace = filepath.Join(t.job.cfg.OutputDir(), t.job.cfg.Log.Trace)
	if err := os.MkdirAll(filepath.Dir(s.Trace), 0o777); err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	return replaceFile(s.Trace, text.Bytes())
}

// replaceFile writes data to path, or leaves the old file. It writes through devices, pipes and
// links, such as /dev/stdout.
func replaceFile(path string, data []byte) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil { // else the file is new, or a pipe in /proc
		path = real
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return os.WriteFile(path, data, 0o666)
	}
	// Not os.CreateTemp: it makes the file private, but the umask should decide.
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
