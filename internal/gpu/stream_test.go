package gpu

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/sim"
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
	untimed := streamOver(new(cuda.Device), nil)
	if _, err := untimed.Elapsed(1); want(err, dist.ErrUnsupported) != nil {
		t.Errorf("time of work that was not timed: %v", err)
	}
}

func TestConfigIsValidated(t *testing.T) {
	v := new(cuda.Device)
	build := func(*Member) ([]Engine, error) { return nil, nil }
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
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(Config{Device: v, Control: worlds[0].Group, Make: build, StepTimeout: -1})
	if e := want(err, dist.ErrInvalid, "negative"); e != nil {
		t.Error(e)
	}
	if _, err := worlds[0].Barrier(); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("a barrier of the control group of what could not be opened: %v", err)
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

// empties is the ticket of a group call of rank 0 that receives an empty message from each of the
// peers, on a stream whose device is past everything. A peer may break the group before it returns.
func empties(p *ledger, peers ...int) (*Stream, uint64, error) {
	tr := &Transport{core: core{member: *memberOf(p.control), ledger: p, limit: ages}}
	s := &Stream{dev: new(cuda.Device), tickets: make([]ticket, 4)}
	s.closed.Store(true)
	e, n := s.push()
	e.t, e.op = tr, dist.Op{Kind: dist.KindBatch}
	for _, peer := range peers {
		op := dist.Op{Kind: dist.KindRecv, Peer: peer, Dst: tensor.Of([]float32{})}
		err := tr.announceMessage(e, &op)
		if errors.Is(err, errBroken) {
			err = p.awaitEnd()
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return s, n, nil
}

// sendTo0 announces a message of count elements to rank 0 when done reports true.
func sendTo0(p *ledger, count int, done func() bool) error {
	if err := p.poll(done, p.whereabouts); err != nil {
		return err
	}
	_, err := p.post(0, true, tensor.F32, count)
	return err
}

// receivesFrom reports whether rank 0 has announced that it receives a message of rank.
func (p *ledger) receivesFrom(rank int) bool { return atomic.LoadUint64(p.counter(0, rank, false)) > 0 }

// The receiver comes first, so that the sender is the one to see the difference: nothing but the
// agreement tells the receiver.
func TestEmptyMessageIsReceivedWhenItWasCompared(t *testing.T) {
	for count, sentinel := range map[int]error{0: nil, 3: dist.ErrMismatch} {
		ledgers(t, 2, true, ages, func(p *ledger) error {
			if p.rank == 1 {
				return want(sendTo0(p, count, func() bool { return p.receivesFrom(1) }), sentinel)
			}
			s, n, err := empties(p, 1)
			if err == nil {
				err = s.Await(n)
			}
			return want(err, sentinel)
		})
	}
}

// The last message of a group call is as it should be, and the first is not.
func TestAllEmptyMessagesOfAGroupCallAreWaitedFor(t *testing.T) {
	onEach(t, 3, sim.Config{}, func(control *dist.Group) error { // rank 1 watches messages of others
		return withLedger(control, true, ages, func(p *ledger) error { return emptyMessages(p) })
	})
}

func emptyMessages(p *ledger) error {
	switch p.rank {
	case 0:
		s, n, err := empties(p, 1, 2)
		if err == nil {
			err = s.Await(n)
		}
		return want(err, dist.ErrMismatch, "message", "rank 1 sends f32[3]", "rank 0 receives f32[0]")
	case 1: // behind rank 2
		other := pairedOf(p.counter(2, 0, true))
		return want(sendTo0(p, 3, func() bool { return atomic.LoadUint64(other) > 0 }), dist.ErrMismatch)
	}
	return errors.Join(sendTo0(p, 0, func() bool { return p.receivesFrom(2) }), want(p.awaitEnd(), dist.ErrMismatch))
}

func TestTicketForgetsItsMessages(t *testing.T) {
	s := &Stream{}
	e := &ticket{t: new(Transport), empty: arrival{1, 2}, more: []arrival{{3, 4}}}
	s.recycle(e)
	if e.empty != (arrival{}) || len(e.more) != 0 || !e.met() {
		t.Errorf("a ticket that is used again waits for %+v, %+v", e.empty, e.more)
	}
}

// Neither does a stream that is captured wait for one that is not, nor the other way round: no call
// of the driver is made.
func TestStreamsDoNotFollowEachOtherIntoOrOutOfACapture(t *testing.T) {
	for _, inside := range [...]bool{false, true} {
		last, next := new(Stream), new(Stream)
		last.capturing.Store(!inside)
		next.capturing.Store(inside)
		q := &streamSet{last: last}
		if err := want(q.follow(next), dist.ErrInvalid, "captured"); err != nil || q.last != last {
			t.Errorf("into a capture %v: %v", inside, err)
		}
	}
}

func TestNoHeapOrPartIsMadeWhileAStreamIsCaptured(t *testing.T) {
	s := new(Stream)
	s.capturing.Store(true)
	q := &streamSet{list: []*Stream{new(Stream), s}}
	if err := want(q.idle(), dist.ErrInvalid, "captured"); err != nil {
		t.Error(err)
	}
}
