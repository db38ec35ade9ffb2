package shm

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
	"pgregory.net/rapid"
)

// TestLayoutPartsAreDisjoint fills every part of a control segment with its own mark and looks
// whether all survive.
func TestLayoutPartsAreDisjoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "ranks")
		l := newLayout(n, rapid.IntRange(1, 5000).Draw(t, "chunk"))
		seg, _ := goMaker{}.make("", l.size)
		c := newControl(l, seg.bytes())
		var parts [][]byte
		word := func(p *uint64) { parts = append(parts, unsafe.Slice((*byte)(unsafe.Pointer(p)), 8)) }
		word(c.abort())
		for r := range n {
			for _, w := range []*uint64{c.flag(r), c.bell(r), c.sent(r), c.took(r), c.summed(r), c.tree(r)} {
				word(w)
				word(waiters(w))
			}
			word(c.state(r))
			word(c.left(r))
			for i := range uint64(depth) {
				word(c.word(r, i))
				word(waiters(c.word(r, i)))
				parts = append(parts, c.header(r, i), c.entry(r, i))
			}
			for i := range uint64(smallSlots) {
				parts = append(parts, c.smallSlot(r, i))
			}
			for i := range uint64(stageSlots) {
				parts = append(parts, c.slot(r, i))
			}
			for q := range n {
				word(c.wrote(r, q))
				word(c.read(r, q))
				for i := range uint64(ringDepth) {
					head, data := c.ringSlot(r, q, i)
					parts = append(parts, head, data)
				}
			}
		}
		for i, p := range parts {
			for j := range p {
				p[j] = byte(i%251 + 1)
			}
		}
		for i, p := range parts {
			for j := range p {
				if p[j] != byte(i%251+1) {
					t.Fatalf("part %d of %d is overwritten at %d", i, len(parts), j)
				}
			}
		}
		if len(c.slot(0, 0)) < 64 || l.ring < 64 || l.size%pageBytes != 0 {
			t.Fatalf("slot %d, ring %d, size %d", len(c.slot(0, 0)), l.ring, l.size)
		}
	})
}

func TestLayoutBoundsRings(t *testing.T) {
	l := newLayout(128, 256<<10)
	if rings := l.size - int64(l.rings); rings > maxRingBytes+128*128*ringDepth*ringHeader+pageBytes {
		t.Errorf("rings of 128 ranks take %d B", rings)
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := header{
			sig: dist.Signature{
				Count: rapid.Int64().Draw(t, "count"), Root: rapid.Int32().Draw(t, "root"),
				Kind: dist.Kind(rapid.Byte().Draw(t, "kind")), Red: dist.RedKind(rapid.Byte().Draw(t, "red")),
				DType: tensor.DType(rapid.Byte().Draw(t, "dtype")),
			},
			round: rapid.Uint64().Draw(t, "round"),
			a:     rapid.Int64().Draw(t, "a"), b: rapid.Int64().Draw(t, "b"), id: rapid.Uint64().Draw(t, "id"),
		}
		var raw [headerLen]byte
		h.put(raw[:])
		var got header
		got.get(raw[:])
		if got != h {
			t.Fatalf("got %+v, want %+v", got, h)
		}
	})
}

// Who reads a signature that is replaced meanwhile, and finds the round before, has all of it from
// that round.
func TestASignatureWithItsRoundIsWhole(t *testing.T) {
	const rounds = 50000
	var words [headerLen / 8]uint64
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&words)), headerLen)
	of := func(round uint64) dist.Signature {
		if round%2 == 0 {
			return dist.Signature{Kind: dist.KindBarrier, Root: -1}
		}
		return dist.Signature{Kind: dist.KindAllReduce, Count: int64(round), Root: -1, DType: tensor.F32}
	}
	var newest atomic.Uint64
	putSignature(raw, of(0), 0)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for round := uint64(1); round <= rounds; round++ {
			putSignature(raw, of(round), round)
			newest.Store(round)
		}
	}()
	for newest.Load() < rounds && !t.Failed() {
		announced := newest.Load()
		var h header
		if h.get(raw); h.round == announced && h.sig != of(announced) {
			t.Errorf("round %d with signature %+v, want %+v", h.round, h.sig, of(announced))
		}
	}
	wg.Wait()
}

func TestStateRoundTrip(t *testing.T) {
	for _, tc := range []struct {
		k    dist.Kind
		peer int
		seq  uint64
	}{{dist.KindInvalid, -1, 0}, {dist.KindRecv, 0, 7}, {dist.KindSend, 4094, 1<<40 - 1}, {dist.KindFree, -1, 3}} {
		k, peer, seq := unpackState(packState(tc.k, tc.peer, tc.seq))
		if k != tc.k || peer != tc.peer || seq != tc.seq {
			t.Errorf("got %v %d %d, want %v %d %d", k, peer, seq, tc.k, tc.peer, tc.seq)
		}
	}
}

func TestBlocksCoverAllElementsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count, n := rapid.IntRange(0, 10000).Draw(t, "count"), rapid.IntRange(1, 9).Draw(t, "ranks")
		next := 0
		for r := range n {
			lo, hi := block(count, n, r)
			if lo != next && lo != hi || hi < lo {
				t.Fatalf("block %d of %d is %d to %d, want it to start at %d", r, n, lo, hi, next)
			}
			if lo != hi {
				next = hi
			}
		}
		if next != count {
			t.Fatalf("blocks end at %d of %d", next, count)
		}
	})
}

// TestReasonsAreWaitedFor has a rank that breaks the group lose its core before it has written why.
func TestReasonsAreWaitedFor(t *testing.T) {
	l := newLayout(2, 64)
	seg, err := goMaker{}.make("", l.size)
	if err != nil {
		t.Fatal(err)
	}
	c := newControl(l, seg.bytes())
	atomic.StoreUint64(c.abort(), uint64(abortUser)<<32)
	go func() {
		for range 20000 {
			runtime.Gosched()
		}
		binary.LittleEndian.PutUint64(c.mem[abortLength:], uint64(copy(c.mem[abortText:pageBytes], "the disk is full")))
		atomic.StoreUint64(c.u64(abortReady), 1)
	}()
	if err := c.aborted(); !errors.Is(err, dist.ErrAborted) || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
}
