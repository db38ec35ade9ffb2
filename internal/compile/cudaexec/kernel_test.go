package cudaexec

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// threeSteps is a program with a value in each place: arena, outside, constant; its clock is
// value 3.
func threeSteps() *program.Program {
	p := &program.Program{Name: "three", Arena: 4096, Clock: 3}
	p.Add(program.Value{Name: "a", DType: tensor.F32, Shape: []int{10}, Offset: 512})
	p.Add(program.Value{Name: "x", DType: tensor.F64, Shape: []int{4}, Place: program.Outside, Role: program.Input})
	p.Add(program.Value{Name: "k", DType: tensor.F32, Shape: []int{3}, Place: program.Constant, Data: make([]byte, 12)})
	p.Add(program.Value{Name: "clock", DType: tensor.U64, Shape: []int{2}, Place: program.Outside})
	p.Add(program.Value{Name: "k2", DType: tensor.U8, Shape: []int{}, Place: program.Constant, Data: []byte{7}})
	view := func(id program.ID, off int) program.View {
		return program.View{Value: id, Offset: off, Strides: []int{1}}
	}
	p.Steps = []program.Step{
		{Name: "first", Op: &program.Map{}, In: []program.View{view(1, 2), view(2, 0)}, Out: []program.View{view(0, 1)}},
		{Name: "second", Op: &program.Map{}, In: []program.View{view(0, 0)}, Out: []program.View{view(1, 0)}},
	}
	return p
}

func TestLayoutKeepsEverythingApart(t *testing.T) {
	p := threeSteps()
	l := newLayout(p, []cudagen.Step{{Scratch: 100}, {Scratch: 300}})
	if want := []int64{-1, -1, 0, -1, 256}; !slices.Equal(l.constant, want) {
		t.Errorf("constants at %v, want %v", l.constant, want)
	}
	if want := []int64{0, 256}; !slices.Equal(l.scratch, want) || l.at[slotScratch] != 512 {
		t.Errorf("scratch at %v of %d, want %v of 512", l.scratch, l.at[slotScratch], want)
	}
	if l.at[slotFault] != 512+256+512 || l.at[slotClock] <= l.at[slotFault] || l.at[slotRuns] <= l.at[slotClock] || l.bytes != l.at[slotRuns]+256 {
		t.Errorf("words at %v of %d B", l.at, l.bytes)
	}
	if want := (need{arena: 4096, constants: 512, scratch: 768, other: 768}); l.need != want || want.total() != 4096+l.bytes {
		t.Errorf("need %+v, want %+v", l.need, want)
	}
	m := &memory{arena: 1 << 20, block: 1 << 30}
	addr := m.addresses(p, &l)
	want := []uintptr{1<<20 + 512, 0, 1 << 30, 0, 1<<30 + 256, 1<<30 + 512, 1<<30 + 1280, 1<<30 + 1536, 1<<30 + 1792}
	if !slices.Equal(addr, want) {
		t.Errorf("addresses %#x, want %#x", addr, want)
	}
}

func TestArgumentsComeFromTheTableOfAddresses(t *testing.T) {
	p := threeSteps()
	l := newLayout(p, make([]cudagen.Step, 2))
	l.scratch[1] = 256
	k := &cudagen.Kernel{Name: "k", Args: []cudagen.Arg{
		{Kind: cudagen.In, Step: 0, Index: 1, Offset: 8},
		{Kind: cudagen.Out, Step: 1, Index: 0, Offset: 16},
		{Kind: cudagen.Scratch, Step: 1, Offset: 4},
		{Kind: cudagen.Clock},
		{Kind: cudagen.Fault},
		{Kind: cudagen.Number, Offset: 99},
	}}
	got, err := resolve(p, &l, 0, k)
	n := int32(len(p.Values))
	want := []argument{{2, 8}, {1, 16}, {n + slotScratch, 260}, {3, 0}, {n + slotFault, 0}, {literal, 99}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestArgumentsOfNoStepAreRefused(t *testing.T) {
	p := threeSteps()
	l := newLayout(p, make([]cudagen.Step, 2))
	for _, a := range []cudagen.Arg{
		{Kind: cudagen.In, Step: 2},
		{Kind: cudagen.In, Step: -1},
		{Kind: cudagen.In, Index: 2},
		{Kind: cudagen.Out, Index: 1},
		{Kind: cudagen.Out, Index: -1},
		{Kind: cudagen.Scratch, Step: 5},
		{Kind: 77},
	} {
		_, err := resolve(p, &l, 1, &cudagen.Kernel{Name: "odd", Args: []cudagen.Arg{a}})
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `argument 0 of kernel odd of step 1 "second"`) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if _, err := resolve(p, &l, 0, &cudagen.Kernel{Args: make([]cudagen.Arg, mostArgs+1)}); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("too many arguments: %v", err)
	}
	p.Clock = program.None
	if _, err := resolve(p, &l, 0, &cudagen.Kernel{Args: []cudagen.Arg{{Kind: cudagen.Clock}}}); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("a clock that there is not: %v", err)
	}
}

func TestMemoryErrorsNameWhatIsLargest(t *testing.T) {
	p := threeSteps()
	cause := &cuda.Error{Call: "cuMemAlloc_v2", Code: 2, Text: "out of memory"}
	err := memoryError(p, need{arena: 100, constants: 20, scratch: 3, other: 1}, cause)
	for _, want := range []string{
		`program "three" needs 124 B`, "arena 100", `value 0 "a" f32[10], 40 B; value 2 "k" f32[3], 12 B; value 4 "k2" u8[], 1 B`,
		"a smaller batch", "out of memory",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if !errors.Is(err, cuda.ErrMemory) {
		t.Errorf("%v is no ErrMemory", err)
	}
}

func TestSmallOutputsAndFaultsAreReadBack(t *testing.T) {
	p := threeSteps()
	add := func(name string, role program.Role, n int) program.ID {
		id := p.Add(program.Value{Name: name, DType: tensor.F32, Shape: []int{n}, Role: role})
		p.Steps[0].Out = append(p.Steps[0].Out, program.View{Value: id})
		return id
	}
	p.Add(program.Value{Name: "unwritten", DType: tensor.F32, Role: program.Output})
	loss, _, large := add("loss", program.Output, 1), add("hidden", program.Temp, 1), add("logits", program.Output, followBytes)
	many := add("metrics", program.Output, followBytes/4)
	follows, slot := planReadback(p, true)
	n := int32(len(p.Values))
	want := []follow{
		{argument{n + slotFault, 0}, program.None, faultBytes, 0},
		{argument{int32(loss), 0}, loss, 4, 32},
		{argument{int32(many), 0}, many, followBytes, 48},
	}
	if !slices.Equal(follows, want) || slot != 48+followBytes {
		t.Errorf("%d B: %+v, want %+v", slot, follows, want)
	}
	for _, f := range follows {
		if f.id == large {
			t.Error("a large output is read back by every run")
		}
	}
	for range 2 * mostCopies {
		add("more", program.Output, 1)
	}
	if follows, _ = planReadback(p, true); len(follows) != mostCopies {
		t.Errorf("%d copies, want %d", len(follows), mostCopies)
	}
	last := add("norm", program.Output, 1)
	for i := range p.Values {
		if v := &p.Values[i]; v.Name == "more" {
			v.Shape = []int{2}
		}
	}
	follows, _ = planReadback(p, true)
	if !slices.ContainsFunc(follows, func(f follow) bool { return f.id == last }) || len(follows) != mostCopies {
		t.Errorf("an output of one element is left out for larger ones: %+v", follows)
	}
	follows, slot = planReadback(threeSteps(), false)
	if len(follows) != 0 || slot != 0 {
		t.Errorf("nothing to read back: %v, %d B", follows, slot)
	}
}

func TestCopiesAreTheStructOfTheKernel(t *testing.T) {
	b := readback{follows: []follow{{argument{0, 4}, 0, 12, 0}, {argument{1, 0}, 1, 8, 16}}}
	b.copies[100] = 1
	b.pack([]uintptr{0x1000, 0x2000})
	word := binary.NativeEndian
	if word.Uint64(b.copies[0:]) != 0x1004 || word.Uint64(b.copies[8:]) != 0x2000 || word.Uint64(b.copies[16:]) != 0 {
		t.Errorf("sources: % x", b.copies[:24])
	}
	if at := 8 * mostCopies; word.Uint32(b.copies[at:]) != 12 || word.Uint32(b.copies[at+4:]) != 8 || word.Uint32(b.copies[at+8:]) != 0 {
		t.Errorf("bytes: % x", b.copies[at:at+12])
	}
	if at := 12 * mostCopies; word.Uint32(b.copies[at:]) != 0 || word.Uint32(b.copies[at+4:]) != 16 {
		t.Errorf("places: % x", b.copies[at:at+8])
	}
	if len(b.copies) != 256 {
		t.Errorf("the struct has %d B, want 256", len(b.copies))
	}
}

func TestFaultsNameTheirStep(t *testing.T) {
	p := threeSteps()
	p.Steps[1].Op = &program.Gather{Outer: 1, Axis: 10, Inner: 4, Count: 3}
	p.Steps[0].Op = &program.GatherGrad{Outer: 1, Axis: 7, Inner: 4, Count: 3}
	p.Steps = append(p.Steps, program.Step{Name: "third", Op: &program.SparseCrossEntropy{Rows: 4, Classes: 10, First: 8, Ignore: -100}})
	for _, tt := range []struct {
		words [cudagen.FaultWords]uint64
		want  string
	}{
		{[4]uint64{cudagen.FaultIndex, 1, math.Float64bits(12)}, `step 1 "second" (gather 3 of (1, 10, 4)): invalid data: index 12 is not in 0 to 9`},
		{[4]uint64{cudagen.FaultIndex, 0, math.Float64bits(-1)}, `index -1 is not in 0 to 6`},
		{[4]uint64{cudagen.FaultDivisor, 1, math.Float64bits(5)}, `step 1 "second" (gather 3 of (1, 10, 4)): invalid data: integer division by zero at element 5`},
		{[4]uint64{cudagen.FaultIndex, 2, math.Float64bits(10), 3}, `row 11 has target 10, want 0 to 9, or -100 for a row that does not count`},
		{[4]uint64{99, 1}, `step 1 "second" (gather 3 of (1, 10, 4)): invalid data: fault 99`},
		{[4]uint64{1, 1 << 63}, `fault 1 of step 9223372036854775808, there are 3`},
	} {
		err := faultError(p, tt.words)
		if !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.words, err, tt.want)
		}
	}
}

func TestStridedElementsArePacked(t *testing.T) {
	from := []byte{0, 1, 2, 3, 4, 5}
	for _, tt := range []struct {
		space, strides []int
		want           []byte
	}{
		{[]int{2, 3}, []int{3, 1}, []byte{0, 1, 2, 3, 4, 5}},
		{[]int{3, 2}, []int{1, 3}, []byte{0, 3, 1, 4, 2, 5}},
		{[]int{2, 2}, []int{0, 2}, []byte{0, 2, 0, 2}},
		{[]int{}, []int{}, []byte{0}},
	} {
		to := make([]byte, len(tt.want))
		pack(to, from, tt.space, tt.strides, 1)
		if !slices.Equal(to, tt.want) {
			t.Errorf("%v at %v: %v, want %v", tt.space, tt.strides, to, tt.want)
		}
	}
	wide := make([]byte, 8)
	pack(wide, []byte{1, 2, 3, 4, 5, 6, 7, 8}, []int{2, 2}, []int{1, 2}, 2)
	if want := []byte{1, 2, 5, 6, 3, 4, 7, 8}; !slices.Equal(wide, want) {
		t.Errorf("elements of two bytes: %v, want %v", wide, want)
	}
}

// prelude declares the built-in names of NVRTC that clang lacks.
const prelude = `#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
struct Three { unsigned x, y, z; };
extern const __device__ Three threadIdx, blockIdx, blockDim;
extern "C" __device__ void __threadfence_system();
extern "C" __device__ void __syncthreads();
`

func TestOwnKernelsCompile(t *testing.T) {
	clang, err := exec.LookPath("clang")
	if err != nil {
		t.Skip("no clang")
	}
	if out, err := exec.Command(clang, "--print-targets").Output(); err != nil || !strings.Contains(string(out), "nvptx64") {
		t.Skip("clang has no PTX")
	}
	file := filepath.Join(t.TempDir(), "runner.cu")
	if err := os.WriteFile(file, []byte(prelude+runnerSource), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(ownOptions(), "-x", "cuda", "--cuda-gpu-arch=sm_80", "-std=c++17", "-nocudainc", "-nocudalib", "--cuda-device-only",
		"-S", "-O1", "-Wall", "-Werror", "-Wno-unknown-cuda-version", "-o", "-", file)
	out, err := exec.Command(clang, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		".visible .entry tail(", ".visible .entry stamp(", "%globaltimer", "tail_param_4[256]",
		".visible .entry transpose2(", ".visible .entry transpose4(", ".visible .entry transpose8(",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
