package perf

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// lossy is a transport whose heaps lose every one-sided operation on the n-th region, from 0.
type lossy struct {
	dist.Transport
	n int
}

func (l lossy) Heap(bytes int64) (symmetric.Heap, error) {
	h, err := l.Transport.Heap(bytes)
	return &lossyHeap{Heap: h, left: l.n}, err
}

type lossyHeap struct {
	symmetric.Heap
	left int
}

func (h *lossyHeap) Alloc(bytes int64) (symmetric.Region, error) {
	r, err := h.Heap.Alloc(bytes)
	h.left--
	if h.left == -1 {
		r = lossyRegion{r}
	}
	return r, err
}

type lossyRegion struct{ symmetric.Region }

func (lossyRegion) Put(int, int64, tensor.Buffer) error    { return nil }
func (lossyRegion) PutNBI(int, int64, tensor.Buffer) error { return nil }
func (lossyRegion) Get(tensor.Buffer, int, int64) error    { return nil }
func (lossyRegion) GetNBI(tensor.Buffer, int, int64) error { return nil }

func (r lossyRegion) PutSignal(rank int, _ int64, _ tensor.Buffer, s symmetric.Signal) error {
	return s.In.Signal(rank, s.At, s.Op, s.Value)
}

func (r lossyRegion) Atomic(rank int, at int64, a symmetric.Atomic) (uint64, error) {
	if a.Op == symmetric.OpAdd {
		a.Op = symmetric.OpFetch
	}
	return r.Region.Atomic(rank, at, a)
}

// Lost one-sided operations are detected by the rank that should have the data.
func TestLostOneSidedOperationsAreCounted(t *testing.T) {
	const count, source, destination, words = 64, 0, 1, 2
	for _, c := range []struct {
		op     Op
		region int
		want   int64 // at least
	}{
		{Put, destination, count},
		{PutBW, destination, count},
		{Get, source, count},
		{GetBW, source, count},
		{PingPong, destination, 2 * count},
		{Atomics, words, 1},
	} {
		for _, fresh := range []bool{false, true} {
			cfg := Config{Ops: []Op{c.op}, MinBytes: 4 * count, MaxBytes: 4 * count, Iters: 2, Fresh: fresh}
			wrap := func(_ int, end dist.Transport) dist.Transport { return lossy{end, c.region} }
			results, _, err := measureOn(t, 3, wrap, func(int) Config { return cfg })
			if err != nil {
				t.Errorf("%v: %v", c.op, err)
				continue
			}
			if got := results[0].Wrong(); got < c.want {
				t.Errorf("%v, fresh %v: %d wrong, want %d at least", c.op, fresh, got, c.want)
			}
		}
	}
}

// A row has the time of one operation of a window, and of one direction of a ping-pong.
func TestTimesAreThoseOfOneOperation(t *testing.T) {
	all := times{mean: 640, least: 64, median: 128, most: 6400}
	if got, want := all.of(window), (times{10, 1, 2, 100, 0}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := all.of(0); got != all {
		t.Errorf("without a window: %+v", got)
	}
	if n := (Config{}).iters(Case{Op: PutBW, Bytes: 1 << 20}); n != 20 {
		t.Errorf("%d iterations of 64 MiB each", n)
	}
}

func TestAtomicsTellTheirRate(t *testing.T) {
	results, _, err := measureSim(t, 2, Config{Ops: []Op{Put, Atomics}, MaxBytes: 8, Iters: 2}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	put, atomics := results[0].Rows[0], results[0].Rows[1]
	if put.Rate != 0 || put.BusBW <= 0 || put.BusBW != put.AlgBW {
		t.Errorf("put: %+v", put)
	}
	if atomics.BusBW != 0 || atomics.Rate != round(2/atomics.TimeUS) || atomics.Bytes != 8 || atomics.DType != "u64" {
		t.Errorf("atomics: %+v", atomics)
	}
}
