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

// TestALaunchIsKeptWhenItComesAgain has no device: what would be kept fails, and tells so that it would be.
func TestALaunchIsKeptWhenItComesAgain(t *testing.T) {
	var k kept
	f, other := &cuda.Function{}, &cuda.Function{}
	shape := cuda.Launch{Grid: [3]uint32{8, 1, 1}, Block: [3]uint32{128, 1, 1}}
	words := [arguments]uint64{1, 2, 3}
	at := &k.places[place8(&words, shape)]
	for _, c := range []struct {
		what  string
		f     *cuda.Function
		words [arguments]uint64
		shape cuda.Launch
	}{
		{"the first time", f, words, shape},
		{"another kernel", other, words, shape},
		{"the first again, which the other has replaced", f, words, shape},
	} {
		if x, err := k.find(c.f, &c.words, c.shape, nil); x != nil || err != nil || at.kernel != c.f || at.words != c.words || at.shape != c.shape {
			t.Errorf("%s: %v, %v; noted %+v", c.what, x, err, at)
		}
	}
	at.exec = new(cuda.GraphExec)
	for range 2 {
		if x, err := k.find(f, &words, shape, nil); x != at.exec || err != nil {
			t.Errorf("what is kept is not found: %v, %v", x, err)
		}
	}
	if x, err := k.find(other, &words, shape, nil); x != nil || err != nil || at.kernel != f {
		t.Errorf("what has the place of another that is kept: %v, %v", x, err)
	}
	if got := testing.AllocsPerRun(100, func() { _, _ = k.find(f, &words, shape, nil); _, _ = k.find(other, &words, shape, nil) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestLaunchesOfAStepHavePlacesOfTheirOwn(t *testing.T) {
	places := map[uint8]int{}
	shape := cuda.Launch{Grid: [3]uint32{16}, Block: [3]uint32{256}}
	const buckets = 64
	for i := range uint64(buckets) { // which differ in where they lie and how long they are, as buckets do
		words := [arguments]uint64{1 << 40, 2 << 40}
		words[MaxRanks+2], words[MaxRanks+3], words[MaxRanks+6] = 3<<40+i<<20, 3<<40+i<<20, 1<<20-i*128
		places[place8(&words, shape)]++
	}
	if len(places) < buckets*3/4 {
		t.Errorf("%d launches have %d places", buckets, len(places))
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
		if s.kept.places[i].exec != nil {
			found++
		}
	}
	if s.keeps && found == 0 {
		return errors.New("nothing was kept")
	}
	return nil
}
