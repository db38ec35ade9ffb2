package cudagen

import (
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// integerThreads is the threads per block of an Integer.
const integerThreads = 256

// integers are the functions of kernels/integer.cu.
var integers = map[program.Scalar]string{
	program.Load: "intLoad", program.Add: "intAdd", program.Sub: "intSub", program.Mul: "intMul", program.Div: "intDiv",
	program.Maximum: "intMaximum", program.Minimum: "intMinimum", program.Less: "intLess", program.LessEqual: "intLessEqual",
	program.Greater: "intGreater", program.GreaterEqual: "intGreaterEqual", program.Equal: "intEqual", program.NotEqual: "intNotEqual",
}

// integer generates the kernel of an Integer: a loop over elements, or a block for each sum.
func (g *generator) integer(i int, op *program.Integer) error {
	f, ok := integers[op.Do]
	if !ok || !op.Known() {
		return fmt.Errorf("no kernel for integer %v", op.Do)
	}
	g.use(integerPart)
	s, w := &g.p.Steps[i], "s64"
	dt := g.value(s.In[0]).DType
	if dt == tensor.U64 {
		w = "u64"
	}
	t := &template{}
	for j := range s.In {
		t.read(g, i, j)
	}
	t.write(g, i, 0)
	if op.Do == program.Div {
		t.fault(i)
	}
	call := fmt.Sprintf("%s<%s>", f, w)
	var count, grid int
	var text string
	if op.Reduced != nil {
		text, count = g.integerSums(s, op, call)
		grid = min(count, 65535)
	} else {
		text, count = g.integerElements(s, op, call)
		grid = g.blocks(count, integerThreads)
	}
	if count == 0 {
		return nil
	}
	text = fmt.Sprintf("extern \"C\" __global__ void __launch_bounds__(%d) %s(%s) {\n%s}\n",
		integerThreads, nameMark, strings.Join(t.params, ", "), text)
	g.launch(i, Kernel{
		Name: g.function("integer", text), Grid: [3]uint32{uint32(grid), 1, 1}, Block: [3]uint32{integerThreads, 1, 1}, Args: t.args,
	})
	return nil
}

// integerElements returns the code of an Integer without a reduction, and its number of elements.
func (g *generator) integerElements(s *program.Step, op *program.Integer, call string) (text string, count int) {
	var b strings.Builder
	count = lengthOf(op.Space)
	names, strides := []string{"p0"}, [][]int{s.In[0].Strides}
	if len(s.In) > 1 {
		names, strides = append(names, "p1"), append(strides, s.In[1].Strides)
	}
	names, strides = append(names, "q"), append(strides, s.Out[0].Strides)
	fmt.Fprintf(&b, "  for (s64 e = (s64)blockIdx.x * %d + threadIdx.x; e < %d; e += (s64)gridDim.x * %d) {\n", integerThreads, count, integerThreads)
	b.WriteString(walk("e", names, op.Space, strides))
	second := "0"
	if len(s.In) > 1 {
		second = "(s64)a1[p1]"
	}
	fmt.Fprintf(&b, "    const s64 y = %s;\n", second)
	if op.Do == program.Div {
		fmt.Fprintf(&b, "    if (y == 0) {\n      fault(words, %d, step, (double)e);\n      continue;\n    }\n", FaultDivisor)
	}
	fmt.Fprintf(&b, "    b0[q] = (%s)%s((s64)a0[p0], y);\n  }\n", ctype(g.value(s.Out[0]).DType), call)
	return b.String(), count
}

// integerSums returns the code of an Integer with a reduction, and its number of results.
func (g *generator) integerSums(s *program.Step, op *program.Integer, call string) (text string, count int) {
	var kept, along, in, out, inAlong []int
	for a, d := range op.Space {
		if op.Reduced[a] {
			along, inAlong = append(along, d), append(inAlong, s.In[0].Strides[a])
		} else {
			kept, in, out = append(kept, d), append(in, s.In[0].Strides[a]), append(out, s.Out[0].Strides[a])
		}
	}
	empty := op.Do.EmptyInteger(g.value(s.In[0]).DType)
	var b strings.Builder
	fmt.Fprintf(&b, "  __shared__ s64 part[%d];\n  for (s64 e = blockIdx.x; e < %d; e += gridDim.x) {\n", integerThreads, lengthOf(kept))
	b.WriteString(walk("e", []string{"p0", "q"}, kept, [][]int{in, out}))
	fmt.Fprintf(&b, "    s64 x = (s64)%dull;\n", uint64(empty))
	fmt.Fprintf(&b, "    for (s64 k = threadIdx.x; k < %d; k += %d) {\n%s", lengthOf(along), integerThreads, walk("k", []string{"r"}, along, [][]int{inAlong}))
	fmt.Fprintf(&b, "    x = %s(x, (s64)a0[p0 + r]);\n    }\n    __syncthreads();\n    part[threadIdx.x] = x;\n", call)
	fmt.Fprintf(&b, "    for (int h = %d; h > 0; h /= 2) {\n      __syncthreads();\n", integerThreads/2)
	fmt.Fprintf(&b, "      if (threadIdx.x < h) part[threadIdx.x] = %s(part[threadIdx.x], part[threadIdx.x + h]);\n    }\n", call)
	fmt.Fprintf(&b, "    if (threadIdx.x == 0) b0[q] = (%s)part[0];\n  }\n", ctype(g.value(s.Out[0]).DType))
	return b.String(), lengthOf(kept)
}

// walk declares the offsets of element number e of a space, by the strides of some operands.
func walk(e string, names []string, space []int, strides [][]int) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "    s64 %s = 0;\n", n)
	}
	fmt.Fprintf(&b, "    s64 left_%s = %s;\n", e, e)
	for d := len(space) - 1; d >= 0; d-- {
		if space[d] == 1 {
			continue
		}
		for k, n := range names {
			if strides[k][d] != 0 {
				fmt.Fprintf(&b, "    %s += left_%s %% %d * %d;\n", n, e, space[d], strides[k][d])
			}
		}
		fmt.Fprintf(&b, "    left_%s /= %d;\n", e, space[d])
	}
	return b.String()
}

// lengthOf returns the number of elements of a space.
func lengthOf(space []int) int {
	n := 1
	for _, d := range space {
		n *= d
	}
	return n
}
