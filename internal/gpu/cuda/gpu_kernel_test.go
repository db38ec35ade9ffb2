package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// kernels is the kernels of the tests.
const kernels = `
typedef unsigned long long u64;
struct triple { int a; double b; char c; };

__device__ int table[4] = {1, 2, 3, 4};

extern "C" __global__ void increment(u64 *p, unsigned by) { *p += by; }

extern "C" __global__ void nothing() {}

// Every argument, so that each is seen to arrive.
extern "C" __global__ void all(double *out, char c, short h, int i, unsigned u, long long l, u64 ul, float f, double d, triple t, int last) {
    double v[] = {(double)c, (double)h, (double)i, (double)u, (double)l, (double)(ul >> 32), (double)f, d, (double)t.a, t.b, (double)t.c, (double)last};
    for (int k = 0; k < 12; k++) out[k] = v[k];
}

extern "C" __global__ void scale(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}

extern "C" __global__ void lookup(int *out) { out[threadIdx.x] = table[threadIdx.x]; }

// Where the threads are: grid, block, and the dynamic shared memory that each block has.
extern "C" __global__ void where(unsigned *out) {
    extern __shared__ unsigned room[];
    unsigned bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    if (bytes) room[bytes / 4 - 1] = 1;
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000000 + thread * 1000 + bytes / 1024;
}

// Counts the started blocks and signals the first to the host; each takes about 100 microseconds.
extern "C" __global__ void slow(u64 *started, volatile u64 *begun) {
    if (threadIdx.x == 0) {
        atomicAdd(started, 1ull);
        if (blockIdx.x == 0) *begun = 1;
    }
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - begin < 100000);
}

// Notes how many blocks of slow had begun.
extern "C" __global__ void look(volatile u64 *started, u64 *seen) { *seen = *started; }
`

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func TestKernelComputes(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "scale")
	s := stream(t, v, 0)
	const n = 100_003
	x, y := alloc(t, v, 4*n), alloc(t, v, 4*n)
	host := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(host[4*i:], math.Float32bits(float32(i)))
	}
	write(t, v, x, host)
	args, err := cuda.NewArgs(4)
	must(t, err)
	for _, a := range []float32{2, -0.5} { // one Args for several launches
		args.Reset()
		args.Ptr(y)
		args.Ptr(x)
		args.F32(a)
		args.I32(n)
		must(t, f.Launch(s, cuda.Launch{Grid: [3]uint32{(n + 255) / 256}, Block: [3]uint32{256}}, args))
		args.Reset() // the launch has copied them
		args.Ptr(0)
		must(t, s.Synchronize())
		for i, got := range floats(read(t, v, y, 4*n)) {
			if got != a*float32(i) {
				t.Fatalf("element %d is %v, want %v", i, got, a*float32(i))
			}
		}
	}
}

func TestKernelGetsEveryKindOfArgument(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "all")
	s := stream(t, v, 0)
	out := alloc(t, v, 12*8)
	var triple [24]byte // int at 0, double at 8, char at 16
	binary.LittleEndian.PutUint32(triple[:], uint32(0xffff_fff7))
	binary.LittleEndian.PutUint64(triple[8:], math.Float64bits(0.125))
	triple[16] = 66
	for _, together := range []bool{false, true} {
		var a cuda.Args
		a.Ptr(out)
		a.Bytes([]byte{0xfb})
		a.Bytes([]byte{0x2c, 0x01})
		a.I32(-7)
		a.U32(4_000_000_000)
		a.I64(-1 << 40)
		a.U64(5 << 32)
		a.F32(1.5)
		a.F64(-2.25)
		a.Bytes(triple[:])
		a.I32(77)
		must(t, v.Fill(out, 0, 12*8), f.Launch(s, cuda.Launch{Together: together}, &a), s.Synchronize())
		var got []float64
		for b := range slices.Chunk(read(t, v, out, 12*8), 8) {
			got = append(got, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
		if want := []float64{-5, 300, -7, 4e9, -1 << 40, 5, 1.5, -2.25, -9, 0.125, 66, 77}; !slices.Equal(got, want) {
			t.Errorf("together %t: the kernel got %v, want %v", together, got, want)
		}
	}
}

func TestArgumentsThatTheKernelDoesNotTakeAreRefused(t *testing.T) {
	d := cudatest.Driver(t)
	if d.Version() < 12040 {
		t.Skipf("%s does not tell what a kernel takes", d)
	}
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "increment")
	s := stream(t, v, 0)
	for name, add := range map[string]func(a *cuda.Args){
		"none":     func(*cuda.Args) {},
		"too few":  func(a *cuda.Args) { a.Ptr(8) },
		"too many": func(a *cuda.Args) { a.Ptr(8); a.U32(1); a.U32(1) },
		"too wide": func(a *cuda.Args) { a.Ptr(8); a.U64(1) },
	} {
		var a cuda.Args
		add(&a)
		if err := f.Launch(s, cuda.Launch{}, &a); !errors.Is(err, cuda.ErrInvalid) || !strings.Contains(err.Error(), `kernel "increment"`) || !strings.Contains(err.Error(), "arguments of [8 4] B") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.Launch(s, cuda.Launch{}, nil); !errors.Is(err, cuda.ErrInvalid) {
		t.Errorf("no Args: %v", err)
	}
	none := cudatest.Kernel(t, v, kernels, "nothing")
	must(t, none.Launch(s, cuda.Launch{}, nil), none.Launch(s, cuda.Launch{Together: true}, &cuda.Args{}), s.Synchronize())
}

func TestLaunchHasTheShapeItIsGiven(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "where")
	s := stream(t, v, 0)
	for _, l := range []cuda.Launch{
		{},
		{Grid: [3]uint32{5}, Block: [3]uint32{33}, Shared: 2048},
		{Grid: [3]uint32{2, 3, 2}, Block: [3]uint32{4, 2, 8}, Together: true, Shared: 1024},
	} {
		blocks, threads := 1, 1
		for i := range 3 {
			blocks *= int(max(l.Grid[i], 1))
			threads *= int(max(l.Block[i], 1))
		}
		out := alloc(t, v, int64(4*blocks*threads))
		var a cuda.Args
		a.Ptr(out)
		must(t, f.Launch(s, l, &a), s.Synchronize())
		got := read(t, v, out, 4*blocks*threads)
		for b := range blocks {
			for th := range threads {
				if g, want := binary.LittleEndian.Uint32(got[4*(b*threads+th):]), uint32(b*1000000+th*1000)+l.Shared/1024; g != want {
					t.Fatalf("%+v: thread %d of block %d says %d, want %d", l, th, b, g, want)
				}
			}
		}
	}
}

func TestShapesThatTheDeviceHasNotAreErrors(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "where")
	s := stream(t, v, 0)
	out := alloc(t, v, 4*1024)
	var a cuda.Args
	a.Ptr(out)
	for _, tt := range []struct {
		l    cuda.Launch
		code string
	}{
		{cuda.Launch{Block: [3]uint32{1025}}, "CUDA_ERROR_INVALID_VALUE"},
		{cuda.Launch{Shared: 64 << 10}, "CUDA_ERROR_INVALID_VALUE"},
		{cuda.Launch{Grid: [3]uint32{1 << 20}, Block: [3]uint32{1024}, Together: true}, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
	} {
		err := f.Launch(s, tt.l, &a)
		var e *cuda.Error
		if !errors.As(err, &e) || e.Name != tt.code || e.Fatal() || !strings.Contains(err.Error(), `kernel "where", grid [`) {
			t.Errorf("%+v: %v, want %s", tt.l, err, tt.code)
		}
	}
	optIn, err := v.Attribute(cuda.MaxSharedPerBlockOptIn)
	must(t, err)
	if optIn > 64<<10 {
		must(t, f.AllowShared(64<<10), f.Launch(s, cuda.Launch{Shared: 64 << 10}, &a), s.Synchronize())
		if got := binary.LittleEndian.Uint32(read(t, v, out, 4)); got != 64 {
			t.Errorf("the kernel has %d KiB, want 64", got)
		}
	}
	if err := f.AllowShared(optIn + 1); err == nil {
		t.Errorf("%d B of shared memory are allowed, the device has %d", optIn+1, optIn)
	}
}

func TestFunctionKnowsWhatItNeeds(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "scale")
	registers, err := f.Attribute(cuda.FunctionRegisters)
	most, err2 := f.Attribute(cuda.FunctionMaxThreads)
	if err := errors.Join(err, err2); err != nil || registers < 1 || most != 1024 || f.Name() != "scale" || f.Handle() == 0 || f.Device() != v {
		t.Errorf("%d registers, %d threads, %v", registers, most, err)
	}
	perSM, err := v.Attribute(cuda.MaxThreadsPerMultiprocessor)
	must(t, err)
	if n, err := f.Resident(1024, 0); err != nil || n != perSM/1024 {
		t.Errorf("%d blocks of 1024 threads a multiprocessor, %v, want %d", n, err, perSM/1024)
	}
}

func TestModuleHasKernelsAndVariables(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	image, err := cudatest.Compiler(t).Compile(v, cuda.Source{Text: kernels})
	must(t, err)
	m, err := v.Load(image)
	must(t, err)
	f, err := m.Function("lookup")
	must(t, err)
	table, n, err := m.Global("table")
	if err != nil || n != 16 {
		t.Errorf("table has %d B, %v, want 16", n, err)
	}
	write(t, v, table+4, []byte{50, 0, 0, 0})
	s := stream(t, v, 0)
	out := alloc(t, v, 16)
	var a cuda.Args
	a.Ptr(out)
	must(t, f.Launch(s, cuda.Launch{Block: [3]uint32{4}}, &a), s.Synchronize())
	if got, want := read(t, v, out, 16), []byte{1, 0, 0, 0, 50, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0}; !bytes.Equal(got, want) {
		t.Errorf("the kernel read % x, want % x", got, want)
	}
	var e *cuda.Error
	if _, err := m.Function("absent"); !errors.As(err, &e) || e.Name != "CUDA_ERROR_NOT_FOUND" || !strings.Contains(err.Error(), `kernel "absent"`) {
		t.Errorf("an absent kernel: %v", err)
	}
	if _, _, err := m.Global("absent"); !errors.As(err, &e) || e.Name != "CUDA_ERROR_NOT_FOUND" || !strings.Contains(err.Error(), `variable "absent"`) {
		t.Errorf("an absent variable: %v", err)
	}
	must(t, m.Close(), m.Close())
	if err := f.Launch(s, cuda.Launch{}, &a); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("launch of a kernel whose module is closed: %v", err)
	}
	if _, err := v.Load([]byte("no image at all")); !errors.As(err, &e) {
		t.Errorf("load of a text: %v", err)
	}
}

// A driver of its own, with a cache of its own.
func ownCompiler(t *testing.T, dir string) (*cuda.Compiler, *cuda.Device) {
	t.Helper()
	cudatest.Compiler(t)
	d, err := cuda.Open(cuda.Config{CacheDir: dir, Dirs: dl.Places(os.DirFS("/"), os.Environ())})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close(), d.Close()) })
	c, err := d.Compiler()
	must(t, err)
	v, err := d.Device(0)
	must(t, err)
	return c, v
}

func TestCompiledKernelsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c, v := ownCompiler(t, dir)
	if c.CacheDir() != dir {
		t.Errorf("cache in %q, want %q", c.CacheDir(), dir)
	}
	src := cuda.Source{Name: "k.cu", Text: kernels, Options: []string{"--std=c++17"}}
	first, err := c.Compile(v, src)
	must(t, err, c.CacheError())
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("the cache has %v, want one file", files)
	}
	// The cache is used: Compile returns another image that is stored under the same name.
	other, err := c.Compile(v, cuda.Source{Name: "k.cu", Text: `extern "C" __global__ void other() {}`})
	must(t, err)
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	all = slices.DeleteFunc(all, func(f string) bool { return f == files[0] })
	file, err := os.ReadFile(all[0])
	must(t, err)
	good, err := os.ReadFile(files[0])
	must(t, err)
	must(t, os.WriteFile(files[0], file, 0o600))
	if got, err := c.Compile(v, src); err != nil || !bytes.Equal(got, other) {
		t.Errorf("%d B, %v, want the %d B that lie in the cache", len(got), err, len(other))
	}
	// A damaged file is replaced.
	must(t, os.WriteFile(files[0], good[:len(good)/2], 0o600))
	got, err := c.Compile(v, src)
	must(t, err)
	if again, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(again, good) || !bytes.Equal(got, first) {
		t.Errorf("a damaged file was not compiled again: %v", err)
	}
	m, err := v.Load(got)
	must(t, err)
	must(t, m.Close())
}

func TestKernelsCompileWithoutAPlaceToKeepThem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	c, v := ownCompiler(t, file)
	if image, err := c.Compile(v, cuda.Source{Text: kernels}); err != nil || len(image) == 0 || c.CacheError() == nil {
		t.Errorf("%d B, %v; kept: %v", len(image), err, c.CacheError())
	}
}

func TestCompilerSaysWhatItIsAndWhatIsWrong(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	c := cudatest.Compiler(t)
	again, err := cudatest.Driver(t).Compiler()
	if err != nil || again != c {
		t.Errorf("Compiler gives %p and then %p, %v", c, again, err)
	}
	major, minor := c.Version()
	a, b := v.Arch()
	if major < 12 || minor < 0 || !strings.Contains(c.Path(), "libnvrtc") || !slices.Contains(c.Archs(), 10*a+b) {
		t.Errorf("%s, version %d.%d, for %v", c, major, minor, c.Archs())
	}
	_, err = c.Compile(v, cuda.Source{Name: "wrong.cu", Text: "extern \"C\" __global__ void k() {\n    undeclared = 1;\n}"})
	var e *cuda.Error
	if !errors.As(err, &e) || e.Call != "nvrtcCompileProgram" || e.Name != "NVRTC_ERROR_COMPILATION" || e.Code != 6 || e.Library != c.String() ||
		!strings.Contains(e.Text, "wrong.cu(2)") || !strings.Contains(e.Text, "undeclared") || !strings.Contains(err.Error(), "compile wrong.cu for sm_") {
		t.Errorf("an error of the text: %v", err)
	}
	_, err = c.Compile(v, cuda.Source{Text: kernels, Options: []string{"--no-such-option"}})
	if !errors.As(err, &e) || e.Name != "NVRTC_ERROR_INVALID_OPTION" || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("an option that there is not: %v", err)
	}
	t.Logf("%s, for %v", c, c.Archs())
}

// A long computation at the default priority must not delay communication that is launched after
// it: waiting blocks of the stream with the highest priority come first.
func TestLongKernelDoesNotDelayOneOfTheGreatestPriority(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	slow, look := cudatest.Kernel(t, v, kernels, "slow"), cudatest.Kernel(t, v, kernels, "look")
	least, greatest, err := v.PriorityRange()
	must(t, err)
	compute, communication := stream(t, v, least), stream(t, v, greatest)
	resident, err := slow.Resident(1024, 0)
	must(t, err)
	begun, counts := pinned(t, v, 8), alloc(t, v, 16)
	must(t, v.Fill(counts, 0, 16))
	blocks := uint32(resident * v.SMs() * 400) // 400 times as many as fit at once
	var a, b cuda.Args
	a.Ptr(counts)
	a.Ptr(begun.Device())
	b.Ptr(counts)
	b.Ptr(counts + 8)
	must(t, slow.Launch(compute, cuda.Launch{Grid: [3]uint32{blocks}, Block: [3]uint32{1024}}, &a))
	until(t, "the first blocks", func() bool { return word(begun, 0).Load() > 0 })
	must(t, look.Launch(communication, cuda.Launch{}, &b), communication.Synchronize())
	seen := binary.LittleEndian.Uint64(read(t, v, counts+8, 8))
	must(t, compute.Synchronize())
	all := binary.LittleEndian.Uint64(read(t, v, counts, 8))
	if all != uint64(blocks) || seen == 0 || seen > all/2 {
		t.Errorf("the later kernel ran when %d of %d blocks had begun, of %d", seen, all, blocks)
	}
}
