package dist_test

import (
	"math"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestKinds(t *testing.T) {
	for _, tt := range []struct {
		kind                     dist.Kind
		name                     string
		reduces, rooted, message bool
	}{
		{dist.KindInvalid, "invalid", false, false, false},
		{dist.KindAllReduce, "allreduce", true, false, false},
		{dist.KindReduce, "reduce", true, true, false},
		{dist.KindBroadcast, "broadcast", false, true, false},
		{dist.KindAllGather, "allgather", false, false, false},
		{dist.KindReduceScatter, "reducescatter", true, false, false},
		{dist.KindAllToAll, "alltoall", false, false, false},
		{dist.KindGather, "gather", false, true, false},
		{dist.KindScatter, "scatter", false, true, false},
		{dist.KindSend, "send", false, false, true},
		{dist.KindRecv, "recv", false, false, true},
		{dist.KindBarrier, "barrier", false, false, false},
		{dist.KindSync, "sync", false, false, false},
		{dist.KindBatch, "group call", false, false, false},
		{dist.KindSplit, "split", false, false, false},
		{dist.KindHeap, "heap", false, false, false},
		{dist.KindAlloc, "alloc", false, false, false},
		{dist.KindFree, "free", false, false, false},
		{dist.KindFree + 1, "kind(18)", false, false, false},
	} {
		k := tt.kind
		if k.String() != tt.name || k.Reduces() != tt.reduces || k.Rooted() != tt.rooted || k.PointToPoint() != tt.message {
			t.Errorf("%d is %q, reduces %v, rooted %v, point to point %v; want %+v", k, k, k.Reduces(), k.Rooted(), k.PointToPoint(), tt)
		}
	}
}

func TestReductionNames(t *testing.T) {
	for want, red := range map[string]dist.RedOp{
		"sum": dist.Sum, "prod": dist.Prod, "min": dist.Min, "max": dist.Max, "avg": dist.Avg,
		"premulsum": dist.PreMulSum(1.0), "and": dist.And, "or": dist.Or, "xor": dist.Xor, "red(9)": {Kind: dist.RedXor + 1},
	} {
		if got := red.String(); got != want {
			t.Errorf("%d is %q, want %q", red.Kind, got, want)
		}
	}
}

// scalarOf checks the scalar of a premulsum with factor v.
func scalarOf[T tensor.Element](t *testing.T, v T, dt tensor.DType, bits uint64) {
	t.Helper()
	red := dist.PreMulSum(v)
	if s := red.Scalar; red.Kind != dist.RedPreMulSum || s.DType != dt || s.Bits != bits || !s.At.IsZero() {
		t.Errorf("factor %v of %v: %v %+v, want bits %#x", v, dt, red, s, bits)
	}
	x := []T{v}
	red = dist.PreMulSumAt(tensor.Of(x))
	if s := red.Scalar; red.Kind != dist.RedPreMulSum || s.DType != dt || !tensor.Same(s.At, tensor.Of(x)) {
		t.Errorf("factor of %v in memory: %v %+v", dt, red, s)
	}
}

func TestPreMulSumTakesEveryType(t *testing.T) {
	scalarOf(t, tensor.ToFloat16(-2), tensor.F16, 0xc000)
	scalarOf(t, tensor.ToBFloat16(-2), tensor.BF16, 0xc000)
	scalarOf(t, float32(-2), tensor.F32, 0xc0000000)
	scalarOf(t, float64(-2), tensor.F64, math.Float64bits(-2))
	scalarOf(t, int8(-2), tensor.I8, 0xfe)
	scalarOf(t, int16(-2), tensor.I16, 0xfffe)
	scalarOf(t, int32(-2), tensor.I32, 0xfffffffe)
	scalarOf(t, int64(-2), tensor.I64, 0xfffffffffffffffe)
	scalarOf(t, uint8(200), tensor.U8, 200)
	scalarOf(t, uint16(60000), tensor.U16, 60000)
	scalarOf(t, uint32(1<<31), tensor.U32, 1<<31)
	scalarOf(t, uint64(1<<63), tensor.U64, 1<<63)
}

func TestOpTellsTypeAndBytesOfTheBuffersItHas(t *testing.T) {
	for _, tt := range []struct {
		op    dist.Op
		dt    tensor.DType
		bytes int64
	}{
		{dist.Op{Kind: dist.KindBarrier}, tensor.Invalid, 0},
		{dist.Op{Kind: dist.KindSend, Src: i32(3)}, tensor.I32, 12},
		{dist.Op{Kind: dist.KindRecv, Dst: f32(5)}, tensor.F32, 20},
		{dist.Op{Kind: dist.KindAllGather, Src: f32(2), Dst: f32(8)}, tensor.F32, 32},
		{dist.Op{Kind: dist.KindReduceScatter, Src: f32(8), Dst: f32(2)}, tensor.F32, 32},
	} {
		if dt, n := tt.op.DType(), tt.op.Bytes(); dt != tt.dt || n != tt.bytes {
			t.Errorf("%v: %v, %d B, want %v, %d B", tt.op.Kind, dt, n, tt.dt, tt.bytes)
		}
	}
}
