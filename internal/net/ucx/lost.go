package ucx

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// notes has the failures of a wire's endpoints between the error handler and Progress.
type notes struct {
	id   uint32
	some atomic.Bool
	mu   sync.Mutex
	list []failure
}

// failure is an endpoint that failed.
type failure struct {
	peer int
	s    status
}

// books has the notes of the open wires of this process, for the error handler. There is one
// handler, because callbacks are never freed.
var books = struct {
	sync.Mutex
	next uint32
	open map[uint32]*notes
}{open: map[uint32]*notes{}}

// register returns new notes, which the error handler finds until close.
func register() *notes {
	books.Lock()
	defer books.Unlock()
	books.next++
	n := &notes{id: books.next}
	books.open[n.id] = n
	return n
}

func (n *notes) close() {
	books.Lock()
	defer books.Unlock()
	delete(books.open, n.id)
}

// arg returns the argument of the error handler for the endpoint to peer.
func (n *notes) arg(peer int) uintptr { return uintptr(n.id)<<senderShift | uintptr(peer) }

// handleError is the error handler of endpoints (ucp_err_handler_cb_t). The library calls it with
// the lock of a wire held. Therefore it only adds a note.
func handleError(arg, _ uintptr, s int32) {
	books.Lock()
	n := books.open[uint32(arg>>senderShift)]
	books.Unlock()
	if n != nil {
		n.add(int(arg&wireMask), status(s))
	}
}

func (n *notes) add(peer int, s status) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, failure{peer, s})
	n.some.Store(true)
}

// take returns the failures since the last call.
func (n *notes) take() []failure {
	if !n.some.Load() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	n.some.Store(false)
	return list
}

// orphan is a request of the library without one of the wire. It keeps the memory that the library
// may still use.
type orphan struct {
	request uintptr
	data    []byte
}

// pollOrphans frees the orphans that have ended.
func (w *Wire) pollOrphans() {
	w.orphans = slices.DeleteFunc(w.orphans, func(o orphan) bool {
		done := w.status(o.request, false) != statusInProgress
		if done {
			w.lib.release(o.request)
		}
		return done
	})
}

// adopt keeps the request in the result of a call, if it is one.
func (w *Wire) adopt(h uintptr, data []byte) {
	if _, more := pointerStatus(h); more {
		w.orphans = append(w.orphans, orphan{h, data})
	}
}

// abandon ends a pending request with err, or with its result if the library has finished.
func (w *Wire) abandon(r *wire.Request, err error) {
	h, recv := uintptr(r.Handle[handleRequest]), r.Handle[handleKind]&kindRecv != 0
	if recv {
		_, _ = w.lib.cancel.Status(w.worker, h)
	}
	switch s := w.status(h, recv); {
	case s == statusOK:
		w.poll(r)
		return
	case s == statusInProgress:
		w.adopt(h, r.Data)
	default:
		w.lib.release(h)
	}
	w.pending.remove(r)
	r.Finish(max(int(int64(r.Handle[handlePeer])), 0), 0, err)
}

// Lose implements wire.Wire.
func (w *Wire) Lose(peer int, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if peer < 0 || peer >= len(w.peers) || w.closed {
		return
	}
	w.lose(peer, how)
	w.closeEndpoint(peer)
}

// failedEndpoint ends the requests with a peer whose endpoint failed. It returns the loss if it is
// new.
func (w *Wire) failedEndpoint(f failure) *wire.PeerError {
	w.closeEndpoint(f.peer)
	if w.peers[f.peer].lost != nil {
		return nil
	}
	return w.lose(f.peer, w.lib.text(f.s))
}

// closeEndpoint closes the endpoint to a lost peer without its consent. Pending sends end then.
func (w *Wire) closeEndpoint(p int) {
	q := &w.peers[p]
	if q.endpoint == 0 {
		return
	}
	h, _ := w.lib.epClose.CallWords(q.endpoint, address(&w.call.force))
	q.endpoint = 0
	w.adopt(h, nil)
}

// lose notes the loss of a peer, and ends the requests with it.
func (w *Wire) lose(p int, how string) *wire.PeerError {
	q := &w.peers[p]
	if q.lost != nil {
		return q.lost
	}
	q.lost = &wire.PeerError{Peer: p, How: how}
	for i := len(w.pending) - 1; i >= 0; i-- {
		if r := w.pending[i]; int64(r.Handle[handlePeer]) == int64(p) {
			w.abandon(r, q.lost)
		}
	}
	return q.lost
}
