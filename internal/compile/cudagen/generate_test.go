package cudagen

import (
	"regexp"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// parameters is the parameters of each kernel of a text.
func parameters(text string) map[string][]string {
	all := map[string][]string{}
	for _, m := range regexp.MustCompile(`extern "C" __global__ void __launch_bounds__\([0-9, ]+\) (\w+)\(([^)]*)\)`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = strings.Split(m[2], ", ")
	}
	return all
}

func TestLaunchesAgreeWithTheText(t *testing.T) {
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := made[i]()
			if m.err != nil {
				t.Fatal(m.err)
			}
			kernels := parameters(m.text)
			for i := range m.steps {
				for _, k := range m.steps[i].Kernels {
					checkKernel(t, m.p, m.steps, kernels, k)
				}
			}
			if again, _, _ := Generate(m.p, m.target()); again != m.text {
				t.Error("a second text differs")
			}
			for _, bad := range []string{"#include", "__expf", "fast_math", nameMark, "multimem"} {
				if strings.Contains(m.text, bad) {
					t.Errorf("the text has %q", bad)
				}
			}
		})
	}
}

func checkKernel(t *testing.T, p *program.Program, steps []Step, kernels map[string][]string, k Kernel) {
	t.Helper()
	params, ok := kernels[k.Name]
	if !ok || len(params) != len(k.Args) || len(k.Args) > MostArgs {
		t.Errorf("%s has %d parameters in the text, %d arguments, at most %d", k.Name, len(params), len(k.Args), MostArgs)
	}
	if k.Grid[0] == 0 || k.Block[0] == 0 || k.Block[0] > 1024 || k.Block[0]%32 != 0 {
		t.Errorf("%s has grid %v, block %v", k.Name, k.Grid, k.Block)
	}
	for j, a := range k.Args {
		s := &p.Steps[a.Step]
		var v *program.Value
		switch a.Kind {
		case In:
			v = &p.Values[s.In[a.Index].Value]
		case Out:
			v = &p.Values[s.Out[a.Index].Value]
		case Scratch:
			if a.Offset%256 != 0 && a.Offset%4 != 0 || a.Offset >= steps[a.Step].Scratch {
				t.Errorf("%s: argument %d is byte %d of %d", k.Name, j, a.Offset, steps[a.Step].Scratch)
			}
			continue
		default:
			continue
		}
		if name := ctype(v.DType); !regexp.MustCompile(`\b` + name + ` `).MatchString(params[j]) {
			t.Errorf("%s: parameter %q is a %v", k.Name, params[j], v.DType)
		}
		if a.Offset < 0 || a.Offset > 0 && a.Offset >= v.Bytes() {
			t.Errorf("%s: argument %d is byte %d of %d", k.Name, j, a.Offset, v.Bytes())
		}
	}
}

func TestEqualStepsShareAFunction(t *testing.T) {
	b := newBuilder("equal")
	for range 3 {
		x := b.whole(tensor.F32, bounds{-1, 1}, 100, 40, 1)
		b.step(&program.Softmax{Outer: 100, Axis: 40, Inner: 1}, views(x), views(b.empty(tensor.F32, 100, 40, 1)))
	}
	text, steps, err := Generate(b.p, b.target())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(parameters(text)); n != 1 {
		t.Errorf("%d kernels, want 1", n)
	}
	for i := range steps {
		if name := steps[i].Kernels[0].Name; name != steps[0].Kernels[0].Name {
			t.Errorf("step %d has kernel %s", i, name)
		}
	}
}

// updates makes three Maps over values of their own, and optionally a step that the second waits
// for.
func updates(change func(p *program.Program)) *builder {
	b := newBuilder("updates")
	for range 3 {
		x := b.whole(tensor.F32, bounds{-1, 1}, 50)
		b.step(&program.Map{Space: []int{50}, Code: []program.Instr{load(0), apply(program.Neg, 0)}, Stores: []int{1}}, views(x), views(x))
	}
	change(b.p)
	return b
}

func TestIndependentMapsAreOneLaunch(t *testing.T) {
	arena := func(p *program.Program, first, second int64) {
		p.Values[0].Place, p.Values[1].Place = program.Arena, program.Arena
		p.Values[0].Offset, p.Values[1].Offset, p.Arena = first, second, 1024
	}
	for _, c := range []struct {
		name   string
		change func(p *program.Program)
		want   []int // launches of each step
	}{
		{"independent", func(*program.Program) {}, []int{1, 0, 0}},
		{"read after write", func(p *program.Program) { p.Steps[1].In[0] = p.Steps[0].Out[0] }, []int{1, 1, 0}},
		{"write after read", func(p *program.Program) { p.Steps[1].Out[0] = p.Steps[0].In[0] }, []int{1, 1, 0}},
		{"last writes what the first does", func(p *program.Program) { p.Steps[2].Out[0] = p.Steps[0].Out[0] }, []int{1, 0, 1}},
		{"same bytes of the arena", func(p *program.Program) { arena(p, 0, 128) }, []int{1, 1, 0}},
		{"other bytes of the arena", func(p *program.Program) { arena(p, 0, 256) }, []int{1, 0, 0}},
		{"another stream", func(p *program.Program) { p.Steps[1].Stream = program.Comm }, []int{1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := updates(c.change)
			_, steps, err := Generate(b.p, b.target())
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if got := len(steps[i].Kernels); got != want {
					t.Errorf("step %d has %d launches, want %d", i, got, want)
				}
			}
			apart := b.target()
			apart.Apart = true
			if _, steps, _ = Generate(b.p, apart); len(steps[1].Kernels) != 1 || len(steps[2].Kernels) != 1 {
				t.Error("apart, a step has no launch of its own")
			}
		})
	}
}

// A Map that waits for a collective which nothing before it waits for must not move before it.
func TestAMapIsNotMovedBeforeWhatItWaitsFor(t *testing.T) {
	build := func(firstAfter, secondAfter []int) []Step {
		b := newBuilder("wait")
		for range 2 {
			g := b.whole(tensor.F32, bounds{}, 8)
			b.step(&program.Collective{}, views(g), views(g))
			b.p.Steps[len(b.p.Steps)-1].Stream = program.Comm
		}
		for k, after := range [][]int{firstAfter, secondAfter} {
			g := b.p.Steps[k].Out[0]
			b.step(&program.Map{Space: []int{8}, Code: []program.Instr{load(0)}, Stores: []int{0}}, views(g), views(b.empty(tensor.F32, 8)))
			b.p.Steps[2+k].After = after
		}
		_, steps, err := Generate(b.p, b.target())
		if err != nil {
			t.Fatal(err)
		}
		return steps
	}
	if s := build([]int{0}, []int{1}); len(s[3].Kernels) != 1 {
		t.Error("the second update does not wait for its own sum")
	}
	if s := build([]int{0, 1}, []int{1}); len(s[3].Kernels) != 0 {
		t.Error("the second update waits for no more than the first, and is a launch of its own")
	}
}

func TestStepsWithoutKernels(t *testing.T) {
	b := newBuilder("none")
	x := b.whole(tensor.F32, bounds{}, 1, 4, 4)
	b.step(&program.MatMul{Batch: 1, M: 4, N: 4, K: 4, Alpha: 1}, views(x, x), views(b.empty(tensor.F32, 1, 4, 4)))
	b.step(&program.Collective{}, views(x), views(x))
	b.step(&program.Map{Space: []int{0}, Code: []program.Instr{load(0)}, Stores: []int{0}}, views(b.empty(tensor.F32, 0)), views(b.empty(tensor.F32, 0)))
	_, steps, err := Generate(b.p, Target{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		if len(steps[i].Kernels) != 0 {
			t.Errorf("step %d has %v", i, steps[i].Kernels)
		}
	}
}

func TestWhatNoKernelCanDoIsAnErrorThatNamesTheStep(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *program.Step)
		want   string
	}{
		{"no op", func(s *program.Step) { s.Op = nil }, "no op"},
		{"no such value", func(s *program.Step) { s.In[0].Value = 99 }, "value 99"},
		{"too few Outs", func(s *program.Step) { s.Out = nil }, "out"},
		{"no such In", func(s *program.Step) { s.In = nil }, "loads In 0 of 0"},
		{"no such register", func(s *program.Step) { s.Op.(*program.Map).Stores[0] = 7 }, "register 7"},
		{"a later register", func(s *program.Step) { s.Op.(*program.Map).Code[1].A = 1 }, "reads register 1"},
		{"no such operation", func(s *program.Step) { s.Op.(*program.Map).Code[1].Op = 200 }, "scalar operation 200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBuilder("wrong")
			code := []program.Instr{load(0), apply(program.Neg, 0)}
			b.step(&program.Map{Space: []int{5}, Code: code, Stores: []int{1}}, views(b.empty(tensor.F32, 5)), views(b.empty(tensor.F32, 5)))
			c.change(&b.p.Steps[0])
			_, _, err := Generate(b.p, b.target())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "step 0 (s0)") {
				t.Errorf("error %v, want step 0 (s0) and %q", err, c.want)
			}
		})
	}
}

// Blocks of a large Map end after a few turns, unless they are to stay. Small Maps are launched
// equally.
func TestBlocksOfLargeMapsEndSoon(t *testing.T) {
	const resident = 132 * 2048 / 256
	for _, c := range []struct{ count, soon, stay int }{
		{1, 1, 1},
		{256 * resident, resident, resident},
		{256 * mostTurns * resident, resident, resident},
		{256*mostTurns*resident + 1, resident + 1, resident},
		{256 * 100 * resident, 25 * resident, resident},
	} {
		for stay, want := range map[bool]int{false: c.soon, true: c.stay} {
			g := &generator{t: Target{SMs: 132, MaxThreads: 2048, Stay: stay}}
			if got := g.blocks(c.count, 256); got != want {
				t.Errorf("%d turns, stay %v: %d blocks, want %d", c.count, stay, got, want)
			}
		}
	}
}
