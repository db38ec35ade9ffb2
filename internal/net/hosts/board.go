package hosts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// board is memory that the ranks of one host share: a place for the data of every rank of the
// group, also of those on other hosts. It is in the leader's part of a symmetric heap. Each rank
// writes its own place, and the leader those of ranks on other hosts.
//
// Exchanges take turns between two halves. A rank writes to a half again only after an exchange
// that all ranks have begun since, so that all have read it.
type board struct {
	heap  symmetric.Heap
	mem   []byte
	l     *layout
	most  int // bytes of one rank in an exchange
	first int // offset of the halves
	half  int // bytes of a half
	at    []int
}

const (
	line        = 64 // bytes of a cache line; also of a header
	headerBytes = line
)

// boardBytes returns the size of the board of n ranks.
func boardBytes(n, most int) int64 { return int64(n)*line + 2*int64(n)*int64(headerBytes+most) }

// slotBytes returns the most bytes of one rank in one exchange among n ranks. Many ranks have less.
func slotBytes(n, most int) int {
	const total = 8 << 20
	return max(min(most, total/n), 16*n, 1<<10) &^ (line - 1)
}

func newBoard(inner dist.Transport, l *layout, most int) (*board, error) {
	n := len(l.hostOf)
	b := &board{l: l, most: slotBytes(n, most)}
	b.first = n * line
	b.half = n * (headerBytes + b.most)
	for h, next := 0, 0; h < len(l.members); h++ {
		b.at = append(b.at, next)
		next += len(l.members[h]) * (headerBytes + b.most)
	}
	var err error
	if b.heap, err = inner.Heap(boardBytes(n, b.most)); err != nil {
		return nil, err
	}
	region, err := b.heap.Calloc(boardBytes(n, b.most), 1)
	if err != nil {
		return nil, err
	}
	buf, err := region.Peer(0)
	if err != nil {
		return nil, err
	}
	b.mem = buf.Raw()
	return b, nil
}

// posted is the number of the last exchange for which the data of rank is complete.
func (b *board) posted(rank int) *uint64 {
	return (*uint64)(unsafe.Pointer(&b.mem[b.l.slot[rank]*line]))
}

// block returns the data of a host in an exchange: a header for each of its ranks, then their data.
func (b *board) block(round uint64, host int) []byte {
	at := b.first + int(round&1)*b.half + b.at[host]
	n := len(b.l.members[host]) * (headerBytes + b.most)
	return b.mem[at : at+n : at+n]
}

// index returns the place of rank among those of its host.
func (b *board) index(rank int) int {
	return b.l.slot[rank] - b.l.slot[b.l.members[b.l.hostOf[rank]][0]]
}

// header returns the header of rank in an exchange.
func (b *board) header(round uint64, rank int) []byte {
	at := b.index(rank) * headerBytes
	return b.block(round, b.l.hostOf[rank])[at : at+headerBytes]
}

// data returns the data of rank in an exchange of bytes bytes a rank.
func (b *board) data(round uint64, rank, bytes int) []byte {
	host := b.l.hostOf[rank]
	at := len(b.l.members[host])*headerBytes + b.index(rank)*stride(bytes)
	return b.block(round, host)[at : at+bytes : at+bytes]
}

// blockBytes returns the length of the message with the data of a host.
func (b *board) blockBytes(host, bytes int) int {
	return len(b.l.members[host]) * (headerBytes + stride(bytes))
}

// stride is the distance of the data of two ranks: a number of lines.
func stride(bytes int) int { return (bytes + line - 1) &^ (line - 1) }

func (b *board) close() error { return b.heap.Close() }

// header is the call of one rank, which the others compare with theirs.
type header struct {
	sig    dist.Signature
	scalar uint64 // of premulsum
	a, b   int64  // color and key of a split
	c      int64  // first free group number of a split
}

// sigBytes is the bytes of the signature, at the start of a header.
const sigBytes = 16

func (h *header) put(to []byte) {
	binary.LittleEndian.PutUint64(to, uint64(h.sig.Count))
	binary.LittleEndian.PutUint32(to[8:], uint32(h.sig.Root))
	to[12], to[13], to[14], to[15] = byte(h.sig.Kind), byte(h.sig.Red), byte(h.sig.DType), 0
	binary.LittleEndian.PutUint64(to[16:], h.scalar)
	binary.LittleEndian.PutUint64(to[24:], uint64(h.a))
	binary.LittleEndian.PutUint64(to[32:], uint64(h.b))
	binary.LittleEndian.PutUint64(to[40:], uint64(h.c))
}

func (h *header) get(from []byte) {
	h.sig = dist.Signature{
		Count: int64(binary.LittleEndian.Uint64(from)), Root: int32(binary.LittleEndian.Uint32(from[8:])),
		Kind: dist.Kind(from[12]), Red: dist.RedKind(from[13]), DType: tensor.DType(from[14]),
	}
	h.scalar = binary.LittleEndian.Uint64(from[16:])
	h.a = int64(binary.LittleEndian.Uint64(from[24:]))
	h.b = int64(binary.LittleEndian.Uint64(from[32:]))
	h.c = int64(binary.LittleEndian.Uint64(from[40:]))
}

// exchange is one round: every rank contributes a header and bytes bytes, and sees those of all.
type exchange struct {
	own   header
	bytes int                 // data of one rank, at most board.most; equal on all ranks
	fill  func(data []byte)   // writes this rank's data; nil for none
	from  func(rank int) bool // reports which ranks have data; nil means all
	sent  func()              // follows the start of this host's messages; nil for none
}

// meet does an exchange. After it, headers and data of all ranks are on the board until the next
// exchange but one.
//
// Collective. Errors: those of await; ErrMismatch if signatures differ, which breaks the group.
func (t *Transport) meet(x *exchange) error {
	if x.bytes > t.board.most {
		return fmt.Errorf("%w: an exchange of %d bytes, and places have %d", dist.ErrInvalid, x.bytes, t.board.most)
	}
	t.round++
	t.spans.meets = true
	defer func() { t.spans.meets = false }()
	x.own.put(t.board.header(t.round, t.rank))
	if x.fill != nil && x.bytes > 0 {
		x.fill(t.board.data(t.round, t.rank, x.bytes))
	}
	atomic.StoreUint64(t.board.posted(t.rank), t.round)
	if t.l.leads && len(t.l.far) > 0 {
		if err := t.relay(x); err != nil {
			return err
		}
	}
	if len(t.l.far) < len(t.ranks)-1 { // else the messages of all have landed
		if err := t.await(&awaited{round: t.round}); err != nil {
			return err
		}
	}
	t.spans.met.Store(t.round)
	return t.compare()
}

// compare compares the signatures on the board.
func (t *Transport) compare() error {
	first := t.board.header(t.round, 0)
	for r := 1; r < len(t.ranks); r++ {
		if other := t.board.header(t.round, r); !bytes.Equal(other[:sigBytes], first[:sigBytes]) {
			var a, b header
			a.get(first)
			b.get(other)
			err := dist.Differ(0, a.sig, r, b.sig)
			t.fail(err)
			return err
		}
	}
	return nil
}

// relay sends the data of this host to the leaders of the others, and receives theirs.
func (t *Transport) relay(x *exchange) error {
	if len(t.l.members[t.l.host]) > 1 {
		if err := t.await(&awaited{round: t.round, near: true}); err != nil {
			return err
		}
	}
	b, w, tag := t.board, t.p.w, t.tag(channelRounds)
	n := b.blockBytes(t.l.host, 0)
	if x.has(t.l.members[t.l.host]) {
		n = b.blockBytes(t.l.host, x.bytes)
	}
	for i, h := range t.l.far {
		w.Send(t.sends[t.round&1][i], t.ranks[t.l.members[h][0]], tag, b.block(t.round, t.l.host)[:n])
	}
	for i, h := range t.l.far { // afterwards, because messages take longer than a call
		w.Recv(t.recvs[i], t.ranks[t.l.members[h][0]], tag, b.block(t.round, h))
	}
	if x.sent != nil {
		x.sent()
	}
	t.op.Posted() // while the messages are on their way
	if err := t.await(&awaited{recvs: t.recvs}); err != nil {
		return err
	}
	return t.sent()
}

// sent waits until this host's messages of the exchange have left. Nothing may move them later.
func (t *Transport) sent() error {
	for _, r := range t.sends[t.round&1] {
		if r.Pending() {
			return t.await(&awaited{sends: t.sends[t.round&1]})
		}
	}
	return nil
}

// has reports whether one of ranks has data.
func (x *exchange) has(ranks []int) bool {
	if x.bytes == 0 {
		return false
	}
	if x.from == nil {
		return true
	}
	for _, r := range ranks {
		if x.from(r) {
			return true
		}
	}
	return false
}

// landed marks the data of a host as complete, whose message has arrived.
func (t *Transport) landed(host int) {
	for _, r := range t.l.members[host] {
		atomic.StoreUint64(t.board.posted(r), t.round)
	}
}
