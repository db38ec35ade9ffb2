package dist_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// inliner is a fake that runs operations on their caller: posted or not, blocked or not, with an
// error or not.
type inliner struct {
	*fake
	guard  sync.Locker
	post   bool
	during func() // called while the operation does not hold the group's lock
	err    error
	ran    []dist.Op
}

var _ dist.Inliner = (*inliner)(nil)

func (f *inliner) Guard(mu sync.Locker) { f.guard = mu }

func (f *inliner) Inline(op *dist.Op) error {
	ran := *op
	ran.Ops = slices.Clone(op.Ops) // op and its members belong to the group
	f.ran = append(f.ran, ran)
	op.Memo++
	if f.post {
		op.Posted()
	}
	if f.during != nil {
		op.Blocks()
		f.during()
	}
	op.Resume()
	return f.err
}

func inlineGroup(t *testing.T) (*dist.Group, *inliner) {
	t.Helper()
	f := &inliner{fake: newFake(0, 2)}
	g, err := dist.NewGroup(f, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g, f
}

func TestBlockingViewRunsOnItsCaller(t *testing.T) {
	for _, post := range []bool{false, true} {
		g, f := inlineGroup(t)
		f.post = post
		b, x := g.Blocking().With(dist.Hints{Name: "w"}), f32(3)
		for i := range 3 {
			w, err := b.AllReduce(x, x, dist.Sum)
			if err != nil || !w.Done() {
				t.Fatalf("error %v, done %v", err, w.Done())
			}
			if op := f.ran[i]; op.Seq != uint64(i+1) || op.Count != 3 || op.Name != "w" || op.Memo != uint64(i) {
				t.Errorf("operation %d: %+v", i, op)
			}
		}
		records := g.Recorder().Records()
		if len(records) != 3 {
			t.Fatalf("%d records", len(records))
		}
		for _, r := range records {
			if r.Name != "w" || r.Bytes != 12 || r.Queued == 0 || r.Started < r.Queued || r.Ended < r.Started || r.Failed {
				t.Errorf("record %+v", r)
			}
		}
	}
}

// The arguments of every call are checked, also those of one that differs from the last in a single
// field.
func TestBlockingViewChecksEveryCall(t *testing.T) {
	g, f := inlineGroup(t)
	b := g.Blocking()
	x, y := f32(4), f32(4)
	half, _ := x.Slice(0, 2)
	calls := []struct {
		do    func() (dist.Work, error)
		count int
		want  error
	}{
		{func() (dist.Work, error) { return b.AllReduce(x, x, dist.Sum) }, 4, nil},
		{func() (dist.Work, error) { return b.AllReduce(x, x, dist.Max) }, 4, nil},
		{func() (dist.Work, error) { return b.AllReduce(x, half, dist.Max) }, 2, nil},
		{func() (dist.Work, error) { return b.AllReduce(half, x, dist.Max) }, 0, dist.ErrCount},
		{func() (dist.Work, error) { return b.AllReduce(x, i32(4), dist.Max) }, 0, dist.ErrDType},
		{func() (dist.Work, error) { return b.Broadcast(x, y, 0) }, 4, nil},
		{func() (dist.Work, error) { return b.Broadcast(x, y, 2) }, 0, dist.ErrRoot},
		{func() (dist.Work, error) { return b.AllReduce(x, x, dist.PreMulSum(float32(2))) }, 4, nil},
		{func() (dist.Work, error) { return b.AllReduce(x, x, dist.PreMulSum(float64(2))) }, 0, dist.ErrDType},
		{b.Barrier, 0, nil},
	}
	for i, c := range calls {
		before := len(f.ran)
		_, err := c.do()
		if !errors.Is(err, c.want) {
			t.Errorf("call %d: error %v, want %v", i, err, c.want)
			continue
		}
		if ran := len(f.ran) - before; (ran == 1) != (c.want == nil) {
			t.Errorf("call %d ran %d operations", i, ran)
		} else if ran == 1 && f.ran[before].Count != c.count {
			t.Errorf("call %d has count %d, want %d", i, f.ran[before].Count, c.count)
		}
	}
	if premul := f.ran[len(f.ran)-2].Red.Scalar; premul.DType != tensor.F32 {
		t.Errorf("scalar %+v", premul)
	}
}

// Two calls that are kept in one place, as all barriers are, take turns without being prepared
// anew; three do not.
func TestCallsOfOnePlaceTakeTurns(t *testing.T) {
	for names, fresh := range map[string]int{"a": 1, "ab": 2, "abc": 15} {
		g, f := inlineGroup(t)
		for range 5 {
			for _, name := range names {
				if _, err := g.Blocking().With(dist.Hints{Name: string(name)}).Barrier(); err != nil {
					t.Fatal(err)
				}
			}
		}
		prepared := 0
		for i, op := range f.ran {
			if want := string(names[i%len(names)]); op.Name != want {
				t.Fatalf("operation %d of %q has name %q", i, names, op.Name)
			}
			if op.Memo == 0 {
				prepared++
			}
		}
		if len(f.ran) != 5*len(names) || prepared != fresh {
			t.Errorf("%q: %d operations, %d prepared, want %d", names, len(f.ran), prepared, fresh)
		}
	}
}

// While an operation waits, others can read the recorder and queue operations; a second blocking
// call waits.
func TestBlockedOperationGivesTheLockBack(t *testing.T) {
	g, f := inlineGroup(t)
	x := f32(1)
	second := make(chan error, 1)
	f.during = func() {
		f.during = nil
		if r := g.Recorder().Records(); len(r) != 1 || r[0].Started == 0 || r[0].Ended != 0 {
			t.Errorf("records while it waits: %+v", r)
		}
		go func() {
			_, err := g.Blocking().Barrier()
			second <- err
		}()
	}
	if _, err := g.Blocking().AllReduce(x, x, dist.Sum); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if len(f.ran) != 2 || f.ran[1].Kind != dist.KindBarrier || f.ran[1].Seq != 2 {
		t.Errorf("ran %v", f.ran)
	}
	for _, r := range g.Recorder().Records() {
		if r.Ended < r.Started {
			t.Errorf("record %+v", r)
		}
	}
}

func TestBlockingViewReturnsTheOperationsError(t *testing.T) {
	g, f := inlineGroup(t)
	f.err = dist.ErrTimeout
	if _, err := g.Blocking().Barrier(); !errors.Is(err, dist.ErrTimeout) {
		t.Errorf("error %v", err)
	}
	if r := g.Recorder().Records(); len(r) != 1 || !r[0].Failed {
		t.Errorf("records %+v", r)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Blocking().Barrier(); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("after Close: error %v", err)
	}
}

func TestBlockingBatchRunsOnItsCaller(t *testing.T) {
	g, f := inlineGroup(t)
	x, y := f32(2), f32(2)
	w, err := g.Blocking().Batch(func(g *dist.Group) error {
		_, err1 := g.Send(x, 1)
		_, err2 := g.Recv(y, 1)
		return errors.Join(err1, err2)
	})
	if err != nil || !w.Done() {
		t.Fatalf("error %v, done %v", err, w.Done())
	}
	if len(f.ran) != 1 || len(f.ran[0].Ops) != 2 || f.ran[0].Ops[1].Seq != 1 {
		t.Errorf("ran %+v", f.ran)
	}
}

// idler is a transport whose operations do nothing.
type idler struct{ *fake }

func (idler) Guard(sync.Locker)     {}
func (idler) Inline(*dist.Op) error { return nil }

// A group call on its caller allocates its view and its list of operations, but nothing for each
// member.
func TestBlockingBatchUsesItsMemoryAgain(t *testing.T) {
	g, err := dist.NewGroup(idler{newFake(0, 2)}, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	v, x, y := g.Blocking(), f32(2), f32(2)
	exchange := func(g *dist.Group) error {
		for range 8 {
			if _, err := g.Send(x, 1); err != nil {
				return err
			}
			if _, err := g.Recv(y, 1); err != nil {
				return err
			}
		}
		return nil
	}
	n := testing.AllocsPerRun(50, func() {
		if _, err := v.Batch(exchange); err != nil {
			t.Fatal(err)
		}
	})
	if n > 2 {
		t.Errorf("%v allocations a group call, want at most 2", n)
	}
}

// A group call has the name of its view, on the caller as on a stream.
func TestBlockingBatchHasItsName(t *testing.T) {
	g, f := inlineGroup(t)
	f.err = errors.New("test")
	v := g.With(dist.Hints{Name: "halo"})
	for _, g := range []*dist.Group{v, v.Blocking()} {
		if _, err := g.Batch(func(b *dist.Group) error { _, err := b.Barrier(); return err }); err != nil && !errors.Is(err, f.err) {
			t.Fatal(err)
		}
	}
	if len(f.ran) != 1 || f.ran[0].Name != "halo" {
		t.Errorf("ran %+v, want one operation named halo", f.ran)
	}
	for _, r := range g.Recorder().Records() {
		if r.Name != "halo" {
			t.Errorf("record %+v, want it named halo", r)
		}
	}
}

// Where the transport cannot run operations on their caller, a blocking view waits for the stream.
func TestBlockingViewWaitsForTheStream(t *testing.T) {
	g, f := group(t, 0, 2)
	b := g.Blocking()
	x := f32(2)
	w, err := b.AllReduce(x, x, dist.Sum)
	if err != nil || !w.Done() {
		t.Errorf("error %v, done %v", err, w.Done())
	}
	w, err = b.Batch(func(g *dist.Group) error {
		_, err := g.AllReduce(x, x, dist.Sum)
		return err
	})
	if err != nil || !w.Done() {
		t.Errorf("batch: error %v, done %v", err, w.Done())
	}
	if len(f.started) != 2 {
		t.Errorf("%d operations started", len(f.started))
	}
}

func TestStreamDoesFunctionsInOrder(t *testing.T) {
	s := dist.NewHostStream()
	boom := errors.New("boom")
	var order []int
	var works []dist.Work
	for i := range 4 {
		w, err := s.Do(func() error {
			order = append(order, i)
			if i == 2 {
				return boom
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		works = append(works, w)
	}
	for i, w := range works {
		if err := w.Wait(); (i == 2) != errors.Is(err, boom) {
			t.Errorf("work %d: error %v", i, err)
		}
	}
	for i, got := range order {
		if got != i {
			t.Errorf("order %v", order)
			break
		}
	}
	if _, err := s.Do(nil); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("no function: error %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(func() error { return nil }); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("closed: error %v", err)
	}
}
