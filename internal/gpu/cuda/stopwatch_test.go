package cuda

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// timing is a driver that records a stopwatch's calls and reports configured times of its rounds.
type timing struct {
	refuses bool   // to end a capture
	fault   bool   // of the device, found when the stream is waited for
	rounds  []int  // ms, one after the other
	log     string // L launches a graph, Q queues work, r records, s waits, ( and ) capture, x closes a graph that can be launched
}

func (c *timing) note(what string, code func() int32) func(_, _, _, _ uintptr) int32 {
	return func(_, _, _, _ uintptr) int32 {
		c.log += what
		return code()
	}
}

func (c *timing) stopwatch(t *testing.T) *Stopwatch {
	d := &Driver{front: texts()}
	good := func() int32 { return success }
	d.api.ctxPush = answers(t, func(_, _, _, _ uintptr) int32 { return success })
	d.api.ctxPop = d.api.ctxPush
	d.api.eventRecord = answers(t, c.note("r", good))
	d.api.graphLaunch = answers(t, c.note("L", good))
	d.api.streamSync = answers(t, c.note("s", func() int32 {
		if c.fault {
			return 719 // CUDA_ERROR_LAUNCH_FAILED
		}
		return success
	}))
	d.api.captureBegin = func(uintptr, int32) int32 { c.log += "("; return success }
	d.api.captureEnd = func(_ uintptr, graph *uintptr) int32 {
		c.log += ")"
		if c.refuses {
			return codeNotSupported
		}
		*graph = 7
		return success
	}
	d.api.graphInst = func(out *uintptr, _ uintptr, _ uint64) int32 { *out = 8; return success }
	d.api.graphDestroy = func(uintptr) int32 { return success }
	d.api.execDestroy = func(uintptr) int32 { c.log += "x"; return success }
	d.api.elapsed2 = func(ms *float32, _, _ uintptr) int32 {
		*ms, c.rounds = float32(c.rounds[0]), c.rounds[1:]
		return success
	}
	v := &Device{d: d}
	return &Stopwatch{s: v.BorrowStream(3), start: v.BorrowEvent(4, true), end: v.BorrowEvent(5, true)}
}

// A time is that of the fastest of four rounds of ten launches, each after another ten: launches of
// a graph, or single ones without a graph.
func TestAStopwatchTakesTheFastestRound(t *testing.T) {
	const ten = "QQQQQQQQQQ"
	graph, plain := "LrLrs", ten+"r"+ten+"rs"
	for _, refuses := range []bool{false, true} {
		c := &timing{refuses: refuses, rounds: []int{50, 30, 20, 40}}
		d, err := c.stopwatch(t).Time(func() error { c.log += "Q"; return nil })
		want := "QQQs(" + ten + ")" + graph + graph + graph + graph + "x"
		if refuses {
			want = "QQQs(" + ten + ")" + plain + plain + plain + plain
		}
		if d != 2*time.Millisecond || err != nil || c.log != want {
			t.Errorf("refused %t: %v, %v\n%s, want\n%s", refuses, d, err, c.log, want)
		}
	}
}

// An error of earlier work is reported, and not the refusal to queue more.
func TestAStopwatchTellsOfFaultsFirst(t *testing.T) {
	no := errors.New("not this one")
	for _, tt := range []struct {
		fault bool
		after int // calls that are not refused
		want  error
		log   string
	}{
		{false, 0, no, "s"},
		{true, 0, nil, "s"},
		{false, 2, no, "QQs"},
		{true, 100, nil, "QQQs"},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			c, calls := &timing{fault: tt.fault}, 0
			d, err := c.stopwatch(t).Time(func() error {
				if calls++; calls > tt.after {
					return no
				}
				c.log += "Q"
				return nil
			})
			var fault *Error
			if d != 0 || c.log != tt.log || errors.Is(err, no) != (tt.want != nil) || errors.As(err, &fault) != tt.fault {
				t.Errorf("%v, %v, %s", d, err, c.log)
			}
		})
	}
}
