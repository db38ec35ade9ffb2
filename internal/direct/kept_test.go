package direct

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// noHeap is a heap for what only asks whether there is one.
type noHeap struct{ symmetric.Heap }

// testState is the state of rank 0 of n, without a device.
func testState(n int) *state {
	return &state{n: n, p: &gpu.Party{Size: n}, slab: &gpu.Slab{Base: make([]uintptr, n)}, board: newBoard(&Config{}), most: MaxBlocks}
}

var (
	someShape = cuda.Launch{Grid: [3]uint32{16, 1, 1}, Block: [3]uint32{256, 1, 1}}
	someWords = [arguments]uint64{1 << 40, 2 << 40}
)

// place is where a launch is noted; nil where it is not.
func (k *kept) place(f *cuda.Function, words *[arguments]uint64, shape cuda.Launch) *keptLaunch {
	for i := range k.places {
		if at := &k.places[i]; at.kernel == f && at.words == *words && at.shape == shape {
			return at
		}
	}
	return nil
}

// places is kept without a device: a launch finds its place, and nothing can be launched there.
func places() *kept {
	k := new(kept)
	for i := range k.places {
		k.places[i].exec = new(cuda.Kept)
	}
	return k
}

// comes has a launch come, and reports whether it is kept.
func (k *kept) comes(f *cuda.Function, words *[arguments]uint64) bool {
	at := k.find(f, words, someShape)
	if at != nil {
		at.again = true
	}
	return at != nil
}

// bucket is launch i of a program: they differ in where their buffers lie and how long they are, as those of buckets do.
func bucket(i uint64) *[arguments]uint64 {
	w := someWords
	w[MaxRanks+2], w[MaxRanks+3], w[MaxRanks+6] = 3<<40+i<<20, 3<<40+i<<20, 1<<20-i*128
	return &w
}

// step has launches from first on come, so many, and tells how many are kept.
func (k *kept) step(f *cuda.Function, first, n uint64) (kept int) {
	for i := range n {
		if k.comes(f, bucket(first+i)) {
			kept++
		}
	}
	return kept
}

func TestALaunchIsKeptWhenItComesAgain(t *testing.T) {
	k := places()
	f, other := &cuda.Function{}, &cuda.Function{}
	wider, words := someShape, someWords
	wider.Block[0], words[7] = 512, 9
	launches := []struct {
		f     *cuda.Function
		words *[arguments]uint64
		shape cuda.Launch
	}{{f, &someWords, someShape}, {other, &someWords, someShape}, {f, &words, someShape}, {f, &someWords, wider}}
	for i, l := range launches {
		if at := k.find(l.f, l.words, l.shape); at != nil || k.place(l.f, l.words, l.shape) == nil {
			t.Errorf("launch %d the first time: %+v", i, at)
		}
	}
	for i, l := range launches {
		at := k.place(l.f, l.words, l.shape)
		for range 2 {
			if got := k.find(l.f, l.words, l.shape); got != at {
				t.Errorf("launch %d is not found: %+v", i, got)
			}
		}
	}
	if got := testing.AllocsPerRun(100, func() { k.find(f, &someWords, someShape) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestStepsOfManyLaunchesKeepWhatThereArePlacesFor(t *testing.T) {
	f := &cuda.Function{}
	for _, c := range []struct {
		launches uint64
		least    int
	}{{1, 1}, {keptPlaces / 2, keptPlaces / 2}, {keptPlaces, keptPlaces * 9 / 10}, {600, keptPlaces * 9 / 10}, {1000, keptPlaces * 9 / 10}, {onceAge, keptPlaces * 9 / 10}} {
		k := places()
		for n := range 20 {
			kept := k.step(f, 0, c.launches)
			if n > 0 && (kept < c.least || kept > keptPlaces) {
				t.Errorf("step %d of %d launches: %d are kept, in %d places", n, c.launches, kept, keptPlaces)
			}
		}
		if got := testing.AllocsPerRun(100, func() { k.step(f, 0, 2*keptPlaces) }); got != 0 {
			t.Errorf("%v allocations", got)
		}
	}
}

func TestLaunchesThatComeNoMoreGiveUpTheirPlaces(t *testing.T) {
	const second, third = 1 << 20, 2 << 20
	f := &cuda.Function{}
	k := places()
	k.step(f, 0, 4*keptPlaces) // once each
	for range onceAge {
		k.comes(f, &someWords)
	}
	for n := range 2 {
		if kept := k.step(f, second, keptPlaces/2); n > 0 && kept != keptPlaces/2 {
			t.Errorf("behind launches that came once %d of %d are kept", kept, keptPlaces/2)
		}
	}
	for range keptAge {
		k.comes(f, &someWords)
	}
	for n := range 2 {
		if kept := k.step(f, third, keptPlaces/2); n > 0 && kept != keptPlaces/2 {
			t.Errorf("behind launches that were kept %d of %d are kept", kept, keptPlaces/2)
		}
	}
	for i := range k.places {
		if k.places[i].exec == nil {
			t.Fatalf("place %d has lost what launches are kept in", i)
		}
	}
}

// A launch the driver could not keep would panic here if it were tried again, since there is no device.
func TestWhatCouldNotBeKeptIsNotTriedAgain(t *testing.T) {
	k := places()
	f := &cuda.Function{}
	for i := range 3 {
		if done, err := k.launch(f, &someWords, someShape, nil, nil); done || err != nil {
			t.Fatalf("launch %d: %v, %v", i, done, err)
		}
		k.place(f, &someWords, someShape).failed = true
	}
	at := k.place(f, &someWords, someShape)
	if k.forget(); at.exec == nil || at.failed || k.place(f, &someWords, someShape) != nil {
		t.Errorf("forgotten: %+v", at)
	}
}

func TestWithoutMemoryNothingIsKept(t *testing.T) {
	var k kept
	f := &cuda.Function{}
	for i := range 3 {
		if done, err := k.launch(f, &someWords, someShape, nil, nil); done || err != nil || k.place(f, &someWords, someShape) != nil {
			t.Fatalf("launch %d: %v, %v", i, done, err)
		}
	}
	if err := k.close(); err != nil {
		t.Error(err)
	}
}

func TestOnlySmallOperationsBeginEarly(t *testing.T) {
	small, large := &piece{bytes: earlyBytes}, &piece{bytes: earlyBytes + 1}
	few, many := Shape{Blocks: earlyBlocks}, Shape{Blocks: earlyBlocks + 1}
	of := func(change func(s *state)) *state {
		s := testState(2)
		change(s)
		return s
	}
	whole := of(func(*state) {})
	for _, c := range []struct {
		what  string
		s     *state
		v     variant
		q     *piece
		shape Shape
		want  bool
	}{
		{"small", whole, variant{prog: tileAll}, small, few, true},
		{"of a large block", whole, variant{prog: tileAll}, large, few, false},
		{"of many blocks", whole, variant{prog: tileAll}, small, many, false},
		{"of no peer", whole, variant{prog: alone}, small, few, false},
		{"on a GPU of few multiprocessors", of(func(s *state) { s.most = 2*earlyBlocks - 1 }), variant{prog: tileAll}, small, few, false},
		{"in few blocks", of(func(s *state) { s.cfg.MaxCTAs = 32 }), variant{prog: tileAll}, small, few, false},
	} {
		if got := c.s.early(c.v, c.q, c.shape); got != c.want {
			t.Errorf("one %s: %v", c.what, got)
		}
	}
}

// fillWords makes all words of buf, of u32, w.
func (r *rank) fillWords(buf tensor.Buffer, w uint32) error {
	host := make([]uint32, buf.Len())
	for i := range host {
		host[i] = w
	}
	return errors.Join(r.Device.CopyFromHost(uintptr(buf.Pointer()), unsafe.Pointer(&host[0]), buf.Bytes()), r.Agree(nil))
}

// checkWords is an error unless all words of buf are want.
func (r *rank) checkWords(buf tensor.Buffer, want uint32) error {
	host := make([]uint32, buf.Len())
	if err := r.Device.CopyToHost(unsafe.Pointer(&host[0]), uintptr(buf.Pointer()), buf.Bytes()); err != nil {
		return err
	}
	for i, got := range host {
		if got != want {
			return fmt.Errorf("word %d is %d, want %d", i, got, want)
		}
	}
	return nil
}

// again is an operation of each engine that comes again and again, between others, so that it is kept, and its result each time.
func again(r *rank) error {
	buf := deviceBuffer(r.heap.Base[r.Rank], 5000, tensor.U32, r)
	other := deviceBuffer(r.heap.Base[r.Rank]+1<<20, 300, tensor.U32, r)
	op := dist.Op{Kind: dist.KindAllReduce, Count: buf.Len(), Src: buf, Dst: buf, Symmetric: true, Red: dist.PreMulSum(uint32(2 + r.Rank))}
	beside := dist.Op{Kind: dist.KindAllReduce, Count: other.Len(), Src: other, Dst: other, Symmetric: true}
	if err := r.fillWords(buf, 1); err != nil {
		return err
	}
	want, factor := uint32(1), uint32(0)
	for q := range r.Size {
		factor += uint32(2 + q)
	}
	for _, e := range r.engines {
		for range 10 {
			if err := errors.Join(e.Enqueue(&op, r.s), e.Enqueue(&beside, r.s)); err != nil {
				return err
			}
			want *= factor
		}
		if err := errors.Join(r.s.Synchronize(), r.checkWords(buf, want)); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	found := 0
	s := r.engines[short].(*Engine).s
	for i := range s.kept.places {
		if s.kept.places[i].again {
			found++
		}
	}
	if s.keeps && found == 0 {
		return errors.New("nothing was kept")
	}
	return nil
}
