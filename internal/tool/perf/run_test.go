package perf

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// keeper is a Reporter that keeps all reports.
type keeper struct {
	begun []Result
	rows  []Row
}

func (k *keeper) Begin(r Result) { k.begun = append(k.begun, r) }
func (k *keeper) Row(row Row)    { k.rows = append(k.rows, row) }

// breakage changes an operation of a rank before it is started.
type breakage func(rank int, op *dist.Op)

// broken is a transport that does operations wrongly.
type broken struct {
	dist.Transport
	rank int
	do   breakage
}

func (b broken) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	b.do(b.rank, &op)
	return b.Transport.Start(op, s)
}

// measureSim runs cfg on n simulated ranks that do breaks, if it is not nil; cfgOf, if not nil,
// gives ranks configurations of their own.
func measureSim(t *testing.T, n int, cfg Config, do breakage, cfgOf func(rank int) Config) ([]Result, *keeper, error) {
	t.Helper()
	wrap := func(rank int, end dist.Transport) dist.Transport {
		if do != nil {
			return broken{end, rank, do}
		}
		return end
	}
	if cfgOf == nil {
		cfgOf = func(int) Config { return cfg }
	}
	return measureOn(t, n, wrap, cfgOf)
}

// measureOn runs the configuration of each of n simulated ranks, on its transport wrapped by wrap.
func measureOn(t *testing.T, n int, wrap func(int, dist.Transport) dist.Transport, cfgOf func(int) Config) ([]Result, *keeper, error) {
	t.Helper()
	ends, err := sim.Transports(n, sim.Config{StepTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var kept keeper
	results, errs := make([]Result, n), make([]error, n)
	var ranks sync.WaitGroup
	for r, end := range ends {
		w, err := dist.NewWorld(wrap(r, end), dist.LocalInfo{Rank: r, Size: n}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		ranks.Go(func() {
			results[r], errs[r] = Run(w, cfgOf(r), &kept)
			if errs[r] != nil {
				_ = w.Abort(errs[r])
			}
			errs[r] = errors.Join(errs[r], w.Close())
		})
	}
	ranks.Wait()
	return results, &kept, errors.Join(errs...)
}

// Every operation, type and reduction passes its check on a backend that is right, on any number of
// ranks, in every mode.
func TestNothingIsWrongWhereNothingIs(t *testing.T) {
	everything := Config{
		Ops: Collectives(), DTypes: tensor.DTypes(), Both: true, MinBytes: 8, MaxBytes: 8 << 10, Factor: 1 << 10, Iters: 2, Checks: 2,
	}
	everything.RedOps = dist.RedKinds()
	oneSided := everything
	oneSided.Ops, oneSided.Fresh = OneSided(), true
	oneSidedSteady, alone := oneSided, oneSided
	oneSidedSteady.Fresh, oneSidedSteady.Style = false, BackToBack
	alone.Ops = []Op{Put, Get, PutBW, GetBW, Atomics}
	fresh, private, queued, steady := everything, everything, everything, everything
	fresh.Fresh, private.Private, queued.Queued, steady.Style = true, true, true, BackToBack
	for name, c := range map[string]struct {
		n   int
		cfg Config
	}{
		"1 rank": {1, everything}, "2 ranks": {2, everything}, "3 ranks": {3, everything},
		"fresh": {3, fresh}, "private": {2, private}, "queued": {2, queued}, "back to back": {4, steady},
		"one-sided": {3, oneSided}, "one-sided, 2 ranks": {2, oneSidedSteady}, "one-sided, 1 rank": {1, alone},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "3 ranks" {
				c.cfg.DTypes = []tensor.DType{tensor.BF16, tensor.F32, tensor.I8}
				c.cfg.RedOps = []dist.RedKind{dist.RedAvg, dist.RedPreMulSum}
			}
			c.cfg.Root = c.n - 1
			results, kept, err := measureSim(t, c.n, c.cfg, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := c.cfg.Cases(c.n)
			if len(kept.rows) != len(want) || len(kept.begun) != 1 || len(results[c.n-1].Rows) != len(want) {
				t.Fatalf("%d rows, begun %d times, for %d cases", len(kept.rows), len(kept.begun), len(want))
			}
			for _, row := range kept.rows {
				if row.Wrong == nil || *row.Wrong != 0 || row.TimeUS <= 0 || row.MinUS > row.MaxUS || row.Iters != 2 {
					t.Errorf("%+v", row)
				}
			}
		})
	}
}

// Wrong results of a backend are detected, on any rank.
func TestWrongResultsAreCounted(t *testing.T) {
	const n, count = 3, 512
	one := func(kind dist.Kind, rank int, do func(op *dist.Op)) breakage {
		return func(r int, op *dist.Op) {
			if op.Kind == kind && op.Count >= count/n && (rank < 0 || r == rank) {
				do(op)
			}
		}
	}
	lost := func(op *dist.Op) { // the result goes elsewhere
		raw := make([]float32, op.Dst.Len())
		op.Dst = tensor.Of(raw)
	}
	spoiled := func(op *dist.Op) { // the source is written to
		data, err := tensor.Data[float32](op.Src)
		if err == nil && len(data) > 0 {
			data[len(data)-1]++
		}
	}
	otherwise := func(op *dist.Op) { op.Red = dist.Max }
	for name, c := range map[string]struct {
		op   Op
		do   breakage
		want int64 // at least
	}{
		"allreduce by max":       {AllReduce, one(dist.KindAllReduce, -1, otherwise), count},
		"allreduce lost":         {AllReduce, one(dist.KindAllReduce, 2, lost), count},
		"allreduce spoils":       {AllReduce, one(dist.KindAllReduce, 1, spoiled), 1},
		"reduce lost":            {Reduce, one(dist.KindReduce, 0, lost), count},
		"broadcast lost":         {Broadcast, one(dist.KindBroadcast, 1, lost), count},
		"allgather lost":         {AllGather, one(dist.KindAllGather, 1, lost), count - n},
		"reducescatter by max":   {ReduceScatter, one(dist.KindReduceScatter, -1, otherwise), count / n / 4},
		"alltoall lost":          {AllToAll, one(dist.KindAllToAll, 2, lost), count - n},
		"gather lost":            {Gather, one(dist.KindGather, 0, lost), count - n},
		"scatter lost":           {Scatter, one(dist.KindScatter, 1, lost), count / n},
		"scatter spoils":         {Scatter, one(dist.KindScatter, 0, spoiled), 1},
		"sendrecv does not send": {SendRecv, dropMessages, count},
	} {
		for _, fresh := range []bool{false, true} {
			cfg := Config{Ops: []Op{c.op}, MinBytes: 4 * count, MaxBytes: 4 * count, Iters: 1, Warmup: -1, Private: true, Fresh: fresh}
			results, _, err := measureSim(t, n, cfg, c.do, nil)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := results[0].Wrong(); got < c.want {
				t.Errorf("%s: %d wrong, want %d at least", name, got, c.want)
			}
		}
	}
}

// dropMessages receives into unused memory.
func dropMessages(rank int, op *dist.Op) {
	if op.Kind != dist.KindBatch || rank != 1 {
		return
	}
	for i := range op.Ops {
		if op.Ops[i].Kind == dist.KindRecv {
			op.Ops[i].Dst = tensor.Of(make([]float32, op.Ops[i].Dst.Len()))
		}
	}
}

// A write after the destination is detected, though the destination is right.
func TestWritesBehindTheBuffersAreSeen(t *testing.T) {
	m, err := newMemory(hostGroup(t), nil, 4096, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLayout(Case{Op: AllReduce, DType: tensor.F32, Bytes: 1024, Count: 256, Root: -1}, m, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	l.prepare(3)
	copy(l.dst.Raw(), l.src.Raw()) // what one rank's allreduce is
	if n := l.read(3) + l.disturbed(3); n != 0 {
		t.Fatalf("%d wrong of a right result", n)
	}
	m.recv.raw[1024]++
	m.send.raw[1024+guardBytes-1]++
	if n := l.disturbed(3); n != 2 {
		t.Errorf("%d bytes behind the buffers have changed, want 2", n)
	}
	if n := l.read(2); n < 200 {
		t.Errorf("against another iteration's, %d of 256 are wrong", n)
	}
}

func hostGroup(t *testing.T) *dist.Group {
	t.Helper()
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := worlds[0].Close(); err != nil {
			t.Error(err)
		}
	})
	return worlds[0].Group
}

func TestRunWithoutChecksCountsNothing(t *testing.T) {
	cfg := Config{MinBytes: 64, MaxBytes: 64, Iters: 1, Checks: -1}
	results, _, err := measureSim(t, 2, cfg, func(_ int, op *dist.Op) { op.Red = dist.Min }, nil)
	if err != nil || results[0].Rows[0].Wrong != nil || results[0].Settings.Checks != 0 {
		t.Errorf("%+v, %v: want no count", results[0], err)
	}
}

func TestRunWantsOneConfiguration(t *testing.T) {
	_, kept, err := measureSim(t, 3, Config{}, nil, func(rank int) Config { return Config{MaxBytes: 64 << min(rank, 1)} })
	if !errors.Is(err, dist.ErrMismatch) || !strings.Contains(err.Error(), "rank 1 has other flags") {
		t.Errorf("error %v, want one that names rank 1", err)
	}
	if len(kept.begun)+len(kept.rows) != 0 {
		t.Error("it was measured nevertheless")
	}
}

func TestRunRefusesWhatValidateDoes(t *testing.T) {
	_, _, err := measureSim(t, 1, Config{Root: 1}, nil, nil)
	if !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("error %v", err)
	}
}

// Memory that no machine has is an error of every rank: Go ends a process that asks for it.
func TestPrivateBuffersThatDoNotFitAreAnError(t *testing.T) {
	const tib = 1 << 40
	have := Machine{MemoryBytes: 8 * tib}
	if err := errors.Join(privateFits(tib, 4, have), privateFits(tib, 4, Machine{})); err != nil {
		t.Errorf("all of the memory, and memory that is not known: %v", err)
	}
	want := "private buffers of 2199023255552 B for each of 5 ranks on this host: 10995116277760 B wanted, the machine has 8796093022208"
	if err := privateFits(tib, 5, have); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if m := thisMachine(); privateFits(tib, 2, m) == nil {
		t.Skipf("this machine has %d B, or does not tell", m.MemoryBytes)
	}
	cfg := Config{Private: true, MinBytes: tib, MaxBytes: tib}
	if _, _, err := measureSim(t, 2, cfg, nil, nil); err == nil || !strings.Contains(err.Error(), "private buffers of") {
		t.Errorf("error %v", err)
	}
}

// The error of an operation names the row that it belongs to.
func TestRunNamesTheRowThatFailed(t *testing.T) {
	cfg := Config{MinBytes: 64, MaxBytes: 64, Iters: 1, InPlace: true}
	_, _, err := measureSim(t, 2, cfg, func(rank int, op *dist.Op) {
		if op.Kind == dist.KindAllReduce && rank == 1 {
			op.Count, op.Dst, op.Src = 2, tensor.Of(make([]float32, 2)), tensor.Of(make([]float32, 2))
		}
	}, nil)
	if !errors.As(err, new(*dist.OpError)) || !strings.Contains(err.Error(), "bench: allreduce f32 sum, in place, 64 B") {
		t.Errorf("error %v, want the row's name", err)
	}
}

func TestDescribeKnowsTheRanks(t *testing.T) {
	results, kept, err := measureSim(t, 3, Config{MinBytes: 8, MaxBytes: 8, Iters: 1, Pin: true}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	begun := kept.begun[0]
	if len(begun.Ranks) != 3 || begun.Ranks[2].Rank != 2 || begun.Ranks[1].PID != begun.Ranks[0].PID || begun.Ranks[0].PID == 0 {
		t.Errorf("ranks %+v", begun.Ranks)
	}
	if begun.Settings.Backend != "sim" || begun.Settings.Ranks != 3 || begun.Settings.Style != OSU || begun.Clock.ReadNS <= 0 {
		t.Errorf("settings %+v, clock %+v", begun.Settings, begun.Clock)
	}
	if len(results[0].Rows) != 1 || begun.Rows != nil {
		t.Errorf("rows %v at the beginning, %v at the end", begun.Rows, results[0].Rows)
	}
}
