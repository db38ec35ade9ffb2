package gpu

import (
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// column is an engine with a name and the operations it can do, enough for a choice.
type column struct {
	name string
	can  func(op *dist.Op) bool
}

func (c *column) Name() string { return c.name }

func (c *column) Can(op *dist.Op) error {
	if c.can == nil || c.can(op) {
		return nil
	}
	return fmt.Errorf("%w: %v of %v", dist.ErrUnsupported, op.Kind, op.DType())
}

func (c *column) Enqueue(*dist.Op, *cuda.Stream) error { return dist.ErrUnsupported }
func (c *column) Failed() error                        { return nil }
func (c *column) Abort()                               {}
func (c *column) Split(*Member) (Engine, error)        { return nil, dist.ErrUnsupported }
func (c *column) Close() error                         { return nil }

// batching is a column that takes several messages at once.
type batching struct{ column }

func (b *batching) BeginBatch(*cuda.Stream) error { return nil }
func (b *batching) EndBatch(*cuda.Stream) error   { return nil }

func notMessages(op *dist.Op) bool { return !op.Kind.PointToPoint() }

// columns returns engines that can do roughly the same as those of the libraries.
func columns() []Engine {
	noShort := func(op *dist.Op) bool {
		return op.DType() != tensor.I16 && op.Kind != dist.KindBarrier && op.Kind != dist.KindSync
	}
	return []Engine{
		&batching{column{"nccl", noShort}},
		&column{"nccl-window", func(op *dist.Op) bool { return op.Symmetric && noShort(op) && notMessages(op) }},
		&column{"nvshmem", func(op *dist.Op) bool {
			return notMessages(op) && (!op.Kind.Reduces() || op.Red.Kind != dist.RedAvg && op.Red.Kind != dist.RedPreMulSum)
		}},
		&column{"ll", sumsOfFloats}, &column{"ll128", sumsOfFloats}, &column{"ll128-twoshot", sumsOfFloats},
		&column{"oneshot", sumsOfFloats},
		&column{"twoshot", func(op *dist.Op) bool { return op.Kind == dist.KindAllReduce && op.DType() == tensor.F32 }},
	}
}

func sumsOfFloats(op *dist.Op) bool { return op.Kind == dist.KindAllReduce && op.DType() == tensor.F32 }

// pickers runs body as every rank of n, with a choice among columns.
func pickers(t *testing.T, n int, c DispatchConfig, body func(k *dispatcher) error) {
	t.Helper()
	onEach(t, n, sim.Config{}, func(control *dist.Group) error {
		k, err := newDispatcher(c, memberOf(control), columns(), true, tensor.Of(make([]uint32, 1)))
		if err != nil {
			return err
		}
		return body(k)
	})
}

func allReduceOp(bytes int) dist.Op {
	b := f32s(bytes / 4)
	return dist.Op{Kind: dist.KindAllReduce, Red: dist.Sum, Count: b.Len(), Src: b, Dst: b}
}

// picks is an error unless op goes to engine, put so.
func (k *dispatcher) picks(op dist.Op, engine string, h how) error {
	for range 2 { // the second time from the cache
		w, err := k.pick(&op)
		if err != nil {
			return fmt.Errorf("%v of %d B: %w", op.Kind, op.Bytes(), err)
		}
		if got := k.engines[w.engine].Name(); got != engine || w.how != h {
			return fmt.Errorf("%v %v of %d B goes to %s, how %d; want %s, %d", op.Kind, op.Red, op.Bytes(), got, w.how, engine, h)
		}
	}
	return nil
}

func TestRulesFollowTheMeasurements(t *testing.T) {
	for ranks, steps := range map[int][]struct {
		bytes  int
		engine string
	}{
		2: {{1 << 10, "ll"}, {16<<10 + 4, "ll128-twoshot"}, {16 << 20, "ll128-twoshot"}, {16<<20 + 4, "twoshot"}, {64<<20 + 4, "nccl"}},
		4: {{4, "ll"}, {128 << 10, "ll128"}, {128<<10 + 4, "ll128-twoshot"}, {64 << 20, "twoshot"}, {128 << 20, "nccl"}},
	} {
		pickers(t, ranks, DispatchConfig{}, func(k *dispatcher) error {
			for _, s := range steps {
				if err := k.picks(allReduceOp(s.bytes), s.engine, plain); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Operations with a root are limited by the links of the root: kernels of package direct send once
// for each other rank.
func TestRulesOfWhatHasARootGoToLibrariesSooner(t *testing.T) {
	all := columns()
	for i, e := range all {
		all[i] = &column{name: e.Name()}
	}
	onEach(t, 3, sim.Config{}, func(control *dist.Group) error {
		k, err := newDispatcher(DispatchConfig{}, memberOf(control), all, true, tensor.Of(make([]uint32, 1)))
		if err != nil {
			return err
		}
		for _, kind := range []dist.Kind{dist.KindBroadcast, dist.KindReduce} {
			for bytes, engine := range map[int]string{4: "ll", 64 << 10: "ll128", 1 << 20: "ll128", 1<<20 + 4: "nccl", 64 << 20: "nccl"} {
				op := allReduceOp(bytes)
				op.Kind = kind
				if err := k.picks(op, engine, plain); err != nil {
					return err
				}
			}
		}
		return k.picks(allReduceOp(64<<20), "twoshot", plain)
	})
}

// besides is an Aside column for large operations.
type besides struct{ column }

func (b *besides) Aside(op *dist.Op) bool { return op.Bytes() >= 1<<20 }

// Operations during other work use the Aside engine, despite the table, unless another engine is
// forced.
func TestWhatRunsBesideOtherWorkGoesToCopyEngines(t *testing.T) {
	engines := append(columns(), &besides{column{"copy", notMessages}})
	for _, c := range []struct {
		chooser DispatchConfig
		beside  bool
		bytes   int
		want    string
	}{
		{DispatchConfig{}, true, 1 << 20, "copy"},
		{DispatchConfig{}, true, 1<<20 - 4, "ll128-twoshot"},
		{DispatchConfig{}, false, 1 << 20, "ll128-twoshot"},
		{DispatchConfig{Engine: "nccl"}, true, 1 << 20, "nccl"},
		{DispatchConfig{First: true}, true, 1 << 20, "nccl"},
	} {
		onEach(t, 2, sim.Config{}, func(control *dist.Group) error {
			k, err := newDispatcher(c.chooser, memberOf(control), engines, true, tensor.Of(make([]uint32, 1)))
			if err != nil {
				return err
			}
			op := allReduceOp(c.bytes)
			op.Overlap = !c.beside // a choice that was made before for the other
			if _, err := k.pick(&op); err != nil {
				return err
			}
			op.Overlap = c.beside
			return k.picks(op, c.want, plain)
		})
	}
}

// Libraries have slow ways for one rank, so they come last there, whatever the size.
func TestOneRankNeedsNoLibrary(t *testing.T) {
	for _, c := range []struct {
		engines []Engine
		want    string
	}{
		{append(columns(), &column{name: "local"}), "ll"},
		{[]Engine{&column{name: "nccl"}, &column{name: "nccl-window"}, &column{name: "local"}}, "local"},
		{columns()[:1], "nccl"},
	} {
		onEach(t, 1, sim.Config{}, func(control *dist.Group) error {
			k, err := newDispatcher(DispatchConfig{}, memberOf(control), c.engines, true, tensor.Of(make([]uint32, 1)))
			if err != nil {
				return err
			}
			for bytes := 4; bytes <= 128<<20; bytes *= 2 {
				if err := k.picks(allReduceOp(bytes), c.want, plain); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func TestChoiceGoesToTheNextThatCan(t *testing.T) {
	half := tensor.Of(make([]tensor.Float16, 2))
	short := tensor.Of(make([]int16, 2))
	gather := dist.Op{Kind: dist.KindAllGather, Count: 2, Src: f32s(2), Dst: f32s(4)}
	symmetricGather := gather
	symmetricGather.Symmetric = true
	pickers(t, 2, DispatchConfig{}, func(k *dispatcher) error {
		for _, c := range []struct {
			op     dist.Op
			engine string
			how    how
		}{
			{gather, "nccl", plain},
			{symmetricGather, "nccl-window", plain},
			{dist.Op{Kind: dist.KindBarrier}, "nvshmem", plain},
			{dist.Op{Kind: dist.KindAllGather, Count: 1, Src: short, Dst: short}, "nvshmem", plain},
			{dist.Op{Kind: dist.KindSend, Count: 2, Src: short}, "nccl", asBytes},
			{dist.Op{Kind: dist.KindSend, Count: 2, Src: f32s(2)}, "nccl", plain},
			{dist.Op{Kind: dist.KindAllReduce, Red: dist.Avg, Count: 2, Src: half, Dst: half}, "nccl", plain},
			{dist.Op{Kind: dist.KindAllReduce, Red: dist.Sum, Count: 2, Src: short, Dst: short}, "nvshmem", plain},
		} {
			if err := k.picks(c.op, c.engine, c.how); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestForcedEngineIsComposedOrRefused(t *testing.T) {
	half := tensor.Of(make([]tensor.Float16, 2))
	pickers(t, 2, DispatchConfig{Engine: "nvshmem"}, func(k *dispatcher) error {
		avg, pre := allReduceOp(8), allReduceOp(8)
		avg.Red, pre.Red = dist.Avg, dist.PreMulSum(float32(2))
		for _, c := range []struct {
			op  dist.Op
			how how
		}{{allReduceOp(1 << 20), plain}, {avg, scaled}, {pre, premul}} {
			if err := k.picks(c.op, "nvshmem", c.how); err != nil {
				return err
			}
		}
		reduce := pre
		reduce.Kind = dist.KindReduce
		for _, op := range []dist.Op{
			reduce,
			{Kind: dist.KindAllReduce, Red: dist.Avg, Count: 2, Src: half, Dst: half},
			{Kind: dist.KindSend, Count: 2, Src: half},
		} {
			if _, err := k.pick(&op); want(err, dist.ErrUnsupported, "nvshmem") != nil {
				return fmt.Errorf("%v of %v: error %v", op.Kind, op.DType(), err)
			}
		}
		return nil
	})
	pickers(t, 2, DispatchConfig{Engine: "nccl"}, func(k *dispatcher) error {
		return k.picks(dist.Op{Kind: dist.KindBarrier}, "nccl", asSum)
	})
}

func TestComposedOperationsAreWhatEnginesGet(t *testing.T) {
	pickers(t, 1, DispatchConfig{First: true}, func(k *dispatcher) error {
		var to dist.Op
		short := dist.Op{Kind: dist.KindAllGather, Count: 2, Src: tensor.Of(make([]int16, 2)), Dst: tensor.Of(make([]int16, 4))}
		if !k.compose(&to, &short, asBytes) || to.Count != 4 || to.Src.Len() != 4 || to.Dst.Len() != 8 || to.DType() != tensor.U8 {
			return fmt.Errorf("allgather of i16 as bytes: %+v", to)
		}
		bytes := dist.Op{Kind: dist.KindAllGather, Count: 2, Src: tensor.Of(make([]byte, 2)), Dst: tensor.Of(make([]byte, 4))}
		if k.compose(&to, &bytes, asBytes) {
			return fmt.Errorf("bytes are put as bytes: %+v", to)
		}
		barrier := dist.Op{Kind: dist.KindBarrier, Seq: 9, Symmetric: true}
		if !k.compose(&to, &barrier, asSum) || to.Kind != dist.KindAllReduce || to.Count != 1 || to.Src != k.word || to.Symmetric || to.Seq != 9 {
			return fmt.Errorf("barrier as a sum: %+v", to)
		}
		pre := dist.Op{Kind: dist.KindAllReduce, Red: dist.PreMulSum(float32(3)), Count: 2, Src: f32s(2), Dst: f32s(2)}
		if !k.compose(&to, &pre, premul) || to.Src != pre.Dst || to.Red != dist.Sum {
			return fmt.Errorf("premulsum as a sum: %+v", to)
		}
		return nil
	})
}

func TestRowsComeBeforeRules(t *testing.T) {
	table := &Table{
		Version: tableVersion,
		Rows: []Row{
			sumRow(1<<10, Timing{"nccl", 5}, Timing{"nvshmem", 4}),
			sumRow(1<<20, Timing{"nccl", 5}, Timing{"nvshmem", 6}),
			{Kind: "allreduce", DType: "f32", Reduction: "sum", Ranks: 3, Bytes: 1 << 20, Timings: []Timing{{"oneshot", 1}}},
		},
		Rules: []Rule{{Engines: []string{"twoshot"}}},
	}
	pickers(t, 2, DispatchConfig{Table: table}, func(k *dispatcher) error {
		for bytes, engine := range map[int]string{
			4: "nvshmem", 1 << 10: "nvshmem", 1<<10 + 4: "nccl", 1 << 20: "nccl", 1 << 22: "nccl",
		} {
			if err := k.picks(allReduceOp(bytes), engine, plain); err != nil {
				return err
			}
		}
		for _, red := range []dist.RedOp{dist.Max, dist.Avg} { // as sums
			other := allReduceOp(1 << 20)
			other.Red = red
			if err := k.picks(other, "nccl", plain); err != nil {
				return err
			}
		}
		symmetric := allReduceOp(64)
		symmetric.Symmetric = true
		return k.picks(symmetric, "twoshot", plain)
	})
	// Types that were not measured go by one of their size, if that was.
	table.Rows = append(table.Rows,
		Row{Kind: "allreduce", DType: "bf16", Reduction: "sum", Ranks: 2, Bytes: 8, Timings: []Timing{{"nccl-window", 1}, {"nvshmem", 2}}},
		Row{Kind: "reduce", DType: "bf16", Reduction: "sum", Ranks: 2, Bytes: 8, Timings: []Timing{{"nvshmem", 2}}})
	pickers(t, 2, DispatchConfig{Table: table}, func(k *dispatcher) error {
		reduction := func(kind dist.Kind, red dist.RedOp, b tensor.Buffer) dist.Op {
			return dist.Op{Kind: kind, Red: red, Count: b.Len(), Src: b, Dst: b}
		}
		for _, c := range []struct {
			op     dist.Op
			engine string
		}{
			{reduction(dist.KindAllReduce, dist.Sum, tensor.Of(make([]tensor.Float16, 4))), "nvshmem"}, // nccl-window wants symmetric buffers
			{reduction(dist.KindAllReduce, dist.Max, tensor.Of(make([]int16, 4))), "nvshmem"},
			{reduction(dist.KindAllReduce, dist.Max, tensor.Of(make([]float64, 128))), "nvshmem"}, // 1 KiB of f32
			{reduction(dist.KindAllReduce, dist.Sum, tensor.Of(make([]int32, 1<<18))), "nccl"},    // 1 MiB of f32
			{reduction(dist.KindAllReduce, dist.Sum, tensor.Of(make([]uint8, 1<<20))), "nccl"},    // the same
			{reduction(dist.KindReduce, dist.Sum, tensor.Of(make([]tensor.Float16, 4))), "nvshmem"},
			{reduction(dist.KindReduce, dist.Sum, tensor.Of(make([]int32, 2))), "nccl"}, // no rows: by the rule, whose engine cannot
		} {
			if err := k.picks(c.op, c.engine, plain); err != nil {
				return fmt.Errorf("of %v: %w", c.op.DType(), err)
			}
		}
		return nil
	})
	table.Machine = "another GPU"
	pickers(t, 2, DispatchConfig{Table: table}, func(k *dispatcher) error { return k.picks(allReduceOp(4), "twoshot", plain) })
}

func TestFirstIgnoresTheTable(t *testing.T) {
	pickers(t, 2, DispatchConfig{First: true}, func(k *dispatcher) error { return k.picks(allReduceOp(64), "nccl", plain) })
}

func TestATableIsOfOneKindOfGPU(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"NVIDIA H100", "NVIDIA H100", "NVIDIA H100"}, "NVIDIA H100"},
		{[]string{"NVIDIA H100", "NVIDIA H100", "NVIDIA H200"}, ""},
		{[]string{"NVIDIA H200"}, "NVIDIA H200"},
	} {
		onEach(t, len(c.names), sim.Config{}, func(control *dist.Group) error {
			if got, err := memberOf(control).common(c.names[control.Rank()]); err != nil || got != c.want {
				return fmt.Errorf("GPUs %q have %q in common, error %v", c.names, got, err)
			}
			return nil
		})
	}
}

func TestRanksAgreeOnTheChoice(t *testing.T) {
	onEach(t, 3, sim.Config{}, func(control *dist.Group) error {
		var c DispatchConfig
		if control.Rank() == 2 {
			c.First = true
		}
		_, err := newDispatcher(c, memberOf(control), columns(), true, tensor.Buffer{})
		return want(err, dist.ErrMismatch, "rank 2")
	})
	onEach(t, 2, sim.Config{}, func(control *dist.Group) error {
		var c DispatchConfig
		if control.Rank() == 1 {
			c.Engine = "mpi"
		}
		_, err := newDispatcher(c, memberOf(control), columns(), true, tensor.Buffer{})
		return want(err, dist.ErrInvalid, `"mpi"`, `"nccl-window"`)
	})
}

func TestDispatchConfigIsValidated(t *testing.T) {
	for _, c := range []DispatchConfig{{Engine: "nccl", First: true}, {Table: &Table{Version: 7}}} {
		if err := want(c.validate(), dist.ErrInvalid); err != nil {
			t.Error(err)
		}
	}
}

func TestPickAllocatesNothingTheSecondTime(t *testing.T) {
	pickers(t, 1, DispatchConfig{}, func(k *dispatcher) error {
		op := allReduceOp(64)
		if n := testing.AllocsPerRun(100, func() { _, _ = k.pick(&op) }); n != 0 {
			return fmt.Errorf("%v allocations", n)
		}
		return nil
	})
}
