package gpu

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// bytesOf returns n bytes at offset at of rank's part of r, read on the host.
func bytesOf(r symmetric.Region, rank int, at int64, n int) ([]byte, error) {
	b := make([]byte, n)
	return b, r.Get(tensor.Of(b), rank, at)
}

// isZero is an error unless the first n bytes that rank has of r are.
func isZero(r symmetric.Region, rank, n int) error {
	b, err := bytesOf(r, rank, 0, n)
	for i, v := range b {
		if err == nil && v != 0 {
			err = fmt.Errorf("byte %d of a fresh region is %d", i, v)
		}
	}
	return err
}

// A transfer that is pending when its region is freed must not write into the next region there.
func TestFreedMemoryComesBackAsZeroes(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		const bytes = 32 << 20
		h, err := m.Heap(bytes)
		if err != nil {
			return err
		}
		ones, free, err := m.upload(tensor.Of(make([]byte, bytes)))
		if err != nil {
			return err
		}
		if err := m.v.Fill(address(ones), 0xff, bytes); err != nil {
			return err
		}
		for range 5 {
			r, err := h.Alloc(bytes)
			if err != nil {
				return err
			}
			if err := errors.Join(isZero(r, m.Rank(), bytes), finish(m.Barrier())); err != nil {
				return err
			}
			for range 4 {
				err = errors.Join(err, r.PutNBI(m.next(), 0, ones))
			}
			if err := errors.Join(err, h.Free(r)); err != nil {
				return err
			}
		}
		return errors.Join(free(), h.Close())
	})
}

// Ranks put to the next one, from host and device memory, at offsets that suit the elements and do
// not.
func TestOneSidedCopies(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		h, err := m.Heap(1 << 20)
		if err != nil {
			return err
		}
		r, err := h.Alloc(1 << 16)
		if err != nil {
			return err
		}
		// The barrier: no rank puts before all have seen zeroes.
		if err := errors.Join(isZero(r, m.Rank(), 1<<16), finish(m.Barrier())); err != nil {
			return err
		}
		next, prev := m.next(), m.prev()
		host := make([]uint64, 100)
		for i := range host {
			host[i] = uint64(1000*m.Rank() + i)
		}
		device, free, err := m.upload(tensor.Of(host))
		if err != nil {
			return err
		}
		one := tensor.Of([]uint64{uint64(70 + m.Rank())})
		err = errors.Join(
			r.Put(next, 0, tensor.Of(host)), r.Put(next, 1024, device), r.PutNBI(next, 3072, tensor.Of(host)), r.PutNBI(next, 4099, device),
			r.Put(next, 8192, one), r.PutWord(next, 8203, tensor.U64, 0x0102030405060708), r.PutWord(next, 8216, tensor.U32, 99),
			r.PutWord(next, 8220, tensor.U8, 5), h.Quiet(), finish(m.Barrier()))
		if err != nil {
			return err
		}
		for _, at := range []int64{0, 1024, 3072, 4099} {
			got := make([]uint64, 100)
			back, free, err := m.upload(tensor.Of(got))
			if err != nil {
				return err
			}
			err = errors.Join(r.GetNBI(back, m.Rank(), at), h.Quiet(), m.download(tensor.Of(got), back), free())
			for i, v := range got {
				if err == nil && v != uint64(1000*prev+i) {
					err = fmt.Errorf("element %d put at %d is %d, want %d", i, at, v, 1000*prev+i)
				}
			}
			if err != nil {
				return err
			}
		}
		return errors.Join(m.words(r), finish(m.Barrier()), free(), h.Free(r), h.Close())
	})
}

// words is an error unless the words of r are those that the one before m has put there.
func (m member) words(r symmetric.Region) error {
	for _, w := range []struct {
		at   int64
		dt   tensor.DType
		want uint64
	}{
		{8192, tensor.U64, uint64(70 + m.prev())},
		{8203, tensor.U64, 0x0102030405060708},
		{8216, tensor.U32, 99},
		{8220, tensor.U8, 5},
	} {
		if got, err := r.GetWord(m.Rank(), w.at, w.dt); err != nil || got != w.want {
			return fmt.Errorf("the %v at %d is %x, want %x: %w", w.dt, w.at, got, w.want, err)
		}
	}
	return nil
}

func TestStridedCopiesOnGPUs(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		h, err := m.Heap(1 << 20)
		if err != nil {
			return err
		}
		r, err := h.Alloc(1 << 19)
		if err != nil {
			return err
		}
		const count = 9000 // more than the staging holds
		src := make([]uint64, 2*count)
		for i := range src {
			src[i] = uint64(i + 1)
		}
		device, free, err := m.upload(tensor.Of(src))
		if err != nil {
			return err
		}
		next := m.next()
		for at, b := range map[int64]tensor.Buffer{0: tensor.Of(src), 8*3*count + 3: device} {
			s := symmetric.Strides{Count: count, Region: 3, Buffer: 2}
			back := make([]uint64, 2*count)
			if err := errors.Join(r.IPut(next, at, b, s), r.IGet(tensor.Of(back), next, at, s)); err != nil {
				return err
			}
			for i, v := range back {
				want := uint64(0)
				if i%2 == 0 {
					want = uint64(i + 1)
				}
				if v != want {
					return fmt.Errorf("at %d: element %d is %d, want %d", at, i, v, want)
				}
			}
			if err := r.IGet(device, next, at, symmetric.Strides{Count: 1, Region: 1, Buffer: 1}); err != nil {
				return err
			}
		}
		return errors.Join(finish(m.Barrier()), free(), h.Close())
	})
}

func TestAtomicsCountAcrossGPUs(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		h, err := m.Heap(1 << 12)
		if err != nil {
			return err
		}
		r, err := h.Alloc(64)
		if err != nil {
			return err
		}
		const times = 50
		for range times {
			if err := errors.Join(symmetric.Add(r, 0, 0, int64(-3)), symmetric.Inc[uint32](r, 0, 8)); err != nil {
				return err
			}
		}
		if err := finish(m.Barrier()); err != nil {
			return err
		}
		a, err := symmetric.AtomicFetch[int64](r, 0, 0)
		b, err2 := symmetric.AtomicFetch[uint32](r, 0, 8)
		if a != int64(-3*m.Size()*times) || b != uint32(m.Size()*times) || err != nil || err2 != nil {
			return fmt.Errorf("counts %d and %d: %w", a, b, errors.Join(err, err2))
		}
		if m.Rank() == m.Size()-1 {
			err = wordOps(r)
		}
		return errors.Join(err, finish(m.Barrier()), h.Close())
	})
}

// wordOps is each atomic in turn, on a word of another rank.
func wordOps(r symmetric.Region) error {
	word := uint64(0b1100)
	if err := symmetric.AtomicSet(r, 0, 16, word); err != nil {
		return err
	}
	for _, c := range []struct {
		a   symmetric.Atomic
		set uint64
	}{
		{symmetric.Atomic{Op: symmetric.OpAnd, Value: 0b0110}, 0b0100},
		{symmetric.Atomic{Op: symmetric.OpOr, Value: 0b0011}, 0b0111},
		{symmetric.Atomic{Op: symmetric.OpXor, Value: 0b0001}, 0b0110},
		{symmetric.Atomic{Op: symmetric.OpCompareSwap, Value: 9, Compare: 1}, 0b0110},
		{symmetric.Atomic{Op: symmetric.OpCompareSwap, Value: 9, Compare: 6}, 9},
		{symmetric.Atomic{Op: symmetric.OpSet, Value: 1 << 60}, 1 << 60},
		{symmetric.Atomic{Op: symmetric.OpFetch}, 1 << 60},
	} {
		c.a.DType = tensor.U64
		old, err := r.Atomic(0, 16, c.a)
		if err != nil || old != word {
			return fmt.Errorf("%v: held %b, want %b: %w", c.a.Op, old, word, err)
		}
		word = c.set
	}
	return symmetric.AtomicSet(r, 0, 24, float64(2.5))
}

func TestSignalsFollowTheirData(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		h, err := m.Heap(1 << 20)
		if err != nil {
			return err
		}
		r, err := h.Alloc(1 << 16)
		if err != nil {
			return err
		}
		sig, err := h.Alloc(64)
		if err != nil {
			return err
		}
		next, ctx := m.next(), context.Background()
		data := make([]uint32, 1<<14)
		for turn := range uint32(20) {
			for i := range data {
				data[i] = turn + 1
			}
			s := symmetric.Signal{In: sig, At: 8, Op: symmetric.SignalAdd, Value: 1}
			if err := r.PutSignal(next, 0, tensor.Of(data), s); err != nil {
				return err
			}
			if _, err := symmetric.SignalWait(ctx, sig, 8, symmetric.Ge, uint64(turn+1)); err != nil {
				return err
			}
			got, err := bytesOf(r, m.Rank(), int64(4*len(data)-4), 4)
			if err != nil || got[0] != byte(turn+1) {
				return fmt.Errorf("turn %d: the last element is %v: %w", turn, got, err)
			}
			if err := finish(m.Barrier()); err != nil {
				return err
			}
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err = symmetric.WaitUntil(ended, sig, 0, symmetric.Eq, int64(-1))
		return errors.Join(want(err, context.Canceled), finish(m.Barrier()), h.Close())
	})
}

// A put, its signal and the wait for it run on streams, and the host waits once, at the end.
func TestOneSidedCallsOnStreams(t *testing.T) {
	onGroups(t, nil, func(m member) error {
		h, err := m.Heap(1 << 16)
		if err != nil {
			return err
		}
		r, err := h.Alloc(1 << 10)
		if err != nil {
			return err
		}
		region, ok := r.(*Region)
		if !ok {
			return errors.New("not a region of a GPU")
		}
		on, err := region.OnStream(m.Stream())
		if err != nil {
			return err
		}
		next := m.next()
		token, free, err := m.upload(tensor.Of([]uint64{0, uint64(5 + m.Rank())}))
		if err != nil {
			return err
		}
		for turn := range uint64(30) {
			s := symmetric.Signal{In: on, At: 64, Op: symmetric.SignalSet, Value: turn + 1}
			w := symmetric.Watch{At: 64, Count: 1, DType: tensor.U64, Cmp: symmetric.Ge, Value: turn + 1}
			put := on.PutSignal(next, 0, token, s)
			if _, err := on.Wait(context.Background(), w); err != nil || put != nil {
				return errors.Join(put, err)
			}
		}
		err = errors.Join(on.Get(token, m.Rank(), 0), m.Stream().Synchronize())
		got := make([]uint64, 2)
		err = errors.Join(err, m.download(tensor.Of(got), token))
		if err == nil && got[1] != uint64(5+m.prev()) {
			err = fmt.Errorf("got %v from rank %d", got, m.prev())
		}
		return errors.Join(err, finish(m.Barrier()), free(), h.Close())
	})
}

// The driver refuses to make a captured stream wait for work outside the capture, which would break
// the group.
func TestBarrierIsCapturedBehindTransfers(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		h, err := m.Heap(1 << 16)
		if err != nil {
			return err
		}
		r, err := h.Alloc(64)
		if err != nil {
			return err
		}
		region, ok := r.(*Region)
		s, here := m.Stream().(*Stream)
		if !ok || !here {
			return errors.New("not of a GPU")
		}
		on, err := region.OnStream(s)
		if err != nil {
			return err
		}
		for n, f := range []func() error{
			func() error { _, err := m.Barrier(); return err },
			on.Quiet,
		} {
			if err := finish(m.Barrier()); err != nil { // the group's last operation is on s
				return err
			}
			if err := r.PutWord(0, 0, tensor.U64, uint64(n+1)); err != nil {
				return err
			}
			g, err := s.Capture(f)
			if err != nil {
				return fmt.Errorf("%d behind a put: %w", n, err)
			}
			if b, err := bytesOf(r, 0, 0, 1); err != nil || b[0] != byte(n+1) {
				return fmt.Errorf("the put behind which %d was captured has left %v, %w", n, b, err)
			}
			if err := errors.Join(g.Close(), finish(m.Barrier())); err != nil {
				return err
			}
		}
		return h.Close()
	})
}
