package conformance

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// A transfer case is a number of elements at an offset that may be unaligned. For every pair of
// ranks each case has its own slot, whose other bytes must not change.
var transferCases = []struct {
	shift int64
	count int
}{{0, 0}, {0, 1}, {0, 17}, {1, 1}, {4, 3}, {8, 1}, {12, 2}, {3, 9}}

const slotBytes = 160 // the longest case, its shift and space after it

// untouched is the value of bytes that no transfer may write.
const untouched = 0xa5

// transferBytes returns the memory on one rank for the cases of all pairs.
func (s *suite) transferBytes() int64 { return int64(s.n*len(transferCases)) * slotBytes }

// slot returns the offset of case c from rank src.
func slot(src, c int) int64 { return int64(src*len(transferCases)+c) * slotBytes }

// sent returns element i that src sends to dst in a case; it never has untouched bytes.
func sent(dt tensor.DType, src, dst, c, i int) uint64 {
	return (uint64(1+src+7*dst+31*c+101*i) * 0x0101010101010101 & 0x7f7f7f7f7f7f7f7f) & mask(dt)
}

// transfers tests every copying call between every pair of ranks, with every type.
func (s *suite) transfers(h symmetric.Heap) error {
	r, err := h.Alloc(s.transferBytes())
	if err != nil {
		return err
	}
	sig, err := h.Calloc(int64(s.n), 8)
	if err != nil {
		return err
	}
	signals := uint64(0)
	withSignal := func(put func(int, int64, tensor.Buffer, symmetric.Signal) error) func(int, int64, tensor.Buffer) error {
		return func(rank int, at int64, b tensor.Buffer) error {
			return put(rank, at, b, symmetric.Signal{In: sig, At: int64(8 * s.rank), Op: symmetric.SignalAdd, Value: 1})
		}
	}
	for i, dt := range tensor.DTypes() {
		if s.opt.Every > 1 && i%3 != 0 {
			continue
		}
		for _, call := range []struct {
			name   string
			put    func(rank int, at int64, b tensor.Buffer) error
			signal bool
		}{
			{"put", r.Put, false},
			{"put nbi", r.PutNBI, false},
			{"put-signal", withSignal(r.PutSignal), true},
			{"put-signal nbi", withSignal(r.PutSignalNBI), true},
		} {
			if err := s.putEverywhere(h, r, dt, call.name, call.put); err != nil {
				return err
			}
			if call.signal {
				signals += uint64(len(transferCases))
				s.signalled(sig, dt, call.name, signals)
			}
		}
		for _, call := range []struct {
			name string
			get  func(b tensor.Buffer, rank int, at int64) error
		}{{"get", r.Get}, {"get nbi", r.GetNBI}} {
			if err := s.getEverywhere(h, dt, call.name, call.get); err != nil {
				return err
			}
		}
	}
	return errors.Join(finish(s.g.Barrier()), h.Free(r), h.Free(sig))
}

// putEverywhere puts every case to every rank and checks the data from every rank.
func (s *suite) putEverywhere(h symmetric.Heap, r symmetric.Region, dt tensor.DType, name string,
	put func(int, int64, tensor.Buffer) error,
) error {
	s.set(r.Local(), untouched)
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	var kept []tensor.Buffer // of non-blocking puts, until Quiet
	for dst := range s.n {
		for c, tc := range transferCases {
			b, err := s.private(dt, tc.count, func(i int) uint64 { return sent(dt, s.rank, dst, c, i) })
			if err != nil {
				return err
			}
			if err := put(dst, slot(s.rank, c)+tc.shift, b); err != nil {
				return fmt.Errorf("%s of %v to rank %d: %w", name, b, dst, err)
			}
			kept = append(kept, b)
		}
	}
	if err := errors.Join(h.Quiet(), finish(s.g.Barrier())); err != nil {
		return err
	}
	clear(kept)
	mine := s.load(r.Local())
	for src := range s.n {
		for c, tc := range transferCases {
			s.checkSlot(fmt.Sprintf("%s of %v, case %d, from rank %d", name, dt, c, src), mine[slot(src, c):][:slotBytes],
				dt, tc.shift, tc.count, func(i int) uint64 { return sent(dt, src, s.rank, c, i) })
		}
	}
	return finish(s.g.Barrier()) // the next call writes the slots again
}

// checkSlot compares a slot with elements from shift on, and with untouched bytes around them.
func (s *suite) checkSlot(what string, slot []byte, dt tensor.DType, shift int64, count int, want func(i int) uint64) {
	size := dt.Size()
	for i := range count {
		if got := get(slot[shift:], dt, i); got != want(i) {
			s.fault("%s: element %d is %#x, want %#x", what, i, got, want(i))
			return
		}
	}
	for i, v := range slot {
		if (i < int(shift) || i >= int(shift)+count*size) && v != untouched {
			s.fault("%s: byte %d, outside of it, was written", what, i)
			return
		}
	}
}

// signalled checks that every rank has sent one signal for each transfer so far.
func (s *suite) signalled(sig symmetric.Region, dt tensor.DType, name string, want uint64) {
	for src := range s.n {
		if got, err := symmetric.SignalFetch(sig, s.rank, int64(8*src)); err != nil || got != want {
			s.fault("%s of %v: signal of rank %d is %d, %v, want %d", name, dt, src, got, err, want)
		}
	}
}

// getEverywhere reads the data of putEverywhere from every rank.
func (s *suite) getEverywhere(h symmetric.Heap, dt tensor.DType, name string,
	get func(tensor.Buffer, int, int64) error,
) error {
	for from := range s.n {
		for src := range s.n {
			for c, tc := range transferCases {
				b, err := s.private(dt, tc.count, func(int) uint64 { return canary })
				if err != nil {
					return err
				}
				if err := errors.Join(get(b, from, slot(src, c)+tc.shift), h.Quiet()); err != nil {
					return fmt.Errorf("%s of %v from rank %d: %w", name, b, from, err)
				}
				if err := s.exactly(b, func(i int) uint64 { return sent(dt, src, from, c, i) }); err != nil {
					s.fault("%s of %v from rank %d, case %d: %v", name, dt, from, c, err)
				}
			}
		}
	}
	return finish(s.g.Barrier())
}

// exactly is holds for exact bits.
func (p *space) exactly(b tensor.Buffer, want func(i int) uint64) error {
	raw := p.load(b)
	for i := range b.Len() {
		if got := get(raw, b.DType(), i); got != want(i)&mask(b.DType()) {
			return fmt.Errorf("element %d is %#x, want %#x", i, got, want(i))
		}
	}
	return nil
}

// stridedCount is the elements of the longest strided copy; stridedMost is the largest stride.
const (
	stridedCount = 5
	stridedMost  = 3
)

var stridedCases = []symmetric.Strides{
	{Count: stridedCount, Region: 1, Buffer: 1},
	{Count: stridedCount, Region: stridedMost, Buffer: 1},
	{Count: stridedCount, Region: 1, Buffer: 2},
	{Count: stridedCount, Region: 2, Buffer: stridedMost},
	{Count: 1, Region: 99, Buffer: 99},
	{Count: 0, Region: 1, Buffer: 1},
}

// stridedSlot is the memory of one case at one offset.
const stridedSlot = 8*stridedCount*stridedMost + 16

// stridedOffsets lists the offsets in its slot at which a copy begins.
var stridedOffsets = []int64{0, 8, 3}

// stridedCopies puts to the next rank and gets from it with strides, and compares with a loop.
func (s *suite) stridedCopies(h symmetric.Heap) error {
	r, err := h.Calloc(int64(len(stridedCases)*len(stridedOffsets)), stridedSlot)
	if err != nil {
		return err
	}
	for _, dt := range tensor.DTypes() {
		if err := s.stridedOf(r, dt); err != nil {
			return fmt.Errorf("strided copies of %v: %w", dt, err)
		}
	}
	return h.Free(r)
}

// stridedOf tests all strided copies of one type, each in its own slot.
func (s *suite) stridedOf(r symmetric.Region, dt tensor.DType) error {
	next, before := (s.rank+1)%s.n, (s.rank+s.n-1)%s.n
	want := bytes.Repeat([]byte{untouched}, int(r.Local().Bytes()))
	s.store(r.Local(), want)
	src, err := s.private(dt, stridedCount*stridedMost, func(i int) uint64 { return sent(dt, s.rank, next, 0, i) })
	if err != nil {
		return err
	}
	each := func(f func(st symmetric.Strides, at int64) error) error {
		for i, st := range stridedCases {
			for k, at := range stridedOffsets {
				if err := f(st, int64((i*len(stridedOffsets)+k)*stridedSlot)+at); err != nil {
					return fmt.Errorf("%+v at %d: %w", st, at, err)
				}
			}
		}
		return nil
	}
	put := func(st symmetric.Strides, at int64) error {
		for i := range st.Count {
			put(want[at:], dt, i*st.Region, sent(dt, before, s.rank, 0, i*st.Buffer))
		}
		return r.IPut(next, at, src, st)
	}
	if err := errors.Join(finish(s.g.Barrier()), each(put), finish(s.g.Barrier())); err != nil {
		return err
	}
	if mine := s.load(r.Local()); !bytes.Equal(mine, want) {
		s.fault("iput of %v: % x, want % x", dt, mine, want)
	}
	get := func(st symmetric.Strides, at int64) error {
		back, err := s.private(dt, src.Len(), func(int) uint64 { return canary })
		if err != nil {
			return err
		}
		if err := r.IGet(back, next, at, st); err != nil {
			return err
		}
		return s.exactly(back, func(i int) uint64 {
			if i%st.Buffer == 0 && i/st.Buffer < st.Count {
				return sent(dt, s.rank, next, 0, i)
			}
			return canary
		})
	}
	return errors.Join(each(get), finish(s.g.Barrier()))
}

// views: a slice of a region is the same memory, as is a direct view, and neither is freed by
// itself.
func (s *suite) views(h symmetric.Heap) error {
	first, err := h.Alloc(1) // the free range then does not begin at the heap's base
	if err != nil {
		return err
	}
	whole, err := h.Aligned(symmetric.MaxAlignment, 1000)
	if err != nil {
		return err
	}
	if p := uintptr(whole.Local().Pointer()); p%symmetric.MaxAlignment != 0 {
		s.fault("aligned: address %#x is no multiple of %d", p, symmetric.MaxAlignment)
	}
	part, err := whole.Slice(100, 200)
	if err != nil {
		return err
	}
	inner, err := part.Slice(4, 8)
	if err != nil {
		return err
	}
	next := (s.rank + 1) % s.n
	if err := errors.Join(symmetric.P(inner, next, 0, uint32(s.rank+5)), finish(s.g.Barrier())); err != nil {
		return err
	}
	from := uint64((s.rank+s.n-1)%s.n + 5)
	if got := s.word(whole, tensor.U32, 104); got != from || inner.Offset() != whole.Offset()+104 ||
		inner.Local().Bytes() != 8 {
		s.fault("slice of a slice: %d at offset %d, %v; want %d at %d", got, inner.Offset(), inner.Local(), from, whole.Offset()+104)
	}
	peer, err := s.opt.peerPart(inner, s.rank, next, 0, 8)
	if err != nil || get(s.load(peer), tensor.U32, 0) != uint64(s.rank+5) {
		s.fault("view of rank %d: %v, %v", next, peer, err)
	}
	s.expect("free of a slice", h.Free(part), symmetric.ErrNotAllocated)
	if err := errors.Join(finish(s.g.Barrier()), h.Free(whole), h.Free(first)); err != nil {
		return err
	}
	s.expect("put to a slice of a freed region", symmetric.P(inner, next, 0, uint32(1)), symmetric.ErrNotAllocated)
	if b := inner.Local(); b.Bytes() != 0 {
		s.fault("a freed slice has a view of %d B", b.Bytes())
	}
	return nil
}
