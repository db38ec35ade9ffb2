package ddp

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// onRanks runs body on the ranks of a world of n.
func onRanks(t *testing.T, n int, body func(w *dist.World) error) {
	t.Helper()
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	errs := make([]error, n)
	for r, w := range worlds {
		ranks.Go(func() {
			if errs[r] = body(w); errs[r] != nil {
				_ = w.Abort(errs[r])
			}
			errs[r] = errors.Join(errs[r], w.Close())
		})
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// vectors is the sum of the mean squares of vectors of float32 of the given lengths.
func vectors(lengths []int) (cost *gorgonia.Node, params gorgonia.Nodes) {
	g := gorgonia.NewGraph()
	for i, n := range lengths {
		v := make([]float32, n)
		for k := range v {
			v[k] = float32(k%7) / 7
		}
		w := gorgonia.NewVector(g, gorgonia.Float32, gorgonia.WithName(fmt.Sprint("w", i)), gorgonia.WithShape(n),
			gorgonia.WithValue(gtensor.New(gtensor.WithShape(n), gtensor.WithBacking(v))))
		params = append(params, w)
		part := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(w))))
		if cost == nil {
			cost = part
		} else {
			cost = gorgonia.Must(gorgonia.Add(cost, part))
		}
	}
	return cost, params
}

// TestMemoryIsThatOfTheFormulas checks the bytes of training with Adam in float32, for P parameters
// on N ranks, of Rajbhandari et al. (arXiv:1910.02054): 8P + 8P/N for weights, gradients and
// moments with Stage 1, and 4P + 12P/N with Stage 2. In addition there are two buckets of staging,
// and the zeros that nodes have for gradients.
func TestMemoryIsThatOfTheFormulas(t *testing.T) {
	lengths := []int{200003, 77, 150001, 1, 130517, 99991, 30011, 120000, 513}
	total := 0
	for _, n := range lengths {
		total += n
	}
	p := float64(total)
	for _, c := range []struct {
		stage int
		bytes func(n float64) float64
	}{
		{1, func(n float64) float64 { return 8*p + 8*p/n }},
		{2, func(n float64) float64 { return 4*p + 12*p/n }},
	} {
		for ranks := 1; ranks <= 4; ranks++ {
			if invariants.Enabled && ranks != 3 {
				continue // slow, and the same code
			}
			onRanks(t, ranks, func(w *dist.World) error {
				cost, params := vectors(lengths)
				d, err := Attach(w, cost, params, Config{Stage: c.stage, BucketMB: 0.25})
				if err != nil {
					return err
				}
				s, err := d.NewSolver(optim.Config{Name: optim.Adam})
				if err != nil {
					return err
				}
				vm := gorgonia.NewTapeMachine(cost.Graph())
				defer vm.Close()
				if err := errors.Join(vm.RunAll(), s.Step(d.Model())); err != nil {
					return err
				}
				m := d.Memory()
				got := float64(m.Params + m.Grads + m.State)
				if want := c.bytes(float64(ranks)); math.Abs(got/want-1) > 0.05 {
					return fmt.Errorf("stage %d, %d ranks: %v, in all %g B, want %g", c.stage, ranks, m, got, want)
				}
				if m.Total() != m.Params+m.Grads+m.State+m.Staging || !strings.Contains(m.String(), fmt.Sprintf("state %d B", m.State)) {
					return fmt.Errorf("total %d of %v", m.Total(), m)
				}
				if err := checkRealMemory(d, s, m); err != nil {
					return fmt.Errorf("stage %d, %d ranks: %w", c.stage, ranks, err)
				}
				return d.Close()
			})
		}
	}
}

// checkRealMemory compares Memory with the heap's regions and the solver's slices.
func checkRealMemory(d *DDP, s optim.Solver, m Memory) error {
	regions := int64(0)
	for _, r := range d.mem.parts {
		regions += r.Local().Bytes()
	}
	zeros := d.mem.zeros[0].Bytes() + d.mem.zeros[1].Bytes()
	said := m.Params + m.Grads + m.Staging - zeros + roundUp(1)
	if gap := regions - said; gap < 0 || gap > 512*int64(2*len(d.buckets)) {
		return fmt.Errorf("%d B in the heap, %d with what %v says", regions, said, m)
	}
	if d.cfg.Stage == stageGrads && zeros != 200003*4 || d.cfg.Stage == stageState && zeros != 0 {
		return fmt.Errorf("%d B of zeros", zeros)
	}
	state, owned := int64(0), int64(0)
	for _, p := range s.State().Params {
		for _, slot := range p.Slots {
			state += int64(4 * len(slot.F32))
		}
	}
	for _, own := range d.Pieces() {
		owned += int64(own.Len)
	}
	if state != m.State || state != 8*owned {
		return fmt.Errorf("the solver has %d B for %d elements, and Memory says %d", state, owned, m.State)
	}
	return nil
}

func TestMemoryWithoutShardingIsBucketsAndWeights(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		cost, params := vectors([]int{1000, 24})
		d, err := Attach(w, cost, params, Config{})
		if err != nil {
			return err
		}
		if m := d.Memory(); m != (Memory{Params: 4096, Grads: 4096}) {
			return fmt.Errorf("memory is %v", m)
		}
		return d.Close()
	})
}

// TestShardsCoverEveryParameterOnce draws plans: pieces begin at blocks, and those of all ranks are
// the parameters.
func TestShardsCoverEveryParameterOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Plan
		for i := range rapid.IntRange(1, 12).Draw(t, "params") {
			q := f32s(fmt.Sprint("p", i), rapid.IntRange(1, 3000).Draw(t, "len"))
			if rapid.Bool().Draw(t, "double") {
				q.DType = tensor.F64
			}
			p.Params = append(p.Params, q)
		}
		ranks := rapid.IntRange(1, 7).Draw(t, "ranks")
		cfg := Config{Stage: rapid.IntRange(1, 3).Draw(t, "stage"), BucketMB: rapid.Float64Range(0.001, 0.02).Draw(t, "bucket")}
		p.lay(rapid.Permutation(indexRange(len(p.Params))).Draw(t, "order"), cfg.withDefaults(), ranks, 1)
		for b, bucket := range p.Buckets {
			if bucket.Shard%optim.Block != 0 || bucket.Shard*ranks != bucket.Elements {
				t.Fatalf("bucket %d has %d elements in shards of %d for %d ranks", b, bucket.Elements, bucket.Shard, ranks)
			}
			end := 0
			for _, i := range bucket.Params {
				q := p.Params[i]
				if q.Offset%optim.Block != 0 || q.Offset < end || q.Offset >= end+optim.Block {
					t.Fatalf("parameter %d begins at %d, behind %d", i, q.Offset, end)
				}
				end = q.Offset + q.Len()
			}
			if end > bucket.Elements || bucket.Elements >= end+ranks*optim.Block {
				t.Fatalf("bucket %d has %d elements, its last parameter ends at %d", b, bucket.Elements, end)
			}
		}
		next := make([]int, len(p.Params))
		for r := range ranks {
			last := -1
			for _, own := range p.Owned(r) {
				if own.Param <= last || own.Offset != next[own.Param] || own.Len < 1 || own.Offset%optim.Block != 0 {
					t.Fatalf("rank %d owns %+v of a parameter whose elements up to %d are owned", r, own, next[own.Param])
				}
				last = own.Param
				next[own.Param] += own.Len
			}
		}
		for i, n := range next {
			if n != p.Params[i].Len() {
				t.Fatalf("of parameter %d, %d of %d elements are owned", i, n, p.Params[i].Len())
			}
		}
	})
}

func TestPlansOfShardsSaySo(t *testing.T) {
	p := &Plan{Params: []PlanParam{f32s("b", 300), f32s("a", 10)}, Memory: "a test"}
	p.lay([]int{1, 0}, Config{Stage: 2}.withDefaults(), 3, 1)
	if b := p.Buckets[0]; b.Shard != 256 || b.Elements != 768 || p.Params[0].Offset != 256 {
		t.Errorf("the bucket is %+v of %+v", b, p.Params)
	}
	if s := p.String(); !strings.Contains(s, "sharding stage 2") {
		t.Errorf("the plan is\n%s", s)
	}
}

// TestGradientsInAnyOrderFindStaging fills buckets side by side, in orders that are none of the
// plan's and differ between ranks, for which two buffers do not do.
func TestGradientsInAnyOrderFindStaging(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		lengths := []int{10, 300, 20, 400, 30, 500}
		cost, params := vectors(lengths)
		d, err := Attach(w, cost, params, Config{Stage: 2, BucketMB: 0.0015, FirstBucketMB: 0.0015})
		if err != nil {
			return err
		}
		if len(d.buckets) < 4 || len(d.stage.(*stagings).all) != mostStagings {
			return fmt.Errorf("%d buckets, %d buffers", len(d.buckets), len(d.stage.(*stagings).all))
		}
		order := []int{5, 3, 1, 4, 2, 0}
		if w.Rank() == 1 {
			order = []int{0, 2, 4, 1, 3, 5}
		}
		for round := range 3 {
			if err := fill(d, order, float32(round+1), w.Rank()); err != nil {
				return err
			}
			for _, own := range d.Pieces() {
				got, err := (&shardSolver{d: d}).piece(own)
				if err != nil {
					return err
				}
				g, err := tensor.Data[float32](got.Grad)
				if err != nil {
					return err
				}
				// ranks 0 and 1 give (round+1)(param+1) times 1 and 3; the mean is 2
				if want := 2 * float32(round+1) * float32(own.Param+1); slices.ContainsFunc(g, func(x float32) bool { return x != want }) {
					return fmt.Errorf("round %d, piece %+v: %v, want %v", round, own, g, want)
				}
			}
		}
		if n := len(d.stage.(*stagings).all); n > len(d.buckets) || w.Rank() == 0 && n == mostStagings {
			return fmt.Errorf("%d buffers for %d buckets", n, len(d.buckets))
		}
		return d.Close()
	})
}

// fill is a run of the graph as a machine with an order of its own would do it.
func fill(d *DDP, order []int, by float32, rank int) error {
	if err := (phases{d}).Begin(); err != nil {
		return err
	}
	for _, j := range order {
		s := d.slots[j]
		v := make([]float32, s.n)
		for i := range v {
			v[i] = by * float32(j+1) * float32(1+2*rank)
		}
		if err := s.Start(gtensor.New(gtensor.WithBacking(v))); err != nil {
			return err
		}
	}
	if err := (phases{d}).Join(); err != nil {
		return err
	}
	for _, s := range d.slots {
		if _, err := s.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// steady is a loner that allocates nothing.
type steady struct{ loner }

func (s *steady) Start(op dist.Op, on dist.Stream) (dist.Work, error) {
	return on.(*dist.HostStream).Submit(s, op, 0)
}

func (s *steady) Run(op *dist.Op, tag uint64) error { return s.loner.Run(op, tag) }

// TestAShardedStepAllocatesNothing has a world that allocates nothing either.
func TestAShardedStepAllocatesNothing(t *testing.T) {
	w, err := dist.NewWorld(&steady{}, dist.LocalInfo{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cost, params := vectors([]int{1000, 300, 77})
	d, err := Attach(w, cost, params, Config{Stage: 2, BucketMB: 1.0 / 1024})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewSolver(optim.Config{Name: optim.Adam, ClipNorm: 1})
	if err != nil {
		t.Fatal(err)
	}
	model, order := d.Model(), []int{0, 1, 2}
	if err := errors.Join(fill(d, order, 1, 0), s.Step(model)); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(20, func() { err = errors.Join(err, s.Step(model)) }); n != 0 || err != nil {
		t.Errorf("%v allocations a step, error %v", n, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestGPUsHaveAllExchanges checks that Attach accepts all settings for a world of GPUs.
func TestGPUsHaveAllExchanges(t *testing.T) {
	for _, c := range []Config{
		{Stage: 1},
		{Stage: 2},
		{Stage: 3},
		{WireDType: tensor.BF16},
		{WireDType: tensor.F16, Stage: 3},
		{Idle: true},
		{Average: Sum, Stage: 3},
		{WireDType: tensor.BF16, ErrorFeedback: true},
		{VirtualRanks: 4},
		{LocalSteps: 3},
		{Hook: compress.Cast{DType: tensor.BF16}},
		{Hook: compress.PowerSGD{Rank: 2}},
	} {
		if err := Supports(c, 2, true); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestHooksOfGPUsSumInTheHeap exchanges a bucket by a hook in memory of the host, with messages in
// the symmetric heap, and compares it with the exchange of a group of the host.
func TestHooksOfGPUsSumInTheHeap(t *testing.T) {
	onGroup(t, 3, func(w *dist.World) error {
		cfg := Config{Hook: compress.PowerSGD{Rank: 2}}
		near, _, err := attachVectors(w, cfg)
		if err != nil {
			return err
		}
		far, _, err := attachVectors(w, cfg)
		if err != nil {
			return err
		}
		x, _ := far.wire.(*hooked)
		longest := int64(0)
		for _, l := range x.codings {
			longest = max(longest, messageBytes(l.codec.Messages()))
		}
		if err := x.allocateFar(longest); err != nil {
			return err
		}
		for _, l := range x.codings {
			messages := l.codec.Messages()
			if err := errors.Join(x.mem.carve(l.messages, messages), x.carveFar(l, messages)); err != nil {
				return err
			}
		}
		const share = 0.25
		for step := range 3 {
			b := near.buckets[0]
			mine, err := tensor.Data[float32](b.buf)
			if err != nil {
				return err
			}
			for i := range mine {
				mine[i] = float32(math.Sin(float64(i + 7*step + 100*w.Rank())))
			}
			b.clearGaps(b.buf)
			other := slices.Clone(mine)
			near.shares.factor.share.Divides = false
			if err := near.mem.setShare(share); err != nil {
				return err
			}
			work, err := near.wire.start(b)
			if err == nil {
				err = work.Wait()
			}
			if err == nil {
				err = far.driver.Hook(0, drive.HookCall{Gradients: tensor.Of(other), Share: share, Sum: 3})
			}
			if err != nil {
				return err
			}
			if !slices.Equal(mine, other) {
				return fmt.Errorf("step %d: other bits", step)
			}
		}
		return errors.Join(near.Close(), far.Close())
	})
}
