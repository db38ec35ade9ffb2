package farheap

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// spins is how often a wait polls the wire before it sleeps: about the time that a message takes.
const spins = 100

// missed is the Hit of a wait that fails, and of a Test without a hit.
var missed = symmetric.Hit{Index: -1}

// Wait implements symmetric.Region.
func (r *Region) Wait(ctx context.Context, w symmetric.Watch) (symmetric.Hit, error) {
	h := r.heap
	if ctx == nil {
		return missed, r.wrong("wait", h.cfg.Rank, w.At, 0, fmt.Errorf("%w: no context", dist.ErrInvalid))
	}
	n, err := r.enterWatch("wait", w)
	if err != nil {
		return missed, err
	}
	at := w.At
	w.At += r.off
	hit, err := missed, error(nil)
	for i := 0; i < spins && hit.Index < 0 && err == nil; i++ {
		if hit, err = h.whole.Test(w); hit.Index < 0 && len(h.far) > 0 {
			h.cfg.Service.w.Progress()
			h.cfg.Service.Progress()
		}
		if i > spins/2 {
			runtime.Gosched()
		}
	}
	if hit.Index < 0 && err == nil {
		hit, err = r.await(ctx, w)
	}
	return hit, r.done("wait", h.cfg.Rank, at, n, err)
}

// Test implements symmetric.Region.
func (r *Region) Test(w symmetric.Watch) (symmetric.Hit, error) {
	n, err := r.enterWatch("test", w)
	if err != nil {
		return missed, err
	}
	at := w.At
	w.At += r.off
	hit, err := r.heap.whole.Test(w)
	return hit, r.done("test", r.heap.cfg.Rank, at, n, err)
}

// enterWatch is enter for a wait or test. Returns: the bytes of the words.
func (r *Region) enterWatch(call string, w symmetric.Watch) (int64, error) {
	size := int64(w.DType.Size())
	if err := hostheap.CheckWatch(w, r.off, r.n); err != nil {
		return 0, r.wrong(call, r.heap.cfg.Rank, w.At, size, err)
	}
	n := int64(w.Count) * size
	return n, r.enter(call, r.heap.cfg.Rank, w.At, n)
}

// await sleeps in the near heap, whose other ranks and the service wake it. w's offset is in the
// heap. A watcher ends the sleep for reasons that the near heap does not know.
func (r *Region) await(ctx context.Context, w symmetric.Watch) (symmetric.Hit, error) {
	h := r.heap
	began := time.Now()
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v := h.watch(r.of, cancel)
	defer h.unwatch(v)
	hit, err := h.whole.Wait(own, w)
	if err != nil && errors.Is(err, dist.ErrClosed) && own.Err() == nil {
		// The near ranks have left, and far ones have not.
		hit, err = h.poll(own, w, began)
	}
	return hit, err
}

// poll is a wait whose words only far ranks and other goroutines of this rank change.
func (h *Heap) poll(ctx context.Context, w symmetric.Watch, began time.Time) (symmetric.Hit, error) {
	var b wire.Backoff
	for {
		hit, err := h.whole.Test(w)
		if err != nil || hit.Index >= 0 {
			return hit, err
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if time.Since(began) > h.timeout {
			err = fmt.Errorf("%w after %v", dist.ErrTimeout, h.timeout)
		}
		if err != nil {
			return missed, hostheap.Unmet(w, h.word(w), err)
		}
		b.Pause()
	}
}

// word returns the first word of w.
func (h *Heap) word(w symmetric.Watch) uint64 {
	dt := w.DType
	if dt == tensor.Invalid {
		return 0
	}
	bits, err := h.whole.GetWord(h.near[h.cfg.Rank], w.At, dt)
	if err != nil {
		return 0
	}
	return bits
}

// watcher is a wait that sleeps.
type watcher struct {
	heap   *Heap
	of     *allocation
	cancel context.CancelCauseFunc
}

// check ends the wait if it is in vain.
func (v *watcher) check() {
	if err := v.vain(); err != nil {
		v.cancel(err)
	}
}

// vain returns why the wait cannot succeed, or nil.
func (v *watcher) vain() error {
	h := v.heap
	switch {
	case h.gate.Closed():
		return hostheap.ErrClosed
	case v.of.freed.Load():
		return hostheap.ErrFreed
	}
	err := h.failed()
	if err == nil && h.cfg.Alone != nil {
		err = h.cfg.Alone()
	}
	return err
}

// watch lets the service end a wait that becomes vain.
func (h *Heap) watch(of *allocation, cancel context.CancelCauseFunc) *watcher {
	s, v := h.cfg.Service, &watcher{heap: h, of: of, cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, v)
	v.check() // the reason may have come before
	return v
}

func (h *Heap) unwatch(v *watcher) {
	s := h.cfg.Service
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.watchers, v); i >= 0 {
		s.watchers = slices.Delete(s.watchers, i, i+1)
	}
}

// wake ends the sleeping waits that are in vain.
func (h *Heap) wake() {
	s := h.cfg.Service
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.watchers {
		if v.heap == h {
			v.check()
		}
	}
}
