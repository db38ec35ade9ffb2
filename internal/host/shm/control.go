package shm

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/asym"
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
// Words of different writers are on separate cache lines, two apart because of the adjacent-line
// prefetcher. The number of sleepers on a word is 8 bytes after the word.
const (
	pageBytes    = 4096
	rankBytes    = 4096
	abortWord    = 0  // 0, or an abortCode
	abortReady   = 8  // 1 when the text is complete
	abortLength  = 16 // of the text
	abortText    = 24 // up to the end of the page
	maxAbortText = pageBytes - abortText

	flagAt   = 0   // round whose direct moves this rank has completed
	bellAt   = 128 // incremented by peers that moved a channel to or from this rank
	stateAt  = 256 // present operation of the rank, then times of its last work (see worked)
	leftAt   = 384 // 1 when the rank has closed its end
	sentAt   = 512 // chunks put into the staging slots
	tookAt   = 640 // chunks taken from all staging slots
	summedAt = 768 // chunks whose block this rank has summed
	treeAt   = 896 // steps of dissemination barriers

	workedAt = stateAt + 16

	headerAt  = 1024 // a ring: data of this rank on its last rounds
	headerLen = 128
	entryAt   = headerAt + depth*headerLen // a ring of announcements
	entryLen  = 128
	entryWord = 56 // offset in an entry of round and hash; before it the payload

	// depth is one more than the number of rounds that a rank can be ahead of another.
	depth = 8

	smallSlots = 4
	stageSlots = 4

	channelBytes   = 256
	channelWrote   = 0   // chunks put into the ring
	channelLent    = 16  // the last chunk with the place of a lent message, plus one
	channelRead    = 128 // chunks taken out
	channelRefused = 144 // the last chunk with memory that the receiver could not read, plus one

	ringHeader = 64
	ringDepth  = 2
)

// lineBytes is the payload of an announcement.
const lineBytes = entryWord

// layout has the offsets for a group size and a chunk size; equal on all ranks.
type layout struct {
	n                  int
	small, chunk, ring int // bytes of a slot
	channels           int // offsets
	smalls             int
	staging            int
	rings              int
	size               int64
}

// maxSmallBytes is the largest size for which one copy into a slot and one synchronization are
// fastest.
const maxSmallBytes = 4 << 10

// maxRingBytes bounds the total size of a group's send rings, which grow with the square of the
// ranks.
const maxRingBytes = 16 << 20

func newLayout(n, chunk int) layout {
	l := layout{n: n, chunk: (max(chunk, 8*n) + 63) &^ 63} // at least one element per rank
	l.small = min(l.chunk, maxSmallBytes)
	l.ring = max(64, min(l.chunk, maxRingBytes/(ringDepth*n*n))&^63)
	l.channels = pageBytes + rankBytes*n
	l.smalls = (l.channels + n*n*channelBytes + pageBytes - 1) &^ (pageBytes - 1)
	l.staging = l.smalls + n*smallSlots*l.small
	l.rings = l.staging + n*stageSlots*l.chunk
	l.size = int64(l.rings+n*n*ringDepth*(ringHeader+l.ring)+pageBytes-1) &^ (pageBytes - 1)
	return l
}

// control provides access to a control segment.
type control struct {
	layout
	mem  []byte
	base unsafe.Pointer // of mem
}

func newControl(l layout, mem []byte) *control {
	return &control{layout: l, mem: mem, base: pointer(mem)}
}

// u64 and part do not check off, which comes from the layout: they are on the shortest path.
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

// entry returns the payload of a rank's announcement of round; word returns the word that publishes
// it.
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

// waiters returns the number of sleepers on a word.
func waiters(word *uint64) *uint64 { return (*uint64)(unsafe.Add(unsafe.Pointer(word), 8)) }

func (c *control) header(rank int, round uint64) []byte {
	off := c.page(rank) + headerAt + int(round%depth)*headerLen
	return c.part(off, headerLen)
}

// smallSlot returns a rank's slot for the use-th operation through small slots.
func (c *control) smallSlot(rank int, use uint64) []byte {
	off := c.smalls + (rank*smallSlots+int(use%smallSlots))*c.small
	return c.part(off, c.small)
}

// slot returns a rank's slot for chunk g.
func (c *control) slot(rank int, g uint64) []byte {
	off := c.staging + (rank*stageSlots+int(g%stageSlots))*c.chunk
	return c.part(off, c.chunk)
}

func (c *control) ringSlot(from, to int, i uint64) (head, data []byte) {
	off := c.rings + ((from*c.n+to)*ringDepth+int(i%ringDepth))*(ringHeader+c.ring)
	return c.mem[off : off+ringHeader], c.mem[off+ringHeader : off+ringHeader+c.ring]
}

// header describes a rank's round for the case of a disagreement, and carries the arguments of
// calls that are not collectives of dist.
type header struct {
	sig   dist.Signature
	round uint64
	a, b  int64  // color and key of a split; alignment and heap of an arena call
	id    uint64 // of the segment that this rank would share
}

func (h *header) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b[24:], uint64(h.a))
	le.PutUint64(b[32:], uint64(h.b))
	le.PutUint64(b[40:], h.id)
	putSignature(b, h.sig, h.round)
}

// putSignature is put for an operation that has only a signature. It stores the round first: a
// reader of a new field that then reads the round sees that this rank has gone on.
func putSignature(b []byte, s dist.Signature, round uint64) {
	asym.Store(headerWord(b, 16), round)
	asym.Store(headerWord(b, 0), uint64(s.Count))
	asym.Store(headerWord(b, 8), uint64(uint32(s.Root))|uint64(s.Kind)<<32|uint64(s.Red)<<40|uint64(s.DType)<<48)
}

// headerWord returns the word of a header at off.
func headerWord(b []byte, off int) *uint64 { return (*uint64)(unsafe.Pointer(&b[off : off+8][0])) }

// followed waits for a limited time until a word is at least least. The writer stores it right
// after a store that the caller has seen, unless the writer loses its core or dies in between.
func followed(word *uint64, least uint64) {
	for turn, begin := 0, time.Now(); atomic.LoadUint64(word) < least && time.Since(begin) < followWait; turn++ {
		if turn < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// followWait limits the wait for the second of two stores.
const followWait = 2 * time.Second

// get is the inverse of put. If the rank overwrites the header meanwhile, the signature may mix two
// rounds; the round is then the later one.
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

// place is the location of a buffer; heap 0 means private memory.
type place struct {
	heap uint64
	off  int64
}

// sides is the payload of an operation that may move data directly between heaps: the places of
// this rank's buffers.
type sides struct {
	src, dst place
	scalar   uint64 // premulsum factor, bits of the dtype
	helps    bool   // the root of a broadcast stores a part to other ranks
	pulls    bool   // ranks pull sums of other ranks; see apart.go
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

// worked returns two words in ticks: since when the rank had worked, and when it then began to
// wait.
func (c *control) worked(rank int) (since, until *uint64) {
	at := c.page(rank) + workedAt
	return c.u64(at), c.u64(at + 8)
}

// busy and idle set this rank's state word; idle keeps the last operation's number for messages. No
// rank waits for the word.
func (c *control) busy(rank int, k dist.Kind, peer int, seq uint64) {
	asym.Store(c.state(rank), packState(k, peer, seq))
}

func (c *control) idle(rank int, seq uint64) {
	asym.Store(c.state(rank), packState(dist.KindInvalid, -1, seq))
}

// announced reports whether rank p has announced round.
func (c *control) announced(p int, round uint64) bool {
	return atomic.LoadUint64(c.word(p, round))&roundMask >= round
}

// describe returns the present activity of a rank, such as "recv with rank 1 (its #12)" or "nothing
// (last was its #11)".
func (c *control) describe(rank int) string {
	k, peer, seq := unpackState(atomic.LoadUint64(c.state(rank)))
	switch {
	case k == dist.KindInvalid && seq == 0:
		return "nothing yet"
	case k == dist.KindInvalid:
		return fmt.Sprintf("nothing (last was its #%d)", seq)
	case peer >= 0:
		return fmt.Sprintf("%v with rank %d (its #%d)", k, peer, seq)
	}
	return fmt.Sprintf("%v (its #%d)", k, seq)
}
