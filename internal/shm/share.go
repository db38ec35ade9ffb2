package shm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"golang.org/x/sys/unix"
)

// share is a new segment that the first of the given world ranks makes and the others receive under
// id. When it cannot be made, all of them get the reason. haveAll follows.
func (t *Transport) share(purpose string, world []int, id uint64, size int64) (segment, error) {
	if world[0] != t.node.rank {
		maker := slices.Index(t.ranks, world[0])
		o, err := t.node.link.take(world[0], id, t.patient(maker))
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", maker, err)
		}
		return o.seg, nil
	}
	o := offer{id: id, size: size}
	seg, err := t.node.maker.make(purpose, size)
	if err != nil {
		o.err = err.Error()
	}
	o.seg = seg
	for _, w := range world[1:] {
		if e := t.node.link.offer(w, o); e != nil && t.aborted() == nil {
			err = errors.Join(err, e)
			_ = t.node.link.offer(w, offer{id: id, err: e.Error()}) // who cannot be reached at all has died
		}
	}
	if err != nil && seg != nil {
		return nil, errors.Join(err, seg.close())
	}
	return seg, err
}

// patient is, for a wait for what rank hands over that begins now, why to give it up: the group is
// broken, by the step timeout at the latest. nil while it is not.
func (t *Transport) patient(rank int) func() error {
	since := time.Now()
	return func() error {
		if d := t.node.cfg.StepTimeout; time.Since(since) > d {
			t.fail(abortTimeout, t.rank, fmt.Sprintf("after %v rank %d still waits for memory of rank %d", d, t.rank, rank))
		}
		return t.aborted()
	}
}

// What a rank tells of a segment that it has not got.
const (
	lacks     = 1 + iota
	lacksRoom // because there is no room for it
)

// haveAll is seg, and nil, where err, of share, is nil on every rank; otherwise it is an error on
// every rank, and seg is closed: no rank goes on with memory that another one has not. All ranks of
// the group call it, with the kind of the call.
func (t *Transport) haveAll(kind dist.Kind, seg segment, err error) (segment, error) {
	own := header{sig: dist.Signature{Kind: kind, Root: -1}}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
		own.a = lacksRoom
	case err != nil:
		own.a = lacks
	}
	broken := t.agree(&own)
	if broken == nil {
		r := slices.IndexFunc(t.headers, func(h header) bool { return h.a != 0 })
		if r < 0 {
			return seg, nil
		}
		if err == nil {
			err = fmt.Errorf("rank %d has not got its memory", r)
		}
		why := dist.ErrUnsupported
		if t.headers[r].a == lacksRoom && kind == dist.KindHeap {
			why = symmetric.ErrNoSpace
		}
		err = fmt.Errorf("%w: %w", why, err)
		broken = t.aborted() // that is why, then
	}
	if broken != nil {
		err = broken
	}
	if seg != nil {
		err = errors.Join(err, seg.close())
	}
	return nil, err
}
