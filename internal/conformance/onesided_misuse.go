package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// wrongAccess: every invalid argument of every call is an immediate error of the right kind. It
// accesses no memory and leaves heap and group usable.
func (s *suite) wrongAccess(h symmetric.Heap) error {
	r, err := h.Alloc(64)
	if err != nil {
		return err
	}
	gone, err := h.Alloc(64)
	if err != nil {
		return err
	}
	sliceOfGone, err := gone.Slice(8, 16)
	if err != nil {
		return err
	}
	if err := h.Free(gone); err != nil {
		return err
	}
	s.set(r.Local(), untouched)
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	for _, place := range []struct {
		what string
		r    symmetric.Region
		rank int
		at   int64
		want error
	}{
		{"rank too large", r, s.n, 0, dist.ErrRank},
		{"negative rank", r, -1, 0, dist.ErrRank},
		{"enormous rank", r, math.MaxInt, 0, dist.ErrRank},
		{"negative offset", r, 0, -8, dist.ErrRange},
		{"offset at the end", r, 0, 64, dist.ErrRange},
		{"range across the end", r, 0, 57, dist.ErrRange},
		{"enormous offset", r, 0, math.MaxInt64 - 7, dist.ErrRange},
		{"freed region", gone, 0, 0, symmetric.ErrNotAllocated},
		{"slice of a freed region", sliceOfGone, 0, 0, symmetric.ErrNotAllocated},
	} {
		for _, c := range s.accesses(place.r, place.rank, place.at) {
			s.refused(c.what+", "+place.what, c.err, place.want)
		}
	}
	s.wrongArguments(r)
	s.wrongWatches(r, gone)
	s.wrongAllocs(h, r)
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	for i, v := range s.load(r.Local()) {
		if v != untouched {
			s.fault("byte %d was written by a rejected call", i)
			break
		}
	}
	return errors.Join(finish(s.g.Barrier()), h.Free(r))
}

type outcome struct {
	what string
	err  error
}

// accesses returns the results of every call on 8 bytes of a place.
func (s *suite) accesses(r symmetric.Region, rank int, at int64) []outcome {
	b := zeros[uint64](s.space, 1).buf
	signal := symmetric.Signal{In: r, Op: symmetric.SignalSet}
	one := symmetric.Strides{Count: 1, Region: 1, Buffer: 1}
	_, g := symmetric.G[uint64](r, rank, at)
	outcomes := []outcome{
		{"put", r.Put(rank, at, b)},
		{"put nbi", r.PutNBI(rank, at, b)},
		{"get", r.Get(b, rank, at)},
		{"get nbi", r.GetNBI(b, rank, at)},
		{"iput", r.IPut(rank, at, b, one)},
		{"iget", r.IGet(b, rank, at, one)},
		{"put-signal", r.PutSignal(rank, at, b, signal)},
		{"put-signal nbi", r.PutSignalNBI(rank, at, b, signal)},
		{"p", symmetric.P(r, rank, at, uint64(1))},
		{"g", g},
		{"signal", r.Signal(rank, at, symmetric.SignalAdd, 1)},
	}
	for op := symmetric.OpFetch; op <= symmetric.OpCompareSwap; op++ {
		_, err := r.Atomic(rank, at, symmetric.Atomic{Op: op, DType: tensor.U64})
		outcomes = append(outcomes, outcome{op.String(), err})
	}
	return outcomes
}

// refused records an error that is not the wanted one, or that does not name rank and region.
func (s *suite) refused(what string, err, want error) {
	s.expect(what, err, want)
	if s.opt.skips(err) {
		return
	}
	var access *symmetric.AccessError
	if err == nil {
		return
	}
	text := err.Error()
	if !errors.As(err, &access) || access.Rank != s.rank || !strings.Contains(text, "region of") {
		s.fault("%s: error %q does not name rank and region", what, err)
	}
	if strings.Contains(text, "root") || strings.Contains(text, "count") {
		s.fault("%s: error %q mentions a root or a count, which the call does not have", what, err)
	}
}

// wrongArguments: a valid place, but invalid buffers, strides, signals and operations.
func (s *suite) wrongArguments(r symmetric.Region) {
	b := zeros[uint64](s.space, 1).buf
	gpu, err := foreign(b, s.dev)
	if err != nil {
		s.fault("%v", err)
	}
	set := symmetric.Signal{In: r, Op: symmetric.SignalSet}
	for what, bad := range map[string]struct {
		b    tensor.Buffer
		want error
	}{"no buffer": {tensor.Buffer{}, dist.ErrDType}, "another device's buffer": {gpu, dist.ErrDevice}} {
		one := symmetric.Strides{Count: 1, Region: 1, Buffer: 1}
		for _, c := range []outcome{
			{"put of ", r.Put(0, 0, bad.b)},
			{"get into ", r.Get(bad.b, 0, 0)},
			{"iput of ", r.IPut(0, 0, bad.b, one)},
			{"iget into ", r.IGet(bad.b, 0, 0, one)},
			{"put-signal of ", r.PutSignal(0, 0, bad.b, set)},
		} {
			s.refused(c.what+what, c.err, bad.want)
		}
	}
	for _, st := range []symmetric.Strides{
		{Count: -1, Region: 1, Buffer: 1},
		{Count: 1, Region: 0, Buffer: 1},
		{Count: 1, Region: 1, Buffer: -1},
		{Count: 2, Region: 1, Buffer: 1},
		{Count: math.MaxInt, Region: math.MaxInt, Buffer: math.MaxInt},
		{Count: math.MaxInt, Region: 1, Buffer: 1},
	} {
		s.refused(fmt.Sprintf("iput with %+v", st), r.IPut(0, 0, b, st), dist.ErrRange)
		s.refused(fmt.Sprintf("iget with %+v", st), r.IGet(b, 0, 0, st), dist.ErrRange)
	}
	for at := int64(1); at < 8; at++ {
		s.refused("misaligned signal", r.Signal(0, at, symmetric.SignalSet, 1), symmetric.ErrAlignment)
		misplaced := symmetric.Signal{In: r, At: at, Op: symmetric.SignalSet, Value: 1}
		s.refused("put with a misaligned signal", r.PutSignal(0, 0, b, misplaced), symmetric.ErrAlignment)
		s.refused("misaligned atomic", symmetric.Add(r, 0, at, int64(1)), symmetric.ErrAlignment)
		if at%4 != 0 {
			s.refused("misaligned atomic", symmetric.Add(r, 0, at, int32(1)), symmetric.ErrAlignment)
		}
	}
	s.refused("put without a signal", r.PutSignal(0, 0, b, symmetric.Signal{Op: symmetric.SignalSet}), symmetric.ErrNotAllocated)
	s.refused("put with a signal of another heap", r.PutSignal(0, 0, b, symmetric.Signal{In: s.src, Op: symmetric.SignalSet}),
		symmetric.ErrNotAllocated)
	s.refused("put with no update of the signal", r.PutSignal(0, 0, b, symmetric.Signal{In: r}), dist.ErrInvalid)
	s.refused("no update of a signal", r.Signal(0, 0, 9, 1), dist.ErrInvalid)
	s.refused("p of no type", r.PutWord(0, 0, tensor.Invalid, 1), dist.ErrDType)
	_, err = r.GetWord(0, 0, tensor.DType(99))
	s.refused("g of no type", err, dist.ErrDType)
	for _, a := range []struct {
		a    symmetric.Atomic
		want error
	}{
		{symmetric.Atomic{DType: tensor.U64}, dist.ErrInvalid},
		{symmetric.Atomic{Op: 99, DType: tensor.U64}, dist.ErrInvalid},
		{symmetric.Atomic{Op: symmetric.OpAdd}, dist.ErrDType},
		{symmetric.Atomic{Op: symmetric.OpAdd, DType: tensor.U8}, dist.ErrDType},
		{symmetric.Atomic{Op: symmetric.OpAdd, DType: tensor.F64}, dist.ErrDType},
		{symmetric.Atomic{Op: symmetric.OpCompareSwap, DType: tensor.F32}, dist.ErrDType},
	} {
		_, err := r.Atomic(0, 0, a.a)
		s.refused(fmt.Sprintf("%v on %v", a.a.Op, a.a.DType), err, a.want)
	}
}

func (s *suite) wrongWatches(r, gone symmetric.Region) {
	for _, c := range []struct {
		r    symmetric.Region
		w    symmetric.Watch
		want error
	}{
		{r, symmetric.Watch{Count: 1, DType: tensor.U64}, dist.ErrInvalid},
		{r, symmetric.Watch{Count: 1, DType: tensor.U64, Cmp: 7}, dist.ErrInvalid},
		{r, symmetric.Watch{Count: 1, DType: tensor.F32, Cmp: symmetric.Eq}, dist.ErrDType},
		{r, symmetric.Watch{Count: 0, DType: tensor.U64, Cmp: symmetric.Eq}, dist.ErrRange},
		{r, symmetric.Watch{Count: 9, DType: tensor.U64, Cmp: symmetric.Eq}, dist.ErrRange},
		{r, symmetric.Watch{Count: math.MaxInt, DType: tensor.U64, Cmp: symmetric.Eq}, dist.ErrRange},
		{r, symmetric.Watch{At: 4, Count: 1, DType: tensor.U64, Cmp: symmetric.Eq}, symmetric.ErrAlignment},
		{r, symmetric.Watch{At: -8, Count: 1, DType: tensor.U64, Cmp: symmetric.Eq}, dist.ErrRange},
		{gone, symmetric.Watch{Count: 1, DType: tensor.U64, Cmp: symmetric.Eq}, symmetric.ErrNotAllocated},
	} {
		hit, err := c.r.Test(c.w)
		s.refused(fmt.Sprintf("test %+v", c.w), err, c.want)
		hit2, err := c.r.Wait(context.Background(), c.w)
		s.refused(fmt.Sprintf("wait %+v", c.w), err, c.want)
		if hit.Index != -1 || hit2.Index != -1 {
			s.fault("rejected test and wait have hits %d and %d", hit.Index, hit2.Index)
		}
	}
	var none context.Context
	_, err := r.Wait(none, symmetric.Watch{Count: 1, DType: tensor.U64, Cmp: symmetric.Eq})
	s.refused("wait without a context", err, dist.ErrInvalid)
}

// wrongAllocs: arguments that are invalid on all ranks are errors on all; slices out of range are
// errors too.
func (s *suite) wrongAllocs(h symmetric.Heap, r symmetric.Region) {
	for _, alignment := range []int64{0, -8, 3, 768, 2 * symmetric.MaxAlignment, math.MinInt64} {
		_, err := h.Aligned(alignment, 8)
		s.expect(fmt.Sprintf("alignment %d", alignment), err, symmetric.ErrAlignment)
		s.expect(fmt.Sprintf("alignment %d", alignment), err, dist.ErrInvalid)
	}
	for _, c := range []struct {
		count, bytes int64
		want         error
	}{
		{-1, 8, dist.ErrCount},
		{8, -1, dist.ErrCount},
		{-1, -1, dist.ErrCount},
		{math.MaxInt64, 2, symmetric.ErrNoSpace},
		{1 << 32, 1 << 32, symmetric.ErrNoSpace},
		{1 << 31, 1 << 31, symmetric.ErrNoSpace},
	} {
		_, err := h.Calloc(c.count, c.bytes)
		s.expect(fmt.Sprintf("calloc of %d elements of %d B", c.count, c.bytes), err, c.want)
	}
	for _, c := range [][2]int64{{-1, 1}, {0, 65}, {64, 1}, {8, -1}, {math.MaxInt64, 1}, {1, math.MaxInt64}} {
		_, err := r.Slice(c[0], c[1])
		s.refused(fmt.Sprintf("slice of %d B at %d", c[1], c[0]), err, dist.ErrRange)
	}
	s.expect("free of nothing", h.Free(nil), symmetric.ErrNotAllocated)
}
