package direct

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

func TestBoardPartsDoNotOverlap(t *testing.T) {
	for _, c := range []struct {
		name      string
		at, bytes int
	}{
		{"hello", helloAt, MaxRanks * 8},
		{"scalars", scalarsAt, 2 * MaxRanks * 16},
		{"close", closeAt, MaxBlocks * MaxRanks * 8},
		{"open", openAt, 2 * MaxBlocks * MaxRanks * 32},
		{"sent", sentAt, mostWarps * MaxRanks * 8},
		{"done", doneAt, mostWarps * MaxRanks * 8},
	} {
		next := headerBytes
		for _, at := range []int{helloAt, scalarsAt, closeAt, openAt, sentAt, doneAt} {
			if at > c.at {
				next = min(next, at)
			}
		}
		if c.at+c.bytes > next {
			t.Errorf("%s: %d B at %d reach beyond %d", c.name, c.bytes, c.at, next)
		}
	}
	if epochsAt+MaxBlocks*8 > tableAt {
		t.Error("what a rank has for itself overlaps")
	}
	for _, cfg := range []Config{{}, smallBoards, {PacketBytes: leastPart + 17, LineBytes: leastPart + 1, StageBytes: 1<<20 + 300, TileBytes: 1 << 20}} {
		b := newBoard(&cfg)
		at := uint64(headerBytes)
		for _, p := range []part{b.packets, b.lines, b.stage, b.tiles} {
			if p.at != at || p.at%lineBytes != 0 || p.half%lineBytes != 0 || p.half == 0 {
				t.Errorf("%+v: part %+v, expected at %d", cfg, p, at)
			}
			at += 2 * p.half
		}
		if b.bytes != int64(at) {
			t.Errorf("%+v: %d B, want %d", cfg, b.bytes, at)
		}
	}
}

func TestPlacesKeepSlabAndOffset(t *testing.T) {
	for _, c := range []struct {
		slab   int
		offset uint64
	}{{0, 0}, {1, 0}, {maxSlabs, 1<<slabShift - 1}, {7, 140 << 30}} {
		p := place(c.slab, c.offset)
		if int(p>>slabShift) != c.slab || p&(1<<slabShift-1) != c.offset {
			t.Errorf("slab %d offset %d: %#x", c.slab, c.offset, p)
		}
	}
	s := &state{p: &gpu.Member{Rank: 1}}
	heap := &gpu.Slab{Bytes: 1000, Base: []uintptr{5000, 9000}}
	far := &gpu.Slab{Bytes: 1000, Base: []uintptr{0, 20000}}
	s.slabs.Store(&[]known{{slab: heap, base: 9000, row: 3, count: 1}, {slab: far, base: 20000, row: 0, count: 1}})
	for _, c := range []struct {
		addr  uintptr
		bytes uint64
		want  uint64
	}{
		{9000, 1000, place(3, 0)},
		{9996, 4, place(3, 996)},
		{9996, 5, 0},
		{8999, 1, 0},
		{20000, 4, 0}, // a rank cannot address it
	} {
		if got := s.placeOf(c.addr, c.bytes); got != c.want {
			t.Errorf("%d B at %d: %#x, want %#x", c.bytes, c.addr, got, c.want)
		}
	}
	if row := freeRow(s.registered()); row != 1 {
		t.Errorf("the lowest free row is %d, want 1", row)
	}
	s.unregister(heap)
	if got := s.placeOf(9000, 4); got != 0 {
		t.Errorf("after unregistering: %#x", got)
	}
}

func TestSpansAreThoseOfPackageDist(t *testing.T) {
	const n, count, b = 4, 10, 40
	buf := hostBuffer(room(n*b), n*count, tensor.F32)
	for _, c := range []struct {
		kind dist.Kind
		want span
	}{
		{dist.KindAllReduce, span{b, 0, 0, 15, 15, 0}},
		{dist.KindReduce, span{b, 0, 0, 15, 4, flagGreet}},
		{dist.KindBroadcast, span{b, 0, 0, 4, 15, flagGreet}},
		{dist.KindAllGather, span{b, 0, b, 15, 15, 0}},
		{dist.KindReduceScatter, span{b, b, 0, 15, 15, 0}},
		{dist.KindAllToAll, span{b, b, b, 15, 15, 0}},
		{dist.KindGather, span{b, 0, b, 15, 4, flagGreet}},
		{dist.KindScatter, span{b, b, 0, 4, 15, flagGreet}},
		{dist.KindBarrier, span{flags: flagGreet | flagFence}},
		{dist.KindSync, span{flags: flagGreet}},
	} {
		got, ok := spanOf(&dist.Op{Kind: c.kind, Count: count, Root: 2, Src: buf}, n)
		if !ok || got != c.want {
			t.Errorf("%v: %+v, want %+v", c.kind, got, c.want)
		}
		if w := got.who(3); w != 3|uint64(ownFirst(c.want.senders, 3))<<8|uint64(ownFirst(c.want.receivers, 3))<<16|uint64(c.want.flags)<<24 {
			t.Errorf("%v: who is %#x", c.kind, w)
		}
	}
	for _, kind := range []dist.Kind{dist.KindInvalid, dist.KindSend, dist.KindRecv, dist.KindBatch, dist.KindSplit} {
		if _, ok := spanOf(&dist.Op{Kind: kind}, n); ok {
			t.Errorf("%v is an operation of these engines", kind)
		}
	}
}

// scratch is the bytes of a half that a piece uses.
func scratch(prog program, s *span, n int, q piece, staged bool) uint64 {
	others := uint64(max(n-1, 1))
	switch prog {
	case onceShort, onceLine:
		return others * q.slot
	case twiceLine:
		return 2 * others * q.slot
	case pull:
		if s.srcStride == 0 {
			return q.slot
		}
		return uint64(n) * q.slot
	}
	if !staged || prog == tileAll || prog == tileOwn {
		return 0
	}
	if prog == reduceAll {
		return uint64(n)*q.slot + 15
	}
	if prog == push && s.dstStride == 0 {
		return q.bytes + 15
	}
	return uint64(n-1)*q.slot + q.bytes + 15
}

func TestPiecesCoverBlocksAndFitTheirScratchMemory(t *testing.T) {
	for _, cfg := range []Config{{}, smallBoards, {PacketBytes: leastPart, LineBytes: leastPart, StageBytes: leastPart}} {
		b := newBoard(&cfg)
		for n := 1; n <= MaxRanks; n++ {
			for prog := range programs {
				for _, block := range []uint64{1, 8, 119, 120, 121, 4096, 100_001, 1 << 20, 16 << 20, 256<<20 + 8} {
					for _, shape := range []span{{}, {srcStride: 1}, {dstStride: 1}, {srcStride: 1, dstStride: 1}} {
						s := span{block: block, srcStride: shape.srcStride * block, dstStride: shape.dstStride * block}
						if (prog == twiceLine || prog == reduceAll || prog == tileAll) && (s.srcStride|s.dstStride) != 0 {
							continue // an allreduce only
						}
						if (prog == reduceOwn || prog == tileOwn) && s.srcStride == 0 {
							continue // a reduce-scatter only
						}
						cover(t, prog, &s, n, b.part(prog), true)
						cover(t, prog, &s, n, b.part(prog), false)
					}
				}
			}
		}
	}
}

func cover(t *testing.T, prog program, s *span, n int, p part, staged bool) {
	t.Helper()
	most := maxPiece(prog, s, n, p, staged)
	if most == 0 || most%8 != 0 || prog >= pull && most%16 != 0 {
		t.Fatalf("program %d of %d ranks, %+v: pieces of %d B", prog, n, *s, most)
	}
	for off := uint64(0); ; off += most {
		q := pieceOf(prog, s, n, min(most, s.block-off))
		if used := scratch(prog, s, n, q, staged); used > p.half {
			t.Fatalf("program %d of %d ranks, %+v, piece %+v: %d B of scratch memory, there are %d", prog, n, *s, q, used, p.half)
		}
		switch {
		case (prog == reduceAll || prog == tileAll) && (q.stride*uint64(n) < q.bytes || q.stride%16 != 0):
			t.Fatalf("%d ranks: slices %d apart for %d B", n, q.stride, q.bytes)
		case prog == reduceOwn && (q.slot-s.srcStride)%16 != 0, prog == push && (q.slot-s.dstStride)%16 != 0:
			t.Fatalf("%d ranks: slots %d apart for blocks %d and %d apart", n, q.slot, s.srcStride, s.dstStride)
		}
		if off+q.bytes >= s.block {
			return
		}
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	good := Rule{Engine: "oneshot", Kind: dist.KindAllReduce, Bytes: 4096, Shape: Shape{Blocks: 4, Threads: 256}}
	if err := (&Config{Shapes: []Rule{good}}).Validate(); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Config{
		"PacketBytes":   {PacketBytes: 1},
		"LineBytes":     {LineBytes: -1},
		"StageBytes":    {StageBytes: 1 << 40},
		"TileBytes":     {TileBytes: 3},
		"MaxCTAs -1":    {MaxCTAs: -1},
		"MaxCTAs 129":   {MaxCTAs: 129},
		`engine "ring"`: {Shapes: []Rule{{Engine: "ring", Bytes: 1, Shape: Shape{Blocks: 1, Threads: 32}}}},
		"power of two":  {Shapes: []Rule{{Engine: "ll", Bytes: 3, Shape: Shape{Blocks: 1, Threads: 32}}}},
		"9 ranks":       {Shapes: []Rule{{Engine: "ll", Bytes: 4, Ranks: 9, Shape: Shape{Blocks: 1, Threads: 32}}}},
		"no kernel":     {Shapes: []Rule{{Engine: "oneshot", Kind: dist.KindBroadcast, Bytes: 4, Shape: Shape{Blocks: 1, Threads: 32}}}},
		"shape 129x32":  {Shapes: []Rule{{Engine: "ll", Kind: dist.KindAllReduce, Bytes: 4, Shape: Shape{Blocks: 129, Threads: 32}}}},
		"shape 1x48":    {Shapes: []Rule{{Engine: "ll", Kind: dist.KindAllReduce, Bytes: 4, Shape: Shape{Blocks: 1, Threads: 48}}}},
	} {
		if err := c.Validate(); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

// Ranks with other bounds, boards or shapes are refused on all, and the smallest GPU counts.
func TestRanksThatDoNotFitAreRefused(t *testing.T) {
	of := func(c Config) *state { return &state{cfg: c, board: newBoard(&c)} }
	one := of(Config{MaxCTAs: 8})
	if most, err := one.judge([][]byte{one.report(132), one.report(108), one.report(132)}); err != nil || most != 95 {
		t.Errorf("%d blocks run at once, error %v, want 95", most, err)
	}
	if most, err := one.judge([][]byte{one.report(160)}); err != nil || most != MaxBlocks {
		t.Errorf("%d blocks run at once, error %v, want %d", most, err, MaxBlocks)
	}
	rule := Rule{Engine: "ll", Kind: dist.KindAllReduce, Bytes: 4, Shape: Shape{Blocks: 1, Threads: 32}}
	for _, other := range []Config{{MaxCTAs: 16}, {MaxCTAs: 8, TileBytes: 1 << 20}, {MaxCTAs: 8, Shapes: []Rule{rule}}} {
		all := [][]byte{one.report(132), of(other).report(132)}
		for _, s := range []*state{one, of(other)} {
			want := fmt.Sprintf("of rank 1 differs from rank 0; here it is at most %d blocks", s.cfg.MaxCTAs)
			if _, err := s.judge(all); !errors.Is(err, dist.ErrMismatch) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: error %v, want %q", other, err, want)
			}
		}
	}
}

func TestBitsOfRanksComeWithTheOwnFirst(t *testing.T) {
	for ranks := range 256 {
		for rank := range MaxRanks {
			got, i := ownFirst(uint8(ranks), rank), 1
			if int(got)&1 != ranks>>rank&1 {
				t.Errorf("%08b of rank %d: %08b has not its bit", ranks, rank, got)
			}
			for r := range MaxRanks {
				if r == rank {
					continue
				}
				if int(got)>>i&1 != ranks>>r&1 {
					t.Errorf("%08b of rank %d: %08b has not that of rank %d", ranks, rank, got, r)
				}
				i++
			}
		}
	}
}

func TestArgumentsAreInTheOrderOfTheKernel(t *testing.T) {
	names := strings.Fields(strings.NewReplacer("u64", "", ",", " ", "\\", " ").Replace(
		commonSource[strings.Index(commonSource, "#define PARAMETERS")+len("#define PARAMETERS") : strings.Index(commonSource, "#define FLAG_GREET")]))
	if len(names) != arguments {
		t.Fatalf("the kernel takes %d arguments, %v; the launch gives %d", len(names), names, arguments)
	}
	s := &state{n: 2, p: &gpu.Member{Rank: 1}, slab: &gpu.Slab{Base: []uintptr{100, 200}}, local: 300, stop: stopWord{at: 400}}
	l := call{
		span: span{block: 64, srcStride: 64, dstStride: 128, senders: 3, receivers: 1, flags: flagGreet},
		src:  1000, dst: 0, srcPlace: place(1, 8), scalar: 77, scalarAt: 88,
	}
	w := s.words(&l, &piece{bytes: 16, slot: 32}, 48, part{at: 5, half: 6}, Shape{Blocks: 1, Threads: 64})
	got := map[string]uint64{}
	for i, name := range names {
		got[name] = w[i]
	}
	for name, want := range map[string]uint64{
		"board0": 200, "board1": 100, "board2": 0, "local": 300, "abortWord": 400, "src": 1048, "dst": 0, "srcPlace": place(1, 56),
		"dstPlace": 0, "bytes": 16, "srcStride": 64, "dstStride": 128, "slot": 32, "area": 5, "half": 6, "scalar": 77, "scalarAt": 88,
		"who": 1 | 3<<8 | 2<<16 | flagGreet<<24, "tiling": leastTile | 1<<32,
	} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
	w = s.words(&l, &piece{bytes: 16, stride: 48, slot: 48}, 0, part{}, Shape{Blocks: 1, Threads: 64})
	if w[15] != 48 || w[16] != 48 {
		t.Errorf("slices of an allreduce are %d and %d apart, want 48", w[15], w[16])
	}
}

func TestWhatEnqueueComputesAllocatesNothing(t *testing.T) {
	cfg := Config{}
	s := &state{n: 2, p: &gpu.Member{Size: 2}, slab: &gpu.Slab{Base: []uintptr{100, 200}}, board: newBoard(&cfg), most: MaxBlocks}
	s.slabs.Store(&[]known{{slab: &gpu.Slab{Bytes: 1 << 30}, base: 0, row: 1, count: 1}})
	e := s.engine(twoshot).(*placed)
	buf := hostBuffer(room(4096), 1024, tensor.F32)
	op := dist.Op{Kind: dist.KindAllReduce, Count: 1024, Src: buf, Dst: buf}
	var sink [arguments]uint64
	if got := testing.AllocsPerRun(100, func() {
		l := call{src: uintptr(unsafe.Pointer(&sink)), dst: 8}
		l.span, _ = spanOf(&op, s.n)
		l.prog = e.way.programOf(op.Kind, s.n, l.span.block)
		p := s.board.part(l.prog)
		q := pieceOf(l.prog, &l.span, s.n, maxPiece(l.prog, &l.span, s.n, p, s.locateBuffers(&op, &l)))
		sink = s.words(&l, &q, 0, p, e.Shape(&op))
		sink[0] += uint64(e.Shape(&op).Blocks) + uint64(variantOf(l.prog, s.n, &op).index())
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestEnginesRefuseMessagesOnly(t *testing.T) {
	s := &state{n: 2, p: &gpu.Member{Size: 2}, most: 100}
	for w := range engineKinds {
		e := s.engine(w).(Tunable)
		for _, kind := range collectives {
			if err := e.Can(&dist.Op{Kind: kind}); err != nil {
				t.Errorf("%s %v: %v", e.Name(), kind, err)
			}
		}
		if err := e.Can(&dist.Op{Kind: dist.KindSend}); !errors.Is(err, dist.ErrUnsupported) {
			t.Errorf("%s: send: error %v", e.Name(), err)
		}
		if err := e.Force(Shape{Blocks: 1, Threads: 33}); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%s: a shape of 33 threads: error %v", e.Name(), err)
		}
		if err := e.Force(Shape{Blocks: 128, Threads: 64}); err != nil || e.Shape(&dist.Op{}) != (Shape{Blocks: 100, Threads: 64}) {
			t.Errorf("%s: forced 128x64 among 100 multiprocessors: %v, error %v", e.Name(), e.Shape(&dist.Op{}), err)
		}
	}
}
