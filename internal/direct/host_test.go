package direct

import (
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestSplitsCoverAnAllreduceAndFitTheRoom(t *testing.T) {
	for _, threads := range []int{32, 96, 256, MaxThreads} {
		for _, bytes := range []uint64{leastHost, leastHost + 1, leastHost + 127, 30_000_003, 64 << 20, 1<<30 + 8, mostHost} {
			s := splitOf(bytes, threads)
			rest := bytes - s.links
			if s.links%lineBytes != 0 || s.links >= bytes || rest > bytes/hostShare || rest+lineBytes < bytes/hostShare {
				t.Errorf("%d B: %d go over the links, %d by the host", bytes, s.links, rest)
			}
			warps := uint64(hostSenders * threads / 32)
			if s.tile%leastTile != 0 || s.tile < leastHostTile || s.tile > mostHostTile || hostHalf/(s.tile*warps) < 2 {
				t.Errorf("%d B, blocks of %d threads: tiles of %d B", bytes, threads, s.tile)
			}
			if (rest+s.tile*warps-1)/(s.tile*warps)+1 >= 1<<tileShift {
				t.Errorf("%d B, blocks of %d threads: too many tiles to count", bytes, threads)
			}
			if w := s.word(); w&(1<<hostShift-1) != s.links || w>>hostShift != s.tile {
				t.Errorf("%d B: kernels get %#x", bytes, w)
			}
		}
	}
	if hostFewest <= hostBlocks || hostBlocks > MaxBlocks/8 {
		t.Error("too many blocks for the host: all of them must run wherever two groups share a GPU")
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
		{"tiles", there, tileAll, leastHost, shape, tileHost},
		{"tiles of much", there, tileAll, mostHost, shape, tileHost},
		{"too few bytes", there, tileAll, leastHost - 1, shape, tileAll},
		{"more than one launch", there, tileAll, mostHost + 1, shape, tileAll},
		{"no room", hostRoom{}, tileAll, leastHost, shape, tileAll},
		{"few blocks", there, tileAll, leastHost, Shape{Blocks: hostFewest - 1, Threads: 512}, tileAll},
		{"buffers that do not lie alike", there, reduceAll, leastHost, shape, reduceAll},
		{"a reduce-scatter", there, tileOwn, leastHost, shape, tileOwn},
	} {
		l := call{prog: c.prog, span: span{block: c.bytes}}
		c.room.divide(&l, c.shape)
		if l.prog != c.want || (l.split == split{}) == (c.want != c.prog) {
			t.Errorf("%s: program %d, %+v, want program %d", c.what, l.prog, l.split, c.want)
		}
	}
	l := call{span: span{block: leastHost}}
	if got := testing.AllocsPerRun(100, func() { l.prog = tileAll; there.divide(&l, shape) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestADividedAllreduceIsToldWhole(t *testing.T) {
	s := testState(2)
	l := call{prog: tileHost, span: span{block: 32 << 20, senders: 3, receivers: 3}, split: splitOf(32<<20, 256)}
	q := pieceOf(tileHost, &l.span, 2, l.split.links)
	w := s.words(&l, &q, 0, part{half: 32 << 20}, Shape{Blocks: 64, Threads: 256})
	const bytes, srcStride, dstStride, tiling = MaxRanks + 6, MaxRanks + 7, MaxRanks + 8, arguments - 1
	if w[bytes] != 32<<20 || w[srcStride] != q.stride || w[dstStride] != l.split.word() || 2*q.stride < l.split.links {
		t.Errorf("%d B, strides %d and %#x", w[bytes], w[srcStride], w[dstStride])
	}
	if warps := w[tiling] >> 32; warps > (64-hostBlocks)*8 {
		t.Errorf("%d warps have tiles, and blocks of the links have %d", warps, (64-hostBlocks)*8)
	}
}

// byTheHost is allreduces of which a part goes by way of the host's memory, on any alignment and in many shapes, behind each other.
func byTheHost(r *rank) error {
	e := r.engines[hosted]
	room := e.(*placed).s.host.heap
	if r.alone && (room != nil) != (r.Size == 2) {
		return fmt.Errorf("among %d processes there is room in the host's memory: %v", r.Size, room != nil)
	}
	rng := random(11)
	for i, shape := range []Shape{{64, 256, 0}, {hostFewest, 64, 512}, {112, 512, 8 << 10}, {96, 128, 2 << 10}, {hostFewest - 1, 512, 0}} {
		for j, bytes := range []int{leastHost, 30_000_024} {
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
	// In a graph, so that slots and words go round: 1 and 2 become 3 and 3, and then twice as much each time.
	buf := deviceBuffer(r.heap.Base[r.Rank], 7<<20, tensor.U32, r)
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
	return r.checkWords(buf, want)
}
