package cudagen

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

var rewrite = flag.Bool("rewrite", false, "write the texts that are made now to testdata; then read the diff")

// golden are programs whose text, without the kernels folder, is in testdata.
var golden = []struct {
	name  string
	build func() *builder
}{
	{"chain", func() *builder {
		b := newBare("chain")
		code := []program.Instr{load(0), load(1), apply(program.Add, 0, 1), constant64(0), apply(program.Maximum, 2, 3)}
		one := bounds{-1, 1}
		x := b.whole(tensor.F32, one, 128, 512)
		b.step(&program.Map{Space: []int{128, 512}, Code: code, Stores: []int{4}}, views(x, b.broadcast(tensor.F32, one, []int{128, 512}, 1)), views(x))
		y := b.whole(tensor.BF16, one, 4096, 4096)
		b.step(&program.Map{Space: []int{4096, 4096}, Code: code[:3], Stores: []int{2}}, views(y, y), views(b.empty(tensor.F16, 4096, 4096)))
		return b
	}},
	{"reductions", func() *builder {
		b := newBare("reductions")
		code := []program.Instr{load(0)}
		x := b.whole(tensor.F32, bounds{-1, 1}, 128, 512)
		out := func(n int, strides ...int) []program.View {
			return views(program.View{Value: b.value(tensor.F32, bounds{}, n), Strides: strides})
		}
		b.step(&program.Reduce{Space: []int{128, 512}, Reduced: []bool{true, false}, Code: code}, views(x), out(512, 0, 1))
		b.step(&program.Reduce{Space: []int{128, 512}, Reduced: []bool{false, true}, Red: program.Max, Code: code}, views(x), out(128, 1, 0))
		b.step(&program.Reduce{Space: []int{128, 512}, Reduced: []bool{true, true}, Code: code}, views(x), out(1, 0, 0))
		return b
	}},
	{"adam", func() *builder {
		b := newBare("adam")
		rate := b.value(tensor.F32, bounds{0.1, 0.2})
		for _, shape := range [][]int{{784, 512}, {512}, {10}} {
			adam(b, rate, shape)
		}
		return b
	}},
	{"transpose", func() *builder {
		b := newBare("transpose")
		space := []int{8, 64, 12, 64}
		in := program.View{Value: b.value(tensor.F32, bounds{}, 8, 64, 12, 64), Strides: []int{64 * 12 * 64, 1, 64 * 64, 64}}
		b.step(&program.Map{Space: space, Code: []program.Instr{load(0)}, Stores: []int{0}}, views(in), views(b.empty(tensor.F32, space...)))
		return b
	}},
	{"along", func() *builder {
		b := newBare("along")
		y := b.normalize(b.whole(tensor.F32, bounds{-1, 1}, 16, 128, 256), tensor.F32, 16, 128, 256)
		b.step(&program.Softmax{Outer: 2048, Axis: 256, Inner: 1}, views(program.View{Value: y.Value, Strides: []int{256, 1, 1}}),
			views(b.empty(tensor.F32, 2048, 256, 1)))
		return b
	}},
	{"fixed", func() *builder {
		b := newBare("fixed")
		x := b.whole(tensor.F32, bounds{}, 128, 10)
		b.step(&program.CrossEntropy{Rows: 128, Classes: 10}, views(x, b.whole(tensor.F32, bounds{}, 128, 10)), views(b.empty(tensor.F32), b.empty(tensor.F32, 128, 10)))
		y := func(shape ...int) program.View { return b.whole(tensor.F32, bounds{}, shape...) }
		b.step(&program.Softmax{Outer: 128, Axis: 10, Inner: 1}, views(y(128, 10, 1)), views(y(128, 10, 1)))
		b.step(&program.GatherGrad{Outer: 1, Axis: 1000, Inner: 10, Count: 128}, views(y(1, 128, 10), b.whole(tensor.I32, bounds{}, 128)),
			views(y(1, 1000, 10)))
		return b
	}},
}

// summary is the launches of each step.
func summary(steps []Step) string {
	var s strings.Builder
	for i := range steps {
		fmt.Fprintf(&s, "// step %d: %d B of scratch memory\n", i, steps[i].Scratch)
		for _, k := range steps[i].Kernels {
			fmt.Fprintf(&s, "//   %s <<<%d, %d>>>", k.Name, k.Grid[0], k.Block[0])
			for _, a := range k.Args {
				kind := [...]string{In: "in", Out: "out", Scratch: "scratch", Clock: "clock", Fault: "fault", Number: "number"}[a.Kind]
				fmt.Fprintf(&s, " %s%d.%d+%d", kind, a.Step, a.Index, a.Offset)
			}
			s.WriteString("\n")
		}
	}
	return s.String()
}

func TestTexts(t *testing.T) {
	for _, c := range golden {
		t.Run(c.name, func(t *testing.T) {
			b := c.build()
			b.valid(t)
			g := newGenerator(b.p, b.target())
			if err := g.all(); err != nil {
				t.Fatal(err)
			}
			got := summary(g.steps) + "\n" + strings.Join(g.funcs, "\n")
			file := filepath.Join("testdata", c.name+".cu")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs: run with -rewrite and read the diff. Now it is\n%s", file, got)
			}
		})
	}
}
