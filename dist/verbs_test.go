package dist_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// verb is one method of Group that moves data, and the shape of its arguments.
type verb struct {
	kind       dist.Kind
	src, dst   int  // length of each side: 0 unused, 1 count elements, ranks for that many blocks of count
	srcAtRoot  bool // the source is used on the root only
	dstAtRoot  bool
	exactCount bool // the count is that of the destination, so a longer one is not legal or counts
	call       func(g *dist.Group, dst, src tensor.Buffer, peer int) (dist.Work, error)
}

const ranks = 3 // in the group of these tests; rank 1 calls

var verbs = []verb{
	{kind: dist.KindAllReduce, src: 1, dst: 1, call: func(g *dist.Group, dst, src tensor.Buffer, _ int) (dist.Work, error) {
		return g.AllReduce(dst, src, dist.Prod)
	}},
	{kind: dist.KindReduce, src: 1, dst: 1, dstAtRoot: true, call: func(g *dist.Group, dst, src tensor.Buffer, root int) (dist.Work, error) {
		return g.Reduce(dst, src, dist.Prod, root)
	}},
	{kind: dist.KindBroadcast, src: 1, dst: 1, srcAtRoot: true, exactCount: true, call: (*dist.Group).Broadcast},
	{kind: dist.KindAllGather, src: 1, dst: ranks, call: func(g *dist.Group, dst, src tensor.Buffer, _ int) (dist.Work, error) {
		return g.AllGather(dst, src)
	}},
	{kind: dist.KindAllGather, src: 1, dst: ranks, call: func(g *dist.Group, dst, src tensor.Buffer, _ int) (dist.Work, error) {
		return g.FCollect(dst, src)
	}},
	{kind: dist.KindReduceScatter, src: ranks, dst: 1, call: func(g *dist.Group, dst, src tensor.Buffer, _ int) (dist.Work, error) {
		return g.ReduceScatter(dst, src, dist.Prod)
	}},
	{kind: dist.KindAllToAll, src: ranks, dst: ranks, call: func(g *dist.Group, dst, src tensor.Buffer, _ int) (dist.Work, error) {
		return g.AllToAll(dst, src)
	}},
	{kind: dist.KindGather, src: 1, dst: ranks, dstAtRoot: true, call: (*dist.Group).Gather},
	{kind: dist.KindScatter, src: ranks, dst: 1, srcAtRoot: true, exactCount: true, call: (*dist.Group).Scatter},
	{kind: dist.KindSend, src: 1, call: func(g *dist.Group, _, src tensor.Buffer, peer int) (dist.Work, error) {
		return g.Send(src, peer)
	}},
	{kind: dist.KindRecv, dst: 1, exactCount: true, call: func(g *dist.Group, dst, _ tensor.Buffer, peer int) (dist.Work, error) {
		return g.Recv(dst, peer)
	}},
}

// uses is which sides the caller, rank 1, uses.
func (v verb) uses(root int) (src, dst bool) {
	return v.src > 0 && (!v.srcAtRoot || root == 1), v.dst > 0 && (!v.dstAtRoot || root == 1)
}

// peers is the roots or peers with which the caller uses different sides.
func (v verb) peers() []int {
	switch {
	case v.kind.Rooted():
		return []int{1, 2}
	case v.kind.PointToPoint():
		return []int{2}
	}
	return []int{0} // unused
}

func eachVerb(t *testing.T, test func(t *testing.T, v verb, peer int)) {
	for i, v := range verbs {
		for _, peer := range v.peers() {
			t.Run(fmt.Sprintf("%d %v peer %d", i, v.kind, peer), func(t *testing.T) { test(t, v, peer) })
		}
	}
}

// refused checks that a call has failed as wantErr, an ErrInvalid, saying words, and has sent
// nothing.
func refused(t *testing.T, f *fake, v verb, err, want error, words ...string) {
	t.Helper()
	var op *dist.OpError
	if !errors.Is(err, want) || !errors.As(err, &op) {
		t.Fatalf("error %v, want an OpError that is %q", err, want)
	}
	if op.Op.Kind != v.kind || op.Rank != 1 || op.Size != ranks {
		t.Errorf("error of %v on rank %d/%d, want %v on rank 1/%d", op.Op.Kind, op.Rank, op.Size, v.kind, ranks)
	}
	for _, w := range append(words, v.kind.String()+" #", fmt.Sprintf("rank 1/%d", ranks)) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
	if n := len(f.ops()); n != 0 {
		t.Errorf("%d operations reached the transport", n)
	}
}

// Every verb, with buffers longer than needed if that is legal: the Op has the arguments, the
// numbers, and views of the caller's memory cut to the elements used.
func TestEveryVerbSendsExactlyWhatItWasGiven(t *testing.T) {
	eachVerb(t, func(t *testing.T, v verb, peer int) {
		for _, count := range []int{0, 1, 7} {
			g, f := group(t, 1, ranks)
			src, dst := f32(v.src*count), f32(v.dst*count+5)
			if v.exactCount {
				dst = f32(v.dst * count)
			}
			w, err := v.call(g.With(dist.Hints{Name: "layer"}), dst, src, peer)
			if err != nil {
				t.Fatalf("count %d: %v", count, err)
			}
			if err := w.Wait(); err != nil {
				t.Fatal(err)
			}
			op := f.ops()[0]
			if op.Kind != v.kind || op.Count != count || op.Seq != 1 || op.Name != "layer" {
				t.Errorf("%v #%d %q of %d elements, want %v #1 of %d", op.Kind, op.Seq, op.Name, op.Count, v.kind, count)
			}
			if v.kind.Reduces() && op.Red != dist.Prod || v.kind.Rooted() && op.Root != peer || v.kind.PointToPoint() && op.Peer != peer {
				t.Errorf("%v with root %d, peer %d, want prod and %d", op.Red, op.Root, op.Peer, peer)
			}
			usesSrc, usesDst := v.uses(peer)
			wantSide(t, "source", op.Src, src, v.src*count, usesSrc)
			wantSide(t, "destination", op.Dst, dst, v.dst*count, usesDst)
		}
	})
}

func wantSide(t *testing.T, what string, got, given tensor.Buffer, n int, used bool) {
	t.Helper()
	want := tensor.Buffer{}
	if used {
		want = part(given, 0, n)
	}
	if !tensor.Same(got, want) {
		t.Errorf("%s is %v at %p, want %v at %p", what, got, got.Pointer(), want, want.Pointer())
	}
}

// A buffer that a rank does not use may be anything: none, another type, another device, too short,
// or the other buffer.
func TestEveryVerbIgnoresUnusedBuffers(t *testing.T) {
	eachVerb(t, func(t *testing.T, v verb, peer int) {
		usesSrc, usesDst := v.uses(peer)
		for _, junk := range []tensor.Buffer{none, i32(1), onGPU(3), f32(0), f32(64)} {
			g, f := group(t, 1, ranks)
			src, dst := f32(v.src*2), f32(v.dst*2)
			if !usesSrc {
				src = junk
			}
			if !usesDst {
				dst = junk
			}
			if _, err := v.call(g, dst, src, peer); err != nil {
				t.Fatalf("unused buffer %v: %v", junk, err)
			}
			if op := f.ops()[0]; op.Src.IsZero() == usesSrc || op.Dst.IsZero() == usesDst {
				t.Errorf("unused buffer %v reached the transport: source %v, destination %v", junk, op.Src, op.Dst)
			}
		}
	})
}

func TestEveryVerbNeedsTheBuffersItUses(t *testing.T) {
	eachVerb(t, func(t *testing.T, v verb, peer int) {
		g, f := group(t, 1, ranks)
		usesSrc, usesDst := v.uses(peer)
		src, dst := f32(v.src*2), f32(v.dst*2)
		if usesSrc {
			_, err := v.call(g, dst, none, peer)
			refused(t, f, v, err, dist.ErrDType, "no source buffer")
			_, err = v.call(g, dst, onGPU(v.src*2), peer)
			refused(t, f, v, err, dist.ErrDevice, "the source is on cuda:2, the group on host")
		}
		if usesDst {
			_, err := v.call(g, none, src, peer)
			refused(t, f, v, err, dist.ErrDType, "no destination buffer")
			_, err = v.call(g, onGPU(v.dst*2), src, peer)
			refused(t, f, v, err, dist.ErrDevice, "the destination is on cuda:2, the group on host")
		}
		if usesSrc && usesDst {
			_, err := v.call(g, i32(v.dst*2), src, peer)
			refused(t, f, v, err, dist.ErrDType, "source is f32, destination i32")
		}
	})
}

// A group on a GPU rejects host memory.
func TestEveryVerbWantsTheGroupsDevice(t *testing.T) {
	eachVerb(t, func(t *testing.T, v verb, peer int) {
		f := newFake(1, ranks)
		f.info.Device = tensor.CUDA(2)
		g, err := dist.NewGroup(f, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		_, err = v.call(g, f32(v.dst*2), f32(v.src*2), peer)
		refused(t, f, v, err, dist.ErrDevice, "is on host, the group on cuda:2")
		if _, err := v.call(g, onGPU(v.dst*2), onGPU(v.src*2), peer); v.src > 0 && v.dst > 0 && errors.Is(err, dist.ErrDevice) {
			t.Errorf("memory of the group's device: %v", err)
		}
	})
}

func TestEveryVerbChecksItsLengths(t *testing.T) {
	eachVerb(t, func(t *testing.T, v verb, peer int) {
		g, f := group(t, 1, ranks)
		usesSrc, usesDst := v.uses(peer)
		const count = 5
		if usesSrc && usesDst && v.exactCount { // the source must fit the destination
			for _, d := range []int{-1, 1} {
				_, err := v.call(g, f32(v.dst*count), f32(v.src*count+d), peer)
				refused(t, f, v, err, dist.ErrCount, fmt.Sprintf("source has %d", v.src*count+d), fmt.Sprintf("need %d", v.src*count))
			}
		}
		if usesSrc && usesDst && !v.exactCount { // the destination must hold the result
			for _, n := range []int{v.dst*count - 1, 1, 0} {
				_, err := v.call(g, f32(n), f32(v.src*count), peer)
				refused(t, f, v, err, dist.ErrCount, fmt.Sprintf("destination has %d elements, %d are needed", n, v.dst*count))
			}
		}
		if v.src == ranks && !v.srcAtRoot { // the ranks must divide the source
			for _, d := range []int{-2, -1, 1, 2} {
				_, err := v.call(g, f32(100), f32(v.src*count+d), peer)
				refused(t, f, v, err, dist.ErrCount, fmt.Sprintf("source has %d elements, which %d ranks do not divide", v.src*count+d, ranks))
			}
		}
	})
}

func TestEveryVerbChecksItsRootOrPeer(t *testing.T) {
	eachVerb(t, func(t *testing.T, v verb, _ int) {
		g, f := group(t, 1, ranks)
		src, dst := f32(v.src*2), f32(v.dst*2)
		for _, wrong := range []int{-1, ranks, math.MaxInt, math.MinInt} {
			_, err := v.call(g, dst, src, wrong)
			if !v.kind.Rooted() && !v.kind.PointToPoint() {
				if err != nil {
					t.Fatal(err) // it has none
				}
				continue
			}
			refused(t, f, v, err, dist.ErrRoot, fmt.Sprintf("%d is not in 0 to %d", wrong, ranks-1))
		}
		if v.kind.PointToPoint() {
			_, err := v.call(g, dst, src, 1)
			refused(t, f, v, err, dist.ErrRoot, "peer 1 is this rank")
		}
	})
}

func TestEveryVerbOnAClosedGroup(t *testing.T) {
	eachVerb(t, func(t *testing.T, v verb, peer int) {
		f := newFake(1, ranks)
		g, err := dist.NewGroup(f, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = v.call(g, f32(v.dst*2), f32(v.src*2), peer)
		refused(t, f, v, err, dist.ErrClosed)
		if errors.Is(err, dist.ErrInvalid) {
			t.Error("a closed group must not look like a wrong argument")
		}
	})
}

// The rules of premulsum and of unknown reductions hold for all verbs that reduce, whether or not
// the rank is the root.
func TestEveryReducingVerbChecksItsReduction(t *testing.T) {
	two, device := f32(2), onGPU(1)
	for _, tt := range []struct {
		name string
		red  dist.RedOp
		want error
		text string
	}{
		{"unknown", dist.RedOp{Kind: 200}, dist.ErrInvalid, "unknown reduction red(200)"},
		{"dtype", dist.PreMulSum(1.5), dist.ErrDType, "premulsum scalar is f64, the buffers f32"},
		{"dtype in memory", dist.PreMulSumAt(i32(1)), dist.ErrDType, "premulsum scalar is i32, the buffers f32"},
		{"no memory", dist.PreMulSumAt(none), dist.ErrDType, "premulsum scalar is invalid, the buffers f32"},
		{"length", dist.PreMulSumAt(two), dist.ErrCount, "premulsum scalar has 2 elements, not 1"},
		{"no elements", dist.PreMulSumAt(f32(0)), dist.ErrCount, "premulsum scalar has 0 elements, not 1"},
		{"device", dist.PreMulSumAt(device), dist.ErrDevice, "the premulsum scalar is on cuda:2, the group on host"},
	} {
		for kind, call := range map[dist.Kind]call{
			dist.KindAllReduce:     func(g *dist.Group) (dist.Work, error) { return g.AllReduce(f32(3), f32(3), tt.red) },
			dist.KindReduce:        func(g *dist.Group) (dist.Work, error) { return g.Reduce(none, f32(3), tt.red, 0) },
			dist.KindReduceScatter: func(g *dist.Group) (dist.Work, error) { return g.ReduceScatter(f32(1), f32(3), tt.red) },
		} {
			t.Run(fmt.Sprintf("%v %s", kind, tt.name), func(t *testing.T) {
				g, f := group(t, 1, ranks)
				_, err := call(g)
				refused(t, f, verb{kind: kind}, err, tt.want, tt.text)
				if !errors.Is(err, dist.ErrInvalid) {
					t.Errorf("%v is no ErrInvalid", err)
				}
			})
		}
	}
}

// Ranks send each other these numbers, so a change breaks jobs of mixed versions.
func TestNumberingIsThatOfTheWire(t *testing.T) {
	for i, k := range []dist.Kind{
		dist.KindInvalid, dist.KindAllReduce, dist.KindReduce, dist.KindBroadcast, dist.KindAllGather, dist.KindReduceScatter,
		dist.KindAllToAll, dist.KindGather, dist.KindScatter, dist.KindSend, dist.KindRecv, dist.KindBarrier, dist.KindSync,
		dist.KindBatch, dist.KindSplit, dist.KindHeap, dist.KindAlloc, dist.KindFree,
	} {
		if int(k) != i {
			t.Errorf("%v is number %d, want %d", k, k, i)
		}
	}
	for i, r := range []dist.RedKind{dist.RedSum, dist.RedProd, dist.RedMin, dist.RedMax, dist.RedAvg, dist.RedPreMulSum} {
		if int(r) != i {
			t.Errorf("%v is number %d, want %d", r, r, i)
		}
	}
}
