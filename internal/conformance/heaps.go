package conformance

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// heaps tests the symmetric heap: allocation, direct views of peers, one-sided copies.
func (s *suite) heaps() error {
	if s.heap == nil {
		return nil
	}
	h, err := s.g.Heap(s.transferBytes() + 64*symmetric.Alignment)
	if err != nil {
		return err
	}
	steps := []func(symmetric.Heap) error{
		s.allocation, s.oneSided, s.bounds, s.fullHeap,
		s.transfers, s.stridedCopies, s.views, s.words, s.waitEnds, s.wrongAccess, s.shortLitmus, s.shortRandom,
	}
	if s.mem != nil {
		steps = steps[:len(steps)-2] // they need host memory: see Options.Memory
	}
	if s.opt.NearHeaps {
		steps = []func(symmetric.Heap) error{s.allocation, s.fullHeap}
	}
	for _, step := range steps {
		if err := s.allowed(step(h)); err != nil {
			return err
		}
	}
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	if err := errors.Join(h.Close(), h.Close()); err != nil {
		return fmt.Errorf("closing a heap twice: %w", err)
	}
	_, err = h.Alloc(1)
	s.expect("alloc in a closed heap", err, dist.ErrClosed)
	_, err = s.g.Heap(-1)
	s.expect("heap of a negative size", err, dist.ErrInvalid)
	if err = s.partHeap(); s.opt.skipsKind(dist.KindSplit, err) || s.opt.skipsKind(dist.KindHeap, err) {
		return nil
	}
	return err
}

// allocation: offsets agree; regions are aligned, disjoint, and zero even if the memory was used
// before.
func (s *suite) allocation(h symmetric.Heap) error {
	var regions []symmetric.Region
	for i, bytes := range []int64{100, 0, symmetric.Alignment, symmetric.Alignment + 1, 100} {
		r, err := h.Alloc(bytes)
		if err != nil {
			return err
		}
		regions = append(regions, r)
		if r.Local().Bytes() != bytes || r.Local().DType() != tensor.U8 || r.Offset()%symmetric.Alignment != 0 {
			s.fault("alloc %d: %v at offset %d", bytes, r.Local(), r.Offset())
		}
		if p := uintptr(r.Local().Pointer()); bytes > 0 && p%symmetric.Alignment != 0 {
			s.fault("alloc %d: address %#x is not aligned to %d", bytes, p, symmetric.Alignment)
		}
		gathered := zeros[int64](s.space, s.n)
		if err := finish(s.g.AllGather(gathered.buf, of(s.space, r.Offset()).buf)); err != nil {
			return err
		}
		offsets := gathered.pull()
		for _, off := range offsets {
			if off != r.Offset() {
				s.fault("alloc %d: offsets %v differ between ranks", bytes, offsets)
			}
		}
		s.zeroThenMark(r, byte(i+1))
	}
	for i, r := range regions {
		for _, v := range s.load(r.Local()) {
			if v != byte(i+1) {
				s.fault("region %d was overwritten with the mark of region %d", i, v-1)
				break
			}
		}
	}
	if st := h.Stats(); st.Regions != 5 || st.Used < 5*symmetric.Alignment || st.Peak < st.Used || st.Capacity < st.Used {
		s.fault("stats with 5 regions: %+v", st)
	}
	for _, r := range regions {
		if err := h.Free(r); err != nil {
			return err
		}
	}
	again, err := h.Alloc(6 * symmetric.Alignment)
	if err != nil {
		return err
	}
	s.zeroThenMark(again, 9)
	if err := h.Free(again); err != nil {
		return err
	}
	s.expect("free twice", h.Free(again), symmetric.ErrNotAllocated)
	s.expect("free of another heap's region", h.Free(s.src), symmetric.ErrNotAllocated)
	if st := h.Stats(); st.Regions != 0 || st.Used != 0 {
		s.fault("stats of an empty heap: %+v", st)
	}
	return nil
}

func (s *suite) zeroThenMark(r symmetric.Region, mark byte) {
	for i, v := range s.load(r.Local()) {
		if v != 0 {
			s.fault("byte %d of a fresh region is %d", i, v)
			break
		}
	}
	s.set(r.Local(), mark)
}

// oneSided: put to the next rank, get from the previous one, and direct views of all.
func (s *suite) oneSided(h symmetric.Heap) error {
	r, err := h.Alloc(64)
	if err != nil {
		return err
	}
	next, before := (s.rank+1)%s.n, (s.rank+s.n-1)%s.n
	src := of(s.space, uint32(s.rank), uint32(s.rank*s.rank))
	if err := r.Put(next, 16, src.buf); err != nil {
		return err
	}
	src.set(0, 999) // src may be changed when a Put returns
	if err := errors.Join(h.Fence(), r.Put(next, 24, of(s.space, uint64(77)).buf), h.Quiet()); err != nil {
		return err
	}
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	for peer := range s.n {
		b, err := s.opt.peerPart(r, s.rank, peer, 0, 64)
		if err != nil {
			return err
		}
		from := uint64((peer + s.n - 1) % s.n)
		raw := s.load(b)
		if a, c, d := get(raw, tensor.U32, 4), get(raw, tensor.U32, 5), get(raw, tensor.U64, 3); a != from || c != from*from || d != 77 {
			s.fault("peer %d holds %d %d %d, want %d %d 77", peer, a, c, d, from, from*from)
		}
	}
	back := zeros[uint32](s.space, 2)
	if err := r.Get(back.buf, before, 16); err != nil {
		return err
	}
	got := back.pull()
	if from := uint32((before + s.n - 1) % s.n); got[0] != from || got[1] != from*from {
		s.fault("get from rank %d: %v, want %v", before, got, []uint32{from, from * from})
	}
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	return h.Free(r)
}

// bounds: copies outside of a region, or with an invalid rank, are errors and copy nothing.
func (s *suite) bounds(h symmetric.Heap) error {
	r, err := h.Alloc(16)
	if err != nil {
		return err
	}
	eight := of(s.space, ^uint64(0)).buf
	for _, c := range []struct {
		rank int
		at   int64
		want error
	}{{s.n, 0, dist.ErrRoot}, {-1, 0, dist.ErrRoot}, {0, 9, dist.ErrCount}, {0, -1, dist.ErrCount}, {0, 1 << 62, dist.ErrCount}} {
		s.expect(fmt.Sprintf("put to rank %d at %d", c.rank, c.at), r.Put(c.rank, c.at, eight), c.want)
		s.expect(fmt.Sprintf("get from rank %d at %d", c.rank, c.at), r.Get(eight, c.rank, c.at), c.want)
	}
	_, err = r.Peer(s.n)
	s.expect("peer out of range", err, dist.ErrRoot)
	gpu, err := foreign(eight, s.dev)
	if err != nil {
		return err
	}
	s.expect("put from another device", r.Put(0, 0, gpu), dist.ErrDevice)
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	for _, v := range s.load(r.Local()) {
		if v != 0 {
			s.fault("a rejected put has written")
			break
		}
	}
	return h.Free(r)
}

// fullHeap: a lack of space is an error on all ranks and leaves heap and group usable.
func (s *suite) fullHeap(h symmetric.Heap) error {
	_, err := h.Alloc(1 << 40)
	s.expect("alloc of 1 TiB", err, symmetric.ErrNoSpace)
	_, err = h.Alloc(-1)
	if err == nil {
		s.fault("alloc of -1 bytes works")
	}
	r, err := h.Alloc(1)
	if err != nil {
		return err
	}
	return h.Free(r)
}

// partHeap: a group that is part of the world has its own heap.
func (s *suite) partHeap() error {
	g, err := s.g.Split(s.rank%2, -s.rank)
	if err != nil {
		return err
	}
	h, err := g.Heap(4 * symmetric.Alignment)
	if err != nil {
		return err
	}
	r, err := h.Alloc(4)
	if err != nil {
		return err
	}
	b, err := tensor.FromPointer(r.Local().Pointer(), 1, tensor.I32, s.dev)
	if err != nil {
		return err
	}
	x := array[int32]{[]int32{int32(s.rank)}, b, s.space}
	s.store(b, tensor.Of(x.x).Raw())
	if err := finish(g.AllReduce(b, b, dist.Sum)); err != nil {
		return err
	}
	var want int32
	for _, w := range g.Ranks() {
		want += int32(w)
	}
	if got := int32(s.word(r, tensor.I32, 0)); got != want {
		s.fault("allreduce in the heap of a part: %d, want %d", got, want)
	}
	return g.Close() // closes the heap
}
