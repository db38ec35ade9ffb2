package shm

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// The control segment of a group of n ranks:
//
//	0                        abort word, abort text
//	pageBytes*(1+r)          rank r's page: flag, bell, state, left, two headers
//	then n*n channels        channelBytes each, [from*n+to]: counters of a ring
//	then n*2 staging slots   chunk bytes each
//	then n*n*2 ring slots    ringHeader + ring bytes each
//
// Words that different ranks write stand on cache lines of their own, two apart because of the adjacent-line prefetcher.
const (
	pageBytes    = 4096
	abortWord    = 0  // 0, or an abortCode
	abortReady   = 8  // 1 when the text is complete
	abortLength  = 16 // of the text
	abortText    = 24 // up to the end of the page
	maxAbortText = pageBytes - abortText

	flagAt    = 0   // rounds this rank has entered
	flagWaits = 8   // ranks asleep on the flag
	bellAt    = 128 // rung by peers that moved a channel to or from this rank
	bellWaits = 136
	stateAt   = 256 // what the rank is doing now
	leftAt    = 384 // 1 when the rank has closed its end
	headerAt  = 512 // two, alternating
	headerLen = 128

	channelBytes = 256
	channelWrote = 0   // chunks put into the ring
	channelRead  = 128 // chunks taken out

	ringHeader = 64
	ringDepth  = 2
)

// layout is where things lie for a given group size and chunk size; equal on all ranks.
type layout struct {
	n           int
	chunk, ring int
	channels    int
	staging     int
	rings       int
	size        int64
}

// maxRingBytes bounds all send rings of a group together, which grow with the square of the ranks.
const maxRingBytes = 16 << 20

func newLayout(n, chunk int) layout {
	l := layout{n: n, chunk: (chunk + 63) &^ 63}
	l.ring = max(64, min(l.chunk/4, maxRingBytes/(ringDepth*n*n))&^63)
	l.channels = pageBytes * (1 + n)
	l.staging = (l.channels + n*n*channelBytes + pageBytes - 1) &^ (pageBytes - 1)
	l.rings = l.staging + n*2*l.chunk
	l.size = int64(l.rings+n*n*ringDepth*(ringHeader+l.ring)+pageBytes-1) &^ (pageBytes - 1)
	return l
}

// control is the view of a control segment.
type control struct {
	layout
	mem []byte
}

func (c *control) u64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&c.mem[off])) }

func (c *control) page(rank int) int      { return pageBytes * (1 + rank) }
func (c *control) flag(rank int) *uint64  { return c.u64(c.page(rank) + flagAt) }
func (c *control) bell(rank int) *uint64  { return c.u64(c.page(rank) + bellAt) }
func (c *control) state(rank int) *uint64 { return c.u64(c.page(rank) + stateAt) }
func (c *control) left(rank int) *uint64  { return c.u64(c.page(rank) + leftAt) }
func (c *control) abort() *uint64         { return c.u64(abortWord) }
func (c *control) wrote(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelWrote)
}

func (c *control) read(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelRead)
}

// waiters is the count of sleepers beside a flag or bell.
func waiters(word *uint64) *uint64 { return (*uint64)(unsafe.Add(unsafe.Pointer(word), 8)) }

func (c *control) header(rank int, round uint64) []byte {
	off := c.page(rank) + headerAt + int(round&1)*headerLen
	return c.mem[off : off+headerLen]
}

func (c *control) slot(rank int, step uint64) []byte {
	off := c.staging + (rank*2+int(step&1))*c.chunk
	return c.mem[off : off+c.chunk : off+c.chunk]
}

func (c *control) ringSlot(from, to int, i uint64) (head, data []byte) {
	off := c.rings + ((from*c.n+to)*ringDepth+int(i%ringDepth))*(ringHeader+c.ring)
	return c.mem[off : off+ringHeader], c.mem[off+ringHeader : off+ringHeader+c.ring]
}

// header is what a rank tells the others when it enters an operation.
type header struct {
	sig    dist.Signature
	scalar uint64 // premulsum factor, bits of the dtype
	src    place
	dst    place
	staged bool   // the first chunk lies in the staging slot already
	a, b   int64  // color and key of a split
	id     uint64 // under which this rank would hand over a new segment
}

// place is where a buffer lies: heap 0 means private memory.
type place struct {
	heap uint64
	off  int64
}

func (h *header) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], uint64(h.sig.Count))
	le.PutUint32(b[8:], uint32(h.sig.Root))
	b[12], b[13], b[14], b[15] = byte(h.sig.Kind), byte(h.sig.Red), byte(h.sig.DType), 0
	if h.staged {
		b[15] = 1
	}
	le.PutUint64(b[16:], h.scalar)
	le.PutUint64(b[24:], h.src.heap)
	le.PutUint64(b[32:], uint64(h.src.off))
	le.PutUint64(b[40:], h.dst.heap)
	le.PutUint64(b[48:], uint64(h.dst.off))
	le.PutUint64(b[56:], uint64(h.a))
	le.PutUint64(b[64:], uint64(h.b))
	le.PutUint64(b[72:], h.id)
}

func (h *header) get(b []byte) {
	le := binary.LittleEndian
	h.sig = dist.Signature{
		Count: int64(le.Uint64(b[0:])), Root: int32(le.Uint32(b[8:])),
		Kind: dist.Kind(b[12]), Red: dist.RedKind(b[13]), DType: tensor.DType(b[14]),
	}
	h.staged = b[15] == 1
	h.scalar = le.Uint64(b[16:])
	h.src = place{le.Uint64(b[24:]), int64(le.Uint64(b[32:]))}
	h.dst = place{le.Uint64(b[40:]), int64(le.Uint64(b[48:]))}
	h.a, h.b, h.id = int64(le.Uint64(b[56:])), int64(le.Uint64(b[64:])), le.Uint64(b[72:])
}

// state word: kind of operation, peer of a send or receive, low bits of the operation's number.
func packState(k dist.Kind, peer int, seq uint64) uint64 {
	return uint64(k)<<56 | uint64(uint16(peer+1))<<40 | seq&(1<<40-1)
}

func unpackState(s uint64) (k dist.Kind, peer int, seq uint64) {
	return dist.Kind(s >> 56), int(uint16(s>>40)) - 1, s & (1<<40 - 1)
}

// busy and idle set this rank's state word; idle keeps the last operation's number for messages.
func (c *control) busy(rank int, k dist.Kind, peer int, seq uint64) {
	atomic.StoreUint64(c.state(rank), packState(k, peer, seq))
}

func (c *control) idle(rank int, seq uint64) {
	atomic.StoreUint64(c.state(rank), packState(dist.KindInvalid, -1, seq))
}
