package dist_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
)

// Work that a view has queued on a stream of the caller's is work of the group: Close waits for it,
// too.
func TestCloseWaitsForWorkOnOtherStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0, 1)
		f.gate = make(chan struct{})
		g, err := dist.NewGroup(f, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := dist.NewHostStream()
		w, err := g.On(s).Barrier()
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- g.Close() }()
		synctest.Wait() // Close has started to wait
		if len(closed) != 0 || len(f.log.lines) != 0 {
			t.Errorf("Close did not wait: %q", f.log.lines)
		}
		if _, err := g.Barrier(); !errors.Is(err, dist.ErrClosed) {
			t.Errorf("operation while the group closes: %v", err)
		}
		close(f.gate)
		if err := errors.Join(<-closed, w.Wait(), s.Close()); err != nil {
			t.Error(err)
		}
		if want := []string{"run barrier #1", "close world"}; !slices.Equal(f.log.lines, want) {
			t.Errorf("order %q, want %q", f.log.lines, want)
		}
	})
}

// A view of a group does not own the stream that it was given.
func TestCloseLeavesTheCallersStreamOpen(t *testing.T) {
	f := newFake(0, 1)
	g, err := dist.NewGroup(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := stream(t)
	if err := g.On(s).Close(); err != nil {
		t.Fatal(err)
	}
	if err := submit(t, s, func(uint64) error { return nil }, 1).Wait(); err != nil {
		t.Errorf("the stream is of no use any more: %v", err)
	}
	if _, err := g.Barrier(); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("the group is open after a view of it was closed: %v", err)
	}
}

// An operation that fails is its Work's to report, not that of Close.
func TestCloseAfterAFailedOperation(t *testing.T) {
	g, f := group(t, 0, 1)
	f.runErr = func(*dist.Op) error { return errTest }
	w, err := g.Sync()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := w.Wait(); !errors.Is(err, errTest) {
		t.Errorf("Wait after Close: %v", err)
	}
}

// An operation that the transport refuses was not sent, so the next one takes its number, as on the
// other ranks.
func TestRefusedOperationTakesNoNumber(t *testing.T) {
	g, f := group(t, 0, 2)
	if _, err := g.Barrier(); err != nil {
		t.Fatal(err)
	}
	f.startErr = errTest
	for range 2 {
		var op *dist.OpError
		if _, err := g.With(dist.Hints{Name: "w"}).AllReduce(f32(1), f32(1), dist.Sum); !errors.As(err, &op) || op.Op.Seq != 2 {
			t.Fatalf("error %v, want one of operation 2", err)
		}
	}
	if err := g.Stream().Synchronize(); err != nil {
		t.Fatal(err)
	}
	got := g.Recorder().Records()
	if len(got) != 2 || got[0].Failed || !got[1].Failed || got[1].Name != "w" || got[1].Ended < got[1].Queued || got[1].Started != 0 {
		t.Errorf("records %+v, want the refused operation as failed, never started", got)
	}
	f.startErr = nil
	if _, err := g.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := g.Stream().Synchronize(); err != nil {
		t.Fatal(err)
	}
	got = g.Recorder().Records()
	if len(got) != 2 || got[1].Signature.Kind != dist.KindSync || got[1].Failed || f.ops()[1].Seq != 2 {
		t.Errorf("records %+v, want sync as operation 2", got)
	}
}

// Wrong arguments are in no number and in no record.
func TestWrongArgumentIsNotRecorded(t *testing.T) {
	g, _ := group(t, 0, 2)
	if _, err := g.Send(f32(1), 7); !errors.Is(err, dist.ErrRoot) {
		t.Fatalf("error %v", err)
	}
	if got := g.Recorder().Records(); len(got) != 0 {
		t.Errorf("records %+v", got)
	}
}

// A function that drops the error of a wrong argument cannot make a group call of the rest.
func TestBatchRemembersAWrongArgument(t *testing.T) {
	g, f := group(t, 0, 2)
	w, err := g.Batch(func(b *dist.Group) error {
		_, _ = b.Send(f32(1), 1)
		_, _ = b.With(dist.Hints{Name: "first"}).Send(f32(1), 5)
		_, _ = b.Batch(func(b *dist.Group) error { _, _ = b.Recv(f32(1), 6); return nil })
		return nil
	})
	if !errors.Is(err, dist.ErrRoot) || !strings.Contains(err.Error(), `"first"`) || !strings.Contains(err.Error(), "peer 5") {
		t.Errorf("error %v, want that of the first wrong argument", err)
	}
	if !w.Done() || len(f.ops()) != 0 {
		t.Errorf("done %v, %d operations started", w.Done(), len(f.ops()))
	}
	if _, err := g.Batch(func(b *dist.Group) error { _, err := b.Send(f32(1), 1); return err }); err != nil {
		t.Errorf("next group call: %v", err)
	}
	if ops := f.ops(); len(ops) != 1 || ops[0].Seq != 1 || len(ops[0].Ops) != 1 {
		t.Errorf("operations %+v", ops)
	}
}

// The error of the function itself is the one that is returned.
func TestBatchPrefersTheFunctionsError(t *testing.T) {
	g, f := group(t, 0, 2)
	_, err := g.Batch(func(b *dist.Group) error { _, _ = b.Send(f32(1), 5); return errTest })
	if err != errTest || len(f.ops()) != 0 {
		t.Errorf("error %v, %d operations", err, len(f.ops()))
	}
}

// The whole group call fails when the group closes under its function.
func TestBatchOnAGroupThatClosesMeanwhile(t *testing.T) {
	g, f := group(t, 0, 2)
	_, err := g.Batch(func(b *dist.Group) error {
		if _, err := b.Barrier(); err != nil {
			return err
		}
		return b.Close()
	})
	var op *dist.OpError
	if !errors.Is(err, dist.ErrClosed) || !errors.As(err, &op) || op.Op.Kind != dist.KindBatch {
		t.Errorf("error %v, want ErrClosed of the group call", err)
	}
	if n := len(f.ops()); n != 0 {
		t.Errorf("%d operations reached the transport", n)
	}
}

// The group has failed to make the stream of a subgroup: it closes the part, and stays usable.
func TestSplitWithoutStreamClosesThePart(t *testing.T) {
	f := newFake(0, 2)
	g, err := dist.NewGroup(brokenParts{f}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if sub, err := g.Split(0, 0); sub != nil || !errors.Is(err, errTest) {
		t.Errorf("group %v, error %v", sub, err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"close part 1", "close world"}; !slices.Equal(f.log.lines, want) {
		t.Errorf("closed %q, want %q", f.log.lines, want)
	}
}

// brokenParts is a transport whose parts cannot make a stream.
type brokenParts struct{ *fake }

func (b brokenParts) Split(color, key int) (dist.Transport, error) {
	part, err := b.fake.Split(color, key)
	if err != nil {
		return nil, err
	}
	return streamed{fake: part.(*fake), err: errTest}, nil
}

// A program that gets a signal may close its world twice at once, and end with the call that
// returns first.
func TestTheSecondCloseWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g := newFake(0, 1), make(chan struct{})
		f.gate = g
		w, err := dist.NewWorld(f, dist.LocalInfo{Size: 1}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		work, err := w.Barrier()
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 2)
		for range cap(closed) {
			go func() { closed <- w.Close() }()
			synctest.Wait() // Close has started to wait
		}
		if len(closed) != 0 {
			t.Errorf("%d calls of Close have returned while an operation runs", len(closed))
		}
		close(g)
		if err := errors.Join(<-closed, <-closed, work.Wait(), w.Close()); err != nil {
			t.Error(err)
		}
		if want := []string{"run barrier #1", "close world"}; !slices.Equal(f.log.lines, want) {
			t.Errorf("closed %q, want %q", f.log.lines, want)
		}
	})
}

// A group keeps no closed subgroups and heaps, except the last.
func TestAGroupLetsGoOfWhatIsClosed(t *testing.T) {
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := worlds[0]
	var groups []weak.Pointer[dist.Recorder]
	var parts []weak.Pointer[byte]
	for range 3 {
		g, err := w.Split(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		h, err := w.Heap(1 << 16)
		if err != nil {
			t.Fatal(err)
		}
		r, err := h.Alloc(1 << 16)
		if err != nil {
			t.Fatal(err)
		}
		groups, parts = append(groups, weak.Make(g.Recorder())), append(parts, weak.Make(&r.Local().Raw()[0]))
		if err := errors.Join(g.Close(), h.Close()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	for i := range groups[:2] {
		if groups[i].Value() != nil || parts[i].Value() != nil {
			t.Errorf("group %d is kept: %v, its heap: %v", i, groups[i].Value() != nil, parts[i].Value() != nil)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
