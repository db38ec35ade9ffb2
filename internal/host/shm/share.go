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

// share returns a new segment. The first of the given world ranks makes it, and the others receive
// it under id. If it cannot be made, all of them get the reason. The caller then calls haveAll.
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
		if e := t.node.link.offer(w, o); e != nil && t.ctl.aborted() == nil {
			err = errors.Join(err, e)
			_ = t.node.link.offer(w, offer{id: id, err: e.Error()}) // an unreachable rank has died
		}
	}
	if err != nil && seg != nil {
		return nil, errors.Join(err, seg.close())
	}
	return seg, err
}

// patient returns a function for a wait that begins now for a segment of rank. The function returns
// why to give up, or nil: the group is broken, at the latest by the step timeout.
func (t *Transport) patient(rank int) func() error {
	since := time.Now()
	return func() error {
		if d := t.node.cfg.StepTimeout; time.Since(since) > d {
			t.ctl.fail(abortTimeout, t.rank, fmt.Sprintf("after %v rank %d still waits for memory of rank %d", d, t.rank, rank))
		}
		return t.ctl.aborted()
	}
}

// Values of header.a for a segment that a rank does not have.
const (
	lacks     = 1 + iota
	lacksRoom // no room for it
)

// haveAll returns seg if err, of share, is nil on every rank. Otherwise every rank gets an error
// and seg is closed: no rank goes on with memory that another one lacks. All ranks of the group
// call it, with the kind of the call.
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
			err = fmt.Errorf("rank %d did not get its memory", r)
		}
		why := dist.ErrUnsupported
		if t.headers[r].a == lacksRoom && kind == dist.KindHeap {
			why = symmetric.ErrNoSpace
		}
		err = fmt.Errorf("%w: %w", why, err)
		broken = t.ctl.aborted() // the abort is then the cause
	}
	if broken != nil {
		err = broken
	}
	if seg != nil {
		err = errors.Join(err, seg.close())
	}
	return nil, err
}
