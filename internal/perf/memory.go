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
	guardBytes = 64   // behind the elements of a case, to see writes that go too far
	guardValue = 0xc9 // what they hold
	poison     = 0xa5 // what a destination holds before a checked operation
)

// memory is the two buffers of a rank that all cases share.
type memory struct {
	heap             symmetric.Heap // nil for private memory
	sendReg, recvReg symmetric.Region
	send, recv       []byte

	words  symmetric.Region // the signal of pingpong and the word of atomics
	rounds uint64           // of pingpong so far; the same on both ranks
	added  uint64           // to the word of atomics so far, by this rank; the same on all
}

// Where the words are, on cache lines of their own.
const (
	signalAt  = 0
	counterAt = 64
	wordBytes = 128
)

// newMemory is buffers for sizes up to bytes, in a heap of g's or outside of any.
//
// Collective unless private. Errors: those of dist.Group.Heap; dist.ErrUnsupported for memory that is not the host's.
func newMemory(g *dist.Group, bytes int64, private bool) (*memory, error) {
	if g.Device() != tensor.Host {
		return nil, fmt.Errorf("bench: buffers on %v: %w: only host memory is measured", g.Device(), dist.ErrUnsupported)
	}
	need := bytes + guardBytes
	if private {
		return &memory{send: aligned(need), recv: aligned(need)}, nil
	}
	room := (need/symmetric.Alignment + 1) * symmetric.Alignment
	heap, err := g.Heap(2*room + symmetric.Alignment)
	if err != nil {
		return nil, fmt.Errorf("bench: %w (--private measures memory outside of the heap)", err)
	}
	m := &memory{heap: heap}
	if m.sendReg, err = heap.Alloc(need); err == nil {
		m.recvReg, err = heap.Alloc(need)
	}
	if err == nil {
		m.words, err = heap.Alloc(wordBytes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: %w", err), heap.Close())
	}
	m.send, m.recv = m.sendReg.Local().Raw()[:need], m.recvReg.Local().Raw()[:need]
	return m, nil
}

// Close gives the heap back. The regions go with it.
func (m *memory) Close() error {
	if m.heap == nil {
		return nil
	}
	return m.heap.Close()
}

// aligned is private memory that begins where a region would.
func aligned(n int64) []byte {
	raw := make([]byte, n+symmetric.Alignment)
	skip := -uintptr(unsafe.Pointer(&raw[0])) % symmetric.Alignment
	return raw[skip:][:n]
}

// view is n elements of raw from element at on.
func view(raw []byte, dt tensor.DType, at, n int) (tensor.Buffer, error) {
	if n == 0 {
		return tensor.FromPointer(nil, 0, dt, tensor.Host)
	}
	raw = raw[at*dt.Size():][:n*dt.Size()]
	return tensor.FromPointer(unsafe.Pointer(&raw[0]), n, dt, tensor.Host)
}

// guard writes the guard behind the first n bytes of raw.
func guard(raw []byte, n int64) {
	for i := range raw[n:][:guardBytes] {
		raw[n:][i] = guardValue
	}
}

// trespasses is how many bytes of the guard behind the first n bytes of raw have changed.
func trespasses(raw []byte, n int64) int64 {
	return guardBytes - int64(bytes.Count(raw[n:][:guardBytes], []byte{guardValue}))
}

// exact reports whether the word of atomics on this rank, the last of n, holds what all ranks have added.
func (m *memory) exact(n int) bool {
	sum, err := symmetric.AtomicFetch[uint64](m.words, n-1, counterAt)
	return err == nil && sum == uint64(n)*m.added
}
