package ucx

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// The parts of a tag of UCX. A message for control has the bit controlTag in its lower half.
const (
	senderShift = 32
	senderMask  = 0xffffffff << senderShift
	wireMask    = 1<<senderShift - 1
	wholeMask   = senderMask | wireMask
	controlTag  = 1 << 31
)

// The words of Request.Handle.
const (
	handleRequest = iota // of UCX
	handlePeer           // int64: AnyPeer is -1
	handleIndex          // in Wire.pending
	handleKind
)

// Bits of Handle[handleKind].
const (
	kindRecv     = 1 << iota
	kindCanceled // Cancel was called, and the library may take its time
)

// Send implements wire.Wire.
func (w *Wire) Send(r *wire.Request, peer int, tag uint32, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Begin(data)
	if err := w.refuses(peer, tag, data); err != nil {
		r.Finish(peer, 0, err)
		return
	}
	q := &w.peers[peer]
	if q.lost != nil {
		r.Finish(peer, 0, q.lost)
		return
	}
	ep, err := w.endpoint(peer)
	if err != nil {
		r.Finish(peer, 0, err)
		return
	}
	h, err := w.lib.send.CallWords(ep, w.call.of(data), uintptr(len(data)), w.tag(uint64(tag)), address(&w.call.send))
	if err != nil {
		r.Finish(peer, 0, err)
		return
	}
	s, more := pointerStatus(h)
	if more {
		w.pending.add(r, h, peer, 0)
		return
	}
	w.finish(r, s, peer, len(data), 0)
}

// Recv implements wire.Wire.
func (w *Wire) Recv(r *wire.Request, peer int, tag uint32, buf []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Begin(buf)
	if err := w.refuses(max(peer, 0), tag, buf); err != nil || peer < wire.AnyPeer {
		r.Finish(peer, 0, firstOf(err, fmt.Errorf("ucx: no process %d", peer)))
		return
	}
	from, mask := uint64(peer)<<senderShift, uint64(wholeMask)
	if peer == wire.AnyPeer {
		from, mask = 0, wireMask
	} else if w.peers[peer].lost == nil {
		if _, err := w.endpoint(peer); err != nil { // it watches the peer
			r.Finish(peer, 0, err)
			return
		}
	}
	h, err := w.lib.recv.CallWords(w.worker, w.call.of(buf), uintptr(len(buf)), uintptr(from|uint64(tag)), uintptr(mask), address(&w.call.recv))
	if err != nil {
		r.Finish(peer, 0, err)
		return
	}
	s, more := pointerStatus(h)
	if !more {
		w.finish(r, s, peer, 0, kindRecv)
		return
	}
	w.pending.add(r, h, peer, kindRecv)
	if w.poll(r) || peer == wire.AnyPeer || w.peers[peer].lost == nil {
		return
	}
	w.abandon(r, w.peers[peer].lost) // it had not arrived
}

// refuses returns the error of a request that cannot begin.
func (w *Wire) refuses(peer int, tag uint32, data []byte) error {
	switch {
	case w.leaving:
		return wire.ErrClosed
	case peer < 0 || peer >= len(w.peers):
		return fmt.Errorf("ucx: no process %d", peer)
	case tag >= Tags:
		return fmt.Errorf("ucx: tag %d: the largest is %d", tag, Tags-1)
	case len(data) > wire.MaxBytes:
		return fmt.Errorf("ucx: message of %d bytes: the longest is %d", len(data), wire.MaxBytes)
	}
	return nil
}

// address returns the address of Go memory that other references keep alive.
func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// of returns the address of b, which its request keeps alive.
func (m *callMemory) of(b []byte) uintptr {
	if len(b) == 0 {
		return address(&m.nothing)
	}
	return address(unsafe.SliceData(b))
}

// tag returns the tag in UCX of a message of this process.
func (w *Wire) tag(tag uint64) uintptr { return uintptr(uint64(w.info.Rank)<<senderShift | tag) }

// status returns the status of a request of the library. For a receive that has ended, it sets
// w.call.info.
func (w *Wire) status(h uintptr, recv bool) status {
	if recv {
		return status(w.lib.test.Status2(h, address(&w.call.info)))
	}
	return status(w.lib.check.Status2(h, 0))
}

// poll ends r if the library has finished, and reports whether it did.
func (w *Wire) poll(r *wire.Request) bool {
	h, peer, kind := uintptr(r.Handle[handleRequest]), int(int64(r.Handle[handlePeer])), r.Handle[handleKind]
	s := w.status(h, kind&kindRecv != 0)
	if s == statusInProgress {
		return false
	}
	n := len(r.Data)
	if kind&kindRecv != 0 && s != statusCanceled {
		peer, n = int(w.call.info.tag>>senderShift), int(w.call.info.length)
	}
	w.lib.release(h)
	w.pending.remove(r)
	w.finish(r, s, peer, n, kind)
	return true
}

// finish ends r with the library's status. n counts without an error.
func (w *Wire) finish(r *wire.Request, s status, peer, n int, kind uint64) {
	var lost *wire.PeerError
	if peer >= 0 && peer < len(w.peers) {
		lost = w.peers[peer].lost
	}
	switch {
	case s == statusOK:
		if kind&kindRecv != 0 && peer < len(w.peers) {
			w.peers[peer].heard = true
		}
		r.Finish(peer, n, nil)
	case s == statusTruncated:
		r.Finish(peer, 0, fmt.Errorf("%w: %d bytes, and the message of process %d has %d", wire.ErrTruncated, len(r.Data), peer, n))
	case w.leaving && s == statusCanceled:
		r.Finish(max(peer, 0), 0, wire.ErrClosed)
	case kind&kindCanceled != 0:
		r.Finish(max(peer, 0), 0, wire.ErrCanceled)
	case lost != nil:
		r.Finish(peer, 0, lost)
	case s.local() || peer < 0:
		r.Finish(max(peer, 0), 0, fmt.Errorf("ucx: message with process %d: %s", peer, w.lib.text(s)))
	default:
		w.notes.add(peer, s)
		r.Finish(peer, 0, &wire.PeerError{Peer: peer, How: w.lib.text(s)})
	}
}

// Progress implements wire.Wire. It also reports true if the library moved something.
func (w *Wire) Progress() bool {
	w.mu.Lock()
	moved, news := w.progress()
	w.mu.Unlock()
	for _, e := range news {
		w.info.OnLost(e.Peer, e.How)
	}
	return moved
}

// idleTurns is how often requests are looked at although the library did not report an event.
const idleTurns = 16

// progress is Progress with the lock held. It returns the losses to report to OnLost.
func (w *Wire) progress() (moved bool, news []*wire.PeerError) {
	if w.closed {
		return false, nil
	}
	n, _ := w.lib.progress.Status(w.worker)
	w.turn++
	if n == 0 && w.turn%idleTurns != 0 && !w.notes.some.Load() {
		return false, nil
	}
	moved = n != 0
	for i := len(w.pending) - 1; i >= 0; i-- {
		moved = w.poll(w.pending[i]) || moved
	}
	w.pollControl()
	w.pollOrphans()
	for _, f := range w.notes.take() {
		if e := w.failedEndpoint(f); e != nil {
			moved = true
			if w.info.OnLost != nil && !w.leaving {
				news = append(news, e)
			}
		}
	}
	return moved, news
}

// Cancel implements wire.Wire.
func (w *Wire) Cancel(r *wire.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Pending() && r.Handle[handleKind]&kindRecv != 0 && !w.closed {
		w.cancel(r)
	}
}

// cancel cancels a receive. A message of a lost peer may have begun to arrive in a receive from any
// peer: such a request would never end.
func (w *Wire) cancel(r *wire.Request) {
	_, _ = w.lib.cancel.Status(w.worker, uintptr(r.Handle[handleRequest]))
	r.Handle[handleKind] |= kindCanceled
	if !w.poll(r) && int64(r.Handle[handlePeer]) == wire.AnyPeer && w.peers.someLost() {
		w.abandon(r, wire.ErrCanceled)
	}
}
