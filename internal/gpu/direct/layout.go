package direct

import (
	"cmp"
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// MaxRanks is the largest group for the kernels: the GPUs of one NVLink domain of a host.
const MaxRanks = 8

// Limits of a launch. A kernel's registers are limited so that one block of MaxThreads fits a
// multiprocessor. A grid has at most seven eighths of the multiprocessors as blocks, so all of it
// runs at once. If two groups share GPUs and begin their operations in different order, some blocks
// of both run on every GPU. That is enough: a block waits only for the same block, and the first
// ones, of other ranks, which run before it.
const (
	MaxBlocks  = 128
	MaxThreads = 512
)

// Limits of an operation that may begin before its predecessor in the stream ends, if both are
// within them. The device then does early the work before a kernel's first instruction. Larger
// operations would occupy multiprocessors while they wait. A GPU needs twice as many blocks for
// both, so that other groups find room. Any operation may begin when the blocks of its predecessor
// have ended, before the device has made their writes visible: the kernel waits for that.
const (
	earlyBlocks = 32
	earlyBytes  = 256 << 10 // of a block of data
)

// A board is the symmetric memory of a group of engines, with one layout on every rank:
//
//	helloAt     8 words: the epoch in which rank r greeted
//	scalarsAt   2 x 8 tagged words, by parity and rank: factors of a premulsum
//	closeAt     MaxBlocks x 8 words: the epoch in which block b of rank r ended
//	openAt      2 x MaxBlocks x 8 pairs of tagged words: arrival of block b, rank r; data location
//	sentAt      mostWarps x 8 words: tiles that warp w of rank r has stored here
//	doneAt      mostWarps x 8 words: tiles of warp w that rank r has reduced
//	headerBytes packets of 8 bytes, two halves
//	then        packets of a line, two halves
//	then        staging, two halves
//	then        tiles, two halves: not in staging, since no rank waits before storing to them
//
// Local memory of the rank has the epoch of the next operation for each block, and the table of
// slabs.
const (
	helloAt     = 0
	scalarsAt   = 1 << 10
	closeAt     = 4 << 10
	openAt      = 16 << 10
	sentAt      = 128 << 10
	doneAt      = 256 << 10
	headerBytes = 384 << 10

	epochsAt   = 0
	tableAt    = 8 << 10
	maxSlabs   = 255 // slab 0 is the board
	localBytes = tableAt + (maxSlabs+1)*MaxRanks*8

	slabShift = 48
	tileShift = 24 // words for tiles have the epoch above it, a count below
	tileSlots = 2  // scratch slots for tiles of one warp from one rank
	leastTile = 512
	mostTile  = 32 << 10
	mostWarps = MaxBlocks * MaxThreads / 32
	lineData  = 120 // bytes of data in a line of lineBytes
	lineBytes = 128
)

// Sizes of a board's parts if Config has 0. The lines fit an allreduce of 16 MiB between 2 ranks in
// one launch.
const (
	defaultPackets = 4 << 20
	defaultLines   = 36 << 20
	defaultStage   = 32 << 20
	defaultTiles   = 64 << 20
	leastPart      = 64 << 10
)

// part is one kind of scratch memory in a board: two halves.
type part struct{ at, half uint64 }

// board has the locations of the parts.
type board struct {
	packets, lines, stage, tiles part
	bytes                        int64
}

func newBoard(c *Config) board {
	b := board{bytes: headerBytes}
	take := func(bytes, def int64) part {
		if bytes == 0 {
			bytes = def
		}
		half := bytes / 2 &^ (lineBytes - 1)
		p := part{uint64(b.bytes), uint64(half)}
		b.bytes += 2 * half
		return p
	}
	b.packets = take(c.PacketBytes, defaultPackets)
	b.lines = take(c.LineBytes, defaultLines)
	b.stage = take(c.StageBytes, defaultStage)
	b.tiles = take(c.TileBytes, defaultTiles)
	return b
}

// place returns a data location for other ranks: a slab's number, and the offset in it. 0 means
// data in no slab; the kernel then uses its staging memory in the board, slab 0.
func place(slab int, offset uint64) uint64 { return uint64(slab)<<slabShift | offset }

// span has the parameters of an operation for a rank. block is the bytes that one rank gives or
// gets. If srcStride is not 0, block q of the source is for rank q. If dstStride is not 0, data of
// rank q go to block q of the destination. Bit r of senders and receivers is for rank r.
type span struct {
	block, srcStride, dstStride uint64
	senders, receivers          uint8
	flags                       uint8
}

const (
	flagGreet = 1 << iota // some ranks have no data for each other
	flagFence             // a barrier
	flagNext              // the next kernel in the stream may begin before this one ends
)

// spanOf returns the span of op among n ranks, and whether these engines can do it.
func spanOf(op *dist.Op, n int) (span, bool) {
	all := uint8(1<<n - 1)
	b := uint64(op.Count) * uint64(op.DType().Size())
	s := span{block: b, senders: all, receivers: all}
	root := uint8(1) << (op.Root & 7)
	switch op.Kind {
	case dist.KindAllReduce:
	case dist.KindReduce:
		s.receivers, s.flags = root, flagGreet
	case dist.KindBroadcast:
		s.senders, s.flags = root, flagGreet
	case dist.KindAllGather:
		s.dstStride = b
	case dist.KindReduceScatter:
		s.srcStride = b
	case dist.KindAllToAll:
		s.srcStride, s.dstStride = b, b
	case dist.KindGather:
		s.dstStride, s.receivers, s.flags = b, root, flagGreet
	case dist.KindScatter:
		s.srcStride, s.senders, s.flags = b, root, flagGreet
	case dist.KindBarrier:
		return span{flags: flagGreet | flagFence}, true
	case dist.KindSync:
		return span{flags: flagGreet}, true
	default:
		return span{}, false
	}
	return s, true
}

// who returns the kernel argument with the rank, the senders, the receivers and the flags.
func (s *span) who(rank int) uint64 {
	return uint64(rank) | uint64(ownFirst(s.senders, rank))<<8 | uint64(ownFirst(s.receivers, rank))<<16 | uint64(s.flags)<<24
}

// ownFirst permutes bits of ranks to the order of boards in a kernel: this rank, then all others in
// order.
func ownFirst(ranks uint8, rank int) uint8 {
	below := uint8(1)<<rank - 1
	return ranks>>rank&1 | ranks&below<<1 | ranks&^(below<<1|1)
}

func align(n, to uint64) uint64 { return (n + to - 1) / to * to }

// piece is one launch's part of an operation: the bytes of each rank's block, the distance
// of an allreduce's slices (else 0), and the distance of slots in scratch memory.
type piece struct{ bytes, stride, slot uint64 }

// maxPiece returns the most bytes of a block for one launch of prog. It is a multiple of 8, or of
// 16 if kernels use vectors, so that elements stay whole and aligned data stays aligned.
func maxPiece(prog program, s *span, n int, p part, staged bool) uint64 {
	others := uint64(max(n-1, 1))
	switch prog {
	case onceShort:
		return p.half / others / 16 * 8
	case onceLine:
		return p.half / others / lineBytes * lineData
	case twiceLine:
		return p.half / (2 * others) / lineBytes * lineData * uint64(n)
	case pull:
		if s.srcStride != 0 {
			return p.half / uint64(n) &^ 127
		}
		return p.half &^ 127
	}
	switch {
	case prog == tileAll || prog == tileOwn:
		return 1 << 32 // a warp must be able to count the tiles
	case !staged:
		return 1 << 62
	}
	const shift = 16 // data keep their offset within 16 bytes
	if s.srcStride == 0 && s.dstStride == 0 {
		return (p.half - shift) / uint64(n) &^ 127 * uint64(n) // slices of an allreduce, or else one block, which is smaller
	}
	return ((p.half-shift)/uint64(n) - 2*shift) &^ 127
}

// pieceOf returns the launch for bytes bytes of each rank's block.
func pieceOf(prog program, s *span, n int, bytes uint64) piece {
	q := piece{bytes: bytes}
	switch prog {
	case onceShort:
		q.slot = align(bytes, 8) * 2
	case onceLine:
		q.slot = align(bytes, lineData) / lineData * lineBytes
	case twiceLine:
		lines := align(bytes, lineData) / lineData
		q.slot = align(lines, uint64(n)) / uint64(n) * lineBytes
	case pull:
		q.slot = align(bytes, 16)
	case reduceAll, tileAll:
		q.stride = align(align(bytes, uint64(n))/uint64(n), 16)
		q.slot = q.stride
	case reduceOwn:
		q.slot = align(bytes, 16) + s.srcStride&15
	case push:
		q.slot = align(bytes, 16) + s.dstStride&15
	}
	return q
}

// Config has the settings of a group's engines. Same on all ranks.
type Config struct {
	PacketBytes int64  // of the board: packets of 8 bytes; 0 means 4 MiB
	LineBytes   int64  // packets of a line; 0 means 36 MiB
	StageBytes  int64  // copies of data in no slab; 0 means 32 MiB
	TileBytes   int64  // tiles in transfer; 0 means 64 MiB
	MaxCTAs     int    // thread blocks of a launch; 0 means the number that is fastest on an idle GPU
	Shapes      []Rule // of launches; nil means the built-in ones
	Memory      Memory // allocator of boards; nil means IPC
}

// mostBlocks returns MaxCTAs, or MaxBlocks for 0.
func (c *Config) mostBlocks() int { return cmp.Or(c.MaxCTAs, MaxBlocks) }

// Validate reports the first wrong setting. Errors: dist.ErrInvalid.
func (c *Config) Validate() error {
	for _, f := range []struct {
		name  string
		bytes int64
	}{{"PacketBytes", c.PacketBytes}, {"LineBytes", c.LineBytes}, {"StageBytes", c.StageBytes}, {"TileBytes", c.TileBytes}} {
		if f.bytes != 0 && (f.bytes < leastPart || f.bytes > 1<<36) {
			return fmt.Errorf("direct: %w: %s %d, not 0 or from %d to %d", dist.ErrInvalid, f.name, f.bytes, leastPart, int64(1)<<36)
		}
	}
	if c.MaxCTAs < 0 || c.MaxCTAs > MaxBlocks {
		return fmt.Errorf("direct: %w: MaxCTAs %d, not from 0 to %d", dist.ErrInvalid, c.MaxCTAs, MaxBlocks)
	}
	for i := range c.Shapes {
		if err := c.Shapes[i].validate(); err != nil {
			return fmt.Errorf("direct: shape %d: %w", i, err)
		}
	}
	return nil
}
