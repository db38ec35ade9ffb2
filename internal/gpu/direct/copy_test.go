package direct

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// clerk records the steps of a copying: for each meeting the steps after it. Rank r has its memory
// at r+1<<32.
type clerk struct {
	c      *copying
	memory [][]byte
	phases [][]func()
	lazy   bool     // parts are combined when somebody waits for them, and not at once
	plain  bool     // the last meeting was one without factors
	parts  []func() // that are not yet
}

func (k *clerk) at(p uintptr, n uint64) []byte {
	off := uint64(p) & (1<<32 - 1)
	return k.memory[p>>32-1][off : off+n : off+n]
}

func (k *clerk) add(f func()) { k.phases[len(k.phases)-1] = append(k.phases[len(k.phases)-1], f) }

func (k *clerk) meet(factors bool) error {
	k.plain = !factors
	if slices.ContainsFunc(k.parts, func(f func()) bool { return f != nil }) {
		return errors.New("nobody waits for a part")
	}
	k.phases = append(k.phases, nil)
	return nil
}

// along begins where the previous operation began: with a single one, at its meeting.
func (k *clerk) along() error { return k.meet(true) }

func (k *clerk) gathered() error { return nil }

func (k *clerk) move(dst, src uintptr, n uint64) error {
	k.add(func() { copy(k.at(dst, n), k.at(src, n)) })
	return nil
}

func (k *clerk) combine(part int, dst, own, from uintptr, slot, n uint64) error {
	if k.plain {
		return errors.New("the factors did not come with the last meeting")
	}
	if (from-own)%16 != 0 {
		return errors.New("vectors of what is combined do not lie alike")
	}
	f := func() {
		parts := make([][]byte, k.c.n)
		for q := range parts {
			if parts[q] = k.at(own, n); q != k.c.rank {
				parts[q] = k.at(from+uintptr(slotOf(q, k.c.rank))*uintptr(slot), n)
			}
		}
		copy(k.at(dst, n), inOrder(parts))
	}
	if !k.lazy {
		k.add(f)
		return nil
	}
	for len(k.parts) <= part {
		k.parts = append(k.parts, nil)
	}
	k.parts[part] = f
	return nil
}

func (k *clerk) await(part int) error {
	for i := range min(part+1, len(k.parts)) {
		if k.parts[i] != nil {
			k.add(k.parts[i])
			k.parts[i] = nil
		}
	}
	return nil
}

// inOrder is not a sum, so that the order of ranks matters: three times the value so far, plus the
// next.
func inOrder(parts [][]byte) []byte {
	out := make([]byte, len(parts[0]))
	for _, x := range parts {
		for i := range out {
			out[i] = 3*out[i] + x[i]
		}
	}
	return out
}

// play does the recorded steps of clerks, phase by phase, in any order of ranks.
func play(rng *rand.Rand, clerks []*clerk) {
	for phase := range clerks[0].phases {
		var next []*[]func()
		for _, k := range clerks {
			next = append(next, &k.phases[phase])
		}
		for len(next) > 0 {
			i := rng.IntN(len(next))
			if len(*next[i]) == 0 {
				next = append(next[:i], next[i+1:]...)
				continue
			}
			(*next[i])[0]()
			*next[i] = (*next[i])[1:]
		}
	}
}

// The memory of the test: buffers in a slab, followed by scratch memory in the board.
const (
	copySrc   = 48
	copyDst   = 200<<10 + 16
	copyBoard = 400 << 10
	copyAll   = copyBoard + 64<<10
)

// copyCase is one operation on bytes.
type copyCase struct {
	kind           dist.Kind
	n, count       int
	inPlace        bool
	srcLen, dstLen int
	memory         [][]byte
}

// places is where rank r has source and destination.
func (c *copyCase) places(r int) (src, dst int) {
	src, dst = copySrc, copyDst
	if !c.inPlace {
		return src, dst
	}
	switch c.kind {
	case dist.KindReduceScatter:
		return src, src + r*c.count
	case dist.KindAllGather:
		return dst + r*c.count, dst
	}
	return src, src
}

// copying is that of rank r.
func (c *copyCase) copying(r int) (copying, bool) {
	slab, boards := &gpu.Slab{Bytes: copyBoard}, &gpu.Slab{}
	for q := range c.n {
		slab.Base = append(slab.Base, uintptr(q+1)<<32)
		boards.Base = append(boards.Base, uintptr(q+1)<<32+copyBoard)
	}
	s := &state{n: c.n, p: &gpu.Member{Rank: r, Size: c.n}, slab: boards, board: board{tiles: part{0, uint64(c.n-1) * 4 << 10}}}
	s.slabs.Store(&[]known{{slab: slab, base: slab.Base[r], row: 1, plain: true, count: 1}})
	src, dst := c.places(r)
	l := call{src: slab.Base[r] + uintptr(src), dst: slab.Base[r] + uintptr(dst)}
	op := dist.Op{
		Kind: c.kind, Count: c.count, Symmetric: true,
		Src: hostBuffer(room(c.srcLen), c.srcLen, tensor.U8), Dst: hostBuffer(room(c.dstLen), c.dstLen, tensor.U8),
	}
	l.span, _ = spanOf(&op, c.n)
	return s.copying(&op, &l)
}

// want returns the expected memory of all ranks, except scratch memory.
func (c *copyCase) want() [][]byte {
	var inputs [][]byte
	for r := range c.n {
		src, _ := c.places(r)
		inputs = append(inputs, c.memory[r][src:src+c.srcLen])
	}
	all := bytes.Join(inputs, nil)
	if c.kind != dist.KindAllGather {
		all = inOrder(inputs)
	}
	var want [][]byte
	for r := range c.n {
		_, dst := c.places(r)
		m, own := bytes.Clone(c.memory[r][:copyBoard]), all
		if c.kind == dist.KindReduceScatter {
			own = all[r*c.count : (r+1)*c.count]
		}
		copy(m[dst:], own)
		want = append(want, m)
	}
	return want
}

// Whatever ranks do first between two meetings, the result is the operation's, and nothing else
// changes.
func TestCopyEnginesDoWhatTheOperationSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 2; n <= MaxRanks; n++ {
		for _, kind := range []dist.Kind{dist.KindAllReduce, dist.KindReduceScatter, dist.KindAllGather} {
			for _, count := range []int{1, 15, 16, 1000, 20011} {
				for _, inPlace := range []bool{false, true} {
					c := &copyCase{kind: kind, n: n, count: count, inPlace: inPlace, srcLen: count, dstLen: count}
					switch kind {
					case dist.KindReduceScatter:
						c.srcLen *= n
					case dist.KindAllGather:
						c.dstLen *= n
					}
					c.check(t, rng)
				}
			}
		}
	}
}

func (c *copyCase) check(t *testing.T, rng *rand.Rand) {
	t.Helper()
	name := fmt.Sprintf("%v of %d B among %d, in place %v", c.kind, c.count, c.n, c.inPlace)
	for range c.n {
		b := make([]byte, copyAll)
		var seed [32]byte
		binary.NativeEndian.PutUint64(seed[:], rng.Uint64())
		_, _ = rand.NewChaCha8(seed).Read(b) // which has no errors
		c.memory = append(c.memory, b)
	}
	clerks := make([]*clerk, c.n)
	for r := range clerks {
		k, ok := c.copying(r)
		if !ok {
			t.Fatalf("%s: copy engines cannot", name)
		}
		k.least = uint64(1+rng.IntN(3)) << 9 // another on each rank
		clerks[r] = &clerk{c: &k, memory: c.memory, lazy: rng.IntN(2) == 0}
		if err := k.run(c.kind, clerks[r]); err != nil {
			t.Fatal(err)
		}
		got, least := len(clerks[r].phases), 2
		if c.n > 2 && c.kind != dist.KindAllGather {
			least = 3
		}
		if got != len(clerks[0].phases) || got < least || c.n == 2 && got > least || len(clerks[r].phases[got-1]) != 0 {
			t.Fatalf("%s: rank %d meets %d times, or does something behind the last", name, r, got)
		}
	}
	want := c.want()
	play(rng, clerks)
	for r, m := range c.memory {
		if !bytes.Equal(m[:copyBoard], want[r]) {
			t.Errorf("%s: rank %d has something else", name, r)
		}
	}
}

// Without the promise, or where others cannot reach the buffers as one piece, ranks meet in a
// kernel as twoshot's do.
func TestCopyEnginesNeedBuffersThatLieAlike(t *testing.T) {
	s := &state{n: 2, p: &gpu.Member{Size: 2}, slab: &gpu.Slab{Base: []uintptr{1 << 20, 2 << 20}}, board: newBoard(&Config{})}
	for _, c := range []struct {
		name      string
		symmetric bool
		kind      dist.Kind
		slab      known
		want      bool
	}{
		{"promised", true, dist.KindAllReduce, known{row: 1, plain: true}, true},
		{"not promised", false, dist.KindAllReduce, known{row: 1, plain: true}, false},
		{"of unknown extent", true, dist.KindAllReduce, known{row: 1}, false},
		{"no peer's", true, dist.KindAllReduce, known{}, false},
		{"a broadcast", true, dist.KindBroadcast, known{row: 1, plain: true}, false},
	} {
		c.slab.slab, c.slab.base = &gpu.Slab{Bytes: 4096, Base: []uintptr{64 << 20, 128 << 20}}, 64<<20
		s.slabs.Store(&[]known{c.slab})
		buf := hostBuffer(room(4096), 1024, tensor.F32)
		op := dist.Op{Kind: c.kind, Count: 1024, Symmetric: c.symmetric, Src: buf, Dst: buf}
		l := call{src: 64 << 20, dst: 64 << 20}
		l.span, _ = spanOf(&op, 2)
		if _, got := s.copying(&op, &l); got != c.want {
			t.Errorf("%s: copy engines can: %v, want %v", c.name, got, c.want)
		}
	}
	e := s.engine(copier)
	for _, c := range []struct {
		op   dist.Op
		want bool
	}{
		{dist.Op{Kind: dist.KindAllReduce, Count: gpu.LeastAside / 4, Symmetric: true}, true},
		{dist.Op{Kind: dist.KindAllReduce, Count: gpu.LeastAside/4 - 1, Symmetric: true}, false},
		{dist.Op{Kind: dist.KindAllReduce, Count: gpu.LeastAside / 4}, false},
		{dist.Op{Kind: dist.KindAllGather, Count: gpu.LeastAside / 8, Symmetric: true}, true},
		{dist.Op{Kind: dist.KindBroadcast, Count: gpu.LeastAside, Symmetric: true}, false},
	} {
		c.op.Src = hostBuffer(room(64), 16, tensor.F32)
		if got := e.(gpu.Aside).Aside(&c.op); got != c.want {
			t.Errorf("%v of %d, symmetric %v: beside other work %v, want %v", c.op.Kind, c.op.Count, c.op.Symmetric, got, c.want)
		}
		if s.engine(tiles).(gpu.Aside).Aside(&c.op) {
			t.Errorf("%v of %d: tiles says that it leaves the multiprocessors alone", c.op.Kind, c.op.Count)
		}
	}
}

// The last rank's slice of an allreduce may be shorter: all the same it does as the others.
func TestRanksAgreeOnWhatIsTooMuchForCopyEngines(t *testing.T) {
	const n = 3
	fits := &copyCase{kind: dist.KindAllReduce, n: n}
	k, _ := fits.copying(0)
	for _, over := range []int{-32, -1, 0, 1, 17, 32, 33} {
		c := &copyCase{kind: dist.KindAllReduce, n: n, count: n*mostPasses*int(k.pass()) + over}
		c.srcLen, c.dstLen = c.count, c.count
		_, first := c.copying(0)
		for r := range n {
			if _, ok := c.copying(r); ok != first || ok != (over <= 0) {
				t.Errorf("%d B more than fit: rank 0 %v, rank %d %v", over, first, r, ok)
			}
		}
	}
}

func TestWhatCopyEnginesAreToldAllocatesNothing(t *testing.T) {
	c := &copyCase{kind: dist.KindAllReduce, n: 4, count: 20011, srcLen: 20011, dstLen: 20011}
	k, ok := c.copying(1)
	if !ok {
		t.Fatal("copy engines cannot")
	}
	quiet := new(nobody)
	if got := testing.AllocsPerRun(100, func() { _ = k.run(dist.KindAllReduce, quiet) }); got != 0 || quiet.calls == 0 {
		t.Errorf("%v allocations in %d calls", got, quiet.calls)
	}
}

// nobody counts its calls.
type nobody struct{ calls int }

func (n *nobody) meet(bool) error { return n.count() }

func (n *nobody) along() error { return n.count() }

func (n *nobody) gathered() error { return n.count() }

func (n *nobody) move(_, _ uintptr, _ uint64) error { return n.count() }

func (n *nobody) combine(_ int, _, _, _ uintptr, _, _ uint64) error { return n.count() }

func (n *nobody) await(int) error { return n.count() }

func (n *nobody) count() error {
	n.calls++
	return nil
}

// A copy ends at the end of an allocation, for source and destination, also of a slab registered
// before.
func TestCopiesStopAtSeams(t *testing.T) {
	var s seams
	if got := s.until(100); got != math.MaxUint64 {
		t.Errorf("without seams %d B", got)
	}
	s.note([]known{{seams: []uintptr{1000, 3000}}, {}, {seams: []uintptr{2000}}})
	for p, want := range map[uintptr]uint64{0: 1000, 999: 1, 1000: 1000, 1001: 999, 2999: 1, 3000: math.MaxUint64} {
		if got := s.until(p); got != want {
			t.Errorf("from %d: %d B, want %d", p, got, want)
		}
	}
}

// copiesMoved runs operations of copy engines, with slices of one length, one by one and in a
// graph.
func copiesMoved(r *rank) error {
	rng := random(11)
	e := r.engines[copier]
	for _, kind := range []dist.Kind{dist.KindAllReduce, dist.KindReduceScatter, dist.KindAllGather} {
		for i, c := range someCombos {
			for _, count := range []int{128 * r.Size, 4096 * r.Size, (1<<20 + 128) * r.Size} {
				s := newSpec(rng, r.Size, kind, c, count, 0)
				s.lay(rng, 0, true, i%2 == 0)
				if err := r.run(e, s); err != nil {
					return err
				}
			}
		}
	}
	buf := deviceBuffer(r.heap.Base[r.Rank], (1<<20)*r.Size, tensor.U32, r)
	if err := r.Agree(nil); err != nil {
		return err
	}
	return r.averages(buf)
}
