package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/internal/tool/plan"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// plannedStages are the stages of sharding whose plans are held against real runs.
var plannedStages = []int{0, 1, 2, 3}

// plannedConfigs are a perceptron, a convolutional network and two language models.
var plannedConfigs = []string{"mnist-mlp", "mnist-cnn", "lm", "gpt2-demo"}

// planConfig is a configuration of this module, with data that every checkout has.
func planConfig(t *testing.T, name string, set ...string) *config.Config {
	t.Helper()
	source := config.Source{File: "../../configs/" + name + ".yaml", Set: append([]string{"data.path=../../examples/lm/stories.txt"}, set...)}
	if name != "lm" {
		source.Set[0] = "data.path=" + t.TempDir()
	}
	if name == "gpt2-demo" {
		source.Set = append(source.Set, "model.vocabulary=256") // a real one takes most of the time
	}
	cfg, _, err := config.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// ran has the measurements of one rank of a real run.
type ran struct {
	memory plan.Memory // its parts as the program has them
	ddp    ddp.Memory
	step   []plan.Collective // of the last step
	count  plan.Volume

	planned []plan.Collective // of a step, by the program's own plan
}

// ranSubject returns the plan's subject for settings, with values of parameters, so that it can
// run.
func ranSubject(cfg *config.Config, ranks int) (plan.Subject, error) {
	s, err := planSubject(cfg, "", ranks)
	if err != nil {
		return s, err
	}
	model, err := planModel(cfg, "")
	s.Build = func() (machine.Model, error) { return model.build(s.Job.Rows, false) }
	return s, err
}

// trainPlanned runs steps of a subject on simulated ranks, and returns the measurements of each.
func trainPlanned(t *testing.T, s plan.Subject, steps int, on *plan.Stage) []ran {
	t.Helper()
	all := make([]ran, s.Job.Ranks)
	onPlanned(t, len(all), func(w *dist.World) error { return trainRank(w, s, steps, on, &all[w.Rank()]) })
	return all
}

// onPlanned runs body on every rank of a world in this process.
func onPlanned(t *testing.T, n int, body func(w *dist.World) error) {
	t.Helper()
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var ranks sync.WaitGroup
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

func trainRank(w *dist.World, s plan.Subject, steps int, on *plan.Stage, found *ran) error {
	return onRank(w, s, func(d *ddp.DDP, m *machine.Machine, solver optim.Solver, g machine.Model) error {
		from := last(w)
		for range steps {
			before := last(w)
			if err := stepPlanned(d, m, solver, max(s.Job.Runs, 1)); err != nil {
				return err
			}
			found.step = nil
			for _, r := range w.Recorder().Records() {
				if r.Seq > before {
					found.step = append(found.step, plan.FromRecord(r, w.Size()))
				}
			}
		}
		records := slices.DeleteFunc(w.Recorder().Records(), func(r dist.Record) bool { return r.Seq <= from })
		var err error
		found.count, err = on.Count(records, w.Size())
		found.ddp, found.memory = d.Memory(), allocated(d, m, solver, g)
		if err != nil {
			return err
		}
		own := plan.Training{
			DDP: d, Settings: s.Job.DDP, Rule: s.Job.Rule, Footprint: m.Footprint(), Inputs: s.Job.Inputs,
			Ranks: w.Size(), Rows: s.Job.Rows, Runs: s.Job.Runs,
		}
		p, err := plan.New(own.Job("", ""))
		if err == nil {
			found.planned = p.Configured().Step
		}
		return err
	})
}

// onRank builds the objects of a rank of a run, and calls body with them.
func onRank(w *dist.World, s plan.Subject, body func(*ddp.DDP, *machine.Machine, optim.Solver, machine.Model) error) (err error) {
	g, err := s.Build()
	if err != nil {
		return err
	}
	d, err := ddp.Attach(w, g.Cost, g.Params, s.Job.DDP)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m, err := machine.New(g.Cost.Graph(), s.Machine, append(d.Grads(), g.Cost)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	solver, err := d.NewSolver(s.Job.Rule)
	if err != nil {
		return err
	}
	return body(d, m, solver, g)
}

// stepPlanned is a step of so many runs of the graph, of which the last communicates.
func stepPlanned(d *ddp.DDP, m *machine.Machine, solver optim.Solver, runs int) error {
	err := d.NoSync(func() error {
		for range runs - 1 {
			if err := m.RunAll(); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = m.RunAll()
	}
	if err == nil {
		err = solver.Step(d.Model())
	}
	return err
}

// last is the number of the newest operation.
func last(w *dist.World) uint64 {
	records := w.Recorder().Records()
	if len(records) == 0 {
		return 0
	}
	return records[len(records)-1].Seq
}

// allocated is the bytes of a rank by those who have allocated them.
func allocated(d *ddp.DDP, m *machine.Machine, solver optim.Solver, g machine.Model) plan.Memory {
	inputs := int64(0)
	for _, n := range g.Cost.Graph().AllNodes() {
		if n.IsVar() && n.Value() != nil && !g.Params.Contains(n) && !ddp.IsShard(n) {
			inputs += int64(n.Value().MemSize())
		}
	}
	return plan.Training{DDP: d, Footprint: m.Footprint(), Inputs: inputs}.Found(solver.State())
}

// TestPlanIsWhatARunTakes holds plans against real runs on 2 and 3 ranks: the communication of a
// step exactly, as the flight recorder of every rank has it, and the memory of every rank within 5
// %.
func TestPlanIsWhatARunTakes(t *testing.T) {
	for _, name := range plannedConfigs {
		for _, stage := range plannedStages {
			for _, n := range []int{2, 3} {
				if invariants.Enabled && (n == 2 || stage < 2) {
					continue // slow, and the same code
				}
				t.Run(fmt.Sprintf("%s/stage %d/%d ranks", name, stage, n), func(t *testing.T) {
					set := []string{fmt.Sprintf("shard.stage=%d", stage)}
					if n == 3 { // which does not divide the sizes in the files
						set = append(set, "data.global_batch=13")
					}
					holdPlan(t, planConfig(t, name, set...), n)
				})
			}
		}
	}
}

// TestPlanOfOtherWays is the same for settings that change the bytes on the wire.
func TestPlanOfOtherWays(t *testing.T) {
	for _, set := range [][]string{
		{"comm.wire_dtype=bf16", "comm.error_feedback=true"},
		{"comm.wire_dtype=f16", "shard.stage=1"},
		{"ddp.hook=powersgd", "ddp.powersgd_rank=2"},
		{"ddp.average=sum"},
		{"ddp.average=predivide"},
		{"ddp.virtual_ranks=6"},
		{"ddp.virtual_ranks=6", "shard.stage=1"},
		{"ddp.local_steps=2"},
		{"data.accum_steps=2"},
		{"data.accum_steps=2", "shard.stage=2"},
		{"shard.stage=3", "model.hidden=[70,70,70,70]", "ddp.bucket_mb=0.02", "ddp.first_bucket_mb=0.01"},
		{"shard.stage=3", "data.accum_steps=2", "optim.clip_norm=1"},
		{"shard.stage=3", "ddp.overlap=false", "comm.wire_dtype=bf16"},
		{"optim.clip_norm=1", "shard.stage=1"},
		{"optim.name=lamb", "optim.weight_decay=0.01", "shard.stage=2"},
		{"optim.name=lamb", "optim.weight_decay=0.01", "optim.clip_norm=1", "shard.stage=1"},
		{"optim.name=sgd", "ddp.overlap=false", "optim.ema_decay=0.9"},
	} {
		t.Run(fmt.Sprint(set), func(t *testing.T) {
			holdPlan(t, planConfig(t, "mnist-mlp", append([]string{"data.global_batch=12", "model.hidden=[70,50]", "ddp.bucket_mb=0.1"}, set...)...), 3)
		})
	}
}

// TestPlanIsWhatTheProcessHas compares the plans of two ranks with the size of Go's heap during
// training. The heap has all memory of the run. Graphs, recorders and the like are small compared
// to 1.8 million parameters.
func TestPlanIsWhatTheProcessHas(t *testing.T) {
	for _, stage := range plannedStages {
		if invariants.Enabled && stage < 3 {
			continue // slow, and the same code
		}
		t.Run(fmt.Sprintf("stage %d", stage), func(t *testing.T) {
			cfg := planConfig(t, "mnist-mlp", "model.hidden=[1000,1000]", "data.global_batch=64", fmt.Sprintf("shard.stage=%d", stage))
			s, err := ranSubject(cfg, 2)
			if err != nil {
				t.Fatal(err)
			}
			p, err := planOf(cfg, "", 2)
			if err != nil {
				t.Fatal(err)
			}
			want := int64(0)
			for _, m := range p.Configured().Ranks {
				want += m.Total()
			}
			before, after := liveHeap(), int64(0)
			onPlanned(t, 2, func(w *dist.World) error {
				return onRank(w, s, func(d *ddp.DDP, m *machine.Machine, solver optim.Solver, _ machine.Model) error {
					for range 2 {
						if err := stepPlanned(d, m, solver, 1); err != nil {
							return err
						}
					}
					err := together(w)
					if err == nil && w.Rank() == 0 {
						after = liveHeap() // while all ranks have everything
					}
					err = errors.Join(err, together(w))
					runtime.KeepAlive(solver)
					return err
				})
			})
			if got := after - before; !within(want, got) {
				t.Errorf("%d B planned, %d B live", want, got)
			}
		})
	}
}

func together(w *dist.World) error {
	work, err := w.Barrier()
	if err != nil {
		return err
	}
	return work.Wait()
}

// liveHeap is the bytes of Go's memory that are in use.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // frees memory held by finalizers and pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// holdPlan holds the plan of a run against the run.
func holdPlan(t *testing.T, cfg *config.Config, n int) {
	t.Helper()
	s, err := ranSubject(cfg, n)
	if err != nil {
		t.Fatal(err)
	}
	p, err := planOf(cfg, "", n)
	if err != nil {
		t.Fatal(err)
	}
	on := p.Configured()
	for r, got := range trainPlanned(t, s, 2*on.Every, on) {
		if !slices.Equal(got.step, on.Step) {
			t.Errorf("rank %d: a step is\n%v\nthe plan says\n%v", r, list(got.step), list(on.Step))
		}
		if !slices.Equal(got.planned, on.Step) {
			t.Errorf("rank %d: by itself it plans\n%v\nand before\n%v", r, list(got.planned), list(on.Step))
		}
		if got.count != on.Volume {
			t.Errorf("rank %d: the recorder counts %+v, the plan %+v", r, got.count, on.Volume)
		}
		want := on.Ranks[r]
		if !within(want.Total(), got.memory.Total()) {
			t.Errorf("rank %d: %d B planned, %d B allocated:\n%s", r, want.Total(), got.memory.Total(),
				plan.Compare(plan.Figures{Memory: want}, plan.Figures{Memory: got.memory}))
		}
		if !within(want.Params+want.Gradients, got.ddp.Params+got.ddp.Grads) {
			t.Errorf("rank %d: %d B of weights and gradients planned, %v", r, want.Params+want.Gradients, got.ddp)
		}
	}
}

// within reports whether a number is at most 5 % off.
func within(want, got int64) bool { return 20*max(want-got, got-want) <= want }

func list(all []plan.Collective) string {
	text := ""
	for _, c := range all {
		text += fmt.Sprintf("  %+v\n", c)
	}
	return text
}
