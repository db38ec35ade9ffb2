package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// words tests every call on single words, with every supported type.
func (s *suite) words(h symmetric.Heap) error {
	r, err := h.Calloc(int64(s.n+1), 64)
	if err != nil {
		return err
	}
	for _, step := range []func(*suite, symmetric.Region) error{
		scalars[tensor.Float16], scalars[tensor.BFloat16], scalars[float32], scalars[float64],
		scalars[int8], scalars[int16], scalars[int32], scalars[int64],
		scalars[uint8], scalars[uint16], scalars[uint32], scalars[uint64],
		swaps[int32], swaps[int64], swaps[uint32], swaps[uint64], swaps[float32], swaps[float64],
		totals[int32], totals[int64], totals[uint32], totals[uint64],
		bits[int32], bits[int64], bits[uint32], bits[uint64],
		locks[int32], locks[int64], locks[uint32], locks[uint64],
		waits[int32], waits[int64], waits[uint32], waits[uint64],
	} {
		if err := s.allowed(step(s, r)); err != nil {
			return err
		}
		if err := finish(s.g.Barrier()); err != nil {
			return err
		}
		s.set(r.Local(), 0)
		if err := finish(s.g.Barrier()); err != nil {
			return err
		}
	}
	return errors.Join(s.allowed(s.signals(h, r)), finish(s.g.Barrier()), h.Free(r))
}

// scalars tests P to every rank and G from it, also at odd offsets.
func scalars[T tensor.Element](s *suite, r symmetric.Region) error {
	dt := tensor.TypeOf[T]()
	one := make([]T, 1)
	for peer := range s.n {
		for _, at := range []int64{0, 17, 40} {
			put(tensor.Of(one).Raw(), dt, 0, sent(dt, s.rank, peer, 0, int(at)))
			if err := symmetric.P(r, peer, int64(64*s.rank)+at, one[0]); err != nil {
				return err
			}
		}
	}
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	for peer := range s.n {
		for src := range s.n {
			for _, at := range []int64{0, 17, 40} {
				v, err := symmetric.G[T](r, peer, int64(64*src)+at)
				if err != nil {
					return err
				}
				if got, want := get(tensor.Of([]T{v}).Raw(), dt, 0), sent(dt, src, peer, 0, int(at)); got != want {
					s.fault("g of %v at %d: %#x from rank %d, want %#x", dt, at, got, peer, want)
				}
			}
		}
	}
	return nil
}

// swaps passes tokens through a word of rank 0: each is returned once.
func swaps[T symmetric.Word](s *suite, r symmetric.Region) error {
	each := s.times(50)
	word := int64(64 * s.n)
	var out float64
	for i := range each {
		old, err := symmetric.Swap(r, 0, word, T(1+s.rank*each+i))
		if err != nil {
			return err
		}
		out += float64(old)
	}
	sum := []float64{out}
	if err := s.addUp(sum); err != nil {
		return err
	}
	last, err := symmetric.AtomicFetch[T](r, 0, word)
	if err != nil {
		return err
	}
	total := float64(each * s.n)
	if got, want := sum[0]+float64(last), total*(total+1)/2; got != want {
		s.fault("swap of %v: tokens add up to %v, want %v", tensor.TypeOf[T](), got, want)
	}
	after := 8 + int64(tensor.TypeOf[T]().Size())
	if err := errors.Join(symmetric.P(r, s.rank, after, T(5)), symmetric.AtomicSet(r, s.rank, 8, T(3))); err != nil {
		return err
	}
	if v, err := symmetric.AtomicFetch[T](r, s.rank, 8); err != nil || v != 3 {
		s.fault("set of %v: %v, %v", tensor.TypeOf[T](), v, err)
	}
	if v, err := symmetric.AtomicFetch[T](r, s.rank, after); err != nil || v != 5 {
		s.fault("set of %v: the word after it is %v, %v, want 5", tensor.TypeOf[T](), v, err)
	}
	return nil
}

// addUp replaces x by its sum over the ranks.
func (s *suite) addUp(x []float64) error {
	all := zeros[float64](s.space, s.n*len(x))
	if err := finish(s.g.AllGather(all.buf, of(s.space, x...).buf)); err != nil {
		return err
	}
	values := all.pull()
	clear(x)
	for i, v := range values {
		x[i%len(x)] += v
	}
	return nil
}

// totals: concurrent additions of all ranks to one word add up, and fetched values are distinct.
func totals[T symmetric.Integer](s *suite, r symmetric.Region) error {
	each := s.times(200)
	dt := tensor.TypeOf[T]()
	for peer := range s.n {
		word := int64(64 * s.n)
		var fetched float64
		for i := range each {
			old, err := symmetric.FetchInc[T](r, peer, word)
			if err == nil && i%2 == 0 {
				err = errors.Join(symmetric.Add(r, peer, word+8, T(3)), symmetric.Inc[T](r, peer, word+16))
			}
			if err != nil {
				return err
			}
			fetched += float64(old)
		}
		if peer == 0 { // below zero, or wrapped to the largest
			if _, err := symmetric.FetchAdd(r, peer, word+24, T(0)-T(s.rank)); err != nil {
				return err
			}
		}
		sums := []float64{fetched, float64(s.rank)}
		if err := s.addUp(sums); err != nil {
			return err
		}
		all := float64(each * s.n)
		if sums[0] != all*(all-1)/2 {
			s.fault("fetch-inc of %v on rank %d: the fetched values add up to %v, want %v", dt, peer, sums[0], all*(all-1)/2)
		}
		wanted := []T{T(each * s.n), T(3 * ((each + 1) / 2) * s.n), T((each + 1) / 2 * s.n)}
		if peer == 0 {
			wanted = append(wanted, T(0)-T(sums[1]))
		}
		for i, want := range wanted {
			at := word + int64(8*i)
			if got, err := symmetric.AtomicFetch[T](r, peer, at); err != nil || got != want {
				s.fault("sum %d of %v on rank %d is %v, %v, want %v", i, dt, peer, got, err, want)
			}
			if dt.Size() == 8 {
				continue
			}
			if got, err := symmetric.AtomicFetch[T](r, peer, at+4); err != nil || got != 0 {
				s.fault("sum %d of %v on rank %d: the word after it is %v, %v, want 0", i, dt, peer, got, err)
			}
		}
	}
	return nil
}

// bits: every rank has its own bit in words of rank 0.
func bits[T symmetric.Integer](s *suite, r symmetric.Region) error {
	word := int64(64 * s.n)
	own := T(1) << s.rank
	all := T(1)<<s.n - 1
	check := func(what string, want T) error {
		if err := finish(s.g.Barrier()); err != nil {
			return err
		}
		if got, err := symmetric.G[T](r, 0, word); err != nil || got != want {
			s.fault("%s of %v: %v, %v, want %v", what, tensor.TypeOf[T](), got, err, want)
		}
		return finish(s.g.Barrier())
	}
	old, err := symmetric.FetchOr(r, 0, word, own)
	if err := errors.Join(err, symmetric.Or(r, 0, word, own), check("or", all)); err != nil {
		return err
	}
	flipped, err := symmetric.FetchXor(r, 0, word, own)
	if err := errors.Join(err, check("fetch-xor", 0), symmetric.Xor(r, 0, word, own), check("xor", all)); err != nil {
		return err
	}
	cleared, err := symmetric.FetchAnd(r, 0, word, ^own)
	if err := errors.Join(err, check("fetch-and", 0), symmetric.Or(r, 0, word, own), check("or again", all),
		symmetric.And(r, 0, word, ^own), check("and", 0)); err != nil {
		return err
	}
	if old&own != 0 || flipped&own == 0 || cleared&own == 0 {
		s.fault("bits of %v fetched: %v by or, %v by xor, %v by and", tensor.TypeOf[T](), old, flipped, cleared)
	}
	return nil
}

// locks: ranks that hold a lock made of CompareSwap add to a plain word, and no addition is lost.
func locks[T symmetric.Integer](s *suite, r symmetric.Region) error {
	each := s.times(20)
	lock, word := int64(64*s.n), int64(64*s.n+32)
	for range each {
		for {
			held, err := symmetric.CompareSwap(r, 0, lock, T(0), T(s.rank+1))
			if err != nil {
				return err
			}
			if held == 0 {
				break
			}
			if err := s.unlocked(r, lock); err != nil {
				return err
			}
		}
		v, err := symmetric.G[T](r, 0, word)
		if err := errors.Join(err, symmetric.P(r, 0, word, v+1), symmetric.AtomicSet(r, 0, lock, T(0))); err != nil {
			return err
		}
	}
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	if got, err := symmetric.G[T](r, 0, word); err != nil || got != T(each*s.n) {
		s.fault("additions of %v under a lock: %v, %v, want %d", tensor.TypeOf[T](), got, err, each*s.n)
	}
	return nil
}

// unlocked lets the holder of a lock on rank 0 go on: rank 0, which owns the word, waits; the
// others poll.
func (s *suite) unlocked(r symmetric.Region, lock int64) error {
	if s.rank != 0 {
		_, err := symmetric.AtomicFetch[uint32](r, 0, lock)
		return err
	}
	_, err := symmetric.WaitUntil(context.Background(), r, lock, symmetric.Eq, uint32(0))
	return err
}

// signals: set and add from all ranks to all ranks, and data that is complete when its signal is
// visible.
func (s *suite) signals(h symmetric.Heap, r symmetric.Region) error {
	next, before := (s.rank+1)%s.n, (s.rank+s.n-1)%s.n
	sig := int64(64 * s.n)
	const unit = 1<<40 | 1 // more than 32 bits
	for peer := range s.n {
		if err := r.Signal(peer, sig, symmetric.SignalAdd, unit*uint64(1+s.rank)); err != nil {
			return err
		}
	}
	total := unit * uint64(s.n*(s.n+1)/2)
	if v, err := symmetric.SignalWait(context.Background(), r, sig, symmetric.Ge, total); err != nil || v != total {
		return fmt.Errorf("sum of signals: %d, %w, want %d", v, err, total)
	}
	for _, v := range []uint64{7 * unit, 3 * unit} {
		if err := errors.Join(r.Signal(next, sig+24, symmetric.SignalSet, v), h.Quiet(), finish(s.g.Barrier())); err != nil {
			return err
		}
		if got, err := symmetric.SignalFetch(r, s.rank, sig+24); err != nil || got != v {
			s.fault("signal set: %d, %v, want %d", got, err, v)
		}
		if err := finish(s.g.Barrier()); err != nil {
			return err
		}
	}
	const rounds = 50
	for round := range uint64(rounds) {
		data := of(s.space, round, round*round, ^round)
		if round > 0 { // the next rank signals that the slot is free
			if _, err := symmetric.SignalWait(context.Background(), r, sig+16, symmetric.Ge, round); err != nil {
				return err
			}
		}
		if err := r.PutSignal(next, 0, data.buf, symmetric.Signal{In: r, At: sig + 8, Op: symmetric.SignalSet, Value: round + 1}); err != nil {
			return err
		}
		if _, err := symmetric.SignalWait(context.Background(), r, sig+8, symmetric.Eq, round+1); err != nil {
			return err
		}
		for i, want := range data.x {
			if got := s.word(r, tensor.U64, int64(8*i)); got != want {
				s.fault("round %d: word %d after the signal is %d, want %d", round, i, got, want)
			}
		}
		if err := errors.Join(h.Fence(), r.Signal(before, sig+16, symmetric.SignalAdd, 1)); err != nil {
			return err
		}
	}
	return nil
}
