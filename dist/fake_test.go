package dist_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a transport that moves nothing and records its calls.
type fake struct {
	name     string
	info     dist.Info
	startErr error
	runErr   func(op *dist.Op) error
	callErr  error // of Split and Heap
	closeErr error
	gate     chan struct{} // if set, Run waits for it
	log      *journal

	mu      sync.Mutex
	started []dist.Op
	streams []dist.Stream
	splits  [][2]int
	aborts  []error
}

// journal lists closed objects, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func newFake(rank, size int) *fake {
	ranks := make([]int, size)
	for r := range ranks {
		ranks[r] = r
	}
	return &fake{name: "world", info: dist.Info{Rank: rank, Size: size, Backend: "fake", Ranks: ranks}, log: &journal{}}
}

// group is a group over a fresh fake.
func group(t testing.TB, rank, size int) (*dist.Group, *fake) {
	t.Helper()
	f := newFake(rank, size)
	g, err := dist.NewGroup(f, 16)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return g, f
}

func (f *fake) Info() dist.Info { return f.info }

func (f *fake) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.startErr != nil {
		return dist.Work{}, f.startErr
	}
	f.started, f.streams = append(f.started, op), append(f.streams, s)
	return s.(*dist.HostStream).Submit(f, op, uint64(len(f.started)))
}

func (f *fake) Run(op *dist.Op, _ uint64) error {
	if f.gate != nil {
		<-f.gate
	}
	f.log.add("run %v #%d", op.Kind, op.Seq)
	if f.runErr != nil {
		return f.runErr(op)
	}
	return nil
}

func (f *fake) Split(color, key int) (dist.Transport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.callErr != nil {
		return nil, f.callErr
	}
	f.splits = append(f.splits, [2]int{color, key})
	if color < 0 {
		return nil, nil
	}
	return &fake{name: fmt.Sprintf("part %d", len(f.splits)), info: f.info, log: f.log}, nil
}

func (f *fake) Heap(bytes int64) (symmetric.Heap, error) {
	if f.callErr != nil {
		return nil, f.callErr
	}
	return fakeHeap{f, bytes}, nil
}

func (f *fake) Abort(cause error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.aborts = append(f.aborts, cause)
	return nil
}

func (f *fake) Close() error {
	f.log.add("close %s", f.name)
	return f.closeErr
}

func (f *fake) ops() []dist.Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]dist.Op(nil), f.started...)
}

type fakeHeap struct {
	f     *fake
	bytes int64
}

func (h fakeHeap) Alloc(int64) (symmetric.Region, error) { return nil, symmetric.ErrNoSpace }

func (h fakeHeap) Calloc(int64, int64) (symmetric.Region, error) { return nil, symmetric.ErrNoSpace }

func (h fakeHeap) Aligned(int64, int64) (symmetric.Region, error) { return nil, symmetric.ErrNoSpace }

func (h fakeHeap) Free(symmetric.Region) error { return symmetric.ErrNotAllocated }
func (h fakeHeap) Fence() error                { return nil }
func (h fakeHeap) Quiet() error                { return nil }
func (h fakeHeap) Stats() symmetric.Stats      { return symmetric.Stats{Capacity: h.bytes} }

// Close notes the order.
func (h fakeHeap) Close() error {
	h.f.log.add("close heap of %d", h.bytes)
	return nil
}

func f32(n int) tensor.Buffer { return tensor.Of(make([]float32, n)) }

func i32(n int) tensor.Buffer { return tensor.Of(make([]int32, n)) }

// onGPU returns n floats that claim to be on a device; they are never read.
func onGPU(n int) tensor.Buffer {
	b, err := tensor.FromPointer(f32(n+1).Pointer(), n, tensor.F32, tensor.CUDA(2))
	if err != nil {
		panic(err)
	}
	return b
}

// part is elements lo to hi of b.
func part(b tensor.Buffer, lo, hi int) tensor.Buffer {
	p, err := b.Slice(lo, hi)
	if err != nil {
		panic(err)
	}
	return p
}

var errTest = errors.New("made for the test")
