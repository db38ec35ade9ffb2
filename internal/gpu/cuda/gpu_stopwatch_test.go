package cuda_test

import (
	"errors"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

func TestAStopwatchTimesWhatIsQueuedOverAndOver(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s := stream(t, v, 0)
	w, err := cuda.NewStopwatch(s)
	must(t, err)
	defer func() { must(t, w.Close(), w.Close()) }()
	p := alloc(t, v, 64<<20)
	calls := 0
	began := time.Now()
	d, err := w.Time(func() error {
		calls++
		return s.Fill(p, 1, 64<<20)
	})
	// A graph repeats what was queued once, so that there are more launches than calls: twice ten
	// in each of four rounds, and three before. 64 MiB: no memory writes more than 20 TB/s.
	if most := time.Since(began) / 83; err != nil || calls < 10 || calls > 20 || d < 3*time.Microsecond || d > 2*most {
		t.Errorf("%v for each, after %d calls, of at most %v, %v", d, calls, most, err)
	}
	calls = 0
	d, err = w.Time(func() error { // what waits for the stream cannot be captured
		calls++
		return errors.Join(s.Fill(p, 1, 1<<20), s.Synchronize())
	})
	if err != nil || calls < 50 || d <= 0 {
		t.Errorf("without a graph %v for each of %d, %v", d, calls, err)
	}
	calls, bad := 0, errors.New("not now")
	if d, err := w.Time(func() error { calls++; return bad }); d != 0 || !errors.Is(err, bad) || calls != 1 {
		t.Errorf("%v, %v after %d calls", d, err, calls)
	}
}

// TestAStopwatchComparesCandidates rejects one of three candidates.
func TestAStopwatchComparesCandidates(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s := stream(t, v, 0)
	w, err := cuda.NewStopwatch(s)
	must(t, err)
	defer func() { must(t, w.Close()) }()
	room, err := w.Room(64 << 20)
	must(t, err)
	if none, err := w.Room(0); room == 0 || none != 0 || err != nil {
		t.Errorf("rooms at %#x and %#x, %v", room, none, err)
	}
	no, bad := errors.New("not this one"), errors.New("not now")
	bytes := []int64{64 << 20, 0, 8 << 20}
	now, fails := 0, -1
	take := func(i int) error {
		if i == fails {
			return bad
		}
		now = i
		return nil
	}
	queue := func() error {
		if bytes[now] == 0 {
			return no
		}
		return s.Fill(room, 1, bytes[now])
	}
	refused := func(err error) bool { return errors.Is(err, no) }
	times, err := w.Compare(3, take, queue, refused)
	if err != nil || len(times) != 3 || times[1] != 0 || min(times[0], times[2]) <= 0 {
		t.Errorf("%v, %v", times, err)
	}
	if times, err := w.Compare(3, take, queue, func(error) bool { return false }); times != nil || !errors.Is(err, no) {
		t.Errorf("nothing may be refused: %v, %v", times, err)
	}
	fails = 2
	if times, err := w.Compare(3, take, queue, refused); times != nil || !errors.Is(err, bad) {
		t.Errorf("one that cannot be taken: %v, %v", times, err)
	}
}
