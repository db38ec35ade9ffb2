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
)

// spans has the times of a rank's phases, in the steps of the timeline.
type spans struct {
	on    bool // this step is part of the timeline
	rank  int
	epoch time.Time // of the times that ddp and the recorder give
	step  int
	runs  []time.Time // when each run of the graph in this step began and ended
	all   []trace.Span
}

func newSpans(w *dist.World) *spans { return &spans{rank: w.Rank(), epoch: w.Recorder().Epoch()} }

// begin starts a step.
func (s *spans) begin(step int) { s.step, s.runs = step, s.runs[:0] }

// add notes that something took from start to end.
func (s *spans) add(stream, name string, start, end time.Time) {
	if s.on {
		s.all = append(s.all, trace.Span{
			Rank: s.rank, Stream: stream, Name: name, Start: start, End: end, Args: map[string]any{"step": s.step},
		})
	}
}

// ran notes a run of the graph.
func (s *spans) ran(start, end time.Time) {
	if s.on {
		s.runs = append(s.runs, start, end)
	}
}

// queued records a run on a GPU: the time that the host was busy with it. It does not see the time
// on the device.
func (s *spans) queued() {
	for i := 0; i+1 < len(s.runs); i += 2 {
		s.add("compute", "queue", s.runs[i], s.runs[i+1])
	}
}

// exchange records the phases of the step's runs and of the buckets. Only the last run of a step
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
	at := func(since time.Duration) time.Time { return s.epoch.Add(since) }
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

// writeTrace puts the spans of all ranks into one file, on rank 0. The ranks of one host have one
// clock.
//
// Collective: all ranks.
func (t *trainer) writeTrace(s *Summary) error {
	if t.lead.traceFirst < 0 {
		return nil
	}
	mine, err := json.Marshal(t.spans.all)
	if err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	parts, err := gather(t.talk, "timeline", mine)
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
	if err := trace.Write(&text, all); err != nil {
		return err
	}
	s.Trace = filepath.Join(t.job.cfg.OutputDir(), t.job.cfg.Log.Trace)
	if err := os.MkdirAll(filepath.Dir(s.Trace), 0o777); err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	return replaceFile(s.Trace, text.Bytes())
}

// replaceFile writes all of data to path, or leaves the old file. It writes into a device or a
// pipe, and follows a link such as /dev/stdout.
func replaceFile(path string, data []byte) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil { // else there is no file, or a pipe under /proc
		path = real
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return os.WriteFile(path, data, 0o666)
	}
	// Not os.CreateTemp, which makes a file for the user alone: the umask says who may read it.
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
