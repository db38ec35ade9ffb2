package shm

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/asym"
	"github.com/symgrad/symgrad/tensor"
)

// The control segment of a group of n ranks:
//
//	0                        abort word, abort text
//	pageBytes+rankBytes*r    rank r's part: words, then rings of headers and of announcements
//	then n*n channels        channelBytes each, [from*n+to]: counters of a ring
//	then n*small slots       smallSlots a rank, small bytes each
//	then n*staging slots     stageSlots a rank, chunk bytes each
//	then n*n*2 ring slots    ringHeader + ring bytes each
//
// Words that different ranks write stand on cache lines of their own, two apart because of the
// adjacent-line prefetcher. Beside each word that others wait for, 8 bytes on, is the number of
// those asleep on it.
const (
	pageBytes    = 4096
	rankBytes    = 4096
	abortWord    = 0  // 0, or an abortCode
	abortReady   = 8  // 1 when the text is complete
	abortLength  = 16 // of the text
	abortText    = 24 // up to the end of the page
	maxAbortText = pageBytes - abortText

	flagAt   = 0   // round whose direct moves this rank has finished
	bellAt   = 128 // rung by peers that moved a channel to or from this rank
	stateAt  = 256 // what the rank is doing now; behind it what it did before it waited (see worked)
	leftAt   = 384 // 1 when the rank has closed its end
	sentAt   = 512 // chunks put into the staging slots
	tookAt   = 640 // chunks taken from all staging slots
	summedAt = 768 // chunks of which this rank has summed its block
	treeAt   = 896 // steps of dissemination barriers

	workedAt = stateAt + 16

	headerAt  = 1024 // a ring: what this rank told of its last rounds
	headerLen = 128
	entryAt   = headerAt + depth*headerLen // a ring of announcements
	entryLen  = 128
	entryWord = 56 // within an entry: round and hash; before it the payload

	// depth is how many rounds a rank can be ahead of another.
	depth = 8

	smallSlots = 4
	stageSlots = 4

	channelBytes   = 256
	channelWrote   = 0   // chunks put into the ring
	channelLent    = 16  // the last of them that tells where a message lies, plus one
	channelRead    = 128 // chunks taken out
	channelRefused = 144 // the last of them that told of memory that the receiver cannot read, plus one

	ringHeader = 64
	ringDepth  = 2
)

// lineBytes is what fits into an announcement beside its word.
const lineBytes = entryWord

// layout is where things lie for a given group size and chunk size; equal on all ranks.
type layout struct {
	n                  int
	small, chunk, ring int // bytes of a slot
	channels           int // offsets
	smalls             int
	staging            int
	rings              int
	size               int64
}

// maxSmallBytes is up to where one copy into a slot and one synchronisation beat all else.
const maxSmallBytes = 4 << 10

// maxRingBytes bounds all send rings of a group together, which grow with the square of the ranks.
const maxRingBytes = 16 << 20

func newLayout(n, chunk int) layout {
	l := layout{n: n, chunk: (max(chunk, 8*n) + 63) &^ 63} // an element for every rank at least
	l.small = min(l.chunk, maxSmallBytes)
	l.ring = max(64, min(l.chunk, maxRingBytes/(ringDepth*n*n))&^63)
	l.channels = pageBytes + rankBytes*n
	l.smalls = (l.channels + n*n*channelBytes + pageBytes - 1) &^ (pageBytes - 1)
	l.staging = l.smalls + n*smallSlots*l.small
	l.rings = l.staging + n*stageSlots*l.chunk
	l.size = int64(l.rings+n*n*ringDepth*(ringHeader+l.ring)+pageBytes-1) &^ (pageBytes - 1)
	return l
}

// control is the view of a control segment.
type control struct {
	layout
	mem  []byte
	base unsafe.Pointer // of mem
}

func newControl(l layout, mem []byte) *control {
	return &control{layout: l, mem: mem, base: pointer(mem)}
}

// u64 and part do not check off, which the layout gives: they are on the shortest way.
func (c *control) u64(off int) *uint64 { return (*uint64)(unsafe.Add(c.base, off)) }

func (c *control) part(off, n int) []byte { return unsafe.Slice((*byte)(unsafe.Add(c.base, off)), n) }

func (c *control) page(rank int) int       { return pageBytes + rankBytes*rank }
func (c *control) flag(rank int) *uint64   { return c.u64(c.page(rank) + flagAt) }
func (c *control) bell(rank int) *uint64   { return c.u64(c.page(rank) + bellAt) }
func (c *control) state(rank int) *uint64  { return c.u64(c.page(rank) + stateAt) }
func (c *control) left(rank int) *uint64   { return c.u64(c.page(rank) + leftAt) }
func (c *control) sent(rank int) *uint64   { return c.u64(c.page(rank) + sentAt) }
func (c *control) took(rank int) *uint64   { return c.u64(c.page(rank) + tookAt) }
func (c *control) summed(rank int) *uint64 { return c.u64(c.page(rank) + summedAt) }
func (c *control) tree(rank int) *uint64   { return c.u64(c.page(rank) + treeAt) }
func (c *control) abort() *uint64          { return c.u64(abortWord) }

// entry is the payload of a rank's announcement of round, and word the word that tells that it is
// there.
func (c *control) entry(rank int, round uint64) []byte {
	off := c.page(rank) + entryAt + int(round%depth)*entryLen
	return c.part(off, lineBytes)
}

func (c *control) word(rank int, round uint64) *uint64 {
	return c.u64(c.page(rank) + entryAt + int(round%depth)*entryLen + entryWord)
}

func (c *control) wrote(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelWrote)
}

func (c *control) read(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelRead)
}

func (c *control) lent(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelLent)
}

func (c *control) refused(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelRefused)
}

// waiters is the count of sleepers beside a word.
func waiters(word *uint64) *uint64 { return (*uint64)(unsafe.Add(unsafe.Pointer(word), 8)) }

func (c *control) header(rank int, round uint64) []byte {
	off := c.page(rank) + headerAt + int(round%depth)*headerLen
	return c.part(off, headerLen)
}

// smallSlot is where a rank puts the data of the use-th operation that goes through small slots.
func (c *control) smallSlot(rank int, use uint64) []byte {
	off := c.smalls + (rank*smallSlots+int(use%smallSlots))*c.small
	return c.part(off, c.small)
}

// slot is where a rank puts chunk g.
func (c *control) slot(rank int, g uint64) []byte {
	off := c.staging + (rank*stageSlots+int(g%stageSlots))*c.chunk
	return c.part(off, c.chunk)
}

func (c *control) ringSlot(from, to int, i uint64) (head, data []byte) {
	off := c.rings + ((from*c.n+to)*ringDepth+int(i%ringDepth))*(ringHeader+c.ring)
	return c.mem[off : off+ringHeader], c.mem[off+ringHeader : off+ringHeader+c.ring]
}

// header is what a rank keeps for the others to read where they disagree, and where a call is more
// than a collective.
type header struct {
	sig   dist.Signature
	round uint64
	a, b  int64  // color and key of a split; alignment and heap of an arena call
	id    uint64 // under which this rank would hand over a new segment
}

func (h *header) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b[24:], uint64(h.a))
	le.PutUint64(b[32:], uint64(h.b))
	le.PutUint64(b[40:], h.id)
	putSignature(b, h.sig, h.round)
}

// putSignature is put for an operation that has only a signature. The round is stored first: who
// finds anything of the new signature, and then looks at the round, finds that this rank has gone
// on.
func putSignature(b []byte, s dist.Signature, round uint64) {
	asym.Store(headerWord(b, 16), round)
	asym.Store(headerWord(b, 0), uint64(s.Count))
	asym.Store(headerWord(b, 8), uint64(uint32(s.Root))|uint64(s.Kind)<<32|uint64(s.Red)<<40|uint64(s.DType)<<48)
}

// headerWord is the word of a header at off.
func headerWord(b []byte, off int) *uint64 { return (*uint64)(unsafe.Pointer(&b[off : off+8][0])) }

// followed returns when a word is no less than least, for a while at most: its rank stores that
// right after what was seen of it, unless its thread loses the core there, or it dies.
func followed(word *uint64, least uint64) {
	for turn, begin := 0, time.Now(); atomic.LoadUint64(word) < least && time.Since(begin) < followWait; turn++ {
		if turn < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// followWait is how long to wait for what a rank stores in two steps.
const followWait = 2 * time.Second

// get is the inverse of put. Of a rank that signs the next round meanwhile the signature may be of
// both, and then the round is the next.
func (h *header) get(b []byte) {
	le := binary.LittleEndian
	count, w := atomic.LoadUint64(headerWord(b, 0)), atomic.LoadUint64(headerWord(b, 8))
	h.sig = dist.Signature{
		Count: int64(count), Root: int32(uint32(w)),
		Kind: dist.Kind(w >> 32), Red: dist.RedKind(w >> 40), DType: tensor.DType(w >> 48),
	}
	h.round = atomic.LoadUint64(headerWord(b, 16))
	h.a, h.b, h.id = int64(le.Uint64(b[24:])), int64(le.Uint64(b[32:])), le.Uint64(b[40:])
}

// place is where a buffer lies: heap 0 means private memory.
type place struct {
	heap uint64
	off  int64
}

// sides is the payload of an operation that may move data directly between heaps: where this rank's
// buffers are.
type sides struct {
	src, dst place
	scalar   uint64 // premulsum factor, bits of the dtype
	helps    bool   // the root of a broadcast stores a part to the others
	pulls    bool   // ranks pull what others have summed; see apart.go
}

func (s *sides) put(b []byte) {
	_ = b[lineBytes-1]
	le := binary.LittleEndian
	le.PutUint64(b[0:], s.src.heap)
	le.PutUint64(b[8:], uint64(s.src.off))
	le.PutUint64(b[16:], s.dst.heap)
	le.PutUint64(b[24:], uint64(s.dst.off))
	le.PutUint64(b[32:], s.scalar)
	b[40], b[41] = 0, 0
	if s.helps {
		b[40] = 1
	}
	if s.pulls {
		b[41] = 1
	}
}

func (s *sides) get(b []byte) {
	_ = b[lineBytes-1]
	le := binary.LittleEndian
	s.src = place{le.Uint64(b[0:]), int64(le.Uint64(b[8:]))}
	s.dst = place{le.Uint64(b[16:]), int64(le.Uint64(b[24:]))}
	s.scalar = le.Uint64(b[32:])
	s.helps, s.pulls = b[40] == 1, b[41] == 1
}

// state word: kind of operation, peer of a send or receive, low bits of the operation's number.
func packState(k dist.Kind, peer int, seq uint64) uint64 {
	return uint64(k)<<56 | uint64(uint16(peer+1))<<40 | seq&(1<<40-1)
}

func unpackState(s uint64) (k dist.Kind, peer int, seq uint64) {
	return dist.Kind(s >> 56), int(uint16(s>>40)) - 1, s & (1<<40 - 1)
}

// worked tells when a rank began to wait, and since when it had not waited before, both in ticks.
func (c *control) worked(rank int) (since, until *uint64) {
	at := c.page(rank) + workedAt
	return c.u64(at), c.u64(at + 8)
}

// busy and idle set this rank's state word; idle keeps the last operation's number for messages.
// Nobody waits for it.
func (c *control) busy(rank int, k dist.Kind, peer int, seq uint64) {
	asym.Store(c.state(rank), packState(k, peer, seq))
}

func (c *control) idle(rank int, seq uint64) {
	asym.Store(c.state(rank), packState(dist.KindInvalid, -1, seq))
}
