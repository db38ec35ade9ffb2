package direct

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// lister records the steps of a copying.
type lister struct{ did []string }

func (l *lister) meet(factors bool) error { return l.note(fmt.Sprintf("meet %v", factors)) }
func (l *lister) along() error            { return l.note("along") }
func (l *lister) gathered() error         { return l.note("gathered") }
func (l *lister) await(int) error         { return l.note("await") }

func (l *lister) move(dst, _ uintptr, _ uint64) error {
	return l.note(fmt.Sprintf("to rank %d", dst>>32-1))
}

func (l *lister) combine(int, uintptr, uintptr, uintptr, uint64, uint64) error {
	return l.note("combine")
}

func (l *lister) note(what string) error {
	l.did = append(l.did, what)
	return nil
}

// Only all-gathers between two ranks go along, and only with the all-gather of the same group that
// came right before.
func TestWhatGoesAlong(t *testing.T) {
	for _, tt := range []struct {
		name  string
		kind  dist.Kind
		n     int
		along bool
		last  uint64 // number of the last all-gather by copy engines
		want  bool
	}{
		{"promised", dist.KindAllGather, 2, true, 6, true},
		{"not promised", dist.KindAllGather, 2, false, 6, false},
		{"another operation in between", dist.KindAllGather, 2, true, 5, false},
		{"none before", dist.KindAllGather, 2, true, 0, false},
		{"a sum", dist.KindAllReduce, 2, true, 6, false},
		{"half a sum", dist.KindReduceScatter, 2, true, 6, false},
		{"among three", dist.KindAllGather, 3, true, 6, false},
	} {
		s := &state{
			n: tt.n, p: &gpu.Member{Rank: 1, Size: tt.n}, slab: &gpu.Slab{Base: []uintptr{1 << 32, 2 << 32, 3 << 32}[:tt.n]},
			board: board{tiles: part{0, 64 << 10}}, adder: adder{number: tt.last},
		}
		s.slabs.Store(&[]known{{slab: &gpu.Slab{Bytes: 1 << 20, Base: s.slab.Base}, base: 2 << 32, row: 1, plain: true}})
		all, own := hostBuffer(room(1024*tt.n), 1024*tt.n, tensor.U8), hostBuffer(room(1024), 1024, tensor.U8)
		op := dist.Op{Kind: tt.kind, Count: 1024, Symmetric: true, Along: tt.along, Seq: 7, Src: all, Dst: all}
		switch tt.kind {
		case dist.KindAllGather:
			op.Src = own
		case dist.KindReduceScatter:
			op.Dst = own
		}
		l := call{src: 2<<32 + 1024, dst: 2 << 32}
		l.span, _ = spanOf(&op, tt.n)
		c, ok := s.copying(&op, &l)
		if !ok {
			t.Fatalf("%s: copy engines cannot", tt.name)
		}
		h := new(lister)
		if err := c.run(tt.kind, h); err != nil {
			t.Fatal(err)
		}
		if got := h.did[0] == "along"; got != tt.want || h.did[len(h.did)-1] != "meet false" {
			t.Errorf("%s: does %v", tt.name, h.did)
		}
		if want := []string{"along", "to rank 0", "gathered", "meet false"}; tt.want && !slices.Equal(h.did, want) {
			t.Errorf("%s: does %v, want %v", tt.name, h.did, want)
		}
	}
}

// goneAlong gathers several buffers, each but the first along with the one before, one by one and
// in a graph. Elements are of the rank and of the turn, so that one that came too early or too late
// differs.
func goneAlong(r *rank) error {
	const turns, buckets, count = 6, 5, 3<<20 + 64
	e := r.engines[copier]
	seq := uint64(100)
	own := make([]uint32, count)
	all := make([]uint32, count*r.Size)
	gather := func() error {
		for b := range buckets {
			at := r.heap.Base[r.Rank] + uintptr(b*4*count*r.Size)
			seq++
			op := dist.Op{
				Kind: dist.KindAllGather, Count: count, Symmetric: true, Along: b > 0, Seq: seq,
				Src: deviceBuffer(at+uintptr(r.Rank*4*count), count, tensor.U32, r), Dst: deviceBuffer(at, count*r.Size, tensor.U32, r),
			}
			if err := e.Enqueue(&op, r.s); err != nil {
				return err
			}
		}
		return nil
	}
	value := func(turn, bucket, rank, i int) uint32 { return uint32(i*64+rank*8+bucket) ^ uint32(turn)<<28 }
	for turn := range turns {
		for b := range buckets {
			for i := range own {
				own[i] = value(turn, b, r.Rank, i)
			}
			at := r.heap.Base[r.Rank] + uintptr(b*4*count*r.Size+r.Rank*4*count)
			if err := r.Device.CopyFromHost(at, unsafe.Pointer(&own[0]), 4*count); err != nil {
				return err
			}
		}
		var err error
		if turn < turns/2 {
			err = gather()
		} else {
			err = r.captured(1, gather)
		}
		if err = errors.Join(err, r.s.Synchronize()); err != nil {
			return err
		}
		for b := range buckets {
			if err := r.Device.CopyToHost(unsafe.Pointer(&all[0]), r.heap.Base[r.Rank]+uintptr(b*4*count*r.Size), int64(4*len(all))); err != nil {
				return err
			}
			for i, got := range all {
				if want := value(turn, b, i/count, i%count); got != want {
					return fmt.Errorf("turn %d, bucket %d: element %d is %#x, want %#x", turn, b, i, got, want)
				}
			}
		}
		if err := r.Agree(nil); err != nil { // nobody writes before all have looked
			return err
		}
	}
	return nil
}
