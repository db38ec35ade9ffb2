package ucx

import (
	"slices"
	"time"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// Control messages, in the lowest bits of their tags. They have no bytes.
const (
	goodbye = iota // the sender closes its wire, and has sent all its messages before
	answer         // the sender has received a goodbye
)

// leftText is the observation of a peer that closed its wire.
const leftText = "closed its wire"

// listen posts the receive of control messages.
func (w *Wire) listen() {
	h, err := w.lib.recv.CallWords(w.worker, address(&w.call.nothing), 0, controlTag, controlTag, address(&w.call.recv))
	if _, more := pointerStatus(h); err == nil && more {
		w.control = h
	}
}

// say sends a control message.
func (w *Wire) say(p int, word uint64) {
	ep, err := w.endpoint(p)
	if err != nil {
		return
	}
	h, err := w.lib.send.CallWords(ep, address(&w.call.nothing), 0, w.tag(controlTag|word), address(&w.call.send))
	if err == nil {
		w.adopt(h, nil)
	}
}

// pollControl reads the control messages that have arrived.
func (w *Wire) pollControl() {
	for w.control != 0 {
		s := w.status(w.control, true)
		if s == statusInProgress {
			return
		}
		tag := w.call.info.tag
		w.lib.release(w.control)
		w.control = 0
		w.listen()
		if p := int(tag >> senderShift); s == statusOK && p < len(w.peers) {
			w.hear(p, tag&(controlTag-1))
		}
	}
}

// hear handles a control message.
func (w *Wire) hear(p int, word uint64) {
	switch word {
	case goodbye:
		if w.peers[p].lost == nil {
			w.say(p, answer)
		}
		w.lose(p, leftText)
	case answer:
		w.peers[p].answered = true
	}
}

// Close implements wire.Wire. It waits until messages that were sent have been received, for 5 s at
// most, and until the peers have answered a goodbye, for 5 s at most: without the answer, messages
// may still be in the socket, and packets are lost. After the loss of a peer these times are a
// tenth: the job has failed, and its launcher waits.
func (w *Wire) Close() error {
	w.closing.Do(func() {
		w.with(w.leave)
		w.with(w.hurry)
		w.until(w.patience, w.sent)
		w.with(w.sayGoodbye)
		w.until(w.patience, func() bool { return w.peers.allAnswered(w.info.Rank) })
		w.with(w.closeEndpoints)
		w.until(w.patience/5, func() bool { return len(w.orphans) == 0 })
		w.with(w.end)
	})
	return nil
}

func (w *Wire) with(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

// until makes progress until done, for patience at most.
func (w *Wire) until(patience time.Duration, done func() bool) {
	end := time.Now().Add(patience)
	for b := (wire.Backoff{}); ; b.Pause() {
		var moved, is bool
		w.with(func() { moved, _ = w.progress(); is = done() })
		switch {
		case is || time.Now().After(end):
			return
		case moved:
			b.Reset()
		}
	}
}

// leave refuses new requests, and cancels the receives.
func (w *Wire) leave() {
	w.leaving = true
	for i := len(w.pending) - 1; i >= 0; i-- {
		if r := w.pending[i]; r.Handle[handleKind]&kindRecv != 0 {
			w.cancel(r)
		}
	}
}

// hurry shortens the waits after the loss of a peer.
func (w *Wire) hurry() {
	if slices.ContainsFunc(w.peers, func(q peer) bool { return q.lost != nil && q.lost.How != leftText }) {
		w.patience /= 10
	}
}

// sent reports that no request is pending: messages that were sent are with their receivers.
func (w *Wire) sent() bool { return len(w.pending) == 0 }

func (w *Wire) sayGoodbye() {
	for p := range w.peers {
		if w.peers.connected(p, w.info.Rank) {
			w.say(p, goodbye)
		}
	}
}

// closeEndpoints closes the endpoints without consent. A peer that answered has all messages. One
// that did not makes no progress, and the library's orderly close would wait for it.
func (w *Wire) closeEndpoints() {
	for p := range w.peers {
		w.closeEndpoint(p)
	}
}

// end ends the requests that are left, and the worker.
func (w *Wire) end() {
	w.closed = true
	if w.control != 0 {
		_, _ = w.lib.cancel.Status(w.worker, w.control)
		w.lib.release(w.control)
	}
	for len(w.pending) > 0 {
		w.abandon(w.pending[0], wire.ErrClosed)
	}
	for _, o := range w.orphans { // the library asserts that they are free
		w.lib.release(o.request)
	}
	w.drain()
	w.stop()
	w.notes.close()
	w.orphans = nil
}

// drain takes the messages that have come for no receive, because the library warns of each message
// that is left at its end.
func (w *Wire) drain() {
	for {
		h, err := w.lib.recv.CallWords(w.worker, address(&w.call.nothing), 0, 0, 0, address(&w.call.recv))
		if _, more := pointerStatus(h); err != nil || !more {
			return
		}
		waits := w.status(h, true) == statusInProgress
		if waits {
			_, _ = w.lib.cancel.Status(w.worker, h)
		}
		w.lib.release(h)
		if waits {
			return
		}
	}
}
