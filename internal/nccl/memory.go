package nccl

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pageBytes is the C memory of one communicator.
const pageBytes = 8192

// page is memory outside of the Go heap that a communicator exchanges words with NCCL through: results, the scalar of a
// premulsum, structures and names that the library may keep.
type page struct {
	comm     uintptr // ncclComm_t of a communicator that is being made
	window   uintptr // ncclWindow_t
	address  uintptr // of ncclMemAlloc and ncclGetPeerDevicePointer
	scalar   uint64  // of a premulsum, in its low bytes
	redOp    int32   // ncclRedOp_t
	_        int32
	id       [idBytes]byte
	cfg      config
	name     [64]byte // C string
	excluded [maxExcluded]int32
	signals  [maxSignals]waitSignalDesc
}

// maxExcluded and maxSignals are how many ranks a shrink can leave out, and how many peers a wait can name.
const (
	maxExcluded = 1024
	maxSignals  = 128
)

// newPage maps a page, zeroed.
func newPage() (*page, []byte, error) {
	raw, err := unix.Mmap(-1, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("nccl: %d B of memory for a communicator: %w", pageBytes, err)
	}
	return (*page)(unsafe.Pointer(&raw[0])), raw, nil
}

// setName stores name as a C string, cut to fit, and returns its address.
func (p *page) setName(name string) uintptr {
	n := copy(p.name[:len(p.name)-1], name)
	p.name[n] = 0
	return uintptr(unsafe.Pointer(&p.name[0]))
}
