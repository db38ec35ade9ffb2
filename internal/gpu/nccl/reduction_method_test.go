package nccl

import (
	"errors"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// The table of doc.go.
func TestReductionsAreDoneTheRightWay(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		for _, red := range dist.RedKinds() {
			for n := 1; n <= 8; n++ {
				want := methodNative
				switch {
				case dt == tensor.I16 || dt == tensor.U16, red.Bitwise() && n > 1:
					want = methodNone
				case n == 1 || !dt.IsFloat():
				case red == dist.RedMin || red == dist.RedMax:
					want = methodOrder
				case red == dist.RedAvg && dt != tensor.F16 && n != 2 && n != 4 && n != 8:
					want = methodDivide
				}
				if got := methodOf(dt, red, n); got != want {
					t.Errorf("%v %v, %d ranks: way %d, want %d", red, dt, n, got, want)
				}
			}
		}
	}
	if methodOf(tensor.F32, 99, 2) != methodNone || methodOf(tensor.Invalid, dist.RedSum, 2) != methodNone {
		t.Error("an unknown reduction or type has a way")
	}
}

func TestEveryTypeHasAnNCCLTypeOfItsSize(t *testing.T) {
	size := []int{typeI8: 1, typeU8: 1, typeI32: 4, typeU32: 4, typeI64: 8, typeU64: 8, typeF16: 2, typeF32: 4, typeF64: 8, typeBF16: 2}
	for _, dt := range tensor.DTypes() {
		if got := size[dtypes[dt]]; got != dt.Size() {
			t.Errorf("%v travels as type %d of %d B, want %d", dt, dtypes[dt], got, dt.Size())
		}
	}
}

// buffers is op with n elements of dt on both sides.
func buffers(op dist.Op, dt tensor.DType, n int) dist.Op {
	raw := make([]uint64, 2*n)
	b := tensor.Of(raw)
	op.Src, _ = tensor.FromPointer(b.Pointer(), n, dt, tensor.Host)
	op.Dst, op.Count = op.Src, n
	return op
}

func TestWhatCannotBeDoneSaysWhy(t *testing.T) {
	none := errors.Join(dist.ErrUnsupported, errors.New("no compiler"))
	for _, c := range []struct {
		name    string
		op      dist.Op
		ranks   int
		kernels error
		why     string // nothing when it can be done
	}{
		{"sum", buffers(dist.Op{Kind: dist.KindAllReduce}, tensor.F32, 4), 2, none, ""},
		{"i16", buffers(dist.Op{Kind: dist.KindReduce}, tensor.I16, 4), 2, nil, "16-bit integers"},
		{"copy of i16", buffers(dist.Op{Kind: dist.KindAllGather}, tensor.I16, 4), 2, none, ""},
		{"max without kernels", buffers(dist.Op{Kind: dist.KindReduceScatter, Red: dist.Max}, tensor.F32, 4), 2, none, "no compiler"},
		{"max with kernels", buffers(dist.Op{Kind: dist.KindReduceScatter, Red: dist.Max}, tensor.F32, 4), 2, nil, ""},
		{"max of integers", buffers(dist.Op{Kind: dist.KindReduceScatter, Red: dist.Max}, tensor.I32, 4), 2, none, ""},
		{"mean of 3", buffers(dist.Op{Kind: dist.KindAllReduce, Red: dist.Avg}, tensor.F32, 4), 3, none, "no compiler"},
		{"mean of 4", buffers(dist.Op{Kind: dist.KindAllReduce, Red: dist.Avg}, tensor.F32, 4), 4, none, ""},
		{"max on one rank", buffers(dist.Op{Kind: dist.KindAllReduce, Red: dist.Max}, tensor.F32, 4), 1, none, ""},
		{"send", buffers(dist.Op{Kind: dist.KindSend}, tensor.U16, 4), 2, none, ""},
		{"barrier", dist.Op{Kind: dist.KindBarrier}, 2, none, ""},
		{"sync", dist.Op{Kind: dist.KindSync}, 2, none, ""},
		{"heap", dist.Op{Kind: dist.KindHeap}, 2, nil, "not an operation"},
	} {
		err := can(&c.op, c.ranks, c.kernels)
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.why != "" && (!errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%s: error %v, want ErrUnsupported with %q", c.name, err, c.why)
		}
	}
}

func TestWindowsServeOnlyWhatHasKernelsForThem(t *testing.T) {
	symmetric := func(kind dist.Kind, red dist.RedOp, dt tensor.DType) dist.Op {
		return buffers(dist.Op{Kind: kind, Red: red, Symmetric: true}, dt, 4)
	}
	for _, c := range []struct {
		op     dist.Op
		policy CTAPolicy
		ok     bool
	}{
		{symmetric(dist.KindAllReduce, dist.Sum, tensor.F32), 0, true},
		{symmetric(dist.KindAllReduce, dist.Sum, tensor.F16), 0, true},
		{symmetric(dist.KindReduceScatter, dist.Sum, tensor.BF16), 0, true},
		{symmetric(dist.KindAllReduce, dist.Avg, tensor.BF16), 0, true},
		{symmetric(dist.KindAllReduce, dist.Avg, tensor.F16), 0, false},
		{symmetric(dist.KindAllReduce, dist.Sum, tensor.F64), 0, false},
		{symmetric(dist.KindAllReduce, dist.Max, tensor.F32), 0, false},
		{symmetric(dist.KindAllReduce, dist.Sum, tensor.I32), 0, false},
		{symmetric(dist.KindReduce, dist.Sum, tensor.F32), 0, false},
		{symmetric(dist.KindAllGather, dist.Sum, tensor.I16), 0, true},
		{symmetric(dist.KindAllToAll, dist.Sum, tensor.F32), 0, false},
		{symmetric(dist.KindAllToAll, dist.Sum, tensor.F32), PolicyZero, true},
		{symmetric(dist.KindBroadcast, dist.Sum, tensor.F32), PolicyZero, false},
		{symmetric(dist.KindGather, dist.Sum, tensor.F32), PolicyZero, false}, // ranks without a destination
		{symmetric(dist.KindScatter, dist.Sum, tensor.F32), PolicyZero, false},
		{symmetric(dist.KindSend, dist.Sum, tensor.F32), 0, false},
		{buffers(dist.Op{Kind: dist.KindAllReduce}, tensor.F32, 4), 0, false},
	} {
		err := canWindow(&c.op, 2, c.policy, windowVersion)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, dist.ErrUnsupported) {
			t.Errorf("%v %v %v symmetric=%v: error %v", c.op.Kind, c.op.Red, c.op.DType(), c.op.Symmetric, err)
		}
		if err == nil && c.op.Kind.Reduces() {
			if w := windowMethodOf(c.op.DType(), c.op.Red.Kind, 3); w != methodNative && w != methodDivide {
				t.Errorf("%v %v %v goes by way %d, which uses no window", c.op.Kind, c.op.Red, c.op.DType(), w)
			}
		}
	}
}

// Before 2.30.3 NCCL's kernels for windows are right only at multiples of 8 B: of the parts in Can,
// of the buffers in Enqueue.
func TestWindowsOfOldLibrariesServeOnlyWhatIsAligned(t *testing.T) {
	for _, c := range []struct {
		kind  dist.Kind
		dt    tensor.DType
		count int
		even  bool
	}{
		{dist.KindReduceScatter, tensor.F16, 13, false},
		{dist.KindReduceScatter, tensor.F16, 12, true},
		{dist.KindReduceScatter, tensor.F32, 13, false},
		{dist.KindAllGather, tensor.I8, 12, false},
		{dist.KindAllGather, tensor.I8, 16, true},
		{dist.KindAllGather, tensor.F64, 13, true},
		{dist.KindAllReduce, tensor.F16, 13, true},
	} {
		op := buffers(dist.Op{Kind: c.kind, Symmetric: true}, c.dt, c.count)
		for v, ok := range map[Version]bool{22803: c.even, 22902: c.even, alignVersion: true} {
			if err := canWindow(&op, 2, PolicyDefault, v); ok != (err == nil) || err != nil && !errors.Is(err, errUneven) {
				t.Errorf("%v %v[%d] on %v: error %v", c.kind, c.dt, c.count, v, err)
			}
		}
	}
	op := buffers(dist.Op{Kind: dist.KindAllReduce, Symmetric: true}, tensor.F16, 16)
	for first, want := range map[int]bool{0: false, 1: true, 2: true, 4: false} {
		part := op
		part.Src, _ = op.Src.Slice(first, 8)
		if askew(&part, 22803) != want || askew(&part, alignVersion) {
			t.Errorf("a source %d B into its buffer: askew %v, want %v", 2*first, !want, want)
		}
	}
}

// A window needs memory of one allocation, at a page of it.
func TestExtentsThatHoldNoWindowAreRefused(t *testing.T) {
	for _, c := range []struct {
		e     extent
		bytes int64
		why   string
	}{
		{extent{0, 8192}, 8192, ""},
		{extent{4096, 8192}, 4096, ""},
		{extent{512, 8192}, 4096, "multiple of 4096"},
		{extent{4096, 8192}, 4097, "one allocation"},
		{extent{0, 8192}, 0, "one allocation"},
	} {
		err := c.e.holds(c.bytes)
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%+v, %d B: %v", c.e, c.bytes, err)
		case c.why != "" && (!errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%+v, %d B: error %v, want ErrUnsupported with %q", c.e, c.bytes, err, c.why)
		}
	}
}

func TestPeersLieAStrideApart(t *testing.T) {
	c := &Comm{calls: calls{lib: &Library{version: 22803}, rank: 1, size: 3}, name: "x"}
	base := make([]uintptr, 3)
	good := windowVidmem{flatBase: 0x7000_0000_0000, lsaRank: 1, rank: 1, stride4G: 36}
	if err := good.peers(c, base); err != nil {
		t.Fatal(err)
	}
	for r, at := range base {
		if want := uintptr(0x7000_0000_0000 + uint64(r)*36<<32); at != want {
			t.Errorf("rank %d at %#x, want %#x", r, at, want)
		}
	}
	for name, change := range map[string]func(h *windowVidmem){
		"rank": func(h *windowVidmem) { h.rank = 2 }, "local rank": func(h *windowVidmem) { h.lsaRank = 0 },
		"base": func(h *windowVidmem) { h.flatBase = 0 }, "stride": func(h *windowVidmem) { h.stride4G = 0 },
	} {
		h := good
		change(&h)
		if err := h.peers(c, base); !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "2.28.3") {
			t.Errorf("wrong %s: error %v, want ErrUnsupported that names the version", name, err)
		}
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	c := &Comm{calls: calls{size: 2}}
	src := tensor.Of(make([]float32, 4))
	for name, err := range map[string]error{
		"dtype":  c.AllReduce(src, tensor.Buffer{}, dist.Sum, nil),
		"short":  c.AllReduce(tensor.Of(make([]float32, 3)), src, dist.Sum, nil),
		"scalar": c.AllReduce(src, src, dist.PreMulSum(1.5), nil),
	} {
		if !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
	if err := c.AllReduce(src, src, dist.Max, nil); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("max: error %v, want ErrUnsupported", err)
	}
	for _, of := range []struct{ rank, size int }{{-1, 2}, {2, 2}, {0, 0}} {
		if _, err := (&Library{}).InitComm(nil, UniqueID{}, of.rank, of.size, "x"); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%+v: error %v, want ErrInvalid", of, err)
		}
	}
}

func TestEndedCommunicatorsRefuse(t *testing.T) {
	for state, want := range map[int32]error{closing: dist.ErrClosed, aborting: dist.ErrAborted} {
		c := &Comm{calls: calls{lib: &Library{}}, done: make(chan struct{})}
		c.ending.Store(state)
		close(c.done)
		if err := c.with(func() error { return nil }); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
		c.Abort()
		if err := errors.Join(c.Close(), c.Failed()); err != nil {
			t.Error(err)
		}
	}
}
