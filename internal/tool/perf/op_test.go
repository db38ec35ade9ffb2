package perf

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// The factors as doc/PERFORMANCE.md of nccl-tests gives them, and for 2, 4 and 8 ranks by hand.
func TestBusFactors(t *testing.T) {
	for _, c := range []struct {
		op            Op
		two, four, ei float64
	}{
		{AllReduce, 1, 1.5, 1.75},       // 2*(n-1)/n
		{ReduceScatter, 0.5, .75, .875}, // (n-1)/n
		{AllGather, 0.5, .75, .875},     // (n-1)/n
		{AllToAll, 0.5, .75, .875},      // (n-1)/n
		{Gather, 0.5, .75, .875},        // (n-1)/n
		{Scatter, 0.5, .75, .875},       // (n-1)/n
		{Broadcast, 1, 1, 1},
		{Reduce, 1, 1, 1},
		{SendRecv, 1, 1, 1},
	} {
		for n, want := range map[float64]float64{2: c.two, 4: c.four, 8: c.ei} {
			if got := c.op.trait().bus(n); got != want {
				t.Errorf("%v, %v ranks: busbw is %v of algbw, want %v", c.op, n, got, want)
			}
		}
	}
	if Barrier.Moves() || !AllReduce.Moves() {
		t.Error("a barrier moves nothing, an allreduce does")
	}
}

// A row of 4 ranks that move 64 MB in 10 ms.
func TestBandwidthOfARow(t *testing.T) {
	for _, c := range []struct {
		op       Op
		alg, bus float64
	}{{AllReduce, 6.4, 9.6}, {AllGather, 6.4, 4.8}, {Broadcast, 6.4, 6.4}, {Barrier, 0, 0}} {
		row := newRow(Case{Op: c.op, DType: tensor.F32, Bytes: 64e6})
		bus := 0.0
		if f := c.op.trait().bus; f != nil {
			bus = f(4)
		}
		row.setTimes(times{mean: 10e6, least: 9e6, median: 10.5e6, most: 12e6}, bus)
		if math.Abs(row.AlgBW-c.alg) > 1e-9 || math.Abs(row.BusBW-c.bus) > 1e-9 {
			t.Errorf("%v: %v and %v GB/s, want %v and %v", c.op, row.AlgBW, row.BusBW, c.alg, c.bus)
		}
		if row.TimeUS != 10000 || row.MinUS != 9000 || row.MedianUS != 10500 || row.MaxUS != 12000 {
			t.Errorf("%v: times %+v", c.op, row)
		}
	}
}

func TestParseLists(t *testing.T) {
	if ops, err := ParseOps("barrier,allreduce,barrier"); err != nil || !slices.Equal(ops, []Op{Barrier, AllReduce}) {
		t.Errorf("ops %v, %v", ops, err)
	}
	if ops, err := ParseOps("all"); err != nil || !slices.Equal(ops, Collectives()) {
		t.Errorf("all ops: %v, %v", ops, err)
	}
	if ops, err := ParseOps("barrier,onesided"); err != nil || len(ops) != 1+len(OneSided()) || ops[1] != Put {
		t.Errorf("operations of one side: %v, %v", ops, err)
	}
	if dts, err := ParseDTypes("float,bf16,f32"); err != nil || !slices.Equal(dts, []tensor.DType{tensor.F32, tensor.BF16}) {
		t.Errorf("dtypes %v, %v", dts, err)
	}
	if dts, err := ParseDTypes("all"); err != nil || !slices.Equal(dts, tensor.DTypes()) {
		t.Errorf("all dtypes: %v, %v", dts, err)
	}
	if reds, err := ParseRedOps("mulsum,max"); err != nil || !slices.Equal(reds, []dist.RedKind{dist.RedPreMulSum, dist.RedMax}) {
		t.Errorf("redops %v, %v", reds, err)
	}
	if reds, err := ParseRedOps("all"); err != nil || len(reds) != 6 || reds[0] != dist.RedSum {
		t.Errorf("all redops: %v, %v", reds, err)
	}
}

func TestParseListsNameWhatThereIs(t *testing.T) {
	_, ops := ParseOps("allreduce,allreduction")
	_, dts := ParseDTypes("f32,")
	_, reds := ParseRedOps("Sum")
	for want, err := range map[string]error{
		`"allreduction": use one of allreduce, reduce`: ops,
		`"": use one of f16, bf16, f32`:                dts,
		`"Sum": use one of sum, prod`:                  reds,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
	if s := Op(200).String(); s != "op(200)" {
		t.Errorf("an unknown operation is called %q", s)
	}
}
