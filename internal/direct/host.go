package direct

import (
	"errors"
	"unsafe"

	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/symmetric"
)

// Between two GPUs, NVLink is not the only path. Each GPU has a bus to the host, with some 27 GB/s
// in both directions at once while the links are full. So the engine host moves a part of a large
// allreduce there (kernels/host.cu). A part of the rest uses packets of a line
// (kernels/divide.cu), a few hundredths faster than tiles alone. All of the rest does if there is
// room for lines.
const (
	leastHost  = 8 << 20  // bytes of an allreduce; smaller ones end before data through the host arrives
	leastTiled = 24 << 20 // least bytes with tiles

	hostShare = 16 // with tiles: one of 16 bytes through the host
	lineShare = 16 // and one of 16 of the others by lines

	// Without tiles the host moves 5 of 64 bytes, less those that it would have moved before its
	// first byte arrives.
	hostRise = 64
	hostPart = 5
	hostLate = 320 << 10 // bytes that the host would have moved by then

	mostHost = 1 << 32 // most bytes of one launch: see maxPiece

	hostSenders = 4 // blocks
	hostAdders  = 5
	hostBlocks  = hostSenders + hostAdders
	lineBlocks  = 12
	hostFewest  = 3 * (hostBlocks + lineBlocks) // least blocks of a launch: most are for tiles

	leastHostTile = 4 << 10 // step of a warp: see kernels/tile.cu
	mostHostTile  = 16 << 10
	oneHostTile   = 12 << 10 // most for a warp with a single tile
	hostWarps     = hostSenders * MaxThreads / 32

	hostWords = 64 * hostWarps // bytes: a line for each sending warp
	hostHalf  = 4 << 20
	hostBytes = 2 * (hostWords + hostHalf) // of a rank, by parity

	hostShift = 48 // the bytes of a tile are above it: see kernels/host.cu
)

// split divides an allreduce: first the data by tiles, then by lines, then through the host.
// Without tiles, all blocks that are not the host's do lines. The zero split means no division.
type split struct {
	tiles, lines, host uint64 // bytes; tiles and lines are whole memory lines
	hostTile           uint64 // bytes of a tile through the host
}

// words returns the split as kernel arguments, for srcPlace and dstStride.
func (s *split) words() (lines, host uint64) { return s.lines, s.host | s.hostTile<<hostShift }

// splitOf returns the split of bytes for launches of threads threads in a block, with at most
// mostLines by lines. With tiles, each warp that sends through the host has at least four, unless
// these are too small. Without, it has one, or two if one would be large, since the last one is
// waited for. The split is zero if lines alone have no room and bytes are too few for tiles.
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

// hostRoom is host memory in which two ranks have slots for each other's tiles; the zero hostRoom
// means none. It is a heap of their control group, mapped a second time. If the group ends before
// the device is known to be done, the heap is freed. The second mapping stays mapped and pinned
// until the process ends, because kernels may still write to it.
type hostRoom struct {
	heap symmetric.Heap
	maps [2][]byte           // this rank's part, and the other's
	pins [2]*cuda.HostMemory // the same, pinned for this rank's device
}

// open makes the room if both ranks can: their control group needs a heap of shared memory that
// their devices can address. Without it all data use the links.
//
// Collective: both ranks. Errors: on both, those of p.
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

// take makes this rank's end of the room, and stores the addresses of the room and of lines in the
// boards for the kernels.
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

// close frees the room. It waits for no rank: the other rank has its own mapping.
func (h *hostRoom) close() error {
	var errs []error
	for i, m := range h.pins {
		var err error
		if m != nil {
			err = m.Close()
		}
		if err == nil && h.maps[i] != nil { // memory that may still be pinned stays mapped
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

// divide splits l between lines, host memory and tiles, if it is an allreduce by tiles, large
// enough, and there is room. A smaller one uses lines. The result is equal on all ranks.
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
