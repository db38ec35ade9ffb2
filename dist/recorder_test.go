package dist_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestRecorderKeepsTheLastOperations(t *testing.T) {
	for _, tt := range []struct{ entries, ops, first, kept int }{
		{4, 0, 0, 0}, {4, 1, 1, 1}, {4, 4, 1, 4}, {4, 5, 2, 4}, {4, 11, 8, 4}, {1, 3, 3, 1}, {0, 10, 1, 10}, {0, 5000, 5000 - 4095, 4096},
	} {
		t.Run(fmt.Sprintf("%d of %d", tt.ops, tt.entries), func(t *testing.T) {
			g, err := dist.NewGroup(newFake(0, 2), tt.entries)
			if err != nil {
				t.Fatal(err)
			}
			for range tt.ops {
				if _, err := g.Barrier(); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			got := g.Recorder().Records()
			if len(got) != tt.kept {
				t.Fatalf("%d records, want %d", len(got), tt.kept)
			}
			for i, r := range got {
				if r.Seq != uint64(tt.first+i) {
					t.Fatalf("record %d has number %d, want %d", i, r.Seq, tt.first+i)
				}
			}
		})
	}
}

func TestRecordSaysWhatHappened(t *testing.T) {
	g, f := group(t, 0, 4)
	f.runErr = func(op *dist.Op) error {
		if op.Kind == dist.KindSend {
			return errTest
		}
		return nil
	}
	before := g.Recorder().Epoch()
	if since := time.Since(before); since < 0 || since > time.Hour {
		t.Errorf("epoch %v", before)
	}
	if _, err := g.With(dist.Hints{Name: "fc1.weight"}).AllReduce(f32(8), f32(8), dist.Avg); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Send(i32(3), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Batch(func(g *dist.Group) error { _, err := g.Barrier(); return err }); err != nil {
		t.Fatal(err)
	}
	if err := g.Stream().Synchronize(); err != nil {
		t.Fatal(err)
	}
	got := g.Recorder().Records()
	want := []dist.Record{
		{Seq: 1, Signature: dist.Signature{Kind: dist.KindAllReduce, DType: tensor.F32, Count: 8, Red: dist.RedAvg, Root: -1}, Peer: -1, Name: "fc1.weight", Bytes: 32},
		{Seq: 2, Signature: dist.Signature{Kind: dist.KindSend, DType: tensor.I32, Count: 3, Root: -1}, Peer: 2, Bytes: 12, Failed: true},
		{Seq: 3, Signature: dist.Signature{Kind: dist.KindBatch, Count: 1, Root: -1}, Peer: -1},
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i, r := range got {
		if r.Queued < 0 || r.Started < r.Queued || r.Ended < r.Started {
			t.Errorf("record %d: queued %d, started %d, ended %d ns", i, r.Queued, r.Started, r.Ended)
		}
		r.Queued, r.Started, r.Ended = 0, 0, 0
		if r != want[i] {
			t.Errorf("record %d:\ngot  %+v\nwant %+v", i, r, want[i])
		}
	}
}

// A pending operation has no times yet, and an operation that the ring has lost stays lost.
func TestRecordOfPendingOperations(t *testing.T) {
	f := newFake(0, 1)
	f.gate = make(chan struct{})
	g, err := dist.NewGroup(f, 2)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := g.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range g.Recorder().Records() {
		if r.Seq == 1 || r.Started != 0 || r.Ended != 0 {
			t.Errorf("record of a pending operation: %+v", r)
		}
	}
	close(f.gate)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	got := g.Recorder().Records()
	if len(got) != 2 || got[0].Seq != 2 || got[1].Seq != 3 || got[1].Ended == 0 {
		t.Errorf("records %+v", got)
	}
}

func TestRecorderStartsEmpty(t *testing.T) {
	before := time.Now()
	r := dist.NewRecorder(-1)
	if got := r.Records(); len(got) != 0 || r.Epoch().Before(before) || r.Epoch().After(time.Now()) {
		t.Errorf("records %v, epoch %v", got, r.Epoch())
	}
}

// An operation through a group allocates nothing in recorder, queue and worker.
func TestOperationsDoNotAllocate(t *testing.T) {
	g, f := group(t, 0, 2)
	f.started, f.streams = make([]dist.Op, 0, 1000), make([]dist.Stream, 0, 1000)
	f.log.lines = make([]string, 0, 1000)
	quiet := quietFake{f}
	q, err := dist.NewGroup(quiet, 8)
	if err != nil {
		t.Fatal(err)
	}
	x := f32(100)
	if n := testing.AllocsPerRun(100, func() {
		if w, err := q.AllReduce(x, x, dist.Sum); err != nil || w.Wait() != nil {
			t.Error("allreduce failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if len(g.Recorder().Records()) != 0 {
		t.Error("another group's recorder has records")
	}
}

// quietFake is a fake that remembers nothing.
type quietFake struct{ *fake }

func (q quietFake) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	return s.(*dist.HostStream).Submit(q, op, 0)
}

func (quietFake) Run(*dist.Op, uint64) error { return nil }

// idleFake is a fake that does nothing.
type idleFake struct{ *fake }

func (idleFake) Start(dist.Op, dist.Stream) (dist.Work, error) { return dist.Work{}, nil }

// The time of a verb before the backend begins.
func BenchmarkVerb(b *testing.B) {
	g, err := dist.NewGroup(idleFake{newFake(0, 2)}, 8)
	if err != nil {
		b.Fatal(err)
	}
	x := f32(1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.AllReduce(x, x, dist.Sum); err != nil {
			b.Fatal(err)
		}
	}
	if err := g.Close(); err != nil {
		b.Fatal(err)
	}
}
