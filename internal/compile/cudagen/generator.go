package cudagen

import (
	_ "embed" // the kernels
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

//go:embed kernels/base.cu
var baseSource string

//go:embed kernels/rand.cu
var randSource string

//go:embed kernels/rows.cu
var rowsSource string

//go:embed kernels/pool.cu
var poolSource string

//go:embed kernels/window.cu
var windowSource string

//go:embed kernels/gather.cu
var gatherSource string

//go:embed kernels/integer.cu
var integerSource string

//go:embed kernels/norm.cu
var normSource string

//go:embed kernels/gemm.cu
var gemmSource string

//go:embed kernels/conv.cu
var convSource string

//go:embed kernels/thin.cu
var thinSource string

//go:embed kernels/attention.cu
var attentionSource string

// part is a file of kernels. A text has the parts that it needs, in this order.
type part int

const (
	randPart part = iota
	rowsPart
	poolPart
	windowPart
	gatherPart
	integerPart
	normPart
	gemmPart
	convPart
	thinPart
	attentionPart
	parts
)

// generator builds the text of a program.
type generator struct {
	p     *program.Program
	t     Target
	steps []Step

	uses  [parts]bool
	names map[string]string // by text, with nameMark for the name
	funcs []string          // texts, in the order of their first use
}

// nameMark stands for the function's name in a text, so that equal functions have equal texts.
const nameMark = "@name@"

func newGenerator(p *program.Program, t Target) *generator {
	if t.SMs <= 0 {
		t.SMs = 132
	}
	if t.MaxThreads <= 0 {
		t.MaxThreads = 2048
	}
	if t.Arch <= 0 {
		t.Arch = 80
	}
	return &generator{p: p, t: t, steps: make([]Step, len(p.Steps)), names: map[string]string{}}
}

// all generates the kernels of all steps.
func (g *generator) all() error {
	for i := 0; i < len(g.p.Steps); {
		n, c := 1, chain{}
		if !g.t.Apart {
			n, c = g.together(i), g.along(i)
		}
		var err error
		switch {
		case len(c.phases) > n:
			n = len(c.phases)
			err = g.alongRows(&c)
		case n > 1:
			err = g.merged(i, n)
		default:
			err = g.step(i)
		}
		if err != nil {
			return fmt.Errorf("cudagen: step %d (%s): %w", i, g.p.Steps[i].Name, err)
		}
		i += n
	}
	return nil
}

// step generates the kernels of step i.
func (g *generator) step(i int) error {
	if err := g.check(i); err != nil {
		return err
	}
	switch op := g.p.Steps[i].Op.(type) {
	case *program.Map:
		return g.mapStep(i, op)
	case *program.Reduce:
		return g.reduceStep(i, op)
	case *program.MatMul:
		if g.own(i) {
			return g.matMul(i, op)
		}
	case *program.Conv, *program.ConvGradInput, *program.ConvGradFilter:
		if g.own(i) {
			return g.conv(i, op)
		}
	case *program.Collective, *program.Call:
	default:
		return g.fixed(i, op)
	}
	return nil
}

// fixed generates the kernels of a step whose code depends on few numbers.
func (g *generator) fixed(i int, op program.Op) error {
	switch op := op.(type) {
	case *program.Integer:
		return g.integer(i, op)
	case *program.Im2Col:
		g.im2col(i, op)
	case *program.Col2Im:
		g.col2im(i, op)
	case *program.MaxPool:
		g.maxPool(i, &op.Window)
	case *program.MaxPoolGrad:
		g.maxPoolGrad(i, &op.Window)
	case *program.AvgPool:
		g.pool(i, "avgPool", &op.Window, false)
	case *program.AvgPoolGrad:
		g.pool(i, "avgPoolGrad", &op.Window, true)
	case *program.Softmax:
		g.softmax(i, "softmax", op.Outer, op.Axis, op.Inner, op.Log)
	case *program.SoftmaxGrad:
		g.softmax(i, "softmaxGrad", op.Outer, op.Axis, op.Inner, op.Log)
	case *program.CrossEntropy:
		g.crossEntropy(i, op)
	case *program.SparseCrossEntropy:
		sparseCrossEntropy(g, i, op)
	case *program.Attention:
		return g.attention(i, op)
	case *program.AttentionGrad:
		return g.attentionGrad(i, op)
	case *program.Gather:
		g.gather(i, op)
	case *program.GatherGrad:
		g.gatherGrad(i, op)
	case *program.BatchNorm:
		g.batchNorm(i, op)
	case *program.BatchNormGrad:
		g.batchNormGrad(i, op)
	default:
		return fmt.Errorf("no kernel for %T", op)
	}
	return nil
}

func (g *generator) own(i int) bool { return i < len(g.t.Own) && g.t.Own[i] }

// check rejects a step whose views no kernel can use. Validate checks the rest.
func (g *generator) check(i int) error {
	s := &g.p.Steps[i]
	if s.Op == nil {
		return errors.New("it has no op")
	}
	if _, _, err := g.p.Operands(s); err != nil {
		return err
	}
	for _, views := range [][]program.View{s.In, s.Out} {
		for j, v := range views {
			if v.Value < 0 || int(v.Value) >= len(g.p.Values) {
				return fmt.Errorf("view %d is of value %d of %d", j, v.Value, len(g.p.Values))
			}
			if dt := g.value(v).DType; !dt.Valid() {
				return fmt.Errorf("view %d is of value %q with dtype %v", j, g.value(v).Name, dt)
			}
		}
	}
	return nil
}

// use adds a part to the text.
func (g *generator) use(p part) { g.uses[p] = true }

// function adds a function to the text, unless it has an equal one, and returns its name. In the
// argument nameMark stands for the name.
func (g *generator) function(kind, text string) string {
	if name, ok := g.names[text]; ok {
		return name
	}
	name := fmt.Sprintf("%s_%d", kind, len(g.funcs))
	g.names[text] = name
	g.funcs = append(g.funcs, strings.ReplaceAll(text, nameMark, name))
	return name
}

// text returns the whole text.
func (g *generator) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#define ARCH %d\n\n%s", g.t.Arch, baseSource)
	all := [parts]string{randSource, rowsSource, poolSource, windowSource, gatherSource, integerSource, normSource, gemmSource, convSource, thinSource, attentionSource}
	for i, used := range g.uses {
		if used {
			b.WriteString("\n" + all[i])
		}
	}
	for _, f := range g.funcs {
		b.WriteString("\n" + f)
	}
	return b.String()
}

// launch adds a launch to step i.
func (g *generator) launch(i int, k Kernel) { g.steps[i].Kernels = append(g.steps[i].Kernels, k) }

// scratch reserves bytes of step i's scratch memory and returns their offset.
func (g *generator) scratch(i int, bytes int64) int64 {
	at := (g.steps[i].Scratch + 255) &^ 255
	g.steps[i].Scratch = at + bytes
	return at
}

// value returns the value of view v.
func (g *generator) value(v program.View) *program.Value { return &g.p.Values[v.Value] }

// in and out return the address of an In or Out of step i, with the view's offset.
func (g *generator) in(i, j int) Arg { return g.address(In, i, j, g.p.Steps[i].In[j]) }

func (g *generator) out(i, j int) Arg { return g.address(Out, i, j, g.p.Steps[i].Out[j]) }

func (g *generator) address(kind ArgKind, i, j int, v program.View) Arg {
	return Arg{Kind: kind, Step: i, Index: j, Offset: int64(v.Offset) * int64(g.value(v).DType.Size())}
}

// aliased reports whether step i may write the memory of its In j, so that the compiler must not
// treat it as read-only.
func (g *generator) aliased(i, j int) bool {
	s := &g.p.Steps[i]
	return slices.ContainsFunc(s.Out, func(o program.View) bool { return g.sameMemory(s.In[j], o) })
}

// wide reports whether step i computes in float64.
func (g *generator) wide(i int) bool {
	s := &g.p.Steps[i]
	isWide := func(v program.View) bool { return g.value(v).DType == tensor.F64 }
	return slices.ContainsFunc(s.In, isWide) || slices.ContainsFunc(s.Out, isWide)
}

// real returns the type of arithmetic of step i.
func (g *generator) real(i int) string {
	if g.wide(i) {
		return "double"
	}
	return "float"
}

// ctype returns the C type of elements.
func ctype(dt tensor.DType) string {
	return [...]string{
		tensor.F16: "f16", tensor.BF16: "bf16", tensor.F32: "float", tensor.F64: "double", tensor.I8: "s8", tensor.I16: "s16",
		tensor.I32: "s32", tensor.I64: "s64", tensor.U8: "u8", tensor.U16: "u16", tensor.U32: "u32", tensor.U64: "u64",
	}[dt]
}
