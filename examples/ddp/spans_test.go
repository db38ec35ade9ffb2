package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// event is one of a timeline; times are in microseconds.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Rank  int            `json:"pid"`
	Start float64        `json:"ts"`
	Dur   float64        `json:"dur"`
	Args  map[string]any `json:"args"`
}

func (e event) end() float64 { return e.Start + e.Dur }

// timeline is the events of a run's trace by rank and step, each in the order of their starts.
func timeline(t *testing.T, path string) map[[2]int][]event {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Events []event `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	steps := map[[2]int][]event{}
	for _, e := range file.Events {
		if e.Phase == "X" {
			key := [2]int{e.Rank, int(e.Args["step"].(float64))}
			steps[key] = append(steps[key], e)
		}
	}
	for _, events := range steps {
		slices.SortStableFunc(events, func(a, b event) int { return int(a.Start - b.Start) })
	}
	return steps
}

func find(t *testing.T, events []event, name string) event {
	t.Helper()
	i := slices.IndexFunc(events, func(e event) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("no %q in %v", name, events)
	}
	return events[i]
}

// Times are written as fractions of a microsecond.
const rounding = 0.01

func TestTimelineHasThePhasesOfAllRanks(t *testing.T) {
	data := madeUp(t)
	for _, o := range []outcome{
		simulated(t, data, ranks(3), "log.trace=t.json", "log.trace_steps=1,3", "ddp.bucket_mb=0.001", "data.accum_steps=2"),
		processes(t, data, ranks(2), "log.trace=deep/er/t.json", "log.trace_steps=1,3", "ddp.bucket_mb=0.001", "data.accum_steps=2"),
	} {
		s := o.summary(t)
		steps := timeline(t, s.Trace)
		if len(steps) != 3*s.WorldSize {
			t.Errorf("%s: %d steps of all ranks, want 3 of each of %d", s.Backend, len(steps), s.WorldSize)
		}
		for key, events := range steps {
			accumulated := find(t, events, "forward and backward, accumulated")
			forward, backward := find(t, events, "forward"), find(t, events, "backward")
			wait, optimizer := find(t, events, "wait"), find(t, events, "optimizer")
			phases := []event{accumulated, forward, backward, wait, optimizer}
			for i := range phases[1:] {
				if phases[i].end() > phases[i+1].Start+rounding {
					t.Errorf("rank, step %v: %s ends after %s begins", key, phases[i].Name, phases[i+1].Name)
				}
			}
			var before event
			for bucket := range 3 { // 1048 B at most: the last layer and a bias, the middle, the first
				b := find(t, events, fmt.Sprintf("bucket %d", bucket))
				if b.Start < backward.Start-rounding || b.end() > optimizer.Start+rounding || b.Start < before.end()-rounding {
					t.Errorf("rank, step %v: bucket %d from %v to %v, backward from %v", key, bucket, b.Start, b.end(), backward.Start)
				}
				if b.Args["bytes"].(float64) <= 0 || !strings.Contains(b.Args["parameters"].(string), "fc") {
					t.Errorf("rank, step %v: bucket %d has %v", key, bucket, b.Args)
				}
				before = b
			}
		}
	}
}

// The first buckets are on their way while the backward pass computes the gradients of the first
// layers, in some step of some rank: ranks that share a processor may take turns in other ways for
// a while.
func TestTimelineShowsOverlap(t *testing.T) {
	layers := "model.hidden=" + strings.TrimSuffix(strings.Repeat("256,", 8), ",")
	data := madeUp(t)
	for range 10 {
		o := simulated(t, data, ranks(2), layers, "data.global_batch=120", "run.max_steps=20", "ddp.bucket_mb=0.25", "ddp.first_bucket_mb=0.01",
			"log.trace=t.json", "log.trace_steps=0,19", "run.eval=false")
		early := 0
		for _, events := range timeline(t, filepath.Join(o.dir, "t.json")) {
			if find(t, events, "bucket 0").end() < find(t, events, "backward").end() {
				early++
			}
		}
		if early > 0 {
			t.Logf("the first bucket was reduced before the backward pass ended in %d of 40 steps", early)
			return
		}
	}
	t.Error("in no step of any rank was the first bucket reduced before the backward pass ended")
}
