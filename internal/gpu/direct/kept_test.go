package direct

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// testState is the state of rank 0 of n, without a device.
func testState(n int) *state {
	return &state{n: n, p: &gpu.Member{Size: n}, slab: &gpu.Slab{Base: make([]uintptr, n)}, board: newBoard(&Config{}), most: MaxBlocks}
}

// someKey is an operation; those of bucket are others.
var someKey = keptKey{src: 1 << 40, dst: 1 << 40, count: 1 << 10, kind: dist.KindAllReduce, dtype: tensor.F32}

// place is where an operation is noted; nil where it is not.
func (k *kept) place(key *keptKey) *keptLaunch {
	for i := range k.places {
		if at := &k.places[i]; at.used != 0 && at.key == *key {
			return at
		}
	}
	return nil
}

// places is kept without a device: an operation finds its place, and nothing can be launched there.
func places() *kept {
	k := new(kept)
	for i := range k.places {
		k.places[i].exec = new(cuda.Kept)
	}
	return k
}

// comes has an operation come, and reports whether it is kept.
func (k *kept) comes(key *keptKey) bool {
	at := k.find(key)
	if at != nil {
		at.again = true
	}
	return at != nil
}

// bucket is operation i of a program: they differ in where their buffers lie and how long they are,
// as those of buckets do.
func bucket(i uint64) *keptKey {
	key := someKey
	key.src, key.dst, key.count = 3<<40+uintptr(i)<<20, 3<<40+uintptr(i)<<20, 1<<20-int(i)*128
	return &key
}

// step has operations from first on come, so many, and tells how many are kept.
func (k *kept) step(first, n uint64) (kept int) {
	for i := range n {
		if k.comes(bucket(first + i)) {
			kept++
		}
	}
	return kept
}

func TestAnOperationIsKeptWhenItComesAgain(t *testing.T) {
	k := places()
	all := []keptKey{someKey}
	for _, change := range []func(key *keptKey){
		func(key *keptKey) { key.src++ },
		func(key *keptKey) { key.dst++ },
		func(key *keptKey) { key.count++ },
		func(key *keptKey) { key.scalar++ },
		func(key *keptKey) { key.scalarAt++ },
		func(key *keptKey) { key.root++ },
		func(key *keptKey) { key.way++ },
		func(key *keptKey) { key.kind++ },
		func(key *keptKey) { key.red++ },
		func(key *keptKey) { key.dtype++ },
		func(key *keptKey) { key.symmetric = true },
	} {
		key := someKey
		change(&key)
		all = append(all, key)
	}
	if fields := reflect.TypeFor[keptKey]().NumField(); fields != len(all)-1 {
		t.Errorf("%d fields make operations different, %d were tried", fields, len(all)-1)
	}
	for i := range all {
		if at := k.find(&all[i]); at != nil || k.place(&all[i]) == nil {
			t.Errorf("operation %d the first time: %+v", i, at)
		}
	}
	for i := range all {
		at := k.place(&all[i])
		for range 2 {
			if got := k.find(&all[i]); got != at {
				t.Errorf("operation %d is not found: %+v", i, got)
			}
		}
	}
	if got := testing.AllocsPerRun(100, func() { k.find(&someKey) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestKeysHaveWhatLaunchesDependOn(t *testing.T) {
	floats, factor := tensor.Of(make([]float32, 8)), tensor.Of([]float32{2})
	sum := dist.Op{Kind: dist.KindAllReduce, Count: 8, Src: floats, Dst: floats, Symmetric: true, Red: dist.Sum}
	got, want := keyOf(tiles, &sum), keptKey{
		src: uintptr(floats.Pointer()), dst: uintptr(floats.Pointer()), count: 8, way: tiles, kind: dist.KindAllReduce, red: dist.RedSum,
		dtype: tensor.F32, symmetric: true,
	}
	if got != want {
		t.Errorf("sum: %+v, want %+v", got, want)
	}
	scaled := sum
	scaled.Red = dist.PreMulSum(float32(2))
	want.red, want.scalar = dist.RedPreMulSum, uint64(math.Float32bits(2))
	if got := keyOf(tiles, &scaled); got != want {
		t.Errorf("of a factor: %+v, want %+v", got, want)
	}
	scaled.Red = dist.PreMulSumAt(factor)
	if got := keyOf(tiles, &scaled); got.scalarAt != uintptr(factor.Pointer()) {
		t.Errorf("of a factor in memory: %+v", got)
	}
	root := dist.Op{Kind: dist.KindBroadcast, Count: 8, Dst: floats, Root: 1, Red: dist.Sum}
	want = keptKey{dst: uintptr(floats.Pointer()), count: 8, root: 1, kind: dist.KindBroadcast, dtype: tensor.F32}
	if got := keyOf(short, &root); got != want {
		t.Errorf("broadcast: %+v, want %+v", got, want)
	}
}

func TestStepsOfManyOperationsKeepWhatThereArePlacesFor(t *testing.T) {
	for _, c := range []struct {
		operations uint64
		least      int
	}{{1, 1}, {keptPlaces / 2, keptPlaces / 2}, {keptPlaces, keptPlaces * 9 / 10}, {600, keptPlaces * 9 / 10}, {1000, keptPlaces * 9 / 10}, {onceAge, keptPlaces * 9 / 10}} {
		k := places()
		for n := range 20 {
			kept := k.step(0, c.operations)
			if n > 0 && (kept < c.least || kept > keptPlaces) {
				t.Errorf("step %d of %d operations: %d are kept, in %d places", n, c.operations, kept, keptPlaces)
			}
		}
		if got := testing.AllocsPerRun(100, func() { k.step(0, 2*keptPlaces) }); got != 0 {
			t.Errorf("%v allocations", got)
		}
	}
}

func TestOperationsThatComeNoMoreGiveUpTheirPlaces(t *testing.T) {
	const second, third = 1 << 20, 2 << 20
	k := places()
	k.step(0, 4*keptPlaces) // once each
	for range onceAge {
		k.comes(&someKey)
	}
	for n := range 2 {
		if kept := k.step(second, keptPlaces/2); n > 0 && kept != keptPlaces/2 {
			t.Errorf("behind operations that came once %d of %d are kept", kept, keptPlaces/2)
		}
	}
	for range keptAge {
		k.comes(&someKey)
	}
	for n := range 2 {
		if kept := k.step(third, keptPlaces/2); n > 0 && kept != keptPlaces/2 {
			t.Errorf("behind operations that were kept %d of %d are kept", kept, keptPlaces/2)
		}
	}
	for i := range k.places {
		if k.places[i].exec == nil {
			t.Fatalf("place %d has lost what launches are kept in", i)
		}
	}
}

// A launch the driver could not keep would panic here if it were tried again, since there is no
// device.
func TestWhatCouldNotBeKeptIsNotTriedAgain(t *testing.T) {
	k := places()
	for i := range 3 {
		done, err := k.launch(&someKey, nil, cuda.Launch{}, nil, nil)
		again := k.of(&someKey)
		if done || again != nil || err != nil {
			t.Fatalf("operation %d: %v, %v, %v", i, done, again, err)
		}
		at := k.place(&someKey)
		at.failed, at.again = true, true
	}
	at := k.place(&someKey)
	if k.forget(); at.exec == nil || at.failed || k.place(&someKey) != nil {
		t.Errorf("forgotten: %+v", at)
	}
}

func TestWithoutMemoryNothingIsKept(t *testing.T) {
	var k kept
	for i := range 3 {
		if done, err := k.launch(&someKey, nil, cuda.Launch{}, nil, nil); done || err != nil || k.place(&someKey) != nil {
			t.Fatalf("operation %d: %v, %v", i, done, err)
		}
	}
	if err := k.close(); err != nil {
		t.Error(err)
	}
}

// Cached launches depend on the locations of slabs, and on the shape.
func TestWhatIsKeptIsForgottenWithSlabsAndShapes(t *testing.T) {
	s := testState(2)
	s.kept = *places()
	e := &Engine{s: s, way: tiles}
	slab := &gpu.Slab{Base: make([]uintptr, 2)}
	s.slabs.Store(&[]known{{slab: slab, count: 1}})
	for what, change := range map[string]func(){
		"register": func() {
			if err := s.register(slab); err != nil {
				t.Error(err)
			}
		},
		"unregister": func() { s.unregister(&gpu.Slab{}) },
		"force": func() {
			if err := e.Force(Shape{Blocks: 8, Threads: 64}); err != nil {
				t.Error(err)
			}
		},
		"end of force": func() {
			if err := e.Force(Shape{}); err != nil {
				t.Error(err)
			}
		},
	} {
		s.kept.comes(&someKey)
		if change(); s.kept.place(&someKey) != nil {
			t.Errorf("%s: the operation is still there", what)
		}
	}
}

func TestNothingIsKeptWhereItMayBeCaptured(t *testing.T) {
	s := testState(2)
	s.kept = *places()
	e := &Engine{s: s, way: short}
	x := tensor.Of(make([]float32, 8))
	op := dist.Op{Kind: dist.KindAllReduce, Count: 8, Src: x, Dst: x}
	key := keyOf(short, &op)
	s.kept.comes(&key)
	if !s.kept.comes(&key) {
		t.Fatal("the operation is not kept")
	}
	of := func(keeps, aborted bool, stream *cuda.Stream) {
		t.Helper()
		s.kept.on = keeps
		s.aborted.Store(aborted)
		if e.Kept(&op, stream) != nil {
			t.Errorf("kept: %v, aborted: %v", keeps, aborted)
		}
	}
	own := new(cuda.Stream)
	of(false, false, own)
	of(true, true, own)
	of(true, false, new(cuda.Device).BorrowStream(7))
	other := op
	other.Count--
	s.aborted.Store(false)
	if e.Kept(&other, own) != nil || e.Kept(&op, own) == nil {
		t.Error("another operation is kept, or this one is not")
	}
}

func TestOnlySmallOperationsLetTheNextBeginBeside(t *testing.T) {
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
		if got := c.s.mayOverlap(c.v, c.q, c.shape); got != c.want {
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

// again is an operation of each engine that comes again and again, between others, so that it is
// kept, and its result each time.
func again(r *rank) error {
	buf := deviceBuffer(r.heap.Base[r.Rank], 5000, tensor.U32, r)
	other := deviceBuffer(r.heap.Base[r.Rank]+1<<20, 300, tensor.U32, r)
	op := dist.Op{Kind: dist.KindAllReduce, Count: buf.Len(), Src: buf, Dst: buf, Symmetric: true, Red: dist.PreMulSum(uint32(2 + r.Rank))}
	mayOverlap := dist.Op{Kind: dist.KindAllReduce, Count: other.Len(), Src: other, Dst: other, Symmetric: true}
	if err := r.fillWords(buf, 1); err != nil {
		return err
	}
	want, factor := uint32(1), uint32(0)
	for q := range r.Size {
		factor += uint32(2 + q)
	}
	const times = 10
	for w, e := range r.engines {
		repeated := 0
		for range times {
			var err error
			if kept := e.(gpu.Keeper).Kept(&op, r.s); kept != nil {
				r.Device.Leave()
				err = kept.Launch(r.s) // without a context
				err = errors.Join(err, r.Device.Enter())
				repeated++
			} else {
				err = e.Enqueue(&op, r.s)
			}
			queue(e, &mayOverlap, r.s, &err)
			if err != nil {
				return err
			}
			want *= factor
		}
		if err := errors.Join(r.s.Synchronize(), r.checkWords(buf, want)); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		if keeps := r.engines[short].(*Engine).s.kept.on; keeps && engineKind(w) != copier && repeated != times-2 {
			return fmt.Errorf("%s: of %d times %d were repeated", e.Name(), times, repeated)
		}
	}
	return r.notKept()
}

// notKept runs large operations of each engine, one after the other, which are not cached: the
// smallest large sum, the smallest large gathering, with small blocks, and a sum of 8 MiB.
func (r *rank) notKept() error {
	words := func(n int) tensor.Buffer { return deviceBuffer(r.heap.Base[r.Rank], n, tensor.U32, r) }
	sum := func(n int) dist.Op {
		return dist.Op{Kind: dist.KindAllReduce, Count: n, Src: words(n), Dst: words(n), Symmetric: true}
	}
	part := mostKept/4/r.Size + 1
	own := r.heap.Base[r.Rank] + uintptr(4*part*r.Rank)
	gather := dist.Op{
		Kind: dist.KindAllGather, Count: part, Src: deviceBuffer(own, part, tensor.U32, r), Dst: words(part * r.Size), Symmetric: true,
	}
	for _, op := range []dist.Op{sum(mostKept/4 + 1), gather, sum(2 << 20)} {
		for _, e := range r.engines {
			want, factor := uint32(1), uint32(1)
			if op.Kind.Reduces() {
				factor = uint32(r.Size)
			}
			if err := r.fillWords(op.Dst, want); err != nil {
				return err
			}
			for i := range 4 {
				if e.(gpu.Keeper).Kept(&op, r.s) != nil {
					return fmt.Errorf("%s: %v %d of %d B is kept", e.Name(), op.Kind, i, op.Dst.Bytes())
				}
				if err := e.Enqueue(&op, r.s); err != nil {
					return err
				}
				want *= factor
			}
			if err := errors.Join(r.s.Synchronize(), r.checkWords(op.Dst, want)); err != nil {
				return fmt.Errorf("%s: %v of %d B: %w", e.Name(), op.Kind, op.Dst.Bytes(), err)
			}
		}
	}
	return nil
}
