package dist_test

import (
	"errors"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestSignatureHasWhatRanksMustShare(t *testing.T) {
	x := f32(12)
	for _, tt := range []struct {
		op   dist.Op
		want dist.Signature
		text string
	}{
		{
			dist.Op{Kind: dist.KindAllReduce, Count: 12, Src: x, Dst: x, Red: dist.Max, Root: 3, Peer: 2, Name: "w", Seq: 9},
			dist.Signature{Kind: dist.KindAllReduce, DType: tensor.F32, Count: 12, Red: dist.RedMax, Root: -1},
			"f32[12] max, 48 B",
		},
		{
			dist.Op{Kind: dist.KindReduce, Count: 12, Src: x, Red: dist.PreMulSum(float32(2)), Root: 3},
			dist.Signature{Kind: dist.KindReduce, DType: tensor.F32, Count: 12, Red: dist.RedPreMulSum, Root: 3},
			"f32[12] premulsum root 3, 48 B",
		},
		{
			dist.Op{Kind: dist.KindScatter, Count: 3, Src: x, Red: dist.Max},
			dist.Signature{Kind: dist.KindScatter, DType: tensor.F32, Count: 3},
			"f32[3] root 0, 12 B",
		},
		{
			dist.Op{Kind: dist.KindRecv, Count: 2, Dst: i32(2), Peer: 1},
			dist.Signature{Kind: dist.KindRecv, DType: tensor.I32, Count: 2, Root: -1},
			"i32[2], 8 B",
		},
		{dist.Op{Kind: dist.KindSync}, dist.Signature{Kind: dist.KindSync, Root: -1}, "no data"},
		{dist.Op{Kind: dist.KindBatch, Ops: make([]dist.Op, 2)}, dist.Signature{Kind: dist.KindBatch, Count: 2, Root: -1}, "2 operations"},
	} {
		if got := tt.op.Signature(); got != tt.want || got.String() != tt.text {
			t.Errorf("%v: %+v %q, want %+v %q", tt.op.Kind, got, got, tt.want, tt.text)
		}
	}
}

func TestSignaturesOfCallsThatAreNoOperations(t *testing.T) {
	for text, sig := range map[string]dist.Signature{
		"64 B": {Kind: dist.KindHeap, Count: 64}, "65 B": {Kind: dist.KindAlloc, Count: 65},
		"offset 512": {Kind: dist.KindFree, Count: 512}, "no data": {Kind: dist.KindSplit},
	} {
		if got := sig.String(); got != text {
			t.Errorf("%v: %q, want %q", sig.Kind, got, text)
		}
	}
}

func TestCompareNamesTheFirstDifference(t *testing.T) {
	a := dist.Signature{Kind: dist.KindReduce, DType: tensor.F32, Count: 4, Red: dist.RedSum, Root: 1}
	with := func(change func(s *dist.Signature)) dist.Signature {
		s := a
		change(&s)
		return s
	}
	root := with(func(s *dist.Signature) { s.Root = 2 })
	red := with(func(s *dist.Signature) { s.Red, s.Root = dist.RedMax, 2 })
	count := with(func(s *dist.Signature) { s.Count, s.Red = 5, dist.RedMax })
	dtype := with(func(s *dist.Signature) { s.DType, s.Count = tensor.BF16, 5 })
	kind := with(func(s *dist.Signature) { s.Kind, s.DType = dist.KindBroadcast, tensor.BF16 })
	for _, tt := range []struct {
		name string
		sigs []dist.Signature
		want string
	}{
		{"nobody", nil, ""},
		{"one rank", []dist.Signature{a}, ""},
		{"all alike", []dist.Signature{a, a, a}, ""},
		{"root", []dist.Signature{a, a, root}, "ranks disagree on the root: rank 0 has reduce (f32[4] sum root 1, 16 B), rank 2 has reduce (f32[4] sum root 2, 16 B)"},
		{"reduction before root", []dist.Signature{a, red}, "ranks disagree on the reduction: rank 0 has reduce (f32[4] sum root 1, 16 B), rank 1 has reduce (f32[4] max root 2, 16 B)"},
		{"count before reduction", []dist.Signature{a, count}, "ranks disagree on the count: rank 0 has reduce (f32[4] sum root 1, 16 B), rank 1 has reduce (f32[5] max root 1, 20 B)"},
		{"dtype before count", []dist.Signature{a, dtype}, "ranks disagree on the dtype: rank 0 has reduce (f32[4] sum root 1, 16 B), rank 1 has reduce (bf16[5] sum root 1, 10 B)"},
		{"operation before all", []dist.Signature{a, kind}, "ranks disagree on the operation: rank 0 has reduce (f32[4] sum root 1, 16 B), rank 1 has broadcast (bf16[4] root 1, 8 B)"},
		{"first rank that differs", []dist.Signature{a, root, kind}, "ranks disagree on the root: rank 0 has reduce (f32[4] sum root 1, 16 B), rank 1 has reduce (f32[4] sum root 2, 16 B)"},
		{"rank 0 is the odd one", []dist.Signature{kind, a, a}, "ranks disagree on the operation: rank 0 has broadcast (bf16[4] root 1, 8 B), rank 1 has reduce (f32[4] sum root 1, 16 B)"},
	} {
		err := dist.Compare(tt.sigs)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (!errors.Is(err, dist.ErrMismatch) || err.Error() != tt.want):
			t.Errorf("%s:\ngot  %v\nwant %s", tt.name, err, tt.want)
		}
	}
}
