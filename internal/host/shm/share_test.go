package shm

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"golang.org/x/sys/unix"
)

// faulty is a link over which a segment that arrives cannot be mapped, or, with an error in send,
// cannot be handed to rank 1.
type faulty struct {
	link
	send error
}

func (l faulty) take(peer int, id uint64, alive func() error) (offer, error) {
	o, err := l.link.take(peer, id, alive)
	if err != nil || l.send != nil {
		return o, err
	}
	return offer{}, errors.Join(fmt.Errorf("map a segment: %w", unix.EMFILE), o.seg.close())
}

func (l faulty) offer(peer int, o offer) error {
	if l.send != nil && o.seg != nil && peer == 1 {
		return l.send
	}
	return l.link.offer(peer, o)
}

// A segment that one rank cannot have is an error of that call on all ranks, also of those that are
// in other parts, and the group goes on.
func TestSegmentThatOneRankLacksIsAnErrorOfAll(t *testing.T) {
	for name, tc := range map[string]struct {
		rank int
		send error
		call func(w *dist.World) error
	}{
		"heap not received":  {1, nil, newHeapOf},
		"heap not sent":      {0, unix.ETOOMANYREFS, newHeapOf},
		"split not received": {1, nil, splitAll},
		"split not sent":     {0, unix.ETOOMANYREFS, splitAll},
		"split in parts":     {1, nil, func(w *dist.World) error { _, err := w.Split([]int{0, 0, 1, dist.NoColor}[w.Rank()], 0); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			ts, err := Local(4, GoMemory, Config{StepTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			nd := ts[tc.rank].(*worldTransport).node
			whole := nd.link
			errs := wrap(ts, func(w *dist.World) error {
				if w.Rank() == tc.rank {
					nd.link = faulty{whole, tc.send}
				}
				first := tc.call(w)
				if w.Rank() == tc.rank {
					nd.link = whole
				}
				if !errors.Is(first, dist.ErrUnsupported) {
					return fmt.Errorf("error %w, want ErrUnsupported", first)
				}
				if w.Rank() != tc.rank && !strings.Contains(first.Error(), "rank ") {
					return fmt.Errorf("error %w names no rank", first)
				}
				return errors.Join(done(w.Barrier()), newHeapOf(w), splitAll(w))
			})
			for r, err := range errs {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// A rank that never hands its segment over ends the wait for it, and the group, by the step
// timeout.
func TestWaitForASegmentEndsWithTheStepTimeout(t *testing.T) {
	ts, err := Local(2, GoMemory, Config{StepTimeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	of := func(r int) *Transport { return ts[r].(*worldTransport).Transport }
	_, err = of(1).share("nothing", []int{0, 1}, 1<<62, pageBytes)
	for what, err := range map[string]error{"wait": err, "rank 0 later": of(0).ctl.aborted()} {
		if !errors.Is(err, dist.ErrTimeout) || !strings.Contains(err.Error(), "rank 1 still waits for memory of rank 0") {
			t.Errorf("%s: error %v, want ErrTimeout that names the ranks", what, err)
		}
	}
	if err := errors.Join(ts[0].Close(), ts[1].Close()); err != nil {
		t.Error(err)
	}
}
