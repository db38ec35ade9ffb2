package plan_test

import (
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/tool/plan"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// job is two layers of 1000 and 600 weights, in buckets w1, b0 and w0 of at most 1 KiB and then 4,
// with arenas that are easy to tell apart.
func job(ranks, stage int) plan.Job {
	j := plan.Job{
		Name: "small", Model: "two layers", Ranks: ranks, Rows: 8, Inputs: 100,
		DDP:  ddp.Config{BucketMB: 4.0 / 1024, FirstBucketMB: 1.0 / 1024, Stage: stage},
		Rule: optim.Config{Name: optim.Adam},
		Params: []ddp.PlanParam{
			{Name: "w0", Shape: []int{10, 100}, DType: tensor.F32},
			{Name: "b0", Shape: []int{100}, DType: tensor.F32},
			{Name: "w1", Shape: []int{100, 5}, DType: tensor.F32},
		},
		Order: []int{2, 1, 0},
	}
	for s := range j.Machine {
		j.Machine[s] = machine.Footprint{Arena: int64(1000 * (s + 1)), Constants: 20, Scratch: 3, Outputs: 4}
		j.Machine[s].Precision = machine.Precision{
			Kinds:   []machine.Kind{{DType: "f32", Values: 9, Bytes: 900}, {DType: "bf16", Values: 2, Bytes: 40}},
			Largest: []machine.Result{{Name: "h", DType: "f32", Bytes: 320}},
			Narrow:  []machine.Result{{Name: "w1", DType: "bf16", Bytes: 1000}}, Again: s,
		}
	}
	j.Machine[3].Moments = []machine.Moment{ // w0 is bucket 1 there, and the others bucket 0: that of the end of the forward pass
		{Name: "weights 1", Kind: dist.KindAllGather, DType: tensor.F32, Count: 512},
		{Name: "begin"},
		{Name: "weights 0", Kind: dist.KindAllGather, DType: tensor.F32, Count: 512},
		{Name: "start w1"},
		{Name: "start b0"},
		{Name: "weights 1", Kind: dist.KindAllGather, DType: tensor.F32, Count: 512},
		{Name: "start w0"},
		{Name: "join"},
	}
	return j
}

func newPlan(t *testing.T, j plan.Job) *plan.Plan {
	t.Helper()
	p, err := plan.New(j)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestMemoryFollowsTheFormulas has buckets of 500, 100 and 1000 elements, which are filled up to
// multiples of 512 where they are sharded.
func TestMemoryFollowsTheFormulas(t *testing.T) {
	p := newPlan(t, job(2, 0))
	const params = 4 * 1600
	if p.Bytes != params || p.Parameters != 1600 || p.Tensors != 3 {
		t.Errorf("%d B, %d elements, %d tensors", p.Bytes, p.Parameters, p.Tensors)
	}
	for s, st := range p.Stages {
		var whole int64
		for _, b := range st.Buckets {
			whole += b.Bytes
			if s > 0 && b.Elements%(2*optim.Block) != 0 {
				t.Errorf("stage %d: a bucket of %d elements", s, b.Elements)
			}
		}
		for r, m := range st.Ranks {
			wantParams, wantGrads, staging := int64(params), m.Gradients, m.Staging
			switch s {
			case 1:
				wantParams, wantGrads = whole, whole
			case 2:
				wantParams, wantGrads = whole, whole/2
			case 3:
				wantParams, wantGrads = whole/2, whole/2
			}
			if m.Params != wantParams || m.Gradients != wantGrads || m.Gradients < params/2 {
				t.Errorf("stage %d rank %d: %+v, want %d and %d", s, r, m, wantParams, wantGrads)
			}
			if m.Activations != int64(1000*(s+1)+23) || m.Inputs != 100 || m.Outputs != 4 {
				t.Errorf("stage %d rank %d: %+v", s, r, m)
			}
			if s < 2 && staging >= params || s >= 2 && staging < 2*st.Buckets[len(st.Buckets)-1].Bytes {
				t.Errorf("stage %d rank %d: staging of %d B", s, r, staging)
			}
		}
		state := st.Ranks[0].State + st.Ranks[1].State
		if want := int64(2 * params); s == 0 && state != 2*want || s > 0 && state != want {
			t.Errorf("stage %d: %d B of state on both ranks, want %d of one of them or of both", s, state, want)
		}
	}
}

func TestVolumeFollowsTheFormulas(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7} {
		p := newPlan(t, job(n, 0))
		for s, st := range p.Stages {
			if s == 3 {
				continue // by the moments of the graph, which are those of two ranks
			}
			var whole int64
			for _, b := range st.Buckets {
				whole += b.Bytes
			}
			want := plan.Volume{Collectives: 1 + len(st.Buckets), Bytes: 8 + whole}
			if s > 0 {
				want = plan.Volume{Collectives: 1 + 2*len(st.Buckets), Bytes: 8 + 2*whole}
			}
			if st.Volume.Collectives != want.Collectives || st.Volume.Bytes != want.Bytes {
				t.Errorf("%d ranks stage %d: %+v, want %+v", n, s, st.Volume, want)
			}
			sent := float64(2*(8+whole)) * float64(n-1) / float64(n)
			if s > 0 {
				sent = float64(16+2*whole) * float64(n-1) / float64(n)
			}
			if d := float64(st.Volume.Sent) - sent; d < 0 || d > float64(st.Volume.Collectives) {
				t.Errorf("%d ranks stage %d: %d B sent, want %v", n, s, st.Volume.Sent, sent)
			}
		}
	}
}

// TestGatheringsStandWhereTheGraphHasThem has three gatherings between which gradients come.
func TestGatheringsStandWhereTheGraphHasThem(t *testing.T) {
	st := newPlan(t, job(2, 3)).Configured()
	var got []string
	for _, c := range st.Step {
		got = append(got, c.Kind+" "+c.Name)
	}
	want := "allgather weights 1, allreduce ddp weight, allgather weights 0, reducescatter bucket 0, allgather weights 1, reducescatter bucket 1"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
}

// On GPUs what a step has updated may be gathered by the next step, before its gradients.
func TestGatheringsOfTheNextStepStandBeforeItsGradients(t *testing.T) {
	const want = "allgather weights 2, allgather weights 1, allgather weights 0, allreduce ddp weight, " +
		"reducescatter bucket 0, reducescatter bucket 1, reducescatter bucket 2"
	for stage := 1; stage <= 2; stage++ {
		j := job(4, stage)
		j.GPU, j.DDP.OverlapGather, j.Runs = true, true, 1
		var got []string
		for _, c := range newPlan(t, j).Configured().Step {
			got = append(got, c.Kind+" "+c.Name)
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("stage %d: %s\nwant %s", stage, s, want)
		}
	}
}

func TestGatheringsOfTheNextStepAreOnGPUsAlone(t *testing.T) {
	for _, gpu := range []bool{false, true} {
		j := job(4, 1)
		j.GPU, j.DDP.OverlapGather = gpu, true
		p := newPlan(t, j)
		const warning = "shard.overlap_gather has no effect on the host"
		if (p.Warning == warning) != !gpu || strings.Contains(p.String(), "\nwarning: "+warning+"\n") != !gpu {
			t.Errorf("on GPUs %v: warning %q in\n%s", gpu, p.Warning, p)
		}
	}
}

func TestSent(t *testing.T) {
	for _, c := range []struct {
		kind  dist.Kind
		bytes int64
		n     int
		want  int64
	}{
		{dist.KindAllReduce, 1200, 1, 0},
		{dist.KindAllReduce, 1200, 2, 1200},
		{dist.KindAllReduce, 1200, 3, 1600},
		{dist.KindAllReduce, 8, 3, 11}, // 10 2/3
		{dist.KindReduceScatter, 1200, 4, 900},
		{dist.KindAllGather, 1200, 4, 900},
		{dist.KindAllToAll, 1200, 4, 900},
		{dist.KindBroadcast, 1200, 4, 1200},
		{dist.KindBarrier, 0, 4, 0},
	} {
		if got := plan.Sent(c.kind, c.bytes, c.n); got != c.want {
			t.Errorf("%v of %d B on %d ranks: %d B, want %d", c.kind, c.bytes, c.n, got, c.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		with func(j *plan.Job)
		want string
	}{
		{"no ranks", func(j *plan.Job) { j.Ranks = 0 }, "0 ranks: want 1 or more"},
		{"no parameters", func(j *plan.Job) { j.Params, j.Order = nil, nil }, "the model has no parameters"},
		{"no order", func(j *plan.Job) { j.Order = []int{0} }, "an order of 1 gradients for 3 parameters"},
		{"stage", func(j *plan.Job) { j.DDP.Stage = 4 }, "stage 4: want 0 to 3"},
		{"twice in the order", func(j *plan.Job) { j.Order = []int{0, 0, 1} }, "an order [0 0 1] of 3 parameters"},
		{"rule", func(j *plan.Job) { j.Rule.Name = "adem" }, `name "adem"`},
		{"no such stage", func(j *plan.Job) { j.Missing[0] = errors.New("the moon") }, "stage 0: the moon"},
		{"virtual ranks", func(j *plan.Job) { j.DDP.VirtualRanks = 3 }, "VirtualRanks is 3, which 2 ranks do not divide"},
	} {
		j := job(2, 0)
		c.with(&j)
		if _, err := plan.New(j); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestStagesThatAreNotToBeHad are told, and do not hinder the others.
func TestStagesThatAreNotToBeHad(t *testing.T) {
	j := job(2, 0)
	j.DDP.Hook = compress.PowerSGD{Rank: 1}
	p := newPlan(t, j)
	for s, st := range p.Stages {
		if refused := st.Refused != ""; refused != (s > 0) {
			t.Errorf("stage %d: refused %q", s, st.Refused)
		}
	}
	if !strings.Contains(p.String(), "a run would refuse stage 2: ddp config:") {
		t.Errorf("the text does not say why:\n%s", p)
	}
}

// TestText has a plan with all that it can have, for people and for programs.
func TestText(t *testing.T) {
	p := newPlan(t, job(2, 1))
	link, err := plan.Given(1)
	if err != nil {
		t.Fatal(err)
	}
	p.Predict(link, 6*time.Microsecond, true)
	golden(t, "plan.txt", p.String())
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.json", string(text)+"\n")
	j := job(1, 0)
	j.Runs, j.GPU, j.DDP.LocalSteps = 1, false, 5
	golden(t, "local.txt", newPlan(t, j).String())
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is no longer as in %s; look at the difference, then run with -rewrite:\n%s", name, file, got)
	}
}

func TestLinkRefuses(t *testing.T) {
	for _, gbps := range []float64{0, -1, 1e-320, math.NaN(), math.Inf(1)} {
		if _, err := plan.Given(gbps); !errors.Is(err, plan.ErrJob) {
			t.Errorf("%v GB/s: %v", gbps, err)
		}
	}
	for _, points := range [][]plan.Point{nil, {{Bytes: 8, Seconds: 0}}, {{Bytes: -8, Seconds: 1}}} {
		if _, err := plan.Probed("nowhere", 2, points); !errors.Is(err, plan.ErrJob) {
			t.Errorf("%v: %v", points, err)
		}
	}
}

// TestTimesBetweenMeasuredSizes are on straight lines.
func TestTimesBetweenMeasuredSizes(t *testing.T) {
	l, err := plan.Probed("a test", 2, []plan.Point{{Bytes: 3000, Seconds: 4}, {Bytes: 1000, Seconds: 2}, {Bytes: 0, Seconds: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind  dist.Kind
		bytes int64
		want  float64
	}{
		{dist.KindAllReduce, 0, 1},
		{dist.KindAllReduce, 500, 1.5},
		{dist.KindAllReduce, 1000, 2},
		{dist.KindAllReduce, 2000, 3},
		{dist.KindAllReduce, 9000, 10},
		{dist.KindReduceScatter, 2000, 2}, // as an allreduce of 1000 B
		{dist.KindAllGather, 4000, 3},
	} {
		got := l.Seconds(plan.Collective{Sent: plan.Sent(c.kind, c.bytes, 2)}, 2)
		if math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v of %d B: %v s, want %v", c.kind, c.bytes, got, c.want)
		}
	}
	if one := l.Seconds(plan.Collective{Sent: 100}, 1); one != 0 {
		t.Errorf("alone: %v s", one)
	}
}

// TestExposed has buckets of 500, 100 and 1000 elements, on a link that takes a microsecond for
// 1000 B, without latency.
func TestExposed(t *testing.T) {
	const first, second, third, weight = 2e-6, 0.4e-6, 4e-6, 8e-9
	link, err := plan.Given(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		compute time.Duration
		overlap bool
		want    float64
		least   float64
	}{
		{"a long backward pass hides all but the last bucket", time.Second, true, third, third},
		{"no overlap", time.Second, false, weight + first + second + third, weight + first + second + third},
		// backward 2 µs: bucket 0 is full after 500/1600 of it, and all others are when the one
		// before is done
		{"a short backward pass", 3 * time.Microsecond, true, 2e-6*500/1600 + first + second + third - 2e-6, third},
	} {
		p := newPlan(t, job(2, 0))
		p.Predict(link, c.compute, c.overlap)
		e := p.Configured().Time
		if e.Exposed == nil || math.Abs(*e.Exposed-c.want) > 1e-9 || math.Abs(e.Least-c.least) > 1e-9 {
			t.Errorf("%s: %+v, want %v waited for and at least %v", c.name, e, c.want, c.least)
		}
		if all := weight + first + second + third; math.Abs(e.Communication-all) > 1e-9 {
			t.Errorf("%s: %v s of communication, want %v", c.name, e.Communication, all)
		}
	}
	p := newPlan(t, job(2, 2))
	p.Predict(link, 0, true)
	if e := p.Configured().Time; e.Exposed != nil || e.Least <= third {
		t.Errorf("without the time of a step: %+v", e)
	}
}

func TestCompare(t *testing.T) {
	half := 0.5e-3
	predicted := plan.Figures{
		Memory: plan.Memory{Params: 1000, Gradients: 2000, State: 30}, Volume: plan.Volume{Collectives: 3, Bytes: 1 << 20, Sent: 100}, Exposed: &half,
	}
	more := 0.75e-3
	measured := plan.Figures{
		Memory: plan.Memory{Params: 1010, Gradients: 2000}, Volume: plan.Volume{Collectives: 3, Bytes: 1 << 20, Sent: 100}, Exposed: &more,
	}
	text := plan.Compare(predicted, measured)
	for _, want := range []string{
		"parameters 1000 B 1010 B +1.0%", "gradients 1.95 KiB 1.95 KiB +0.0%", "optimizer state 30 B - -", "memory in all 2.96 KiB 2.94 KiB -0.7%",
		"collectives of a step 3 3 +0.0%", "bytes of a step 1.00 MiB 1.00 MiB +0.0%", "waited in a step 500µs 750µs +50.0%",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "inputs") {
		t.Errorf("what is nothing is told:\n%s", text)
	}
}

func TestCountOfRecords(t *testing.T) {
	st := newPlan(t, job(2, 0)).Configured()
	var records []dist.Record
	for range 3 {
		for _, c := range st.Step {
			sig := dist.Signature{Kind: dist.KindAllReduce, Count: c.Count, DType: tensor.F32}
			records = append(records, dist.Record{Name: c.Name, Signature: sig, Bytes: c.Bytes})
		}
		records = append(records, dist.Record{Name: "losses", Bytes: 1000, Signature: dist.Signature{Kind: dist.KindAllReduce}})
	}
	if v, err := st.Count(records, 2); err != nil || v != st.Volume {
		t.Errorf("%+v, %v; want %+v", v, err, st.Volume)
	}
	for _, some := range [][]dist.Record{records[1:], nil} {
		if _, err := st.Count(some, 2); !errors.Is(err, plan.ErrJob) {
			t.Errorf("%d records: %v", len(some), err)
		}
	}
}

func TestFigures(t *testing.T) {
	p := newPlan(t, job(2, 1))
	if f := p.Figures(1); f.Memory != p.Configured().Ranks[1] || f.Volume != p.Configured().Volume || f.Exposed != nil {
		t.Errorf("%+v", f)
	}
	if most := p.Configured().Most(); most.Total() < p.Figures(0).Memory.Total() || most.Total() < p.Figures(1).Memory.Total() {
		t.Errorf("the most is %+v", most)
	}
}
