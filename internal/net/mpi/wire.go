package mpi

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/net/wire"
)

// Info implements wire.Wire.
func (w *Wire) Info() wire.Info { return w.info }

// Send implements wire.Wire: MPI_Isend.
func (w *Wire) Send(r *wire.Request, peer int, tag uint32, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Begin(data)
	err := w.refuses(peer, tag, len(data))
	if how, gone := w.lost[peer]; gone && err == nil {
		err = &wire.PeerError{Peer: peer, How: how}
	}
	if err != nil {
		r.Finish(peer, 0, err)
		return
	}
	w.start(w.lib.isend, entry{r: r, peer: peer, n: len(data)}, tag, data)
}

// start starts the request of e, by MPI_Isend or MPI_Irecv.
func (w *Wire) start(p dl.Proc, e entry, tag uint32, data []byte) {
	comm := w.comm
	if e.r.Fits {
		comm = w.fits
	}
	handle := w.table.add(e)
	code, err := p.Status(address(data), uintptr(len(data)), w.lib.byteType, uintptr(e.peer), uintptr(tag), comm, handle)
	if code != 0 || err != nil {
		w.table.drop()
		e.r.Finish(e.peer, 0, w.failure(code, err, e.peer))
		w.sweep()
	}
}

// Recv implements wire.Wire. The library gets the buffer when a message for it has arrived: see
// probe. A message that fits is left to the library.
func (w *Wire) Recv(r *wire.Request, peer int, tag uint32, buf []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Begin(buf)
	at := peer
	if peer == wire.AnyPeer {
		at = 0
	}
	if err := w.refuses(at, tag, len(buf)); err != nil {
		r.Finish(peer, 0, err)
		return
	}
	if r.Fits {
		if how, gone := w.lost[peer]; gone {
			r.Finish(peer, 0, &wire.PeerError{Peer: peer, How: how})
		} else {
			w.start(w.lib.irecv, entry{r: r, peer: peer, received: true}, tag, buf)
		}
		return
	}
	p := posted{r, peer, tag}
	for i, a := range w.arrived {
		if p.takes(a) {
			w.arrived = append(w.arrived[:i], w.arrived[i+1:]...)
			w.receive(a, r)
			return
		}
	}
	if how, gone := w.lost[peer]; gone {
		r.Finish(peer, 0, &wire.PeerError{Peer: peer, How: how})
		return
	}
	w.posted = append(w.posted, p)
}

// refuses returns the error of a request that cannot begin.
func (w *Wire) refuses(peer int, tag uint32, bytes int) error {
	switch {
	case w.closed:
		return wire.ErrClosed
	case peer < 0 || peer >= w.info.Size:
		return fmt.Errorf("mpi: no process %d: the world has %d", peer, w.info.Size)
	case tag >= w.info.Tags:
		return fmt.Errorf("mpi: tag %d is too large: the library has tags below %d", tag, w.info.Tags)
	case bytes > wire.MaxBytes:
		return fmt.Errorf("mpi: a message of %d bytes is too long: send at most %d at once", bytes, wire.MaxBytes)
	}
	return nil
}

// Progress implements wire.Wire: MPI_Testsome and MPI_Improbe.
func (w *Wire) Progress() bool {
	if !w.mu.TryLock() {
		return false // another goroutine makes progress, for all
	}
	moved := !w.over && w.poll()
	news := w.news
	w.news = nil
	w.mu.Unlock()
	for _, p := range news {
		if w.info.OnLost != nil {
			w.info.OnLost(p.Peer, p.How)
		}
	}
	return moved || len(news) > 0
}

// Cancel implements wire.Wire.
func (w *Wire) Cancel(r *wire.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, p := range w.posted {
		if p.r == r {
			w.posted = append(w.posted[:i], w.posted[i+1:]...)
			r.Finish(p.peer, 0, wire.ErrCanceled)
			return
		}
	}
	for i, e := range w.table.entries {
		if e.r == r {
			w.cancelAt(i)
			w.test(len(w.table.entries))
			return
		}
	}
}

// cancelAt cancels entry i if it is a receive without a message.
func (w *Wire) cancelAt(i int) {
	if e := &w.table.entries[i]; e.received && !e.canceled {
		e.canceled = true
		_, _ = w.lib.cancel.Status(w.table.handle(i))
	}
}

// tests is the number of tests in a poll: one for sends that have ended at once, one that moves
// messages, and one that sees them.
const tests = 3

// A probe costs as much as a test, which moves all messages as well. While requests are pending in
// the library, polls without a test that ends one probe after probeAfter of them, and otherwise
// every probeTurns-th poll does.
const (
	probeAfter = 8
	probeTurns = 64
)

// poll moves messages, and reports whether a request ended. The lock is held.
func (w *Wire) poll() bool {
	moved := false
	for range tests {
		if n := len(w.table.entries); n > 0 {
			moved = w.test(n) || moved
		}
	}
	w.turn++
	if w.idle++; moved {
		w.idle = 0
	}
	if !moved && len(w.table.entries) == 0 || w.idle > probeAfter || w.turn%probeTurns == 0 {
		moved = w.probe() || moved
	}
	if len(w.news) > 0 {
		w.sweep()
	}
	return moved
}

// test ends the first n requests of the table that the library has completed, and reports whether
// one ended.
func (w *Wire) test(n int) bool {
	t, l := &w.table, w.lib
	t.count = 0
	code, err := l.testSome.Status(uintptr(n), address(t.handles), t.word(&t.count), t.word(&t.indices[0]), address(t.statuses))
	if t.count <= 0 {
		if code == 0 && err == nil {
			return false
		}
		w.failAll(w.failure(code, err, wire.AnyPeer))
		return true
	}
	for k, i := range t.indices[:t.count] {
		e := &t.entries[i]
		var failed int32
		if code != 0 { // otherwise the field is not set
			failed = t.field(k, l.statusError)
		}
		switch {
		case failed != 0:
			e.end(0, w.failure(failed, nil, e.peer))
		case e.received:
			w.received(e, t.status(k))
		default:
			e.end(e.n, nil)
		}
	}
	t.compact()
	return true
}

// received ends the receive of e, which the library has matched or canceled.
func (w *Wire) received(e *entry, status uintptr) {
	t, l := &w.table, w.lib
	if e.canceled {
		t.flag = 0
		if _, _ = l.testCancelled.Status(status, t.word(&t.flag)); t.flag != 0 {
			err := wire.ErrCanceled
			if w.closed {
				err = wire.ErrClosed
			}
			e.end(0, err)
			return
		}
	}
	_, _ = l.getCount.Status(status, l.byteType, t.word(&t.bytes))
	e.end(int(t.bytes), nil)
}
