package direct

import (
	"errors"
	"unsafe"

	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/symmetric"
)

// Between two GPUs links of NVLink are not the only way: each has its bus to the host, over which some 27 GB/s go in both directions at
// once beside full links. So the engine host has a sixteenth of a large allreduce go there (kernels/host.cu). Of what remains another one goes
// by packets of a line (kernels/divide.cu), which is a few hundredths faster than tiles alone.
const (
	hostShare = 16       // one byte of so many
	lineShare = 16       // one of those that are left
	leastHost = 24 << 20 // bytes of an allreduce; less is over before what goes by the host

	mostHost = 1 << 32 // and of one launch: see maxPiece

	hostSenders = 4 // blocks
	hostAdders  = 5
	hostBlocks  = hostSenders + hostAdders
	lineBlocks  = 12
	hostFewest  = 3 * (hostBlocks + lineBlocks) // blocks of a launch: most are for tiles

	leastHostTile = 4 << 10
	mostHostTile  = 16 << 10
	hostWarps     = hostSenders * MaxThreads / 32

	hostWords = 64 * hostWarps // bytes: a line for each sending warp
	hostHalf  = 4 << 20
	hostBytes = 2 * (hostWords + hostHalf) // of a rank, by parity

	hostShift = 48 // above it the bytes of a tile: see kernels/host.cu
)

// split is how an allreduce is divided: what goes by tiles comes first, then what goes by lines. The zero split is none.
type split struct {
	tiles, lines, host uint64 // bytes; tiles and lines are whole lines of memory
	hostTile           uint64 // bytes of a tile of the host's
}

// words is the split as kernels get it, in the place of srcPlace and dstStride.
func (s *split) words() (lines, host uint64) { return s.lines, s.host | s.hostTile<<hostShift }

// splitOf is the split of so many bytes for blocks of so many threads; no more than mostLines may go by lines. Each warp that sends by the
// host has four tiles or more, as far as these are not too small.
func splitOf(bytes, mostLines uint64, threads int) split {
	links := align(bytes-bytes/hostShare, lineBytes)
	lines := min(links/lineShare, mostLines) &^ (lineBytes - 1)
	warps := uint64(hostSenders * threads / 32)
	return split{
		tiles: links - lines, lines: lines, host: bytes - links,
		hostTile: min(max(align((bytes-links)/(4*warps), leastTile), leastHostTile), mostHostTile),
	}
}

// hostRoom is memory of the host in which two ranks have slots for each other's tiles; the zero hostRoom is none. It is a heap of their
// control group, mapped once more: where the group ends before the device is known to be done, the heap goes, and what kernels may
// still write to stays mapped and pinned to the end of the process.
type hostRoom struct {
	heap symmetric.Heap
	maps [2][]byte           // this rank's part, and the other's
	pins [2]*cuda.HostMemory // for this rank's device
}

// open makes the room, where the host has it for both ranks: their control group needs a heap of memory that processes share, which their
// devices can address. Without it all goes over the links.
//
// Collective: both ranks. Errors: on both alike, those of p.
func (h *hostRoom) open(p *gpu.Party, local uintptr, lines part) error {
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

// take makes this rank's end of the room, and tells the kernels where it is, and where lines are in the boards.
func (h *hostRoom) take(p *gpu.Party, local uintptr, lines part) error {
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

// divide has parts of l go by lines and by way of the host, if it is an allreduce by tiles, large enough, and there is room. Ranks
// come to the same answer, since it depends on nothing that they do not have alike.
func (s *state) divide(l *call, shape Shape) {
	if l.prog != tileAll || s.host.heap == nil || l.span.block < leastHost || l.span.block > mostHost || shape.Blocks < hostFewest {
		return
	}
	l.prog = tileHost
	l.split = splitOf(l.span.block, maxPiece(twiceLine, &l.span, s.n, s.board.lines, false), shape.Threads)
}
