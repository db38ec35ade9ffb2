package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestWriteMakesCompleteEventsFromTheEarliestSpan(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	spans := []Span{
		{Rank: 1, Stream: "compute", Name: "forward", Start: t0.Add(3 * time.Millisecond), End: t0.Add(5 * time.Millisecond)},
		{Rank: 0, Stream: "communication", Name: "bucket 0", Start: t0, End: t0.Add(1500 * time.Nanosecond), Args: map[string]any{"bytes": 128}},
	}
	var buf bytes.Buffer
	if err := Write(&buf, spans, nil); err != nil {
		t.Fatal(err)
	}
	var got struct {
		TraceEvents []struct {
			Name, Ph string
			PID, TID int
			TS, Dur  float64
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var complete, meta int
	for _, e := range got.TraceEvents {
		switch {
		case e.Ph == "M":
			meta++
		case e.Name == "forward" && e.PID == 1 && e.TID == 0 && e.TS == 3000 && e.Dur == 2000:
			complete++
		case e.Name == "bucket 0" && e.PID == 0 && e.TID == 1 && e.TS == 0 && e.Dur == 1.5 && e.Args["bytes"] == 128.0:
			complete++
		default:
			t.Errorf("unexpected event %+v", e)
		}
	}
	if complete != 2 || meta != 4 {
		t.Errorf("%d complete and %d metadata events, want 2 and 4", complete, meta)
	}
}

func TestWriteRefusesBackwardSpan(t *testing.T) {
	now := time.Unix(10, 0)
	err := Write(&bytes.Buffer{}, []Span{{Name: "odd", Start: now, End: now.Add(-time.Second)}}, nil)
	if err == nil || !strings.Contains(err.Error(), `"odd"`) {
		t.Errorf("error %v", err)
	}
}

type full struct{}

var errFull = errors.New("disk full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteReportsTheWriter(t *testing.T) {
	if err := Write(full{}, nil, nil); !errors.Is(err, errFull) {
		t.Errorf("error %v", err)
	}
}
