package cudagen

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// loaded is a program on a device, with memory of its own for each value.
type loaded struct {
	v      *cuda.Device
	s      *cuda.Stream
	p      *program.Program
	steps  []Step
	kernel map[string]*cuda.Function
	at     []uintptr // of each value
	work   []uintptr // scratch memory of each step
	faults uintptr
}

// load compiles a program and fills its values.
func (b *builder) load(t testing.TB, v *cuda.Device, target Target) *loaded {
	t.Helper()
	text, steps, err := Generate(b.p, target)
	if err != nil {
		t.Fatal(err)
	}
	image, err := cudatest.Compiler(t).Compile(v, cuda.Source{Name: b.p.Name + ".cu", Text: text, Options: Options()})
	if err != nil {
		t.Fatal(err)
	}
	module, err := v.Load(image)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := v.NewStream(0)
	if err != nil {
		t.Fatal(err)
	}
	l := &loaded{v: v, s: stream, p: b.p, steps: steps, kernel: map[string]*cuda.Function{}}
	t.Cleanup(func() { l.close(t, module) })
	l.faults = l.alloc(t, 8*FaultWords)
	for i := range b.p.Values {
		l.at = append(l.at, l.alloc(t, b.p.Values[i].Bytes()))
		l.write(t, l.at[i], b.memory[program.ID(i)])
	}
	for i := range steps {
		l.work = append(l.work, l.alloc(t, steps[i].Scratch))
		for _, k := range steps[i].Kernels {
			if l.kernel[k.Name], err = module.Function(k.Name); err != nil {
				t.Fatal(err)
			}
			if err := l.kernel[k.Name].AllowShared(int(k.Shared)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// alloc is zeroed memory.
func (l *loaded) alloc(t testing.TB, bytes int64) uintptr {
	t.Helper()
	p, err := l.v.Alloc(max(bytes, 16))
	if err == nil {
		err = l.v.Fill(p, 0, max(bytes, 16))
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (l *loaded) write(t testing.TB, p uintptr, data []byte) {
	t.Helper()
	if len(data) == 0 {
		return
	}
	if err := l.v.CopyFromHost(p, unsafe.Pointer(&data[0]), int64(len(data))); err != nil {
		t.Fatal(err)
	}
}

func (l *loaded) read(t testing.TB, p uintptr, bytes int64) []byte {
	t.Helper()
	data := make([]byte, bytes)
	if bytes == 0 {
		return data
	}
	if err := l.v.CopyToHost(unsafe.Pointer(&data[0]), p, bytes); err != nil {
		t.Fatal(err)
	}
	return data
}

// run launches all steps once, and waits.
func (l *loaded) run(t testing.TB) {
	t.Helper()
	l.launch(t)
	if err := l.s.Synchronize(); err != nil {
		t.Fatal(err)
	}
}

func (l *loaded) launch(t testing.TB) {
	t.Helper()
	for i := range l.steps {
		for _, k := range l.steps[i].Kernels {
			var args cuda.Args
			for _, a := range k.Args {
				l.add(&args, a)
			}
			if err := l.kernel[k.Name].Launch(l.s, cuda.Launch{Grid: k.Grid, Block: k.Block, Shared: k.Shared}, &args); err != nil {
				t.Fatalf("%s: %v", caseName(l.p, i), err)
			}
		}
	}
}

func (l *loaded) add(args *cuda.Args, a Arg) {
	switch a.Kind {
	case In:
		args.Ptr(l.at[l.p.Steps[a.Step].In[a.Index].Value] + uintptr(a.Offset))
	case Out:
		args.Ptr(l.at[l.p.Steps[a.Step].Out[a.Index].Value] + uintptr(a.Offset))
	case Scratch:
		args.Ptr(l.work[a.Step] + uintptr(a.Offset))
	case Clock:
		args.Ptr(l.at[l.p.Clock])
	case Fault:
		args.Ptr(l.faults)
	default:
		args.U64(uint64(a.Offset))
	}
}

func (l *loaded) close(t testing.TB, module *cuda.Module) {
	t.Helper()
	for _, p := range append(append([]uintptr{l.faults}, l.at...), l.work...) {
		if err := l.v.Free(p); err != nil {
			t.Error(err)
		}
	}
	if err := l.s.Close(); err != nil {
		t.Error(err)
	}
	if err := module.Close(); err != nil {
		t.Error(err)
	}
}

// tolerance is how far a result may be from the oracle's, relative to the larger of it and 1:
// rounding to the type, and for sums in f32 that of their additions.
func tolerance(dt tensor.DType) float64 {
	switch dt {
	case tensor.F16:
		return 2e-3
	case tensor.BF16:
		return 1.6e-2
	case tensor.F32:
		return 2e-5
	case tensor.F64:
		return 1e-12
	}
	return 0
}

// compare compares all Outs with the oracle's.
func (b *builder) compare(t *testing.T, l *loaded, want map[program.ID][]byte) {
	t.Helper()
	for i := range b.p.Steps {
		for j, out := range b.p.Steps[i].Out {
			v := &b.p.Values[out.Value]
			got, wrong := l.read(t, l.at[out.Value], v.Bytes()), 0
			for e := range v.Len() {
				x, y := program.Element(v.DType, got, e), program.Element(v.DType, want[out.Value], e)
				if !near(x, y, tolerance(v.DType)) {
					if wrong++; wrong == 1 {
						t.Errorf("%s: out %d, element %d: %v, want %v (kernels %v)", caseName(b.p, i), j, e, x, y, l.steps[i].Kernels)
					}
				}
			}
			if wrong > 1 {
				t.Errorf("%s: out %d: %d of %d elements are wrong", caseName(b.p, i), j, wrong, v.Len())
			}
		}
	}
}

func near(x, y, tolerance float64) bool {
	if x == y || math.IsNaN(x) && math.IsNaN(y) {
		return true
	}
	return math.Abs(x-y) <= tolerance*max(1, math.Abs(y)) && !math.IsInf(y, 0)
}

// expect returns the oracle's results.
func (b *builder) expect(t *testing.T) map[program.ID][]byte {
	t.Helper()
	memory := map[program.ID][]byte{}
	for id := range program.ID(len(b.p.Values)) {
		memory[id] = append([]byte(nil), b.memory[id]...)
	}
	if err := oracle.Run(b.p, memory); err != nil {
		t.Fatal(err)
	}
	return memory
}

func TestKernelsGiveWhatTheOracleDoes(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	for _, c := range cases {
		if c.name == "attention" {
			continue // its operands are rounded: TestAttentionIsAsExactAsItsOperands
		}
		t.Run(c.name, func(t *testing.T) {
			b := c.build()
			want := b.expect(t)
			for _, apart := range []bool{false, true} {
				if apart && !slices.Contains([]string{"maps", "any", "along", "chains"}, c.name) {
					continue // the same kernels again
				}
				target := b.target()
				target.Apart = apart
				l := b.load(t, v, target)
				l.run(t)
				b.compare(t, l, want)
				if words := l.read(t, l.faults, 8*FaultWords); program.Element(tensor.U64, words, 0) != 0 {
					t.Errorf("fault words %v", words)
				}
			}
		})
	}
}

// Counters must be back at 0, and sums have one order: a second run gives the bits of the first.
func TestKernelsRunAgainWithTheSameBits(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	for _, c := range cases {
		if !slices.Contains([]string{"reductions", "rows", "along", "chains", "attention", "norms", "convolutions", "thin"}, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			b := c.build()
			l := b.load(t, v, b.target())
			var first [][]byte
			for round := range 2 {
				for i := range b.p.Values {
					l.write(t, l.at[i], b.memory[program.ID(i)])
				}
				l.run(t)
				for i := range b.p.Values {
					got := l.read(t, l.at[i], b.p.Values[i].Bytes())
					if round == 0 {
						first = append(first, got)
					} else if string(got) != string(first[i]) {
						t.Errorf("value %d differs in round %d", i, round)
					}
				}
			}
		})
	}
}

func TestAnIndexOutOfRangeIsAFaultOnce(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	b := newBuilder("faults")
	x := b.whole(tensor.F32, bounds{0, 1}, 9, 8)
	good, bad := b.whole(tensor.I64, bounds{0, 8}, 5), b.whole(tensor.I64, bounds{0, 8}, 5)
	program.SetElement(tensor.I64, b.memory[bad.Value], 3, -12)
	out := b.empty(tensor.F32, 5, 8)
	for _, indices := range []program.View{good, bad, bad} {
		b.step(&program.Gather{Outer: 1, Axis: 9, Inner: 8, Count: 5}, views(x, indices), views(out))
	}
	b.step(&program.GatherGrad{Outer: 1, Axis: 9, Inner: 8, Count: 5}, views(out, bad), views(x))
	l := b.load(t, v, b.target())
	l.run(t)
	words := l.read(t, l.faults, 8*FaultWords)
	code, step := program.Element(tensor.U64, words, FaultCodeAt), program.Element(tensor.U64, words, FaultStepAt)
	if index := program.Element(tensor.F64, words, FaultValueAt); code != FaultIndex || step != 1 || index != -12 {
		t.Errorf("fault %v of step %v, index %v; want %v, 1, -12", code, step, index, FaultIndex)
	}
}

func TestALabelOutOfRangeIsAFaultWithItsRow(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	b := newBuilder("labels")
	labels := b.whole(tensor.I64, bounds{0, 5}, 9)
	program.SetElement(tensor.I64, b.memory[labels.Value], 6, 5)
	program.SetElement(tensor.I64, b.memory[labels.Value], 2, -1)
	b.step(&program.SparseCrossEntropy{Rows: 9, Classes: 5, Ignore: -1, Scale: 1},
		views(b.whole(tensor.F32, bounds{0, 1}, 9, 5), labels, b.whole(tensor.F32, bounds{1, 1})), views(b.empty(tensor.F32), b.empty(tensor.F32, 9, 5)))
	l := b.load(t, v, b.target())
	l.run(t)
	words := l.read(t, l.faults, 8*FaultWords)
	code, place := program.Element(tensor.U64, words, FaultCodeAt), program.Element(tensor.U64, words, FaultPlaceAt)
	if label := program.Element(tensor.F64, words, FaultValueAt); code != FaultIndex || place != 6 || label != 5 {
		t.Errorf("fault %v, row %v, label %v; want %v, 6, 5", code, place, label, FaultIndex)
	}
}

// Devices since sm_90 round to bf16 by an instruction, others by our code.
func TestBF16IsRoundedAlikeOnAllArchitectures(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	if major, _ := v.Arch(); major < 9 {
		cudatest.Missing(t, "%v has no instruction that rounds to bf16", v)
	}
	var got [2][]byte
	for k, arch := range []int{80, 90} {
		b := newBuilder("bf16")
		x := b.whole(tensor.F32, bounds{-1, 1}, 1<<16)
		for i := range 1 << 14 { // bits at random, NaN left out, and halves between two numbers
			bits := b.r.Uint32()
			if bits&0x7f800000 == 0x7f800000 {
				bits &^= 1 << 23
			}
			if i%2 == 0 {
				bits = bits&^0xffff | 0x8000
			}
			program.SetElement(tensor.U32, b.memory[x.Value], i, float64(bits))
		}
		b.step(&program.Map{Space: []int{1 << 16}, Code: []program.Instr{load(0)}, Stores: []int{0}}, views(x), views(b.empty(tensor.BF16, 1<<16)))
		target := b.target()
		target.Arch = arch
		l := b.load(t, v, target)
		l.run(t)
		b.compare(t, l, b.expect(t))
		got[k] = l.read(t, l.at[b.p.Steps[0].Out[0].Value], 2<<16)
	}
	if string(got[0]) != string(got[1]) {
		t.Error("bits differ")
	}
}
