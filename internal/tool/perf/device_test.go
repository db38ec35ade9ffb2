package perf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// apart is a Device for ranks of this process whose buffers are accessed by copies only, like those
// of a device. Captured work runs when it is launched.
type apart struct {
	mu       sync.Mutex
	blocks   map[uintptr]bool
	timers   int
	graphs   int
	launches int
	spoil    func(raw []byte)
}

func newApart() *apart { return &apart{blocks: map[uintptr]bool{}} }

func (d *apart) Alloc(dev tensor.Device, bytes int64) (tensor.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	raw := aligned(bytes)
	b, err := tensor.FromPointer(tensor.Of(raw).Pointer(), len(raw), tensor.U8, dev)
	d.blocks[uintptr(b.Pointer())] = true
	return b, err
}

func (d *apart) Free(b tensor.Buffer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.blocks[uintptr(b.Pointer())] {
		return errors.New("free of what was not allocated")
	}
	delete(d.blocks, uintptr(b.Pointer()))
	return nil
}

func (d *apart) Write(b tensor.Buffer, src []byte) error {
	if len(src) > len(b.Raw()) {
		return fmt.Errorf("write of %d B to %v", len(src), b)
	}
	copy(b.Raw(), src)
	return nil
}

func (d *apart) Read(dst []byte, b tensor.Buffer) error {
	if len(dst) > len(b.Raw()) {
		return fmt.Errorf("read of %d B from %v", len(dst), b)
	}
	copy(dst, b.Raw())
	if d.spoil != nil {
		d.spoil(dst)
	}
	return nil
}

func (d *apart) LaunchTime(dist.Stream) (time.Duration, error) { return 2100 * time.Nanosecond, nil }

func (d *apart) Name(dev tensor.Device) (string, error) { return "memory apart, " + dev.String(), nil }

func (d *apart) count(n *int, by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*n += by
}

func (d *apart) NewTimer(s dist.Stream) (Timer, error) {
	d.count(&d.timers, 1)
	return &apartTimer{d: d, s: s}, nil
}

type apartTimer struct {
	d           *apart
	s           dist.Stream
	begin, took time.Time
}

func (t *apartTimer) Start() error { t.begin = time.Now(); return nil }
func (t *apartTimer) Stop() error  { t.took = time.Now(); return nil }
func (t *apartTimer) Elapsed() (time.Duration, error) {
	return max(t.took.Sub(t.begin), time.Nanosecond), nil
}
func (t *apartTimer) Close() error { t.d.count(&t.d.timers, -1); return nil }

func (d *apart) Capture(_ dist.Stream, issue func() error) (Graph, error) {
	d.count(&d.graphs, 1)
	return &apartGraph{d, issue}, nil
}

type apartGraph struct {
	d     *apart
	issue func() error
}

func (g *apartGraph) Launch() error {
	g.d.count(&g.d.launches, 1)
	return g.issue()
}
func (g *apartGraph) Close() error { g.d.count(&g.d.graphs, -1); return nil }

// measureApart runs cfg on n simulated ranks as on makes it for each.
func measureApart(t *testing.T, n int, cfg Config, on func(w *dist.World) Setup, do breakage) ([]Result, *keeper, error) {
	t.Helper()
	ends, err := sim.Transports(n, sim.Config{StepTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var kept keeper
	results, errs := make([]Result, n), make([]error, n)
	var ranks sync.WaitGroup
	for r, end := range ends {
		if do != nil {
			end = broken{end, r, do}
		}
		w, err := dist.NewWorld(end, dist.LocalInfo{Rank: r, Size: n}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		ranks.Go(func() {
			results[r], errs[r] = RunOn(w, on(w), cfg, &kept)
			if errs[r] != nil {
				_ = w.Abort(errs[r])
			}
			errs[r] = errors.Join(errs[r], w.Close())
		})
	}
	ranks.Wait()
	return results, &kept, errors.Join(errs...)
}

func TestDeviceRowsAreRight(t *testing.T) {
	everything := Config{
		Ops: Collectives(), DTypes: []tensor.DType{tensor.BF16, tensor.F32, tensor.I8}, Both: true, Symmetric: true,
		RedOps: []dist.RedKind{dist.RedSum, dist.RedAvg, dist.RedPreMulSum}, MinBytes: 8, MaxBytes: 8 << 10, Factor: 1 << 10, Iters: 3,
	}
	private, graph, waited, oneSided, rounds := everything, everything, everything, everything, everything
	private.Private, graph.Graph, waited.Style, rounds.Rounds = true, 4, OSU, 3
	oneSided.Ops, oneSided.Both = OneSided(), false
	for name, cfg := range map[string]Config{
		"heap": everything, "private": private, "graph": graph, "waited for": waited, "one-sided": oneSided, "rounds": rounds,
	} {
		t.Run(name, func(t *testing.T) {
			dev := newApart()
			results, kept, err := measureApart(t, 3, cfg, func(*dist.World) Setup { return Setup{Device: dev} }, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(kept.rows) != len(cfg.Cases(3)) {
				t.Errorf("%d rows of %d cases", len(kept.rows), len(cfg.Cases(3)))
			}
			want, queued := 3*max(cfg.Graph, 1), cfg.Graph == 0 && cfg.Style != OSU && name != "one-sided"
			for _, row := range kept.rows {
				if row.Wrong == nil || *row.Wrong != 0 || row.TimeUS <= 0 || row.Iters != want || row.MinUS > row.MaxUS || (row.HostUS > 0) != queued {
					t.Errorf("%+v", row)
				}
			}
			if len(dev.blocks) != 0 || dev.timers != 0 || dev.graphs != 0 || (dev.launches > 0) != (cfg.Graph > 0) {
				t.Errorf("left: %d blocks, %d timers, %d graphs; %d launches", len(dev.blocks), dev.timers, dev.graphs, dev.launches)
			}
			s := results[0].Settings
			if slices.ContainsFunc(results[0].Ranks, func(k Rank) bool { return k.LaunchUS != 2.1 }) {
				t.Errorf("ranks %+v: want the device's time of a launch", results[0].Ranks)
			}
			if s.Timing != "events" || s.Graph != cfg.Graph || s.Symmetric == cfg.Private || results[0].Ranks[2].Device != "memory apart, host" {
				t.Errorf("settings %+v, ranks %+v", s, results[0].Ranks)
			}
		})
	}
}

// The slowest rank counts, of every round.
func TestDeviceTimesAreOfTheSlowestRank(t *testing.T) {
	got := slowest([]times{{mean: 3, host: 2}, {mean: 7, least: 1}, {mean: 5, host: 1}})
	if got != (times{7, 7, 7, 7, 2}) {
		t.Errorf("%+v", got)
	}
	all := overRounds([]outcome{{times: times{9, 8, 9, 10, 3}}, {times: times{1, 1, 1, 1, 1}}, {times: times{2, 2, 2, 30, 2}}})
	if all != (times{mean: 4, least: 1, median: 2, most: 30, host: 1}) {
		t.Errorf("%+v", all)
	}
}

func TestTheHostsTimeIsThatOfTheFirst(t *testing.T) {
	for _, n := range []int{1, mostWaiting, mostWaiting + 50} {
		calls := 0
		host, err := issueAll(func() error { calls++; return nil }, n)
		if err != nil || calls != n || !(host > 0) {
			t.Errorf("%d operations: %d calls, %v ns each, %v", n, calls, host, err)
		}
	}
	if _, err := issueAll(func() error { return dist.ErrAborted }, 3); !errors.Is(err, dist.ErrAborted) {
		t.Errorf("an error becomes %v", err)
	}
}

func TestIterationsOnADevice(t *testing.T) {
	plain, graph := Config{device: true}.withDefaults(), Config{device: true, Graph: 10}.withDefaults()
	for bytes, want := range map[int64][2]int{1 << 10: {624, 62}, 1 << 20: {410, 41}, 64 << 20: {18, 5}, 1 << 30: {10, 5}} {
		c := Case{Op: AllReduce, Bytes: bytes}
		if a, b := plain.iters(c), graph.iters(c); a != want[0] || b != want[1] {
			t.Errorf("%d B: %d and %d iterations, want %v", bytes, a, b, want)
		}
	}
	if n := (Config{device: true, Iters: 7}.withDefaults()).iters(Case{Op: AllReduce, Bytes: 8}); n != 7 {
		t.Errorf("%d iterations, want 7", n)
	}
}

// Wrong results of a device are detected, before the timing and after.
func TestWrongResultsOfADeviceAreCounted(t *testing.T) {
	cfg := Config{MinBytes: 2048, MaxBytes: 2048, InPlace: true, Iters: 2, Warmup: -1}
	for name, from := range map[string]int{"at once": 0, "after many operations": 3} {
		var mu sync.Mutex
		seen := map[int]int{}
		wrong := func(rank int, op *dist.Op) {
			if op.Kind != dist.KindAllReduce {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[rank]++; seen[rank] > from {
				op.Red = dist.Max
			}
		}
		_, kept, err := measureApart(t, 2, cfg, func(*dist.World) Setup { return Setup{Device: newApart()} }, wrong)
		if err != nil {
			t.Fatal(err)
		}
		if row := kept.rows[0]; *row.Wrong < 100 {
			t.Errorf("%s: %d wrong", name, *row.Wrong)
		}
	}
}

// Targets take turns at every size, all sizes have had a round before the next one begins, and
// every round begins with another target. Calls that are not measured use the world's group.
func TestTargetsTakeTurns(t *testing.T) {
	const n = 2
	var mu sync.Mutex
	var turns []string // of rank 0
	groups := map[string][]*dist.Group{}
	for _, engine := range []string{"a", "b", "c"} {
		ends, err := sim.Transports(n, sim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for rank, end := range ends {
			g, err := dist.NewGroup(broken{end, rank, func(rank int, op *dist.Op) {
				mu.Lock()
				defer mu.Unlock()
				if op.Kind != dist.KindAllReduce {
					t.Errorf("%v by %s", op.Kind, engine)
				}
				turn := fmt.Sprintf("%d%s", op.Src.Bytes(), engine)
				if rank == 0 && (len(turns) == 0 || turns[len(turns)-1] != turn) {
					turns = append(turns, turn)
				}
			}}, 0)
			if err != nil {
				t.Fatal(err)
			}
			groups[engine] = append(groups[engine], g)
		}
	}
	on := func(w *dist.World) Setup {
		s := Setup{Device: newApart(), Targets: []Target{{Engine: "none", Missing: "it is not there"}}}
		for _, engine := range []string{"a", "b", "c"} {
			s.Targets = append(s.Targets, Target{Engine: engine, Group: groups[engine][w.Rank()]})
		}
		return s
	}
	cfg := Config{MinBytes: 64, MaxBytes: 256, Factor: 4, Both: true, Iters: 1, Rounds: 2}
	world := func(_ int, op *dist.Op) {
		if op.Kind == dist.KindAllReduce {
			t.Error("allreduce by the world's group")
		}
	}
	results, kept, err := measureApart(t, n, cfg, on, world)
	for _, list := range groups {
		for _, g := range list {
			err = errors.Join(err, g.Close())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	// The second round begins with a, after the missing target, which ended the first.
	if got := strings.Join(turns, " "); got != "64a 64b 64c 256a 256b 256c 64a 64b 64c 256a 256b 256c" {
		t.Errorf("turns %s", got)
	}
	var order []string
	for _, row := range kept.rows {
		order = append(order, fmt.Sprintf("%d%s%v", row.Bytes, row.Engine, row.InPlace))
		if (row.Engine == "none") != (row.Skipped == "it is not there") {
			t.Errorf("%+v", row)
		}
	}
	want := []string{
		"64nonefalse", "64nonetrue", "64afalse", "64atrue", "64bfalse", "64btrue", "64cfalse", "64ctrue",
		"256nonefalse", "256nonetrue", "256afalse", "256atrue", "256bfalse", "256btrue", "256cfalse", "256ctrue",
	}
	if !slices.Equal(order, want) || !slices.Equal(results[1].Settings.Engines, []string{"none", "a", "b", "c"}) {
		t.Errorf("rows %v, engines %v", order, results[1].Settings.Engines)
	}
}

// refusing is a transport that does not support some operations.
type refusing struct {
	dist.Transport
	what func(op *dist.Op) bool
}

func (r refusing) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	if r.what(&op) {
		return dist.Work{}, fmt.Errorf("%w: not here", dist.ErrUnsupported)
	}
	return r.Transport.Start(op, s)
}

func TestWhatAnEngineCannotDoIsARowThatSaysSo(t *testing.T) {
	run := func(engine string) (*keeper, error) {
		worlds, err := sim.Transports(1, sim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		end := refusing{worlds[0], func(op *dist.Op) bool { return op.Kind == dist.KindAllReduce && op.Count > 100 }}
		w, err := dist.NewWorld(end, dist.LocalInfo{Size: 1}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		var kept keeper
		on := Setup{Device: newApart(), Targets: []Target{{Engine: engine}}}
		cfg := Config{MinBytes: 64, MaxBytes: 4096, Iters: 1, Rounds: 2}
		_, err = RunOn(w, on, cfg, &kept)
		return &kept, errors.Join(err, w.Close())
	}
	kept, err := run("small")
	if err != nil {
		t.Fatal(err)
	}
	first, last := kept.rows[0], kept.rows[len(kept.rows)-1]
	if first.Skipped != "" || first.TimeUS <= 0 || last.Skipped != "not supported: not here" || last.TimeUS != 0 || last.Wrong != nil {
		t.Errorf("rows %+v and %+v", first, last)
	}
	if _, err := run(""); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("a group that cannot: %v", err)
	}
}

func TestSetupsThatMakeNoSense(t *testing.T) {
	dev := newApart()
	for _, c := range []struct {
		on   Setup
		cfg  Config
		dev  tensor.Device
		want string
	}{
		{Setup{}, Config{}, tensor.CUDA(1), "buffers on cuda:1"},
		{Setup{}, Config{Graph: 3}, tensor.Host, "graphs need a device"},
		{Setup{Device: dev}, Config{Fresh: true}, tensor.CUDA(0), "fresh buffers"},
		{Setup{Device: dev}, Config{Graph: 1, Style: OSU}, tensor.CUDA(0), "leave style osu out"},
		{Setup{Device: dev}, Config{Graph: 1, Ops: []Op{Put}}, tensor.CUDA(0), "one-sided"},
	} {
		err := c.on.check(c.cfg, c.dev)
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, dist.ErrUnsupported) && !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
	if _, _, err := measureApart(t, 1, Config{Graph: -1}, func(*dist.World) Setup { return Setup{Device: dev} }, nil); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("a negative number of launches: %v", err)
	}
}
