package direct

import (
	"errors"
	"unsafe"

	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/symmetric"
)

// Between two GPUs links of NVLink are not the only way: each has its bus to the host, over which
// some 27 GB/s go in both directions at once beside full links. So the engine host has a part of a
// large allreduce go there (kernels/host.cu). Of what remains a part goes by packets of a line
// (kernels/divide.cu), which is a few hundredths faster than tiles alone, or all of it, as far as
// there is room for lines.
const (
	leastHost  = 8 << 20  // bytes of an allreduce; less is over before what goes by the host
	leastTiled = 24 << 20 // and of one that goes by tiles as well

	hostShare = 16 // with tiles: one byte of so many by the host
	lineShare = 16 // and by lines one of those that are left

	// Without tiles each further byte is shared out, 5 of 64 by the host, whose first one comes
	// late.
	hostRise = 64
	hostPart = 5
	hostLate = 320 << 10 // bytes that the host would have carried by then

	mostHost = 1 << 32 // and of one launch: see maxPiece

	hostSenders = 4 // blocks
	hostAdders  = 5
	hostBlocks  = hostSenders + hostAdders
	lineBlocks  = 12
	hostFewest  = 3 * (hostBlocks + lineBlocks) // blocks of a launch: most are for tiles

	leastHostTile = 4 << 10 // a warp's step: see kernels/tile.cu
	mostHostTile  = 16 << 10
	oneHostTile   = 12 << 10 // at most, where a warp has no other
	hostWarps     = hostSenders * MaxThreads / 32

	hostWords = 64 * hostWarps // bytes: a line for each sending warp
	hostHalf  = 4 << 20
	hostBytes = 2 * (hostWords + hostHalf) // of a rank, by parity

	hostShift = 48 // above it the bytes of a tile: see kernels/host.cu
)

// split is how an allreduce is divided: what goes by tiles comes first, then what goes by lines.
// Where nothing goes by tiles, all blocks that are not the host's have lines. The zero split is
// none.
type split struct {
	tiles, lines, host uint64 // bytes; tiles and lines are whole lines of memory
	hostTile           uint64 // bytes of a tile of the host's
}

// words is the split as kernels get it, in the place of srcPlace and dstStride.
func (s *split) words() (lines, host uint64) { return s.lines, s.host | s.hostTile<<hostShift }

// splitOf is the split of so many bytes for blocks of so many threads; no more than mostLines may
// go by lines. With tiles each warp that sends by the host has four of its tiles or more, as far as
// these are not too small; without, one, or two where one would be large, since the last one is
// waited for. It is none where lines are too many to go without tiles, and too few bytes for these.
func splitOf(bytes, mostLines uint64, threads int) split {
	warps := uint64(hostSenders * threads / 32)
	if bytes < leastTiled {
		links := align(bytes-(bytes/hostRise*hostPart-hostLate), lineBytes)
		if links > mostLines {
			return split{}
		}
		tile := align((bytes-links+warps-1)/warps, leastHostTile)
		if tile > oneHostTile {
			tile = align((bytes-links+2*warps-1)/(2*warps), leastHostTile)
		}
		return split{lines: links, host: bytes - links, hostTile: min(tile, mostHostTile)}
	}
	links := align(bytes-bytes/hostShare, lineBytes)
	lines := min(links/lineShare, mostLines) &^ (lineBytes - 1)
	return split{
		tiles: links - lines, lines: lines, host: bytes - links,
		hostTile: min(max((bytes-links)/(4*warps)&^(leastHostTile-1), leastHostTile), mostHostTile),
	}
}

// hostRoom is memory of the host in which two ranks have slots for each other's tiles; the zero
// hostRoom is none. It is a heap of their control group, mapped once more: where the group ends
// before the device is known to be done, the heap goes, and what kernels may still write to stays
// mapped and pinned to the end of the process.
type hostRoom struct {
	heap symmetric.Heap
	maps [2][]byte           // this rank's part, and the other's
	pins [2]*cuda.HostMemory // for this rank's device
}

// open makes the room, where the host has it for both ranks: their control group needs a heap of
// memory that processes share, which their devices can address. Without it all goes over the links.
//
// Collective: both ranks. Errors: on both alike, those of p.
func (h *hostRoom) open(p *gpu.Member, local uintptr, lines part) error {
	missing := h.take(p, local, lines)
	lacks := []byte{0}
	if missing != nil {
		lacks[0] = 1
	}
	all, err := p.Exchange(lacks)
	if err != nil || all[0][0]+all[1][0] > 0 {
		return errors.Join(err, p.Agree(h.close()))
	}
	return nil
}

// take makes this rank's end of the room, and tells the kernels where it is, and where lines are in
// the boards.
func (h *hostRoom) take(p *gpu.Member, local uintptr, lines part) error {
	heap, err := p.Control.Heap(hostBytes + symmetric.MaxAlignment)
	if err != nil {
		return err
	}
	h.heap = heap
	r, err := heap.Aligned(symmetric.MaxAlignment, hostBytes)
	if err != nil {
		return err
	}
	peer, err := r.Peer(1 - p.Rank)
	if err != nil {
		return err
	}
	at := [4]uint64{2: lines.at, 3: lines.half}
	for i, b := range [...]unsafe.Pointer{r.Local().Pointer(), peer.Pointer()} {
		if h.maps[i], err = mapAgain(b, hostBytes); err != nil {
			return err
		}
		if h.pins[i], err = p.Device.PinHost(h.maps[i]); err != nil {
			return err
		}
		at[i] = uint64(h.pins[i].Device())
	}
	return p.Device.CopyFromHost(local+hostAt, unsafe.Pointer(&at), int64(unsafe.Sizeof(at)))
}

// close gives the room back. It waits for nobody: the other rank has the memory mapped by itself.
func (h *hostRoom) close() error {
	var errs []error
	for i, m := range h.pins {
		var err error
		if m != nil {
			err = m.Close()
		}
		if err == nil && h.maps[i] != nil { // what may still be pinned stays mapped
			err = unmap(h.maps[i])
		}
		errs = append(errs, err)
	}
	if h.heap != nil {
		errs = append(errs, h.heap.Close())
	}
	*h = hostRoom{}
	return errors.Join(errs...)
}

// divide has parts of l go by lines and by way of the host, if it is an allreduce by tiles, large
// enough, and there is room. A smaller one goes by lines. Ranks come to the same answer, since it
// depends on nothing that they do not have alike.
func (s *state) divide(l *call, shape Shape) {
	if l.prog != tileAll || s.host.heap == nil || l.span.block > mostHost {
		return
	}
	if l.span.block < leastHost {
		l.prog = twiceLine
		return
	}
	if shape.Blocks < hostFewest {
		return
	}
	l.split = splitOf(l.span.block, maxPiece(twiceLine, &l.span, s.n, s.board.lines, false), shape.Threads)
	if l.split != (split{}) {
		l.prog = tileHost
	}
}
