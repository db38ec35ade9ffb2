package gpu

import (
	"errors"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// Join tells by the queue whose work it gets.
func TestWorkIsAQueueAndATicket(t *testing.T) {
	s := &Stream{}
	if got, n := streamOf(dist.NewWork(s, 77)); got != s || n != 77 {
		t.Errorf("work of ticket 77 is taken for ticket %d of %p, want %p", n, got, s)
	}
	host := dist.NewHostStream()
	defer host.Close()
	w, err := host.Do(func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := streamOf(w); got != nil {
		t.Error("work of the host is taken for a GPU's")
	}
	if got, _ := streamOf(dist.Work{}); got != nil {
		t.Error("no work is taken for a GPU's")
	}
}

func TestTicketsThatFailedAnswerAlike(t *testing.T) {
	s := &Stream{tickets: make([]ticket, 4)}
	cause := errors.New("the cause")
	for n := range uint64(4) {
		e, got := s.push()
		if got != n+1 {
			t.Fatalf("ticket %d, want %d", got, n+1)
		}
		if n == 2 {
			e.err = cause
		}
	}
	if done, err := s.state(3, 0); !done || !errors.Is(err, cause) {
		t.Errorf("failed ticket: done %v, error %v", done, err)
	}
	for n := range uint64(4) {
		s.finish(n + 1)
	}
	for n := range uint64(4) {
		err := s.Await(n + 1)
		if (n == 2) != errors.Is(err, cause) || !s.Finished(n+1) {
			t.Errorf("ticket %d: error %v", n+1, err)
		}
	}
}

func TestOldFailuresAnswerWithTheOldestKept(t *testing.T) {
	s := &Stream{tickets: make([]ticket, 4)}
	first, later := errors.New("the first"), errors.New("a later one")
	for n := range uint64(3 * maxFailures) {
		e, _ := s.push()
		if e.err = later; n == 0 {
			e.err = first
		}
		s.finish(n + 1)
	}
	if err := s.Await(2); !errors.Is(err, first) {
		t.Errorf("a failure long ago: %v", err)
	}
	if err := s.Await(3 * maxFailures); !errors.Is(err, later) {
		t.Errorf("the last failure: %v", err)
	}
	if len(s.tickets) != 4 {
		t.Errorf("%d tickets for one pending", len(s.tickets))
	}
}

func TestClosedStreamRefuses(t *testing.T) {
	s := &Stream{dev: new(cuda.Device), tickets: make([]ticket, 4)}
	s.closed.Store(true)
	host := dist.NewHostStream()
	defer host.Close()
	gate := make(chan struct{})
	w, err := host.Do(func() error { <-gate; return nil })
	if err != nil {
		t.Fatal(err)
	}
	_, mark := s.Mark()
	_, capture := s.Capture(func() error { return nil })
	for what, err := range map[string]error{"join": s.Join(w), "mark": mark, "capture": capture} {
		if e := want(err, dist.ErrClosed); e != nil {
			t.Errorf("%s: %v", what, e)
		}
	}
	close(gate)
	if err := errors.Join(s.Synchronize(), s.Close()); err != nil {
		t.Error(err)
	}
}

func TestTimingNeedsAGPU(t *testing.T) {
	host := dist.NewHostStream()
	defer host.Close()
	if _, err := TimeOp(host, func() error { return nil }); want(err, dist.ErrDevice) != nil {
		t.Errorf("timing on the host: %v", err)
	}
	if _, err := Elapsed(dist.Work{}); want(err, dist.ErrUnsupported) != nil {
		t.Errorf("time of no work: %v", err)
	}
}

func TestConfigIsValidated(t *testing.T) {
	v := new(cuda.Device)
	build := func(*Party) ([]Engine, error) { return nil, nil }
	for _, c := range []Config{
		{},
		{Device: v},
		{Device: v, Make: build},
	} {
		_, err := Open(c)
		if e := want(err, dist.ErrInvalid, "gpu"); e != nil {
			t.Error(e)
		}
	}
}

func TestTuningIsValidated(t *testing.T) {
	for _, c := range []Tuning{
		{Smallest: 1000},
		{Smallest: 4096, Largest: 1024},
		{Largest: -8},
		{Rounds: -1},
		{Kinds: []dist.Kind{dist.KindBarrier}},
	} {
		if err := want(c.Validate(), dist.ErrInvalid, "tune"); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := (Tuning{}).Validate(); err != nil {
		t.Error(err)
	}
	c := Tuning{Kinds: []dist.Kind{dist.KindAllReduce, dist.KindAllGather}, DTypes: []tensor.DType{tensor.F32}}.withDefaults()
	if keys := c.keys(true); len(keys) != 4 || keys[1] != (tuneKey{dist.KindAllReduce, tensor.F32, dist.Sum, true}) || keys[2].dtype != tensor.U8 {
		t.Errorf("keys %+v", keys)
	}
}
