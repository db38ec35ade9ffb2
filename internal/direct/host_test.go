package direct

import (
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestSplitsCoverAnAllreduceAndFitTheRoom(t *testing.T) {
	const mostLines = 17 << 20
	for _, threads := range []int{32, 96, 256, MaxThreads} {
		warps := uint64(hostSenders * threads / 32)
		for _, bytes := range []uint64{
			leastHost, leastHost + 1, leastHost + 127, 12_000_003, 16 << 20,
			leastTiled, leastTiled + 1, leastTiled + 127, 30_000_003, 64 << 20, 1<<30 + 8, mostHost,
		} {
			s := splitOf(bytes, mostLines, threads)
			links := s.tiles + s.lines
			if s.tiles%lineBytes != 0 || s.lines%lineBytes != 0 || s.lines > mostLines || links+s.host != bytes {
				t.Errorf("%d B: %d go by tiles, %d by lines, %d by the host", bytes, s.tiles, s.lines, s.host)
			}
			if s.hostTile%leastHostTile != 0 || s.hostTile < leastHostTile || s.hostTile > mostHostTile || hostHalf/(s.hostTile*warps) < 2 {
				t.Errorf("%d B, blocks of %d threads: tiles of %d B", bytes, threads, s.hostTile)
			}
			each := (s.host + s.hostTile*warps - 1) / (s.hostTile * warps) // tiles of a warp
			if each+1 >= 1<<tileShift {
				t.Errorf("%d B, blocks of %d threads: too many tiles to count", bytes, threads)
			}
			if lines, host := s.words(); lines != s.lines || host != s.host+s.hostTile<<hostShift {
				t.Errorf("%d B: kernels get %#x and %#x", bytes, lines, host)
			}
			if bytes >= leastTiled {
				if s.host > bytes/hostShare || s.host+lineBytes < bytes/hostShare || s.lines > links/lineShare || s.lines+lineBytes < min(mostLines, links/lineShare) {
					t.Errorf("%d B: %d go by lines, %d by the host", bytes, s.lines, s.host)
				}
				if each < 4 && s.hostTile > leastHostTile {
					t.Errorf("%d B by the host, %d warps: %d tiles of %d B each, want four", s.host, warps, each, s.hostTile)
				}
				continue
			}
			if s.tiles != 0 || s.host+lineBytes < (bytes-leastHost)/hostRise*hostPart+320<<10 || s.host > (bytes-leastHost)/hostRise*hostPart+320<<10 {
				t.Errorf("%d B: %d go by tiles, %d by the host", bytes, s.tiles, s.host)
			}
			if s.hostTile < mostHostTile && (each > 2 || each == 2 && s.host <= oneHostTile*warps || each == 1 && s.hostTile > oneHostTile) {
				t.Errorf("%d B by the host, %d warps: %d tiles of %d B each", s.host, warps, each, s.hostTile)
			}
		}
	}
	if s := splitOf(leastTiled-1, mostLines, MaxThreads); s != (split{}) {
		t.Errorf("too much for lines, and too little for tiles: %+v", s)
	}
	if hostFewest <= 2*(hostBlocks+lineBlocks) || hostBlocks > MaxBlocks/8 {
		t.Error("too many blocks for the host and lines: most are for tiles, and all of the host's must run wherever two groups share a GPU")
	}
}

func TestOnlyLargeAllreducesAreDivided(t *testing.T) {
	there := hostRoom{heap: noHeap{}}
	shape := Shape{Blocks: 64, Threads: 256}
	for _, c := range []struct {
		what  string
		room  hostRoom
		prog  program
		bytes uint64
		shape Shape
		want  program
	}{
		{"tiles", there, tileAll, leastTiled, shape, tileHost},
		{"tiles of much", there, tileAll, mostHost, shape, tileHost},
		{"what lines have room for", there, tileAll, leastHost, shape, tileHost},
		{"what lines have no room for", there, tileAll, leastTiled - 1, shape, tileAll},
		{"more than one launch", there, tileAll, mostHost + 1, shape, tileAll},
		{"few blocks", there, tileAll, leastHost, Shape{Blocks: hostFewest - 1, Threads: 512}, tileAll},
		{"too few bytes", there, tileAll, leastHost - 1, shape, twiceLine},
		{"no room", hostRoom{}, tileAll, leastHost, shape, tileAll},
		{"no room for few bytes", hostRoom{}, tileAll, leastHost - 1, shape, tileAll},
		{"buffers that do not lie alike", there, reduceAll, leastHost, shape, reduceAll},
		{"a reduce-scatter", there, tileOwn, leastHost, shape, tileOwn},
	} {
		s := testState(2)
		s.host = c.room
		l := call{prog: c.prog, span: span{block: c.bytes}}
		s.divide(&l, c.shape)
		if l.prog != c.want || (l.split == split{}) == (c.want == tileHost) {
			t.Errorf("%s: program %d, %+v, want program %d", c.what, l.prog, l.split, c.want)
		}
	}
	s := testState(2)
	s.host = there
	l := call{prog: tileAll, span: span{block: leastHost}}
	if s.divide(&l, shape); l.split.tiles != 0 || pieceOf(twiceLine, &l.span, 2, l.split.lines).slot*2 > s.board.lines.half {
		t.Errorf("without tiles: %+v", l.split)
	}
	s.board = newBoard(&Config{LineBytes: leastPart})
	l.prog = tileAll
	if s.divide(&l, shape); l.prog != tileAll {
		t.Errorf("program %d where a small board has no room for lines", l.prog)
	}
	l.span.block = leastTiled
	if s.divide(&l, shape); l.split.lines == 0 || pieceOf(twiceLine, &l.span, 2, l.split.lines).slot*2 > s.board.lines.half || l.split.tiles+l.split.lines+l.split.host != leastTiled {
		t.Errorf("of a small board: %+v", l.split)
	}
	if got := testing.AllocsPerRun(100, func() { l.prog = tileAll; s.divide(&l, shape) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestADividedAllreduceIsToldWhole(t *testing.T) {
	s := testState(2)
	shape := Shape{Blocks: 64, Threads: 256}
	l := call{prog: tileHost, span: span{block: 32 << 20, senders: 3, receivers: 3}, split: splitOf(32<<20, 1<<40, shape.Threads)}
	q := pieceOf(tileHost, &l.span, 2, l.split.tiles)
	w := s.words(&l, &q, 0, part{half: 32 << 20}, shape)
	const srcPlace, bytes, srcStride, dstStride, slot, tiling = MaxRanks + 4, MaxRanks + 6, MaxRanks + 7, MaxRanks + 8, MaxRanks + 9, arguments - 1
	if w[bytes] != 32<<20 || w[srcStride] != q.stride || 2*q.stride < l.split.tiles || q.stride > l.split.tiles {
		t.Errorf("%d B, slices of %d", w[bytes], w[srcStride])
	}
	if lines := (l.split.lines + lineData - 1) / lineData; w[slot]*2 < lines*lineBytes || w[slot]*2 > s.board.lines.half {
		t.Errorf("slots of %d B for %d lines", w[slot], lines)
	}
	if warps := w[tiling] >> 32; warps > (64-hostBlocks-lineBlocks)*8 {
		t.Errorf("%d warps have tiles, more than their blocks have", warps)
	}
	if lines, host := l.split.words(); w[srcPlace] != lines || w[dstStride] != host {
		t.Errorf("parts are told as %#x and %#x, want %#x and %#x", w[srcPlace], w[dstStride], lines, host)
	}
}

// byTheHost runs allreduces with parts by lines and through the host's memory, with any alignment
// and in many shapes, one after the other.
func byTheHost(r *rank) error {
	e := r.engines[hosted]
	room := e.(*placed).s.host.heap
	if r.alone && (room != nil) != (r.Size == 2) {
		return fmt.Errorf("among %d processes there is room in the host's memory: %v", r.Size, room != nil)
	}
	rng := random(11)
	for i, shape := range []Shape{{64, 256, 0}, {hostFewest, 64, 512}, {112, 512, 8 << 10}, {96, 128, 2 << 10}, {hostFewest - 1, 512, 0}} {
		for j, bytes := range []int{leastHost, 12_000_024, 17 << 20, leastTiled, 30_000_024} {
			for k := range 2 {
				c := someCombos[(i+3*j+5*k)%len(someCombos)]
				s := newSpec(rng, r.Size, dist.KindAllReduce, c, bytes/c.dt.Size()+k, 0)
				s.lay(rng, 0, i != 2 || j == 0, k == 0)
				if err := errors.Join(e.Force(shape), r.run(e, s)); err != nil {
					return fmt.Errorf("shape %v: %w", shape, err)
				}
			}
		}
	}
	if err := e.Force(Shape{}); err != nil {
		return err
	}
	// In a graph, so that slots and words go round: 1 and 2 become 3 and 3, and then twice as much
	// each time.
	for _, bytes := range []int{12 << 20, 28 << 20} {
		buf := deviceBuffer(r.heap.Base[r.Rank], bytes/4, tensor.U32, r)
		if err := r.fillWords(buf, uint32(r.Rank+1)); err != nil {
			return err
		}
		op := dist.Op{Kind: dist.KindAllReduce, Count: buf.Len(), Src: buf, Dst: buf, Symmetric: true}
		const replays = 20
		if err := r.replay(&op, replays, e); err != nil {
			return err
		}
		want := uint32(r.Size * (r.Size + 1) / 2)
		for range replays - 1 {
			want *= uint32(r.Size)
		}
		if err := r.checkWords(buf, want); err != nil {
			return fmt.Errorf("%d B in a graph: %w", bytes, err)
		}
	}
	return nil
}
