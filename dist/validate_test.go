package dist_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
	"pgregory.net/rapid"
)

var none = tensor.Buffer{}

type call func(g *dist.Group) (dist.Work, error)

// Rank 1 of 4 makes every call, unless rank says otherwise.
func TestWrongArgumentsAreNamedBeforeAnythingIsSent(t *testing.T) {
	x := f32(64)
	for _, tt := range []struct {
		name string
		rank int
		call call
		want error
		text []string // in the error
	}{
		{"allreduce of two dtypes", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(f32(4), i32(4), dist.Sum) }, dist.ErrDType, []string{"allreduce", "i32", "f32"}},
		{"allreduce without source", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(f32(4), none, dist.Sum) }, dist.ErrDType, []string{"no source"}},
		{"allreduce without destination", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(none, f32(4), dist.Sum) }, dist.ErrDType, []string{"no destination"}},
		{"allreduce into too little", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(f32(3), f32(4), dist.Sum) }, dist.ErrCount, []string{"destination has 3", "4 are needed"}},
		{"allreduce into nothing", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(f32(0), f32(1), dist.Sum) }, dist.ErrCount, []string{"destination has 0"}},
		{"allreduce that overlaps", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(part(x, 1, 9), part(x, 0, 8), dist.Sum)
		}, dist.ErrAlias, []string{"in place means the same buffer"}},
		{"allreduce of a device", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(f32(4), onGPU(4), dist.Sum) }, dist.ErrDevice, []string{"source is on cuda:2", "group on host"}},
		{"allreduce into a device", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(onGPU(4), f32(4), dist.Sum) }, dist.ErrDevice, []string{"destination is on cuda:2"}},
		{"unknown reduction", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(f32(4), f32(4), dist.RedOp{Kind: dist.RedXor + 1})
		}, dist.ErrInvalid, []string{"red(9)"}},
		{"premulsum of another dtype", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(f32(4), f32(4), dist.PreMulSum(int32(2)))
		}, dist.ErrDType, []string{"scalar is i32", "buffers f32"}},
		{"premulsum of two scalars", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(f32(4), f32(4), dist.PreMulSumAt(f32(2)))
		}, dist.ErrCount, []string{"2 elements"}},
		{"premulsum of a scalar elsewhere", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(f32(4), f32(4), dist.PreMulSumAt(onGPU(1)))
		}, dist.ErrDevice, []string{"scalar is on cuda:2"}},
		{"premulsum of a scalar in memory of another dtype", 1, func(g *dist.Group) (dist.Work, error) {
			red := dist.PreMulSumAt(i32(1))
			red.Scalar.DType = tensor.F32
			return g.AllReduce(f32(4), f32(4), red)
		}, dist.ErrDType, []string{"scalar is f32", "memory i32"}},
		{"premulsum of a scalar in the destination", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(part(x, 0, 8), part(x, 0, 8), dist.PreMulSumAt(part(x, 7, 8)))
		}, dist.ErrAlias, []string{"scalar is in the destination"}},
		{"premulsum without scalar", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(f32(4), f32(4), dist.RedOp{Kind: dist.RedPreMulSum})
		}, dist.ErrDType, []string{"scalar is invalid"}},

		{"reduce to a wrong root", 1, func(g *dist.Group) (dist.Work, error) { return g.Reduce(f32(4), f32(4), dist.Sum, 4) }, dist.ErrRoot, []string{"reduce", "4 is not in 0 to 3"}},
		{"reduce to a negative root", 1, func(g *dist.Group) (dist.Work, error) { return g.Reduce(f32(4), f32(4), dist.Sum, -1) }, dist.ErrRoot, []string{"-1"}},
		{"reduce without destination on the root", 1, func(g *dist.Group) (dist.Work, error) { return g.Reduce(none, f32(4), dist.Sum, 1) }, dist.ErrDType, []string{"no destination"}},
		{"reduce into too little", 1, func(g *dist.Group) (dist.Work, error) { return g.Reduce(f32(3), f32(4), dist.Sum, 1) }, dist.ErrCount, []string{"has 3"}},
		{"reduce without source", 0, func(g *dist.Group) (dist.Work, error) { return g.Reduce(none, none, dist.Sum, 1) }, dist.ErrDType, []string{"no source", "rank 0/4"}},

		{"broadcast from a wrong root", 1, func(g *dist.Group) (dist.Work, error) { return g.Broadcast(f32(4), f32(4), 9) }, dist.ErrRoot, []string{"broadcast", "9 is not in 0 to 3"}},
		{"broadcast without destination", 0, func(g *dist.Group) (dist.Work, error) { return g.Broadcast(none, f32(4), 1) }, dist.ErrDType, []string{"no destination"}},
		{"broadcast without source on the root", 1, func(g *dist.Group) (dist.Work, error) { return g.Broadcast(f32(4), none, 1) }, dist.ErrDType, []string{"no source"}},
		{"broadcast of a longer source", 1, func(g *dist.Group) (dist.Work, error) { return g.Broadcast(f32(4), f32(5), 1) }, dist.ErrCount, []string{"source has 5", "4 of the destination need 4"}},
		{"broadcast of a shorter source", 1, func(g *dist.Group) (dist.Work, error) { return g.Broadcast(f32(4), f32(3), 1) }, dist.ErrCount, []string{"source has 3"}},
		{"broadcast of two dtypes", 1, func(g *dist.Group) (dist.Work, error) { return g.Broadcast(f32(4), i32(4), 1) }, dist.ErrDType, nil},

		{"allgather into too little", 1, func(g *dist.Group) (dist.Work, error) { return g.AllGather(f32(11), f32(3)) }, dist.ErrCount, []string{"allgather", "has 11", "12 are needed"}},
		{"fcollect is allgather", 1, func(g *dist.Group) (dist.Work, error) { return g.FCollect(f32(11), f32(3)) }, dist.ErrCount, []string{"allgather", "12 are needed"}},
		{"allgather at another rank's place", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllGather(part(x, 0, 12), part(x, 6, 9))
		}, dist.ErrAlias, []string{"source at element 3 of destination"}},

		{"reducescatter of an odd length", 1, func(g *dist.Group) (dist.Work, error) { return g.ReduceScatter(f32(4), f32(13), dist.Sum) }, dist.ErrCount, []string{"reducescatter", "13 elements", "4 ranks do not divide"}},
		{"reducescatter into too little", 1, func(g *dist.Group) (dist.Work, error) { return g.ReduceScatter(f32(2), f32(12), dist.Sum) }, dist.ErrCount, []string{"has 2", "3 are needed"}},
		{"reducescatter at another rank's place", 1, func(g *dist.Group) (dist.Work, error) {
			return g.ReduceScatter(part(x, 0, 3), part(x, 0, 12), dist.Sum)
		}, dist.ErrAlias, []string{"destination at element 3 of source"}},

		{"alltoall of an odd length", 1, func(g *dist.Group) (dist.Work, error) { return g.AllToAll(f32(10), f32(10)) }, dist.ErrCount, []string{"alltoall", "10 elements"}},
		{"alltoall into too little", 1, func(g *dist.Group) (dist.Work, error) { return g.AllToAll(f32(11), f32(12)) }, dist.ErrCount, []string{"has 11", "12 are needed"}},
		{"alltoall in place", 1, func(g *dist.Group) (dist.Work, error) { return g.AllToAll(x, x) }, dist.ErrAlias, []string{"cannot work in place"}},

		{"gather to a wrong root", 1, func(g *dist.Group) (dist.Work, error) { return g.Gather(f32(12), f32(3), 4) }, dist.ErrRoot, []string{"gather"}},
		{"gather into too little", 1, func(g *dist.Group) (dist.Work, error) { return g.Gather(f32(11), f32(3), 1) }, dist.ErrCount, []string{"12 are needed"}},
		{"gather at another rank's place", 1, func(g *dist.Group) (dist.Work, error) {
			return g.Gather(part(x, 0, 12), part(x, 0, 3), 1)
		}, dist.ErrAlias, []string{"source at element 3"}},

		{"scatter of a wrong length", 1, func(g *dist.Group) (dist.Work, error) { return g.Scatter(f32(3), f32(13), 1) }, dist.ErrCount, []string{"scatter", "source has 13", "3 of the destination need 12"}},
		{"scatter without source on the root", 1, func(g *dist.Group) (dist.Work, error) { return g.Scatter(f32(3), none, 1) }, dist.ErrDType, []string{"no source"}},
		{"scatter at another rank's place", 1, func(g *dist.Group) (dist.Work, error) {
			return g.Scatter(part(x, 0, 3), part(x, 0, 12), 1)
		}, dist.ErrAlias, []string{"destination at element 3"}},

		{"send to nobody", 1, func(g *dist.Group) (dist.Work, error) { return g.Send(f32(1), 4) }, dist.ErrRoot, []string{"send", "peer 4 is not in 0 to 3"}},
		{"send to oneself", 1, func(g *dist.Group) (dist.Work, error) { return g.Send(f32(1), 1) }, dist.ErrRoot, []string{"peer 1 is this rank", "Batch"}},
		{"send of nothing", 1, func(g *dist.Group) (dist.Work, error) { return g.Send(none, 0) }, dist.ErrDType, []string{"no source"}},
		{"recv from nobody", 1, func(g *dist.Group) (dist.Work, error) { return g.Recv(f32(1), -1) }, dist.ErrRoot, []string{"recv", "peer -1"}},
		{"recv into nothing", 1, func(g *dist.Group) (dist.Work, error) { return g.Recv(none, 0) }, dist.ErrDType, []string{"no destination"}},
		{"recv into a device", 1, func(g *dist.Group) (dist.Work, error) { return g.Recv(onGPU(1), 0) }, dist.ErrDevice, []string{"cuda:2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, f := group(t, tt.rank, 4)
			_, err := tt.call(g)
			if !errors.Is(err, tt.want) || !errors.Is(err, dist.ErrInvalid) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			var op *dist.OpError
			if !errors.As(err, &op) || op.Rank != tt.rank || op.Size != 4 {
				t.Errorf("error %#v, want an OpError of rank %d of 4", err, tt.rank)
			}
			for _, word := range append(tt.text, fmt.Sprintf("rank %d/4", tt.rank)) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q does not say %q", err, word)
				}
			}
			if ops := f.ops(); len(ops) != 0 {
				t.Errorf("%d operations reached the transport", len(ops))
			}
			if _, err := g.Barrier(); err != nil || f.ops()[0].Seq != 1 {
				t.Errorf("the group is not usable afterwards: error %v, ops %v", err, f.ops())
			}
		})
	}
}

// Legal arguments reach the transport with their count, and with buffers cut to the elements used.
func TestTransportSeesExactOperations(t *testing.T) {
	x := f32(64)
	longer := f32(20)
	for _, tt := range []struct {
		name     string
		rank     int
		call     call
		kind     dist.Kind
		count    int
		src, dst int // lengths; -1 for no buffer
	}{
		{"allreduce", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(longer, f32(4), dist.Sum) }, dist.KindAllReduce, 4, 4, 4},
		{"allreduce in place", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(x, x, dist.Max) }, dist.KindAllReduce, 64, 64, 64},
		{"allreduce in place of the head of a buffer", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(x, part(x, 0, 5), dist.Max)
		}, dist.KindAllReduce, 5, 5, 5},
		{"allreduce of nothing", 1, func(g *dist.Group) (dist.Work, error) { return g.AllReduce(f32(0), f32(0), dist.Sum) }, dist.KindAllReduce, 0, 0, 0},
		{"allreduce side by side", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(part(x, 8, 16), part(x, 0, 8), dist.Sum)
		}, dist.KindAllReduce, 8, 8, 8},
		{"allreduce overlapping only what is not written", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(part(x, 0, 16), part(x, 8, 16), dist.Sum)
		}, dist.KindAllReduce, 8, 8, 8},
		{"premulsum at a place", 1, func(g *dist.Group) (dist.Work, error) {
			return g.AllReduce(f32(4), f32(4), dist.PreMulSumAt(f32(1)))
		}, dist.KindAllReduce, 4, 4, 4},
		{"reduce on the root", 1, func(g *dist.Group) (dist.Work, error) { return g.Reduce(longer, f32(4), dist.Sum, 1) }, dist.KindReduce, 4, 4, 4},
		{"reduce elsewhere ignores a wrong destination", 0, func(g *dist.Group) (dist.Work, error) { return g.Reduce(i32(1), f32(4), dist.Sum, 1) }, dist.KindReduce, 4, 4, -1},
		{"reduce elsewhere needs no destination", 0, func(g *dist.Group) (dist.Work, error) { return g.Reduce(none, f32(4), dist.Sum, 1) }, dist.KindReduce, 4, 4, -1},
		{"broadcast on the root", 1, func(g *dist.Group) (dist.Work, error) { return g.Broadcast(f32(4), f32(4), 1) }, dist.KindBroadcast, 4, 4, 4},
		{"broadcast in place", 1, func(g *dist.Group) (dist.Work, error) { return g.Broadcast(x, x, 1) }, dist.KindBroadcast, 64, 64, 64},
		{"broadcast elsewhere ignores a wrong source", 0, func(g *dist.Group) (dist.Work, error) { return g.Broadcast(f32(4), onGPU(9), 1) }, dist.KindBroadcast, 4, -1, 4},
		{"broadcast elsewhere into the source", 0, func(g *dist.Group) (dist.Work, error) {
			return g.Broadcast(part(x, 0, 8), part(x, 1, 9), 1)
		}, dist.KindBroadcast, 8, -1, 8},
		{"allgather", 1, func(g *dist.Group) (dist.Work, error) { return g.AllGather(longer, f32(4)) }, dist.KindAllGather, 4, 4, 16},
		{"allgather in place", 1, func(g *dist.Group) (dist.Work, error) { return g.AllGather(x, part(x, 3, 6)) }, dist.KindAllGather, 3, 3, 12},
		{"fcollect", 1, func(g *dist.Group) (dist.Work, error) { return g.FCollect(longer, f32(5)) }, dist.KindAllGather, 5, 5, 20},
		{"reducescatter", 1, func(g *dist.Group) (dist.Work, error) { return g.ReduceScatter(longer, f32(16), dist.Sum) }, dist.KindReduceScatter, 4, 16, 4},
		{"reducescatter in place", 1, func(g *dist.Group) (dist.Work, error) {
			return g.ReduceScatter(part(x, 4, 9), part(x, 0, 16), dist.Sum)
		}, dist.KindReduceScatter, 4, 16, 4},
		{"alltoall", 1, func(g *dist.Group) (dist.Work, error) { return g.AllToAll(longer, f32(8)) }, dist.KindAllToAll, 2, 8, 8},
		{"gather on the root", 1, func(g *dist.Group) (dist.Work, error) { return g.Gather(longer, f32(4), 1) }, dist.KindGather, 4, 4, 16},
		{"gather in place", 1, func(g *dist.Group) (dist.Work, error) { return g.Gather(x, part(x, 2, 4), 1) }, dist.KindGather, 2, 2, 8},
		{"gather elsewhere", 2, func(g *dist.Group) (dist.Work, error) { return g.Gather(none, f32(4), 1) }, dist.KindGather, 4, 4, -1},
		{"scatter on the root", 1, func(g *dist.Group) (dist.Work, error) { return g.Scatter(f32(4), f32(16), 1) }, dist.KindScatter, 4, 16, 4},
		{"scatter in place", 1, func(g *dist.Group) (dist.Work, error) { return g.Scatter(part(x, 4, 8), part(x, 0, 16), 1) }, dist.KindScatter, 4, 16, 4},
		{"scatter elsewhere", 3, func(g *dist.Group) (dist.Work, error) { return g.Scatter(f32(4), none, 1) }, dist.KindScatter, 4, -1, 4},
		{"send", 1, func(g *dist.Group) (dist.Work, error) { return g.Send(f32(4), 3) }, dist.KindSend, 4, 4, -1},
		{"send of no elements", 1, func(g *dist.Group) (dist.Work, error) { return g.Send(f32(0), 3) }, dist.KindSend, 0, 0, -1},
		{"recv", 1, func(g *dist.Group) (dist.Work, error) { return g.Recv(f32(4), 0) }, dist.KindRecv, 4, -1, 4},
		{"barrier", 1, func(g *dist.Group) (dist.Work, error) { return g.Barrier() }, dist.KindBarrier, 0, -1, -1},
		{"sync", 1, func(g *dist.Group) (dist.Work, error) { return g.Sync() }, dist.KindSync, 0, -1, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, f := group(t, tt.rank, 4)
			w, err := tt.call(g)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Wait(); err != nil {
				t.Fatal(err)
			}
			op := f.ops()[0]
			if op.Kind != tt.kind || op.Count != tt.count || op.Seq != 1 {
				t.Errorf("%v #%d of %d elements, want %v #1 of %d", op.Kind, op.Seq, op.Count, tt.kind, tt.count)
			}
			for _, b := range []struct {
				what string
				buf  tensor.Buffer
				n    int
			}{{"source", op.Src, tt.src}, {"destination", op.Dst, tt.dst}} {
				if b.n < 0 != b.buf.IsZero() || b.n >= 0 && b.buf.Len() != b.n {
					t.Errorf("%s is %v, want %d elements", b.what, b.buf, b.n)
				}
			}
		})
	}
}

// The rule about aliasing, from its definition: disjoint, or exactly in place.
func TestAliasRuleMatchesItsDefinition(t *testing.T) {
	const max = 40
	x := f32(max)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 4).Draw(t, "size")
		rank := rapid.IntRange(0, size-1).Draw(t, "rank")
		count := rapid.IntRange(0, 5).Draw(t, "count")
		kind := rapid.SampledFrom([]dist.Kind{
			dist.KindAllReduce, dist.KindReduce, dist.KindBroadcast, dist.KindAllGather, dist.KindReduceScatter,
			dist.KindAllToAll, dist.KindGather, dist.KindScatter,
		}).Draw(t, "kind")
		srcLen, dstLen, shift := count, count, 0 // shift: where dst starts, seen from src, in place
		switch kind {
		case dist.KindAllGather, dist.KindGather:
			dstLen, shift = size*count, -rank*count
		case dist.KindReduceScatter, dist.KindScatter:
			srcLen, shift = size*count, rank*count
		case dist.KindAllToAll:
			srcLen, dstLen = size*count, size*count
		}
		srcAt := rapid.IntRange(0, max-srcLen).Draw(t, "src")
		dstAt := rapid.IntRange(0, max-dstLen).Draw(t, "dst")
		disjoint := srcLen == 0 || dstLen == 0 || srcAt+srcLen <= dstAt || dstAt+dstLen <= srcAt
		legal := disjoint || kind != dist.KindAllToAll && dstAt == srcAt+shift

		f := newFake(rank, size)
		g, err := dist.NewGroup(f, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		_, err = issue(g, kind, part(x, dstAt, dstAt+dstLen), part(x, srcAt, srcAt+srcLen), rank)
		if legal && err != nil || !legal && !errors.Is(err, dist.ErrAlias) {
			t.Fatalf("legal: %v, error %v", legal, err)
		}
	})
}

func issue(g *dist.Group, kind dist.Kind, dst, src tensor.Buffer, root int) (dist.Work, error) {
	switch kind {
	case dist.KindAllReduce:
		return g.AllReduce(dst, src, dist.Sum)
	case dist.KindReduce:
		return g.Reduce(dst, src, dist.Sum, root)
	case dist.KindBroadcast:
		return g.Broadcast(dst, src, root)
	case dist.KindAllGather:
		return g.AllGather(dst, src)
	case dist.KindReduceScatter:
		return g.ReduceScatter(dst, src, dist.Sum)
	case dist.KindAllToAll:
		return g.AllToAll(dst, src)
	case dist.KindGather:
		return g.Gather(dst, src, root)
	}
	return g.Scatter(dst, src, root)
}
