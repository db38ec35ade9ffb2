package cudaexec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Timeline is a profile of a run, by the device's clock (%globaltimer, which advances in steps of
// up to 1 µs on some GPUs). A step of Compute counts from the moment when its inputs are ready.
type Timeline struct {
	Program string
	Run     time.Duration // mean of one run, replayed back to back without marks
	Runs    int           // that were measured
	Graph   bool          // runs were replays of a graph

	// Times of the run with the median exposure. It has marks around collectives and around the
	// computation between waits.
	Marked  time.Duration // the whole run
	Compute time.Duration // some step computes
	Comm    time.Duration // some collective runs
	Exposed time.Duration // a collective runs and no step computes

	Steps []StepTime // of runs with marks around each step
}

// StepTime is one step of a Timeline. A mark takes a microsecond or two, so short steps look
// longer.
type StepTime struct {
	Step       int
	Name, Op   string
	Stream     program.Stream
	Start, End time.Duration // from the beginning of the run, in the run with the least sum of times
	Least      time.Duration // the shortest of all runs
}

// Share returns the exposed communication as a fraction of the run.
func (t Timeline) Share() float64 {
	if t.Marked == 0 {
		return 0
	}
	return float64(t.Exposed) / float64(t.Marked)
}

// String returns a table: the run, the exposed communication in percent, and a line for each step.
func (t Timeline) String() string {
	var b strings.Builder
	how := "step by step"
	if t.Graph {
		how = "one graph"
	}
	fmt.Fprintf(&b, "%s: %v a run (%s, mean of %d); with marks %v: compute %v, communication %v, of which exposed %v, %.1f %%\n",
		t.Program, t.Run, how, t.Runs, t.Marked, t.Compute, t.Comm, t.Exposed, 100*t.Share())
	fmt.Fprintf(&b, "%5s  %-7s  %12s  %12s  %12s  %s\n", "step", "stream", "start", "end", "least", "op")
	for _, s := range t.Steps {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

// String returns a line of the table.
func (s StepTime) String() string {
	what := s.Op
	if s.Name != "" {
		what = fmt.Sprintf("%s  %q", s.Op, s.Name)
	}
	return fmt.Sprintf("%5d  %-7v  %12v  %12v  %12v  %s", s.Step, s.Stream, s.Start, s.End, s.Least, what)
}

// mark is the stamps around a step.
type mark struct{ before, after int } // indexes of stamps; -1 for none

// segment is a measured part of a run: steps first to last of one stream.
type segment struct {
	first, last int
	stream      program.Stream
}

// cuts returns the segments of p. With fine each step is one. Otherwise each collective is one, and
// so is each piece of computation between waits.
func cuts(p *program.Program, o *order, fine bool) []segment {
	var list []segment
	open := [streams]int{-1, -1, -1} // the current segments
	for i := range p.Steps {
		s := o.on[i]
		if fine || s == program.Comm || open[s] < 0 || len(o.turns[i].waits) > 0 || o.turns[i].behind {
			list = append(list, segment{i, i, s})
			open[s] = len(list) - 1
			continue
		}
		list[open[s]].last = i
	}
	return list
}

// stamps is the segments of a run, their marks, and the memory for the times: two for each segment,
// and two for the whole run.
type stamps struct {
	list  []segment
	marks []mark // by step
	at    uintptr
	times []uint64
}

func newStamps(dev *cuda.Device, steps int, list []segment) (*stamps, error) {
	s := &stamps{list: list, marks: make([]mark, steps), times: make([]uint64, 2*len(list)+2)}
	for i := range s.marks {
		s.marks[i] = mark{-1, -1}
	}
	for k, g := range list {
		s.marks[g.first].before = 2 * k
		s.marks[g.last].after = 2*k + 1
	}
	var err error
	s.at, err = dev.Alloc(int64(8 * len(s.times)))
	return s, err
}

// put queues stamp k on a stream.
func (x *Exec) put(s *stamps, k int, on *cuda.Stream) error {
	x.room.Reset()
	x.room.Ptr(s.at + uintptr(8*k))
	return x.own.stamp.Launch(on, cuda.Launch{}, x.room)
}

// marked queues step i between its marks.
func (x *Exec) marked(s *stamps, i int) error {
	on := x.streams[x.order.on[i]]
	m := s.marks[i]
	if m.before >= 0 {
		if err := x.put(s, m.before, on); err != nil {
			return err
		}
	}
	if err := x.step(i); err != nil {
		return err
	}
	if m.after < 0 {
		return nil
	}
	return x.put(s, m.after, on)
}

// read copies the times of the last run to the host. The device has finished the run.
func (s *stamps) read(dev *cuda.Device) error {
	return dev.CopyToHost(unsafe.Pointer(&s.times[0]), s.at, int64(8*len(s.times)))
}

// whole returns the beginning and the end of the run.
func (s *stamps) whole() (begin, end uint64) { return s.times[len(s.times)-2], s.times[len(s.times)-1] }

// spans returns the times of the segments on some streams, from the beginning of the run.
func (s *stamps) spans(on ...program.Stream) []span {
	var list []span
	begin, _ := s.whole()
	for k, g := range s.list {
		if slices.Contains(on, g.stream) {
			list = append(list, span{since(begin, s.times[2*k]), since(begin, s.times[2*k+1])})
		}
	}
	return list
}

// since returns the time between two stamps; 0 if the device's clock had not advanced.
func since(begin, t uint64) time.Duration {
	if t < begin {
		return 0
	}
	return time.Duration(t - begin)
}

// span is an interval of time.
type span struct{ from, to time.Duration }

// union merges spans that overlap, and sorts them.
func union(list []span) []span {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b span) int { return int(a.from - b.from) })
	var all []span
	for _, s := range list {
		if n := len(all); n > 0 && s.from <= all[n-1].to {
			all[n-1].to = max(all[n-1].to, s.to)
		} else if s.to > s.from {
			all = append(all, s)
		}
	}
	return all
}

// length returns the sum of spans that do not overlap.
func length(list []span) time.Duration {
	var d time.Duration
	for _, s := range list {
		d += s.to - s.from
	}
	return d
}

// uncovered returns how much of a is outside the spans of b. Both are unions.
func uncovered(a, b []span) time.Duration {
	d := length(a)
	for _, s := range a {
		for _, t := range b {
			if from, to := max(s.from, t.from), min(s.to, t.to); to > from {
				d -= to - from
			}
		}
	}
	return d
}

// mostProfiled bounds the number of runs, and so the memory of Profile.
const mostProfiled = 10000

// Profile measures runs of the program: steps runs each without marks, with marks around
// collectives, and with marks around all steps. The runs are real ones: they use the last inputs,
// and change parameters and the clock.
//
// Collective: with collectives, all ranks with the same steps. Shapes/units: steps is 1 or more.
// Errors: those of Run and Wait; dist.ErrUnsupported with Env.Watch.
func (x *Exec) Profile(steps int) (Timeline, error) {
	t := Timeline{Program: x.p.Name, Runs: steps, Graph: !x.cfg.Eager && x.calls == nil}
	switch {
	case x.closed:
		return t, errClosed
	case steps < 1 || steps > mostProfiled:
		return t, x.failure(fmt.Errorf("%w: a profile of %d steps, want 1 to %d", dist.ErrInvalid, steps, mostProfiled))
	case x.env.Watch != nil:
		return t, x.failure(fmt.Errorf("%w: a profile of a program that is watched", dist.ErrUnsupported))
	}
	if err := x.needOwn(); err != nil {
		return t, err
	}
	if err := x.dev.Enter(); err != nil {
		return t, err
	}
	defer x.dev.Leave()
	err := x.plain(&t)
	if err == nil {
		err = x.coarse(&t)
	}
	if err == nil {
		err = x.fine(&t)
	}
	return t, err
}

// plain times runs back to back.
func (x *Exec) plain(t *Timeline) error {
	begin, err := x.dev.NewTimer()
	if err != nil {
		return err
	}
	end, err := x.dev.NewTimer()
	if err != nil {
		return errors.Join(err, begin.Close())
	}
	defer func() { _ = errors.Join(begin.Close(), end.Close()) }() // the measured times stay valid
	for range warmRuns + 2 {
		if err := x.Run(); err != nil {
			return err
		}
	}
	if err := x.Wait(); err != nil {
		return err
	}
	if err := x.home.Record(begin); err != nil {
		return err
	}
	for range t.Runs {
		if err := x.Run(); err != nil {
			return err
		}
	}
	if err := errors.Join(x.home.Record(end), x.Wait(), x.home.Synchronize()); err != nil {
		return err
	}
	took, err := end.Since(begin)
	t.Run = took / time.Duration(t.Runs)
	return err
}

// stamped runs the program with stamps, as often as t says, and calls each after every run.
func (x *Exec) stamped(t *Timeline, fine bool, each func(s *stamps)) (err error) {
	s, err := newStamps(x.dev, len(x.p.Steps), cuts(x.p, &x.order, fine))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && !x.drained() { // a group is broken: freeing memory would hang
			err = fmt.Errorf("%w: %w", ErrStuck, err)
			return
		}
		err = errors.Join(err, x.dev.Free(s.at))
	}()
	x.stamps = s
	defer func() { x.stamps = nil }()
	run := func() error { return x.queue(func(i int) error { return x.marked(s, i) }) }
	if t.Graph {
		exec, e := x.capture(func(i int) error { return x.marked(s, i) })
		if e != nil {
			return e
		}
		defer func() { err = errors.Join(err, exec.Close()) }()
		run = func() error { return exec.Launch(x.home) }
	}
	for n := range t.Runs + 1 {
		if err := run(); err != nil {
			return x.failure(err)
		}
		if err := x.back.ran(x.home); err != nil {
			return err
		}
		if x.comm != nil {
			if err := x.comm.announce(); err != nil {
				return x.failure(err)
			}
		}
		if err := x.Wait(); err != nil {
			return err
		}
		if err := s.read(x.dev); err != nil {
			return err
		}
		if n > 0 { // the first run warms up
			each(s)
		}
	}
	return nil
}

// coarse finds the run with the median exposure.
func (x *Exec) coarse(t *Timeline) error {
	var all []Timeline
	err := x.stamped(t, false, func(s *stamps) {
		one := *t
		begin, end := s.whole()
		compute, comm := union(s.spans(program.Compute, program.Side)), union(s.spans(program.Comm))
		one.Marked, one.Compute, one.Comm = since(begin, end), length(compute), length(comm)
		one.Exposed = uncovered(comm, compute)
		all = append(all, one)
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b Timeline) int { return int(a.Exposed - b.Exposed) })
	*t = all[len(all)/2]
	return nil
}

// fine times each step.
func (x *Exec) fine(t *Timeline) error {
	var best time.Duration
	return x.stamped(t, true, func(s *stamps) {
		begin, _ := s.whole()
		var sum time.Duration
		steps := make([]StepTime, len(s.list))
		for k, g := range s.list {
			step := &x.p.Steps[g.first]
			steps[k] = StepTime{
				Step: g.first, Name: step.Name, Op: step.Op.String(), Stream: x.order.on[g.first],
				Start: since(begin, s.times[2*k]), End: since(begin, s.times[2*k+1]), Least: since(s.times[2*k], s.times[2*k+1]),
			}
			sum += steps[k].Least
		}
		for k := range t.Steps {
			steps[k].Least = min(steps[k].Least, t.Steps[k].Least)
			if best <= sum {
				steps[k].Start, steps[k].End = t.Steps[k].Start, t.Steps[k].End
			}
		}
		if best == 0 || sum < best {
			best = sum
		}
		t.Steps = steps
	})
}
