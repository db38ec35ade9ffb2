package ddp

import (
	"errors"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// arena is memory for messages other than buckets: a part of a symmetric heap, or process memory if
// the backend has no heap.
type arena struct {
	heap symmetric.Heap
	raw  tensor.Buffer // as bytes, or words
}

// newArena returns an arena of at least the given bytes.
//
// Collective: all ranks, same size. Errors: those of Heap and Alloc.
func newArena(w *dist.World, bytes int64) (*arena, error) {
	bytes = roundUp(bytes)
	heap, err := w.Heap(bytes)
	if errors.Is(err, dist.ErrUnsupported) {
		return &arena{raw: tensor.Of(make([]uint64, (bytes+7)/8))}, nil
	}
	if err != nil {
		return nil, err
	}
	a := &arena{heap: heap}
	r, err := heap.Alloc(bytes)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.raw = r.Local()
	return a, nil
}

// at returns n elements from the given byte on.
func (a *arena) at(byte int64, n int, dt tensor.DType) (tensor.Buffer, error) {
	return tensor.FromPointer(unsafe.Add(a.raw.Pointer(), byte), n, dt, tensor.Host)
}

// arenaBytes returns the bytes of messages stored one after the other.
func arenaBytes(messages []Message) int64 {
	total := int64(0)
	for _, m := range messages {
		total += roundUp(int64(m.Elements) * int64(m.DType.Size()))
	}
	return total
}

// carve assigns memory to each message, from the first byte on.
func (a *arena) carve(to []tensor.Buffer, messages []Message) error {
	from := int64(0)
	for i, m := range messages {
		var err error
		if to[i], err = a.at(from, m.Elements, m.DType); err != nil {
			return err
		}
		from += roundUp(int64(m.Elements) * int64(m.DType.Size()))
	}
	return nil
}

func (a *arena) close() error {
	if a == nil || a.heap == nil {
		return nil
	}
	return a.heap.Close()
}
