package main

import (
	"fmt"
	"io"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/tensor"
)

// span is the time interval of an action, since the clock started.
type span struct{ from, to time.Duration }

// both returns how long two spans overlap.
func (s span) both(o span) time.Duration { return max(0, min(s.to, o.to)-max(s.from, o.from)) }

func (s span) length() time.Duration { return s.to - s.from }

// times has the intervals of the parts of one iteration.
type times struct{ wait, send, interior span }

// meter sums the time of this rank's communication, and the part of it during computation of the
// interior.
type meter struct {
	begin  time.Time
	total  time.Duration // of all iterations, between barriers
	comm   time.Duration // waiting for rows, and sending them
	hidden time.Duration // part of comm during which the interior was computed
}

// now returns the time since the clock started.
func (m *meter) now() time.Duration { return time.Since(m.begin) }

// add adds one iteration.
func (m *meter) add(t times) {
	m.comm += t.wait.length() + t.send.length()
	m.hidden += t.wait.both(t.interior) + t.send.both(t.interior)
}

// report prints the times, averaged over the ranks.
//
// Collective: all ranks.
func (m *meter) report(w *dist.World, out io.Writer, s settings, found solution) error {
	sum := []int64{int64(m.total), int64(m.comm), int64(m.hidden)}
	if err := rank.Done(w.With(dist.Hints{Name: "times"}).AllReduce(tensor.Of(sum), tensor.Of(sum), dist.Sum)); err != nil {
		return err
	}
	tell(out, s, found, float64(sum[0])/float64(w.Size())/1e9)
	if w.Size() == 1 {
		fmt.Fprintln(out, "no communication: one rank has all rows")
		return nil
	}
	fmt.Fprintf(out, "communication: %.3g ms a rank, %.0f%% of it while the interior was computed\n",
		float64(sum[1])/float64(w.Size())/1e6, 100*float64(sum[2])/float64(max(1, sum[1])))
	return nil
}

// tell tells how far the iteration came, and how fast.
func tell(out io.Writer, s settings, found solution, seconds float64) {
	points := float64(s.nx-2) * float64(s.ny-2) * float64(found.iterations)
	// A point is read once and written once: its neighbours are in the cache by then.
	fmt.Fprintf(out, "%d iterations, largest change %.3g, %.3g s, %.3g GB/s, %.3g Gpoint/s\n",
		found.iterations, found.change, seconds, 2*pointBytes*points/seconds/1e9, points/seconds/1e9)
}
