package cudaexec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// onHost runs body on each rank of a world of two.
func onHost(t *testing.T, body func(g *dist.Group) error) {
	t.Helper()
	onRanks(t, 2, body)
}

func TestEachCollectiveIsItsVerb(t *testing.T) {
	kinds := []dist.Kind{
		dist.KindAllReduce, dist.KindReduce, dist.KindBroadcast, dist.KindAllGather, dist.KindReduceScatter, dist.KindAllToAll,
		dist.KindGather, dist.KindScatter, dist.KindBarrier, dist.KindSync,
	}
	onHost(t, func(g *dist.Group) error {
		for _, kind := range kinds {
			in, out := make([]float32, 4), make([]float32, 4)
			switch kind {
			case dist.KindAllGather, dist.KindGather:
				in = in[:2]
			case dist.KindReduceScatter, dist.KindScatter:
				out = out[:2]
			}
			k := &collective{op: &program.Collective{Kind: kind, Root: 1}}
			if err := k.issue(g, tensor.Of(out), tensor.Of(in), dist.Sum); err != nil {
				return err
			}
		}
		if err := g.Stream().Synchronize(); err != nil {
			return err
		}
		for i, r := range g.Recorder().Records() {
			if s := r.Signature; s.Kind != kinds[i] || s.Kind.Rooted() && s.Root != 1 {
				t.Errorf("operation %d is %v of root %d, want %v of root 1", i, s.Kind, s.Root, kinds[i])
			}
		}
		err := (&collective{op: &program.Collective{Kind: dist.KindSend}}).issue(g, tensor.Buffer{}, tensor.Buffer{}, dist.Sum)
		if !errors.Is(err, dist.ErrUnsupported) {
			t.Errorf("a message: %v", err)
		}
		return nil
	})
}

// summing is a program of one sum over group.
func summing(group int) *program.Program {
	p := &program.Program{Name: "sum", Clock: program.None}
	g := p.Add(program.Value{Name: "g", DType: tensor.F32, Shape: []int{6}})
	whole := p.Whole(g)
	whole.Offset = 2
	p.Steps = []program.Step{{
		Name: "sum g", Op: &program.Collective{Kind: dist.KindAllReduce, Group: group}, In: views(whole), Out: views(whole), Stream: program.Comm,
	}}
	return p
}

func TestGroupsMustBeThoseOfTheDevice(t *testing.T) {
	cfg := &Config{Device: new(cuda.Device)}
	onHost(t, func(g *dist.Group) error {
		for _, tt := range []struct {
			group  int
			groups []*dist.Group
			want   error
			text   string
		}{
			{0, []*dist.Group{g}, dist.ErrDevice, "group 0 is on host, the program on cuda:0"},
			{1, []*dist.Group{g}, dist.ErrInvalid, "unknown group 1, the run has 1"},
			{-1, []*dist.Group{g}, dist.ErrInvalid, "unknown group -1"},
			{0, []*dist.Group{nil}, dist.ErrInvalid, "unknown group 0"},
		} {
			_, err := newComm(summing(tt.group), cfg, tt.groups)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), `step 0 "sum g"`) {
				t.Errorf("group %d: %v, want %s", tt.group, err, tt.text)
			}
		}
		c, err := newComm(&program.Program{}, cfg, []*dist.Group{g})
		if c != nil || err != nil {
			t.Errorf("a program without collectives: %v, %v", c, err)
		}
		return nil
	})
}

func TestSidesGoToTheEndOfTheirValue(t *testing.T) {
	p := summing(0)
	s := wholeOf(p, p.Steps[0].In[0])
	if want := (side{argument{0, 8}, 4, tensor.F32}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
	b, err := s.buffer([]uintptr{1 << 20}, tensor.CUDA(1))
	if err != nil || uintptr(b.Pointer()) != 1<<20+8 || b.Len() != 4 || b.Device() != tensor.CUDA(1) {
		t.Errorf("%v at %#x, %v", b, b.Pointer(), err)
	}
	if b, err := absent.buffer(nil, tensor.CUDA(0)); !b.IsZero() || err != nil {
		t.Errorf("a side that there is not: %v, %v", b, err)
	}
}

func TestHugeProgramsHaveKernels(t *testing.T) {
	b := huge(t)
	_, steps, err := cudagen.Generate(b.p, cudagen.Target{SMs: 132, MaxThreads: 2048, Arch: 90})
	if err != nil || len(steps) != 2 {
		t.Errorf("%d steps, %v", len(steps), err)
	}
}

// TestPartsAreSidesOfTheirOwnLength looks at collectives in place, of which one side is a part.
func TestPartsAreSidesOfTheirOwnLength(t *testing.T) {
	p := summing(0)
	all, part := p.Whole(0), program.View{Value: 0, Offset: 3, Strides: []int{1}}
	for _, c := range []struct {
		kind    dist.Kind
		in, out program.View
		lengths [2]int
	}{
		{dist.KindAllGather, part, all, [2]int{3, 6}},
		{dist.KindReduceScatter, all, part, [2]int{6, 3}},
	} {
		k := &collective{op: &program.Collective{Kind: c.kind, Part: 3}, in: absent, out: absent, factor: absent}
		k.sides(p, &program.Step{Op: k.op, In: views(c.in), Out: views(c.out)})
		if got := [2]int{k.in.n, k.out.n}; got != c.lengths || k.factor.slot != literal {
			t.Errorf("%v has sides of %v elements, want %v", c.kind, got, c.lengths)
		}
	}
}

// Collectives that take multiprocessors for long are neither small nor for copy engines, and not
// those of a single rank.
func TestCollectivesOfMultiprocessorsCrowd(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		onRanks(t, ranks, func(g *dist.Group) error {
			for _, c := range []struct {
				in, out int // elements
				want    bool
			}{
				{leastCrowd / 4, leastCrowd / 4, true},
				{leastCrowd/4 - 1, leastCrowd/4 - 1, false},
				{leastCrowd / 8, leastCrowd / 4, true},
				{gpu.LeastAside/4 - 1, 1, true},
				{gpu.LeastAside / 4, gpu.LeastAside / 4, false},
				{0, 0, false},
			} {
				all := &comm{steps: []*collective{nil, {group: g, in: side{n: c.in, dt: tensor.F32}, out: side{n: c.out, dt: tensor.F32}}}}
				if got := all.crowds(); got != (c.want && ranks > 1) {
					return fmt.Errorf("%d ranks, %d and %d elements: %v", ranks, c.in, c.out, got)
				}
			}
			return nil
		})
	}
	var none *comm
	if none.crowds() {
		t.Error("no communication crowds")
	}
}

// TestCollectivesThatYieldToComputation checks which collectives get copy engines. Between two
// ranks all do. Among more ranks it depends on their place in the program.
func TestCollectivesThatYieldToComputation(t *testing.T) {
	step := func(dt tensor.DType, updates, late bool) *program.Program {
		p := &program.Program{Name: "step", Clock: program.None}
		one := p.Whole(p.Add(program.Value{Name: "weight", DType: tensor.F32}))
		w := p.Whole(p.Add(program.Value{Name: "w", DType: dt, Shape: []int{gpu.LeastAside / dt.Size()}}))
		norms := p.Whole(p.Add(program.Value{Name: "norms", DType: tensor.F32, Shape: []int{64}}))
		of := func(kind dist.Kind, v program.View) program.Step {
			return program.Step{Op: &program.Collective{Kind: kind}, In: views(v), Out: views(v), Stream: program.Comm}
		}
		gather, sum := of(dist.KindAllGather, w), of(dist.KindReduceScatter, w)
		if late {
			gather.Op = &program.Collective{Kind: dist.KindAllGather, Early: true}
		}
		first := gather
		gather = of(dist.KindAllGather, w)
		p.Steps = []program.Step{first, first, of(dist.KindAllReduce, one), sum, gather, sum, gather, of(dist.KindAllReduce, norms)}
		if updates { // of this rank alone
			for i := range len(p.Steps) {
				p.Steps = slices.Insert(p.Steps, 2*i, program.Step{Op: &program.MatMul{}, In: views(w, w), Out: views(w)})
			}
		}
		return p
	}
	for _, c := range []struct {
		dt      tensor.DType
		compute Compute
		ranks   int
		late    bool
		want    string // for each collective: copy engines or multiprocessors
	}{
		{tensor.F32, TF32, 2, false, "cccccccc"},
		{tensor.F32, F32, 4, false, "cccccmmm"},
		{tensor.F64, F32, 4, false, "cccccmmm"},
		{tensor.F32, TF32, 4, false, "ccmmmmmm"},
		{tensor.F32, BF16, 3, false, "ccmmmmmm"},
		{tensor.BF16, F32, 4, false, "cccmmmmm"},
		{tensor.F32, F32, 4, true, "cccccmcm"},
		{tensor.F32, TF32, 4, true, "ccmmmmcm"},
	} {
		for _, updates := range []bool{false, true} {
			p, got := step(c.dt, updates, c.late), ""
			for i := range p.Steps {
				if p.Steps[i].Stream != program.Comm {
					continue
				}
				if yields(p, i, c.compute, c.ranks) {
					got += "c"
				} else {
					got += "m"
				}
			}
			if got != c.want {
				t.Errorf("%v in %v, %d ranks: %s, want %s", c.dt, c.compute, c.ranks, got, c.want)
			}
		}
	}
}

// The first operation of a group in a program follows the previous program, so it may not start
// with that one's last operation.
func TestGatheringsGoAlong(t *testing.T) {
	p := &program.Program{Name: "step", Clock: program.None}
	for _, o := range []program.Collective{
		0: {Kind: dist.KindAllGather, Early: true},
		1: {Kind: dist.KindAllGather, Early: true, Group: 1},
		2: {Kind: dist.KindAllGather, Early: true},
		3: {Kind: dist.KindAllReduce},
		4: {Kind: dist.KindAllGather, Early: true},
		5: {Kind: dist.KindAllGather},
	} {
		p.Steps = append(p.Steps, program.Step{Op: &o, Stream: program.Comm}, program.Step{Op: &program.MatMul{}})
	}
	var got []int
	for i := range p.Steps {
		if goesAlong(p, i) {
			got = append(got, i/2)
		}
	}
	if want := []int{2, 4}; !slices.Equal(got, want) {
		t.Errorf("along go %v, want %v", got, want)
	}
}

func TestWhereGradientsOfWeightsHaveAStreamOfTheirOwn(t *testing.T) {
	for _, tt := range []struct {
		ranks, elements int
		kind            dist.Kind
		want            bool
	}{
		{1, gpu.LeastAside, dist.KindAllReduce, true}, // it is no communication
		{1, 8, dist.KindReduceScatter, true},
		{2, gpu.LeastAside/4 - 1, dist.KindAllReduce, true},
		{2, gpu.LeastAside / 4, dist.KindAllReduce, false},
		{2, 8, dist.KindReduceScatter, false},
		{2, 8, dist.KindAllGather, false},
		{3, 8, dist.KindAllReduce, false},
	} {
		p := &program.Program{Name: "step", Clock: program.None}
		v := p.Whole(p.Add(program.Value{Name: "v", DType: tensor.F32, Shape: []int{tt.elements}}))
		p.Steps = []program.Step{
			{Op: &program.MatMul{}, In: views(v, v), Out: views(v)},
			{Op: &program.Collective{Kind: tt.kind}, In: views(v), Out: views(v), Stream: program.Comm},
		}
		onRanks(t, tt.ranks, func(g *dist.Group) error {
			if got := Aside(p, []*dist.Group{g}); got != tt.want {
				return fmt.Errorf("%v of %d elements: %v, want %v", tt.kind, tt.elements, got, tt.want)
			}
			return nil
		})
	}
	if !Aside(&program.Program{Steps: []program.Step{{Op: &program.MatMul{}}}}, nil) {
		t.Error("a program that does not communicate has no stream aside")
	}
}

// TestSumsGoAheadOfTheComputation has large sums by multiprocessors. Those go ahead that a step
// follows which waits for nothing, if another sum comes later.
func TestSumsGoAheadOfTheComputation(t *testing.T) {
	p := &program.Program{Name: "step", Clock: program.None}
	w := p.Whole(p.Add(program.Value{Name: "w", DType: tensor.F32, Shape: []int{gpu.LeastAside / 4}}))
	small := p.Whole(p.Add(program.Value{Name: "small", DType: tensor.F32, Shape: []int{gpu.LeastAside/4 - 1}}))
	collect := func(kind dist.Kind, v program.View, on program.Stream) program.Step {
		return program.Step{Op: &program.Collective{Kind: kind}, In: views(v), Out: views(v), Stream: on}
	}
	product := program.Step{Op: &program.MatMul{}, In: views(w, w), Out: views(w)}
	update := product
	update.After = []int{1}
	sum := collect(dist.KindAllReduce, w, program.Comm)
	p.Steps = []program.Step{
		0:  product,
		1:  sum, // ahead of the next product
		2:  product,
		3:  collect(dist.KindReduceScatter, small, program.Comm),
		4:  collect(dist.KindReduceScatter, w, program.Comm), // ahead too
		5:  collect(dist.KindAllGather, w, program.Comm),
		6:  product,
		7:  sum, // an update comes next, which waits for the first sum
		8:  update,
		9:  collect(dist.KindAllReduce, w, program.Compute), // which the computation waits for
		10: product,
		11: sum, // the last one that the computation does not wait for
		12: product,
	}
	const none = "[]"
	for _, tt := range []struct {
		steps, ranks int
		beside       bool
		want         string
	}{
		{13, 1, false, none},
		{13, 2, false, "[1+ 2- 4+ 6-]"},
		{13, 2, true, none},
		{3, 2, false, "[1+ 2-]"}, // the first one goes ahead although it is the last
		{7, 2, false, "[1+ 2-]"},
		{2, 2, false, none}, // no step follows
	} {
		part := &program.Program{Name: p.Name, Clock: p.Clock, Values: p.Values, Steps: p.Steps[:tt.steps]}
		o, err := newOrder(part)
		if err != nil {
			t.Fatal(err)
		}
		onRanks(t, tt.ranks, func(g *dist.Group) error {
			o := o
			o.turns = slices.Clone(o.turns)
			c := &comm{steps: make([]*collective, len(part.Steps))}
			for i := range part.Steps {
				if o, ok := part.Steps[i].Op.(*program.Collective); ok {
					c.steps[i] = &collective{op: o, group: g, beside: tt.beside}
				}
			}
			c.goAhead(part, &o)
			got := []string{}
			for i, turn := range o.turns {
				if turn.ahead {
					got = append(got, fmt.Sprintf("%d+", i))
				}
				if turn.behind {
					got = append(got, fmt.Sprintf("%d-", i))
				}
			}
			if fmt.Sprint(got) != tt.want {
				return fmt.Errorf("%d steps, %d ranks, copy engines %t: ahead and behind are %v, want %s", tt.steps, tt.ranks, tt.beside, got, tt.want)
			}
			return nil
		})
	}
	var alone *comm
	alone.goAhead(p, &order{})
}
