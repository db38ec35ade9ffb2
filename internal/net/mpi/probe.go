package mpi

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// posted is a receive without a message.
type posted struct {
	r    *wire.Request
	peer int // or wire.AnyPeer
	tag  uint32
}

// arrival is a message without a receive. The library holds it, or as yet only its header.
type arrival struct {
	message uint64 // MPI_Message
	from    int
	tag     uint32
	bytes   int
}

// takes reports whether a is a message for p.
func (p *posted) takes(a arrival) bool {
	return p.tag == a.tag && (p.peer == a.from || p.peer == wire.AnyPeer)
}

// probes is the most messages that one Progress takes, so that it returns soon.
const probes = 16

// probe takes the messages that have arrived from the library, and starts the receives for them. It
// reports whether a request ended.
//
// Receives are matched here and not by MPI_Irecv, because Open MPI 4.1 writes past the end of a
// buffer that is shorter than its message: mca_pml_ob1_recv_request_progress_rget takes the
// sender's length. The length must be known first. Also, a receive without a message can then end
// at any time, for the library never had its memory.
func (w *Wire) probe() bool {
	ended := false
	for range probes {
		a, found := w.next(w.comm)
		if !found && w.closed { // no receive will match the messages that fit
			a, found = w.next(w.fits)
		}
		if !found {
			break
		}
		if w.closed {
			w.receive(a, nil)
			continue
		}
		i := 0
		for i < len(w.posted) && !w.posted[i].takes(a) {
			i++
		}
		if i == len(w.posted) {
			w.arrived = append(w.arrived, a)
			continue
		}
		r := w.posted[i].r
		w.posted = append(w.posted[:i], w.posted[i+1:]...)
		w.receive(a, r)
		ended = ended || r.Done()
	}
	return ended
}

// next takes the next message from the library: MPI_Improbe.
func (w *Wire) next(comm uintptr) (a arrival, found bool) {
	t, l := &w.table, w.lib
	t.flag, t.message = 0, 0
	code, err := l.improbe.Status(uintptr(l.anySource), uintptr(l.anyTag), comm, t.word(&t.flag), t.messageWord(), t.status(0))
	if code != 0 || err != nil {
		w.probeFailed(code, err)
		return a, false
	}
	if t.flag == 0 {
		return a, false
	}
	a = arrival{message: t.message, from: int(t.field(0, l.statusSource)), tag: uint32(t.field(0, l.statusSource+4))}
	_, _ = l.getCount.Status(t.status(0), l.byteType, t.word(&t.bytes))
	a.bytes = int(t.bytes)
	return a, true
}

// receive starts the receive of a message that has arrived: MPI_Imrecv. r is its request, or nil to
// drop the message. If the buffer of r is too short, r ends and the message goes to other memory,
// because its sender waits for that. A receive from a lost process ends at once: with the message
// if the library has all of it, else with an error.
func (w *Wire) receive(a arrival, r *wire.Request) {
	t, l := &w.table, w.lib
	e := entry{r: r, peer: a.from, n: a.bytes}
	switch {
	case r == nil:
		e.data = make([]byte, a.bytes)
	case a.bytes > len(r.Data):
		err := fmt.Errorf("%w: %d bytes, and the message of process %d has %d", wire.ErrTruncated, len(r.Data), a.from, a.bytes)
		r.Finish(a.from, 0, err)
		e.r, e.data = nil, make([]byte, a.bytes)
	default:
		e.data = r.Data
	}
	handle := t.add(e)
	t.message = a.message
	code, err := l.imrecv.Status(address(e.data), uintptr(a.bytes), l.byteType, t.messageWord(), handle)
	if code != 0 || err != nil {
		t.drop()
		e.end(0, w.failure(code, err, a.from))
		return
	}
	if _, gone := w.lost[a.from]; gone {
		for range tests {
			if n := len(t.entries); n > 0 {
				w.test(n)
			}
		}
		w.sweep()
	}
}

// messageWord returns the address of message, as a word.
func (t *table) messageWord() uintptr { return uintptr(unsafe.Pointer(&t.message)) }
