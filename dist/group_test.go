package dist_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestGroupSaysWhoItIs(t *testing.T) {
	g, _ := group(t, 2, 3)
	if g.Rank() != 2 || g.Size() != 3 || g.Backend() != "fake" || g.Device() != tensor.Host {
		t.Errorf("rank %d of %d on %v by %q", g.Rank(), g.Size(), g.Device(), g.Backend())
	}
	ranks := g.Ranks()
	ranks[1] = 77
	if g.Ranks()[1] != 1 {
		t.Error("the caller can change the group's ranks")
	}
}

func TestViewsChangeStreamAndName(t *testing.T) {
	g, f := group(t, 0, 2)
	s := stream(t)
	for _, v := range []*dist.Group{g, g.On(s), g.With(dist.Hints{Name: "w"}), g.On(s).With(dist.Hints{Name: "b"}), g} {
		if _, err := v.Barrier(); err != nil {
			t.Fatal(err)
		}
	}
	if g.Stream() == dist.Stream(s) || g.On(s).Stream() != dist.Stream(s) {
		t.Error("Stream is not that of the view")
	}
	var names []string
	var other []bool
	for i, op := range f.ops() {
		names, other = append(names, op.Name), append(other, f.streams[i] == dist.Stream(s))
		if op.Seq != uint64(i+1) {
			t.Errorf("operation %d has number %d: views do not count together", i, op.Seq)
		}
	}
	if !slices.Equal(names, []string{"", "", "w", "b", ""}) || !slices.Equal(other, []bool{false, true, false, true, false}) {
		t.Errorf("names %q, on the other stream %v", names, other)
	}
}

func TestViewsAddHints(t *testing.T) {
	g, f := group(t, 0, 2)
	v := g.With(dist.Hints{Name: "w", Symmetric: true})
	for _, v := range []*dist.Group{v, v.With(dist.Hints{Overlap: true}), v.With(dist.Hints{Name: "b"}), g} {
		if _, err := v.Barrier(); err != nil {
			t.Fatal(err)
		}
	}
	want := []dist.Hints{
		{Name: "w", Symmetric: true},
		{Name: "w", Symmetric: true, Overlap: true},
		{Name: "b", Symmetric: true},
		{},
	}
	for i, op := range f.ops() {
		if got := (dist.Hints{Name: op.Name, Symmetric: op.Symmetric, Overlap: op.Overlap}); got != want[i] {
			t.Errorf("operation %d has the hints %+v, want %+v", i, got, want[i])
		}
	}
}

func TestViewOnNoStreamSendsNothing(t *testing.T) {
	g, f := group(t, 0, 2)
	v := g.On(nil)
	_, verb := v.Barrier()
	_, batch := v.Batch(func(b *dist.Group) error { _, err := b.Barrier(); return err })
	for what, err := range map[string]error{"verb": verb, "group call": batch} {
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "no stream") {
			t.Errorf("%s: error %v, want ErrInvalid", what, err)
		}
	}
	if n := len(f.ops()); n != 0 {
		t.Errorf("%d operations reached the transport", n)
	}
}

func TestNameIsInTheError(t *testing.T) {
	g, _ := group(t, 0, 2)
	_, err := g.With(dist.Hints{Name: "conv1.bias"}).AllReduce(f32(1), f32(2), dist.Sum)
	if err == nil || !strings.Contains(err.Error(), `"conv1.bias"`) {
		t.Errorf("error %v does not name the tensor", err)
	}
}

func TestBatchIsOneOperation(t *testing.T) {
	g, f := group(t, 1, 3)
	s := stream(t)
	if _, err := g.Barrier(); err != nil {
		t.Fatal(err)
	}
	w, err := g.With(dist.Hints{Name: "halo"}).Batch(func(b *dist.Group) error {
		for _, issue := range []call{
			func(*dist.Group) (dist.Work, error) { return b.Send(f32(4), 2) },
			func(*dist.Group) (dist.Work, error) { return b.With(dist.Hints{Name: "left"}).Recv(f32(4), 0) },
			func(*dist.Group) (dist.Work, error) { return b.On(s).Send(f32(1), 1) }, // to oneself: legal here
			func(*dist.Group) (dist.Work, error) { return b.AllReduce(f32(2), f32(2), dist.Sum) },
			func(*dist.Group) (dist.Work, error) { // nested: part of the outer call
				return b.Batch(func(b *dist.Group) error { _, err := b.Recv(f32(1), 1); return err })
			},
		} {
			w, err := issue(b)
			if err != nil {
				return err
			}
			if !w.Done() || w.Wait() != nil {
				t.Error("a Work inside the call is not done at once")
			}
		}
		if n := len(f.ops()); n != 1 {
			t.Errorf("%d operations started before the call ended", n)
		}
		return nil
	})
	if err != nil || w.Wait() != nil {
		t.Fatalf("error %v", err)
	}
	ops := f.ops()
	if len(ops) != 2 || ops[1].Kind != dist.KindBatch || ops[1].Seq != 2 || ops[1].Name != "halo" || f.streams[1] != g.Stream() {
		t.Fatalf("operations %+v", ops)
	}
	var got []string
	for _, m := range ops[1].Ops {
		got = append(got, m.Kind.String()+" "+m.Name)
		if m.Seq != 2 {
			t.Errorf("%v in the call has number %d, not that of the call", m.Kind, m.Seq)
		}
	}
	if want := []string{"send halo", "recv left", "send halo", "allreduce halo", "recv halo"}; !slices.Equal(got, want) {
		t.Errorf("members %q, want %q", got, want)
	}
}

func TestBatchThatFailsQueuesNothing(t *testing.T) {
	g, f := group(t, 0, 2)
	for _, tt := range []struct {
		name string
		fn   func(b *dist.Group) error
		want error
	}{
		{"function fails", func(b *dist.Group) error { _, _ = b.Barrier(); return errTest }, errTest},
		{"argument is wrong", func(b *dist.Group) error { _, _ = b.Barrier(); _, err := b.Send(f32(1), 5); return err }, dist.ErrRoot},
		{"nested function fails", func(b *dist.Group) error {
			_, err := b.Batch(func(b *dist.Group) error { _, _ = b.Barrier(); return errTest })
			return err
		}, errTest},
		{"nothing in it", func(*dist.Group) error { return nil }, nil},
		{"no function", nil, dist.ErrInvalid},
	} {
		w, err := g.Batch(tt.fn)
		if !errors.Is(err, tt.want) || !w.Done() || len(f.ops()) != 0 {
			t.Errorf("%s: error %v, done %v, %d operations", tt.name, err, w.Done(), len(f.ops()))
		}
	}
}

func TestViewThatOutlivesItsBatch(t *testing.T) {
	g, f := group(t, 0, 2)
	var kept *dist.Group
	if _, err := g.Batch(func(b *dist.Group) error { kept = b; _, err := b.Barrier(); return err }); err != nil {
		t.Fatal(err)
	}
	_, err := kept.Barrier()
	_, nested := kept.Batch(func(*dist.Group) error { t.Error("the function of a late nested call runs"); return nil })
	for _, err := range []error{err, nested} {
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("error %v, want ErrInvalid", err)
		}
	}
	if n := len(f.ops()); n != 1 {
		t.Errorf("%d operations", n)
	}
}

func TestErrorOfStartIsAnOpError(t *testing.T) {
	g, f := group(t, 1, 2)
	f.startErr = errTest
	_, err := g.AllReduce(f32(1), f32(1), dist.Sum)
	var op *dist.OpError
	if !errors.As(err, &op) || op.Rank != 1 || op.Op.Seq != 1 || !errors.Is(err, errTest) {
		t.Errorf("error %v", err)
	}
}

func TestAbortCarriesACause(t *testing.T) {
	g, f := group(t, 0, 2)
	if err := errors.Join(g.Abort(errTest), g.Abort(nil)); err != nil {
		t.Fatal(err)
	}
	if len(f.aborts) != 2 || f.aborts[0] != errTest || f.aborts[1] == nil {
		t.Errorf("causes %v", f.aborts)
	}
}

// Close waits for queued operations, closes heaps and subgroups, newest first, then the transport.
func TestCloseTakesTheGroupDownInOrder(t *testing.T) {
	f := newFake(0, 1)
	w, err := dist.NewWorld(f, dist.LocalInfo{}, 0, func() error { f.log.add("close job"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Heap(1); err != nil {
		t.Fatal(err)
	}
	sub, err := w.Split(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Heap(2); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Heap(3); err != nil {
		t.Fatal(err)
	}
	f.gate = make(chan struct{})
	if _, err := w.Barrier(); err != nil {
		t.Fatal(err)
	}
	close(f.gate)
	if err := errors.Join(w.Close(), w.Close(), w.On(w.Stream()).Close(), sub.Close()); err != nil {
		t.Fatal(err)
	}
	want := []string{"run barrier #1", "close heap of 3", "close heap of 2", "close part 1", "close heap of 1", "close job", "close world"}
	if !slices.Equal(f.log.lines, want) {
		t.Errorf("order\n%q, want\n%q", f.log.lines, want)
	}
}

func TestCloseReportsEveryError(t *testing.T) {
	f := newFake(0, 1)
	f.closeErr = errors.New("transport")
	w, err := dist.NewWorld(f, dist.LocalInfo{}, 0, func() error { return errTest })
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, f.closeErr) || !errors.Is(err, errTest) {
		t.Errorf("error %v", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestCallsOnAClosedGroup(t *testing.T) {
	f := newFake(0, 2)
	g, err := dist.NewGroup(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	_, barrier := g.Barrier()
	_, batch := g.Batch(func(b *dist.Group) error { _, err := b.Sync(); return err })
	_, split := g.Split(0, 0)
	_, strided := g.SplitStrided(0, 1, 2)
	_, _, grid := g.Split2D(2)
	_, heap := g.Heap(1)
	for what, err := range map[string]error{
		"barrier": barrier, "batch": batch, "split": split, "split strided": strided, "split 2D": grid, "heap": heap,
	} {
		if !errors.Is(err, dist.ErrClosed) || !strings.Contains(err.Error(), "rank 0/2") {
			t.Errorf("%s: error %v, want ErrClosed with the rank", what, err)
		}
	}
	if n := len(f.ops()) + len(f.splits); n != 0 {
		t.Errorf("%d calls reached the transport", n)
	}
}

func TestErrorsOfSplitAndHeapSayWhatAndWho(t *testing.T) {
	g, f := group(t, 1, 2)
	f.callErr = dist.ErrUnsupported
	_, split := g.Split(3, 0)
	_, heap := g.Heap(64)
	for err, want := range map[error]string{
		split: "split color 3, rank 1/2: not supported", heap: "heap of 64 B, rank 1/2: not supported",
	} {
		if !errors.Is(err, dist.ErrUnsupported) || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := g.Heap(-1); !errors.Is(err, dist.ErrCount) {
		t.Errorf("negative heap: %v", err)
	}
}

// streamed is a transport that makes its own streams, as one for a device does.
type streamed struct {
	*fake
	s   *dist.HostStream
	err error
}

func (d streamed) NewStream() (dist.Stream, error) { return d.s, d.err }

func TestTransportMayBringItsOwnStream(t *testing.T) {
	d := streamed{fake: newFake(0, 1), s: dist.NewHostStream()}
	g, err := dist.NewGroup(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	if g.Stream() != dist.Stream(d.s) {
		t.Error("the group has another stream")
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.s.Submit(runner(nil), dist.Op{}, 0); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("the group has not closed its stream: %v", err)
	}
}

func TestGroupWithoutStreamClosesItsTransport(t *testing.T) {
	d := streamed{fake: newFake(0, 1), err: errTest}
	if _, err := dist.NewWorld(d, dist.LocalInfo{}, 0, nil); !errors.Is(err, errTest) {
		t.Errorf("error %v", err)
	}
	if !slices.Equal(d.log.lines, []string{"close world"}) {
		t.Errorf("closed: %q", d.log.lines)
	}
}

func TestWorldKnowsWhereItRuns(t *testing.T) {
	want := dist.LocalInfo{Rank: 1, Size: 2, Launcher: "slurm", Job: "17"}
	w, err := dist.NewWorld(newFake(3, 4), want, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Local() != want || w.Rank() != 3 {
		t.Errorf("local %+v, rank %d", w.Local(), w.Rank())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
