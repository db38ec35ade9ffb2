package nccl

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pageBytes is the C memory of one communicator.
const pageBytes = 8192

// page is memory outside the Go heap that a communicator shares with NCCL: results, the scalar of a
// premulsum, structures. The library keeps no pointer to it after a call (names are elsewhere).
type page struct {
	comm    uintptr // ncclComm_t of a new communicator
	window  uintptr // ncclWindow_t
	address uintptr // of ncclMemAlloc and ncclGetPeerDevicePointer
	scalar  uint64  // of a premulsum, in its low bytes
	redOp   int32   // ncclRedOp_t
	_       int32
	id      [idBytes]byte
	cfg     config
}

// newPage maps a page, zeroed.
func newPage() (*page, []byte, error) {
	raw, err := unix.Mmap(-1, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("nccl: %d B of memory for a communicator: %w", pageBytes, err)
	}
	return (*page)(unsafe.Pointer(&raw[0])), raw, nil
}

// nameBytes is the size of a communicator's name, with the zero at its end.
const nameBytes = 64

// names has the communicators' names as C strings, which are never freed. NCCL keeps a name's
// address as long as the communicator. It frees the communicators of all ranks of a process with
// the last of them, after the pages of the others are gone (init.cc, commReclaim).
type names struct {
	mu   sync.Mutex
	at   map[string]uintptr
	room []byte
}

// of returns the address of name, cut to fit.
func (n *names) of(name string) (uintptr, error) {
	name = name[:min(len(name), nameBytes-1)]
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.at[name]; ok {
		return at, nil
	}
	if len(n.room) < nameBytes {
		_, raw, err := newPage()
		if err != nil {
			return 0, err
		}
		n.room = raw
	}
	slot := n.room[:nameBytes:nameBytes] // zeroed, so that a zero follows
	n.room = n.room[nameBytes:]
	copy(slot, name)
	if n.at == nil {
		n.at = map[string]uintptr{}
	}
	n.at[name] = uintptr(unsafe.Pointer(&slot[0]))
	return n.at[name], nil
}
