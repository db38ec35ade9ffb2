package direct

import (
	"cmp"
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// MaxRanks is the ranks of the largest group that the kernels serve: the GPUs of one NVLink domain
// of a host.
const MaxRanks = 8

// Limits of a launch. A kernel's registers are bounded so that one block of MaxThreads fits a
// multiprocessor, and a grid has no more blocks than seven eighths of the multiprocessors: all of
// it runs at once, and where two groups share GPUs, and one of these has begun with the operation
// of one and another with that of the other, some blocks of both run everywhere. That is enough,
// since a block waits for nothing but the same block, and the first ones, of the other ranks, which
// are there before it.
const (
	MaxBlocks  = 128
	MaxThreads = 512
)

// An operation of so many blocks and bytes at most may begin beside the one in front of it in the
// stream that is of so many, too: what the device does before a kernel's first instruction is then
// done when the one in front of it ends. Larger ones would take multiprocessors from others, and
// from each other, for as long as they wait. A GPU has to have twice as many for both, so that
// other groups find theirs. Any operation may begin when the blocks of the one in front of it have
// ended, before the device has made sure of what these wrote: that is waited for in the kernel.
const (
	earlyBlocks = 32
	earlyBytes  = 256 << 10 // of a block of data
)

// A board is the symmetric memory of a group of engines, alike on every rank:
//
//	helloAt     8 words: the epoch in which rank r greeted
//	scalarsAt   2 x 8 tagged words, by parity and rank: factors of a premulsum
//	closeAt     MaxBlocks x 8 words: the epoch in which block b of rank r had done its part
//	openAt      2 x MaxBlocks x 8 pairs of tagged words: block b of rank r has come, and where its data are
//	sentAt      mostWarps x 8 words: how many tiles warp w of rank r has stored here
//	doneAt      mostWarps x 8 words: how many of warp w's tiles rank r has reduced
//	headerBytes packets of 8 bytes, two halves
//	then        packets of a line, two halves
//	then        staging, two halves
//	then        tiles, two halves: apart from staging, since nobody waits before storing to them
//
// Local memory, of the rank alone, has the epoch of the next operation, one a block, and the table
// of slabs.
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
	tileShift = 24 // above it words for tiles have the epoch, below how many
	tileSlots = 2  // of scratch memory, for tiles of one warp from one rank
	leastTile = 512
	mostTile  = 32 << 10
	mostWarps = MaxBlocks * MaxThreads / 32
	lineData  = 120 // bytes of data in a line of lineBytes
	lineBytes = 128
)

// Sizes of a board's parts when the Config says 0. The lines hold an allreduce of 16 MiB between 2
// ranks in one launch.
const (
	defaultPackets = 4 << 20
	defaultLines   = 36 << 20
	defaultStage   = 32 << 20
	defaultTiles   = 64 << 20
	leastPart      = 64 << 10
)

// part is one kind of scratch memory in a board: two halves.
type part struct{ at, half uint64 }

// board is where the parts are.
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

// place is where data lie, as ranks tell each other: the number of a slab, and the offset in it. 0
// says that they lie in no slab; the kernel then gives the place in its staging memory, in the
// board, which is slab 0.
func place(slab int, offset uint64) uint64 { return uint64(slab)<<slabShift | offset }

// span is what a rank must know of an operation to take part: block is the bytes of what one rank
// gives or gets; block q of its source, when srcStride is not 0, is for rank q, and that of rank q
// goes to block q of its destination, when dstStride is not 0. Bit r of senders and receivers is
// for rank r.
type span struct {
	block, srcStride, dstStride uint64
	senders, receivers          uint8
	flags                       uint8
}

const (
	flagGreet = 1 << iota // not every rank has data for every other
	flagFence             // a barrier
	flagNext              // the next kernel in the stream may begin before this one ends
)

// spanOf is the span of op in a group of n ranks, and whether it is an operation of these engines
// at all.
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

// who is the argument of a kernel by which it knows itself and the others.
func (s *span) who(rank int) uint64 {
	return uint64(rank) | uint64(ownFirst(s.senders, rank))<<8 | uint64(ownFirst(s.receivers, rank))<<16 | uint64(s.flags)<<24
}

// ownFirst is bits of ranks in the order in which a kernel gets boards: this rank's, and then those
// of all others as they come.
func ownFirst(ranks uint8, rank int) uint8 {
	below := uint8(1)<<rank - 1
	return ranks>>rank&1 | ranks&below<<1 | ranks&^(below<<1|1)
}

func align(n, to uint64) uint64 { return (n + to - 1) / to * to }

// piece is one launch's part of an operation: how much of every block it does, how far apart the
// kernel finds the slices of an allreduce (else 0), and how far apart are slots in scratch memory.
type piece struct{ bytes, stride, slot uint64 }

// maxPiece is the most bytes of a block that one launch of prog does. It is a multiple of 8, and of
// 16 where kernels use vectors, so that no element is cut and what is aligned stays so.
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
		return 1 << 32 // of which one warp could count the tiles
	case !staged:
		return 1 << 62
	}
	const shift = 16 // data keep their place within 16 bytes
	if s.srcStride == 0 && s.dstStride == 0 {
		return (p.half - shift) / uint64(n) &^ 127 * uint64(n) // slices of an allreduce; else one block, and this is enough
	}
	return ((p.half-shift)/uint64(n) - 2*shift) &^ 127
}

// pieceOf is the launch of bytes bytes of every block.
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

// Config is how the engines of a group are made. The ranks of a group have the same.
type Config struct {
	PacketBytes int64  // of the board: packets of 8 bytes; 0 means 4 MiB
	LineBytes   int64  // packets of a line; 0 means 36 MiB
	StageBytes  int64  // copies of what lies in no slab; 0 means 32 MiB
	TileBytes   int64  // tiles on their way; 0 means 64 MiB
	MaxCTAs     int    // thread blocks of a launch, each of which has a multiprocessor or a part of one; 0 means as many as are the fastest alone
	Shapes      []Rule // of launches; nil means those that come with the program
	Memory      Memory // where boards come from; nil means IPC
}

// mostBlocks is MaxCTAs without a special value.
func (c *Config) mostBlocks() int { return cmp.Or(c.MaxCTAs, MaxBlocks) }

// Validate reports what Make would refuse. Errors: dist.ErrInvalid.
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
