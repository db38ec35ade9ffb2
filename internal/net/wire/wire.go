// Package wire is the contract for bytes between processes that do not share memory: messages with
// tags, and the news that a process is gone. Packages mpi and ucx implement it over libraries, and
// package fake in one process, for tests. Package hosts builds collectives on it.
//
// # Rules
//
// Messages from one process to another with one tag arrive in the order of their Sends, in the
// receives of that order. Messages with different tags overtake each other. Nothing moves without
// calls of Progress; Wait makes them.
//
// A wire moves bytes only. It does no arithmetic, so that sums keep their order.
package wire

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/symgrad/symgrad/internal/invariants"
)

// AnyPeer is the peer of a receive that takes a message of any process.
const AnyPeer = -1

// MaxBytes is the most bytes of one message. Libraries count in 32 bits.
const MaxBytes = 1 << 30

// Errors of requests.
var (
	// ErrCanceled is the error of a receive after Cancel.
	ErrCanceled = errors.New("receive canceled")
	// ErrClosed is the error of a request that begins after Close, or is pending at Close.
	ErrClosed = errors.New("wire closed")
	// ErrTruncated is the error of a receive whose message has more bytes than its buffer.
	ErrTruncated = errors.New("message longer than its buffer")
)

// PeerError is the error of requests with a process that is gone.
type PeerError struct {
	Peer int
	How  string // observation: "connection reset", "no heartbeat for 3 s"
}

// Error returns "process 2 is gone: connection reset".
func (e *PeerError) Error() string { return fmt.Sprintf("process %d is gone: %s", e.Peer, e.How) }

// Wire is one process's end of the wire of a job. Its methods may be called from any goroutine,
// concurrently.
type Wire interface {
	// Info returns this process's place and the library.
	Info() Info
	// Send starts sending data, 0 to MaxBytes bytes, to peer.
	//
	// Owns: data belongs to the wire, and must not change, until r is done. Errors: in r.
	Send(r *Request, peer int, tag uint32, data []byte)
	// Recv starts receiving a message of at most len(buf) bytes from peer, or from AnyPeer.
	//
	// Owns: buf belongs to the wire until r is done. Errors: in r; ErrTruncated for a longer
	// message.
	Recv(r *Request, peer int, tag uint32, buf []byte)
	// Progress moves pending messages, without waiting, and reports whether a request ended.
	Progress() bool
	// Cancel ends a pending receive with ErrCanceled, unless a message has arrived for it.
	Cancel(r *Request)
	// Lose declares that peer is gone: pending and later requests with it end with a *PeerError
	// that has how. Memory of these requests that the library may still write is never reused.
	Lose(peer int, how string)
	// Close ends this process's part. Messages that were sent before still arrive. Idempotent.
	Close() error
}

// Info describes an end of a wire.
type Info struct {
	Rank    int    // this process, from 0
	Size    int    // processes
	Engine  string // "mpi", "ucx", "fake"
	Library string // name, version and path of the library; empty for none
	Tags    uint32 // tags are 0 to Tags-1; at least 1<<15
	Joint   bool   // Close waits for the Close of all other processes
	// OnLost, if not nil, is called once for each process that the library finds gone, in Progress.
	OnLost func(peer int, how string)
}

// Request is a message on its way. The caller makes it, and may use it again once it is done. The
// zero value is ready.
type Request struct {
	// Data is the memory of the message, and Handle the state of the library. Both belong to the
	// implementation while the request is pending.
	Data   []byte
	Handle [4]uint64
	// Fits promises that the message has at most as many bytes as the buffer of its receive. Both
	// ends set it before Send and Recv, or neither; the receive names its peer. Some libraries are
	// then faster, because they may write to the buffer as soon as the message begins to arrive.
	Fits bool

	state atomic.Uint32
	from  int
	n     int
	err   error
}

// States of a request.
const (
	idle uint32 = iota
	pending
	done
)

// Begin marks r as pending. It is for implementations.
func (r *Request) Begin(data []byte) {
	if invariants.Enabled && r.state.Load() == pending {
		panic("BUG: wire: a pending request began again")
	}
	r.Data, r.from, r.n, r.err = data, 0, 0, nil
	r.state.Store(pending)
}

// Finish marks r as done. It is for implementations.
func (r *Request) Finish(from, n int, err error) {
	r.Data, r.from, r.n, r.err = nil, from, n, err
	r.state.Store(done)
}

// Pending reports whether r has begun and is not done.
func (r *Request) Pending() bool { return r.state.Load() == pending }

// Done reports whether r has ended, or never began.
func (r *Request) Done() bool { return r.state.Load() != pending }

// Result returns the sender, the number of bytes and the error of a request that is done.
func (r *Request) Result() (from, n int, err error) { return r.from, r.n, r.err }
