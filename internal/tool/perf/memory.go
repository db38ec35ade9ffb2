package perf

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

const (
	guardBytes = 64   // after the elements of a case, to detect writes past the end
	guardValue = 0xc9 // their value
	poison     = 0xa5 // value of a destination before a checked operation
)

// area is one of the buffers that all cases share.
type area struct {
	raw []byte        // on the host the memory itself; for a device, a host copy
	buf tensor.Buffer // (u8) on a device
}

// memory has the two buffers of a rank that all cases share.
type memory struct {
	heap             symmetric.Heap // nil for private memory
	sendReg, recvReg symmetric.Region
	send, recv       area

	dev  Device          // nil on the host
	own  []tensor.Buffer // of dev, to be freed
	fail error           // the first copy that failed

	words  symmetric.Region // the signal of pingpong and the word of atomics
	rounds uint64           // rounds of pingpong so far; equal on both ranks
	added  uint64           // sum added to the word of atomics by this rank; equal on all
}

// Locations of the words, on cache lines of their own.
const (
	signalAt  = 0
	counterAt = 64
	wordBytes = 128
)

// newMemory allocates buffers for sizes up to bytes, in a heap of g or outside. dev accesses the
// memory of a group of a device. Its host copies may share the memory of other, of the same size.
//
// Collective unless private. Errors: those of dist.Group.Heap and of dev.
func newMemory(g *dist.Group, dev Device, bytes int64, private bool, other *memory) (*memory, error) {
	need := bytes + guardBytes
	m := &memory{dev: dev}
	var err error
	switch {
	case private && dev == nil:
		m.send.raw, m.recv.raw = aligned(need), aligned(need)
		return m, nil
	case private:
		err = m.allocate(g.Device(), need)
	default:
		err = m.enter(g, need)
	}
	switch {
	case err != nil || dev == nil:
	case other != nil:
		m.send.raw, m.recv.raw = other.send.raw, other.recv.raw
	default:
		m.send.raw, m.recv.raw = aligned(need), aligned(need)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: %w", err), m.Close())
	}
	return m, nil
}

// privateFits returns an error if private buffers for sizes up to bytes, of all ranks, exceed the
// memory of m: Go would end the process. It returns nil if the memory is unknown.
func privateFits(bytes int64, ranks int, m Machine) error {
	if want := 2 * bytes * int64(ranks); m.MemoryBytes > 0 && want > m.MemoryBytes {
		return fmt.Errorf("bench: private buffers of %d B for each of %d ranks on this host: %d B wanted, the machine has %d",
			2*bytes, ranks, want, m.MemoryBytes)
	}
	return nil
}

// enter makes the heap and its regions.
func (m *memory) enter(g *dist.Group, need int64) error {
	room := (need/symmetric.Alignment + 1) * symmetric.Alignment
	heap, err := g.Heap(2*room + symmetric.Alignment)
	if err != nil {
		return fmt.Errorf("%w (--private measures memory outside of the heap)", err)
	}
	m.heap = heap
	if m.sendReg, err = heap.Alloc(need); err == nil {
		m.recvReg, err = heap.Alloc(need)
	}
	if err == nil {
		m.words, err = heap.Alloc(wordBytes)
	}
	if err != nil {
		return err
	}
	send, recv := m.sendReg.Local(), m.recvReg.Local()
	if m.dev == nil {
		m.send.raw, m.recv.raw = send.Raw()[:need], recv.Raw()[:need]
		return nil
	}
	m.send.buf, m.recv.buf = send, recv
	return nil
}

// allocate allocates private memory of a device.
func (m *memory) allocate(on tensor.Device, need int64) error {
	for _, a := range []*area{&m.send, &m.recv} {
		b, err := m.dev.Alloc(on, need)
		if err != nil {
			return err
		}
		a.buf, m.own = b, append(m.own, b)
	}
	return nil
}

// Close frees the heap with its regions, or the memory.
func (m *memory) Close() error {
	var errs []error
	if m.heap != nil {
		errs = append(errs, m.heap.Close())
	}
	for _, b := range m.own {
		errs = append(errs, m.dev.Free(b))
	}
	m.own = nil
	return errors.Join(errs...)
}

// push copies the first n bytes of an area, and the guard after them, to the device.
func (m *memory) push(a *area, n int64) {
	if m.dev != nil {
		m.note(m.dev.Write(a.buf, a.raw[:n+guardBytes]))
	}
}

// pull copies the first n bytes of an area, and the guard after them, from the device.
func (m *memory) pull(a *area, n int64) {
	if m.dev != nil {
		m.note(m.dev.Read(a.raw[:n+guardBytes], a.buf))
	}
}

func (m *memory) note(err error) {
	if m.fail == nil && err != nil {
		m.fail = fmt.Errorf("bench: %w", err)
	}
}

// aligned returns private memory with the alignment of a region.
func aligned(n int64) []byte {
	raw := make([]byte, n+symmetric.Alignment)
	skip := -uintptr(unsafe.Pointer(&raw[0])) % symmetric.Alignment
	return raw[skip:][:n]
}

// view returns n elements of a from element at on, and their bytes on the host.
func (a *area) view(dt tensor.DType, at, n int) (tensor.Buffer, []byte, error) {
	on := tensor.Host
	if !a.buf.IsZero() {
		on = a.buf.Device()
	}
	if n == 0 {
		b, err := tensor.FromPointer(nil, 0, dt, on)
		return b, nil, err
	}
	from, size := at*dt.Size(), n*dt.Size()
	raw := a.raw[from:][:size]
	p := unsafe.Pointer(&raw[0])
	if !a.buf.IsZero() {
		part, err := a.buf.Slice(from, from+size)
		if err != nil {
			return part, nil, err
		}
		p = part.Pointer()
	}
	b, err := tensor.FromPointer(p, n, dt, on)
	return b, raw, err
}

// guard writes the guard after the first n bytes of a.
func (a *area) guard(n int64) {
	for i := range a.raw[n:][:guardBytes] {
		a.raw[n:][i] = guardValue
	}
}

// trespasses returns how many bytes of the guard after the first n bytes of a have changed.
func (a *area) trespasses(n int64) int64 {
	return guardBytes - int64(bytes.Count(a.raw[n:][:guardBytes], []byte{guardValue}))
}

// exact reports whether the word of atomics on this rank, the last of n, has the sum of all ranks.
func (m *memory) exact(n int) bool {
	sum, err := symmetric.AtomicFetch[uint64](m.words, n-1, counterAt)
	return err == nil && sum == uint64(n)*m.added
}
