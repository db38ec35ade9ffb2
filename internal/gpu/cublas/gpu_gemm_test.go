package cublas

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

func TestLibraryIsFoundWithAllThatIsCalled(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	l := open(t, v)
	t.Logf("%v, cuBLASLt at %s", l, l.LtPath())
	if l.Version().Major < leastMajor || !strings.Contains(l.String(), l.Path()) || !strings.Contains(l.String(), l.Version().String()) {
		t.Errorf("%v, version %v, path %s", l, l.Version(), l.Path())
	}
	again, err := Open(Config{Path: l.Path()})
	must(t, err)
	if again.Path() != l.Path() || again.Version() != l.Version() {
		t.Errorf("by its path it is %v", again)
	}
	if text := l.failure("call", notSupported, "").Error(); !strings.Contains(text, "CUBLAS_STATUS_NOT_SUPPORTED") {
		t.Errorf("the library's name for 15: %s", text)
	}
}

// All transpositions, gaps in rows, batches, and types.
func TestGemmIsTheProductOfItsOperands(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, kind := range []Gemm{
		{DType: F32},
		{DType: F32, Compute: TF32},
		{DType: F32, Compute: FastBF16},
		{DType: F32, Compute: Pedantic},
		{DType: F64},
		{DType: F64, Compute: Pedantic},
		{DType: F16},
		{DType: F16, Out: F32},
		{DType: BF16},
		{DType: BF16, Out: F32},
	} {
		for i, g := range shapes(kind.DType) {
			g.Out, g.Compute = kind.Out, kind.Compute
			if i%4 == 1 {
				g.Beta = 0
			}
			p := newProblem(t, v, g, r)
			must(t, h.Gemm(&g, p.a, p.b, p.c), s.Synchronize())
			p.judge(t, v)
		}
	}
}

func TestGemmOfTheSizesOfLayers(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(5, 6))
	for _, dims := range [][3]int{{128, 512, 784}, {128, 10, 512}, {784, 512, 128}, {1, 10, 512}, {33, 65, 129}, {257, 1, 31}} {
		for i := range 4 {
			for _, c := range []Compute{Full, TF32} {
				g := Gemm{DType: F32, Compute: c, M: dims[0], N: dims[1], K: dims[2], TransA: i&1 != 0, TransB: i&2 != 0, Alpha: 1}
				p := newProblem(t, v, g, r)
				must(t, h.Gemm(&g, p.a, p.b, p.c), s.Synchronize())
				p.judge(t, v)
			}
		}
	}
}

// 1 + 2^-20 is a number of float32 and none of TF32.
func TestMathModesSayWhatFullIs(t *testing.T) {
	v, s, h := onDevice(t)
	const n = 256
	one := make([]float64, n*n)
	unit := make([]float64, n*n)
	for i := range one {
		one[i] = 1 + 0x1p-20
		if i%(n+1) == 0 {
			unit[i] = 1
		}
	}
	rawA, _ := encode(F32, one)
	rawB, _ := encode(F32, unit)
	a, b, c := upload(t, v, rawA), upload(t, v, rawB), memory(t, v, n*n*4)
	g := Gemm{DType: F32, M: n, N: n, K: n, Alpha: 1}
	for _, mode := range []Math{MathDefault, MathTF32, MathPedantic, MathDefault} {
		must(t, h.SetMathMode(mode), h.Gemm(&g, a, b, c), s.Synchronize())
		for i, got := range decode(F32, download(t, v, c, n*n*4)) {
			// TF32 is allowed and not demanded by its mode.
			if got != one[0] && !(mode == MathTF32 && got == 1) {
				t.Fatalf("math mode %d: element %d is 1%+g, want 1%+g", mode, i, got-1, one[0]-1)
			}
		}
	}
}

// Captured work reads its operands anew at each launch, and gives the bits of work that was not
// captured.
func TestGemmsAreCaptured(t *testing.T) {
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(7, 8))
	one := newProblem(t, v, Gemm{DType: F32, M: 96, N: 80, K: 1000, TransB: true, Alpha: 1}, r)
	many := newProblem(t, v, Gemm{DType: BF16, Out: F32, M: 17, N: 33, K: 65, Batch: 4, StrideA: 17 * 65, StrideB: 33 * 65, StrideC: 17 * 33, Alpha: 0.5}, r)
	queue := func() error {
		return errors.Join(h.Gemm(&one.g, one.a, one.b, one.c), h.Gemm(&many.g, many.a, many.b, many.c))
	}
	must(t, queue(), s.Synchronize())
	_, _, bytesOne := one.g.Bytes()
	first := download(t, v, one.c, bytesOne)
	must(t, s.BeginCapture(), queue())
	graph, err := s.EndCapture()
	must(t, err)
	x, err := graph.Instantiate()
	must(t, err, graph.Close())
	defer func() { must(t, x.Close()) }()
	must(t, v.Fill(one.c, 0xff, bytesOne), x.Launch(s), s.Synchronize())
	one.judge(t, v)
	many.judge(t, v)
	if !bytes.Equal(first, download(t, v, one.c, bytesOne)) {
		t.Error("captured work gives other bits")
	}
	raw, rounded := encode(F32, fractions(r, int64(len(one.x))))
	must(t, v.CopyFromHost(one.a, unsafe.Pointer(&raw[0]), int64(len(raw))), x.Launch(s), s.Synchronize())
	one.x = rounded
	one.expect()
	one.judge(t, v)
}

// A library without a workspace of its own takes memory for each graph.
func TestCapturesTakeNoMemory(t *testing.T) {
	v, s, h := onDevice(t)
	other, err := v.NewStream(0)
	must(t, err)
	defer func() { must(t, other.Close()) }()
	r := rand.New(rand.NewPCG(9, 10))
	p := newProblem(t, v, Gemm{DType: F32, M: 64, N: 64, K: 4096, TransA: true, Alpha: 1}, r)
	must(t, h.Gemm(&p.g, p.a, p.b, p.c), s.Synchronize())
	before, _, err := v.Memory()
	must(t, err)
	for i := range 16 {
		use := s
		if i%2 != 0 {
			use = other // which takes the workspace away, unless it is given again
		}
		must(t, h.SetStream(use), use.BeginCapture(), h.Gemm(&p.g, p.a, p.b, p.c))
		g, err := use.EndCapture()
		must(t, err)
		x, err := g.Instantiate()
		must(t, err, g.Close(), x.Launch(use), use.Synchronize())
		defer func() { must(t, x.Close()) }()
	}
	after, _, err := v.Memory()
	must(t, err)
	if taken := before - after; taken > 32<<20 {
		t.Errorf("16 captures took %d B", taken)
	}
	p.judge(t, v)
	must(t, h.SetStream(s))
}

func TestGemmAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skipf("the race detector allocates")
	}
	v, s, h := onDevice(t)
	r := rand.New(rand.NewPCG(11, 12))
	one := newProblem(t, v, Gemm{DType: F32, M: 8, N: 8, K: 8, Alpha: 1}, r)
	many := newProblem(t, v, Gemm{DType: F32, M: 8, N: 8, K: 8, Batch: 2, StrideA: 64, StrideC: 64, Alpha: 1}, r)
	must(t, v.Enter())
	defer v.Leave()
	var bad error
	allocs := testing.AllocsPerRun(100, func() {
		if err := h.Gemm(&one.g, one.a, one.b, one.c); err != nil {
			bad = err
		}
		if err := h.Gemm(&many.g, many.a, many.b, many.c); err != nil {
			bad = err
		}
	})
	must(t, bad, s.Synchronize())
	if allocs != 0 {
		t.Errorf("%v allocations for two Gemms, want 0", allocs)
	}
}

func TestWorkspacesAreTheHandlesOrTheCallers(t *testing.T) {
	v, s, h := onDevice(t)
	own, bytes := h.Workspace()
	if major, _ := v.Arch(); own == 0 || bytes != recommended(major) {
		t.Errorf("a workspace of %d B at %#x", bytes, own)
	}
	r := rand.New(rand.NewPCG(13, 14))
	p := newProblem(t, v, Gemm{DType: F32, M: 64, N: 64, K: 4096, TransA: true, Alpha: 1}, r)
	mine := memory(t, v, 16<<20)
	must(t, h.SetWorkspace(mine, 16<<20), h.Gemm(&p.g, p.a, p.b, p.c), s.Synchronize())
	p.judge(t, v)
	if at, n := h.Workspace(); at != mine || n != 16<<20 {
		t.Errorf("a workspace of %d B at %#x, want %d B at %#x", n, at, 16<<20, mine)
	}
	must(t, h.SetWorkspace(0, 0), h.Gemm(&p.g, p.a, p.b, p.c), s.Synchronize())
	p.judge(t, v)
	if at, n := h.Workspace(); at != own || n != bytes {
		t.Errorf("a workspace of %d B at %#x, want the handle's own", n, at)
	}
}

func TestHandlesAreOfOneDevice(t *testing.T) {
	vs := cudatest.Many(t, 2, 1)
	l := open(t, vs[0])
	r := rand.New(rand.NewPCG(15, 16))
	var streams [2]*cuda.Stream
	var handles [2]*Handle
	for i, v := range vs {
		s, err := v.NewStream(0)
		must(t, err)
		h, err := l.NewHandle(s, HandleConfig{})
		must(t, err)
		t.Cleanup(func() { must(t, h.Close(), s.Close()) })
		streams[i], handles[i] = s, h
	}
	for i, v := range vs {
		p := newProblem(t, v, Gemm{DType: F32, M: 31, N: 17, K: 65, Alpha: 1}, r)
		must(t, handles[i].Gemm(&p.g, p.a, p.b, p.c), streams[i].Synchronize())
		p.judge(t, v)
	}
	if err := handles[0].SetStream(streams[1]); !errors.Is(err, cuda.ErrInvalid) {
		t.Errorf("the stream of another device: %v", err)
	}
}
