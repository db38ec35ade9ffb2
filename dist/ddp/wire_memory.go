package ddp

import (
	"errors"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// messageMemory is memory for messages other than buckets: a part of a symmetric heap, or process
// memory if the backend has no heap.
type messageMemory struct {
	heap symmetric.Heap
	raw  tensor.Buffer // u8 elements of a heap, or u64 elements of process memory
}

// newMessageMemory returns memory of at least the given bytes.
//
// Collective: all ranks, same size. Errors: those of Heap and Alloc.
func newMessageMemory(w *dist.Group, bytes int64) (*messageMemory, error) {
	bytes = roundUp(bytes)
	heap, err := w.Heap(bytes)
	if errors.Is(err, dist.ErrUnsupported) {
		return &messageMemory{raw: tensor.Of(make([]uint64, (bytes+7)/8))}, nil
	}
	if err != nil {
		return nil, err
	}
	a := &messageMemory{heap: heap}
	r, err := heap.Alloc(bytes)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.raw = r.Local()
	return a, nil
}

// at returns n elements from the given byte on.
func (a *messageMemory) at(byte int64, n int, dt tensor.DType) (tensor.Buffer, error) {
	return tensor.FromPointer(unsafe.Add(a.raw.Pointer(), byte), n, dt, tensor.Host)
}

// messageBytes returns the bytes of messages stored one after the other.
func messageBytes(messages []compress.Message) int64 {
	total := int64(0)
	for _, m := range messages {
		total += roundUp(int64(m.Elements) * int64(m.DType.Size()))
	}
	return total
}

// carve assigns memory to each message, from the first byte on.
func (a *messageMemory) carve(to []tensor.Buffer, messages []compress.Message) error {
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

func (a *messageMemory) close() error {
	if a == nil || a.heap == nil {
		return nil
	}
	return a.heap.Close()
}
