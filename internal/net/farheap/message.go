package farheap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Sizes of messages and windows, see the package comment. An eager message of MPI and UCX over TCP
// has up to 64 KiB, so that all requests are eager.
const (
	headBytes  = 64
	pieceBytes = 16 << 10
	slotBytes  = headBytes + pieceBytes
	slotCount  = 16 // buffers of each kind
	window     = 32 // requests to a process without acknowledgement
	entryCount = 64 // requests of this process that wait for an answer
)

// verb is the operation of a message.
type verb uint8

const (
	verbInvalid   verb = iota
	verbPut            // data
	verbIPut           // data, stride
	verbPutSignal      // data, place and value of the signal
	verbWord           // value
	verbSignal         // value
	verbGet
	verbIGet // stride
	verbFetch
	verbAtomic // value, compare
	verbFlush  // acknowledge everything
	verbAnswer
)

// names are the calls in errors of the owner.
var names = [...]string{"", "put", "iput", "put-signal", "p", "signal", "get", "iget", "g", "atomic", "quiet", "answer"}

func (v verb) String() string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("request(%d)", uint8(v))
}

// answered reports whether every request of this kind has an answer.
func (v verb) answered() bool { return v >= verbGet }

// head is the first part of a message. The rest is data.
type head struct {
	verb   verb
	dtype  tensor.DType
	op     uint8  // AtomicOp, SignalOp; in an answer its verdict
	of     verb   // in an answer, the request
	heap   uint32 // Config.ID
	target uint32 // rank whose part it accesses
	entry  uint32 // of the process that asked, for its answer; noEntry without
	at     int64  // offset in the heap; in an answer, requests applied so far
	count  int64  // elements
	stride int64  // in elements, of the region; of PutSignal, the signal's offset in the heap
	value  uint64
	other  uint64 // compare
}

const noEntry = 1<<32 - 1

func (h *head) encode(b []byte) {
	b = b[:headBytes]
	b[0], b[1], b[2], b[3] = byte(h.verb), byte(h.dtype), h.op, byte(h.of)
	le := binary.LittleEndian
	le.PutUint32(b[4:], h.heap)
	le.PutUint32(b[8:], h.target)
	le.PutUint32(b[12:], h.entry)
	le.PutUint64(b[16:], uint64(h.at))
	le.PutUint64(b[24:], uint64(h.count))
	le.PutUint64(b[32:], uint64(h.stride))
	le.PutUint64(b[40:], h.value)
	le.PutUint64(b[48:], h.other)
	le.PutUint64(b[56:], 0)
}

// decode reads a header; the sender is a process of the job, so that its fields are only checked
// where they are used.
func (h *head) decode(b []byte) bool {
	if len(b) < headBytes {
		return false
	}
	le := binary.LittleEndian
	*h = head{
		verb: verb(b[0]), dtype: tensor.DType(b[1]), op: b[2], of: verb(b[3]),
		heap: le.Uint32(b[4:]), target: le.Uint32(b[8:]), entry: le.Uint32(b[12:]),
		at: int64(le.Uint64(b[16:])), count: int64(le.Uint64(b[24:])), stride: int64(le.Uint64(b[32:])),
		value: le.Uint64(b[40:]), other: le.Uint64(b[48:]),
	}
	return true
}

// Verdicts of answers.
const (
	applied uint8 = iota
	closed
	broken
	invalid
)

// verdictOf returns the verdict for an error of the owner's near heap.
func verdictOf(err error) uint8 {
	switch {
	case err == nil:
		return applied
	case errors.Is(err, dist.ErrClosed):
		return closed
	case errors.Is(err, dist.ErrAborted):
		return broken
	}
	return invalid
}

// refusal returns the error of an answer with a verdict and a text.
func refusal(verdict uint8, text []byte) error {
	cause := dist.ErrInvalid
	switch verdict {
	case applied:
		return nil
	case closed:
		cause = dist.ErrClosed
	case broken:
		cause = dist.ErrAborted
	}
	return fmt.Errorf("%w there: %s", cause, text)
}

// elements returns count elements of type dt in data, which is aligned for every type.
func elements(data []byte, count int64, dt tensor.DType) (tensor.Buffer, error) {
	size := int64(dt.Size())
	if size == 0 || count < 0 || count > int64(len(data))/size {
		return tensor.Buffer{}, fmt.Errorf("%w: %d elements of %v in a message of %d B", dist.ErrInvalid, count, dt, len(data))
	}
	return tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(data)), int(count), dt, tensor.Host)
}

// atomicOf returns the atomic of a request.
func (h *head) atomicOf() symmetric.Atomic {
	return symmetric.Atomic{Op: symmetric.AtomicOp(h.op), DType: h.dtype, Value: h.value, Compare: h.other}
}
