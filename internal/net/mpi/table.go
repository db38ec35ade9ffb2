package mpi

import (
	"encoding/binary"
	"unsafe"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// table has the pending requests, and the memory that the library reads and writes in a call. A
// library uses it only during the call, so it can be Go memory.
type table struct {
	handleBytes, statusBytes int

	entries  []entry
	handles  []byte  // MPI_Request of each entry
	indices  []int32 // out: of MPI_Testsome
	statuses []byte  // out: of MPI_Testsome; the first is also that of other calls

	count   int32  // out: a number
	bytes   int32  // out: of a message
	flag    int32  // out: a truth value
	message uint64 // in and out: an MPI_Message
}

// entry is a send, or the receive of a message that has arrived.
type entry struct {
	r    *wire.Request // nil for a message that is dropped
	peer int
	n    int    // bytes of the message
	data []byte // of a receive: the memory that the library fills
	over bool   // until compact

	received bool // by MPI_Irecv: the library knows the bytes
	canceled bool // by MPI_Cancel
}

// end ends the request of e with n bytes or an error.
func (e *entry) end(n int, err error) {
	if e.r != nil {
		e.r.Finish(e.peer, n, err)
	}
	e.over = true
}

// memory returns the memory that the library uses for e.
func (e *entry) memory() []byte {
	if e.data == nil && e.r != nil {
		return e.r.Data
	}
	return e.data
}

func newTable(a *abi) table {
	t := table{handleBytes: a.handleBytes, statusBytes: a.statusBytes}
	t.reserve(16)
	return t
}

// reserve makes memory for n requests.
func (t *table) reserve(n int) {
	handles := make([]byte, n*t.handleBytes)
	copy(handles, t.handles)
	t.handles, t.indices, t.statuses = handles, make([]int32, n), make([]byte, n*t.statusBytes)
}

// add returns the address of a new request's handle. The library fills only handleBytes of it.
func (t *table) add(e entry) uintptr {
	n := len(t.entries)
	if n == len(t.indices) {
		t.reserve(2 * n)
	}
	t.entries = append(t.entries, e)
	clear(t.handles[n*t.handleBytes:][:t.handleBytes])
	return t.handle(n)
}

// drop removes the entry that add made last.
func (t *table) drop() {
	n := len(t.entries) - 1
	t.entries[n] = entry{}
	t.entries = t.entries[:n]
}

// handle returns the address of an entry's MPI_Request.
func (t *table) handle(i int) uintptr { return address(t.handles) + uintptr(i*t.handleBytes) }

// compact removes the requests that have ended.
func (t *table) compact() {
	n := 0
	for i, e := range t.entries {
		if e.over {
			continue
		}
		if n != i {
			t.entries[n] = e
			copy(t.handles[n*t.handleBytes:][:t.handleBytes], t.handles[i*t.handleBytes:])
		}
		n++
	}
	clear(t.entries[n:])
	t.entries = t.entries[:n]
}

// status returns the address of a status.
func (t *table) status(k int) uintptr { return address(t.statuses) + uintptr(k*t.statusBytes) }

// field returns the int at an offset of a status.
func (t *table) field(k, offset int) int32 {
	return int32(binary.NativeEndian.Uint32(t.statuses[k*t.statusBytes+offset:]))
}

// address returns the address of b for a call, as a word. The caller keeps b alive, on the heap.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// word returns the address of a field of t, as a word.
func (t *table) word(field *int32) uintptr { return uintptr(unsafe.Pointer(field)) }
