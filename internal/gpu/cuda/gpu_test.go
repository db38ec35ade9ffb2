package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// patience is how long a test waits for a GPU before it fails.
const patience = 20 * time.Second

// until waits for a condition that a GPU makes true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// must fails the test for the first error.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// alloc is memory of v that is freed with the test.
func alloc(t testing.TB, v *cuda.Device, bytes int64) uintptr {
	t.Helper()
	p, err := v.Alloc(bytes)
	must(t, err)
	t.Cleanup(func() { must(t, v.Free(p)) })
	return p
}

// pinned is memory of the host that is freed with the test.
func pinned(t testing.TB, v *cuda.Device, bytes int64) *cuda.HostMemory {
	t.Helper()
	h, err := v.AllocHost(bytes)
	must(t, err)
	t.Cleanup(func() { must(t, h.Close()) })
	return h
}

// word is the i-th 64-bit word of h, for the host to read and write while the GPU does.
func word(h *cuda.HostMemory, i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Add(h.Pointer(), 8*i))
}

// stream is a stream that is closed with the test.
func stream(t testing.TB, v *cuda.Device, priority int) *cuda.Stream {
	t.Helper()
	s, err := v.NewStream(priority)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close(), s.Close()) })
	return s
}

// event is an event that is closed with the test.
func event(t testing.TB, v *cuda.Device) *cuda.Event {
	t.Helper()
	e, err := v.NewEvent()
	must(t, err)
	t.Cleanup(func() { must(t, e.Close(), e.Close()) })
	return e
}

// pattern is n bytes that differ from each other and from those of another seed.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) ^ byte(i>>8) ^ seed
	}
	return b
}

// read is n bytes of v at p.
func read(t testing.TB, v *cuda.Device, p uintptr, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	must(t, v.CopyToHost(unsafe.Pointer(&b[0]), p, int64(n)))
	return b
}

// write sets the memory of v at p.
func write(t testing.TB, v *cuda.Device, p uintptr, b []byte) {
	t.Helper()
	must(t, v.CopyFromHost(p, unsafe.Pointer(&b[0]), int64(len(b))))
}

func TestDeviceIsWhatTheDriverSays(t *testing.T) {
	d := cudatest.Driver(t)
	v := cudatest.Devices(t, 1)[0]
	if d.Version() < 12000 || !strings.Contains(d.Path(), "libcuda.so") || d.Count() < 1 {
		t.Errorf("driver %s, version %d, %d devices", d, d.Version(), d.Count())
	}
	again, err := d.Device(0)
	if err != nil || again != v || v.Index() != 0 || v.Driver() != d || v.Tensor() != tensor.CUDA(0) || v.Context() == 0 {
		t.Errorf("Device(0) = %p, %v, want %p, the same", again, err, v)
	}
	if _, err := d.Device(d.Count()); !errors.Is(err, cuda.ErrNoDevice) {
		t.Errorf("Device(%d): %v, want ErrNoDevice", d.Count(), err)
	}
	if v.Name() == "" || v.UUID() == [16]byte{} || !regexp.MustCompile(`^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.0$`).MatchString(v.PCI()) {
		t.Errorf("name %q, UUID %x, PCI %q", v.Name(), v.UUID(), v.PCI())
	}
	major, _ := v.Arch()
	free, total, err := v.Memory()
	if err != nil || major < 5 || v.SMs() < 1 || free <= 0 || free > total {
		t.Errorf("sm_%d, %d multiprocessors, %d of %d B free, %v", major, v.SMs(), free, total, err)
	}
	for a, want := range map[cuda.Attribute]int{
		cuda.WarpSize: 32, cuda.MultiprocessorCount: v.SMs(), cuda.UnifiedAddressing: 1, cuda.CanMapHostMemory: 1,
		cuda.StreamPriorities: 1, cuda.ComputeCapabilityMajor: major, cuda.MaxThreadsPerBlock: 1024, cuda.CooperativeLaunch: 1, cuda.StreamMemoryOps64: 1,
	} {
		if got, err := v.Attribute(a); err != nil || got != want {
			t.Errorf("attribute %d is %d, %v, want %d", a, got, err, want)
		}
	}
	var e *cuda.Error
	if _, err := v.Attribute(1 << 20); !errors.As(err, &e) || e.Name != "CUDA_ERROR_INVALID_VALUE" || e.Text != "invalid argument" || e.Library != d.String() {
		t.Errorf("attribute 1<<20: %v", err)
	}
	t.Logf("%s, %s, UUID %x, sm_%d, %d multiprocessors, %d B", d, v, v.UUID(), major, v.SMs(), total)
}

func TestMemoryKeepsWhatIsWritten(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	for _, n := range []int{1, 13, 4096, 65536, 3<<20 + 5} {
		a, b := alloc(t, v, int64(n)), alloc(t, v, int64(n))
		if a%256 != 0 {
			t.Errorf("%d B at %#x", n, a)
		}
		want := pattern(n, 3)
		write(t, v, a, want)
		must(t, v.Fill(b, 0x5a, int64(n)))
		if got := read(t, v, b, n); !bytes.Equal(got, bytes.Repeat([]byte{0x5a}, n)) {
			t.Errorf("%d B filled differ", n)
		}
		must(t, v.Copy(b, a, int64(n)))
		if got := read(t, v, b, n); !bytes.Equal(got, want) {
			t.Errorf("%d B copied differ", n)
		}
		base, bytes, err := v.Range(a + uintptr(n) - 1)
		if err != nil || base != a || bytes < int64(n) {
			t.Errorf("range of the last byte of %d B at %#x: %d B at %#x, %v", n, a, bytes, base, err)
		}
	}
	must(t, v.Copy(0, 0, 0), v.Fill(0, 0, 0))
	var e *cuda.Error
	if _, _, err := v.Range(16); !errors.As(err, &e) {
		t.Errorf("range of an address of nothing: %v", err)
	}
}

func TestMemoryThatIsNotThereIsAnErrorWithWhatIsFree(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	_, total, err := v.Memory()
	must(t, err)
	_, err = v.Alloc(2 * total)
	var e *cuda.Error
	if !errors.Is(err, cuda.ErrMemory) || !errors.As(err, &e) || e.Name != "CUDA_ERROR_OUT_OF_MEMORY" || !strings.Contains(err.Error(), " are free") {
		t.Errorf("got %v, want ErrMemory with what is free", err)
	}
	must(t, v.Fill(alloc(t, v, 16), 1, 16)) // the device still works
}

func TestHostMemoryIsOneForHostAndDevice(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	const n = 1 << 16
	h, err := v.AllocHost(n)
	must(t, err)
	if len(h.Bytes()) != n || !bytes.Equal(h.Bytes(), make([]byte, n)) || h.Device() == 0 || unsafe.Pointer(&h.Bytes()[0]) != h.Pointer() {
		t.Fatalf("%d B at %p, on the device at %#x; want %d zeros", len(h.Bytes()), h.Pointer(), h.Device(), n)
	}
	p := alloc(t, v, n)
	copy(h.Bytes(), pattern(n, 9))
	must(t, v.Copy(p, h.Device(), n))
	if got := read(t, v, p, n); !bytes.Equal(got, pattern(n, 9)) {
		t.Error("what the host wrote is not what the device has")
	}
	must(t, v.Fill(h.Device(), 0x11, n))
	if !bytes.Equal(h.Bytes(), bytes.Repeat([]byte{0x11}, n)) {
		t.Error("what the device wrote is not what the host has")
	}
	must(t, h.Close(), h.Close())
	if h.Bytes() != nil || h.Pointer() != nil {
		t.Error("closed memory can still be had")
	}
}

func TestStreamsOrderWorkByEvents(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	const n = 1 << 20
	first, second, e := stream(t, v, 0), stream(t, v, 0), event(t, v)
	gate := pinned(t, v, 64)
	a, b := alloc(t, v, n), alloc(t, v, n)
	out := pinned(t, v, n)
	must(t, v.Fill(a, 0, n), v.Fill(b, 0, n))

	must(t, first.Wait64(gate.Device(), 3), first.Fill(a, 7, n), first.Record(e))
	must(t, second.Wait(e), second.Copy(b, a, n), second.CopyToHost(out.Pointer(), b, n), second.Write64(gate.Device()+8, 99))
	for _, value := range []uint64{0, 2} {
		word(gate, 0).Store(value)
		idle, err := first.Idle()
		done, err2 := e.Done()
		other, err3 := second.Idle()
		if err := errors.Join(err, err2, err3); err != nil || idle || done || other {
			t.Errorf("with a gate of %d: idle %t and %t, event done %t, %v", value, idle, other, done, err)
		}
	}
	word(gate, 0).Store(4) // at least 3
	until(t, "a word written by the stream", func() bool { return word(gate, 1).Load() == 99 })
	must(t, second.Synchronize(), first.Synchronize(), e.Synchronize())
	if !bytes.Equal(out.Bytes(), bytes.Repeat([]byte{7}, n)) {
		t.Error("the copy overtook the fill")
	}
	idle, err := second.Idle()
	done, err2 := e.Done()
	if err := errors.Join(err, err2); err != nil || !idle || !done {
		t.Errorf("at the end: idle %t, event done %t, %v", idle, done, err)
	}
}

func TestWaitComparesBySignOfTheDifference(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s := stream(t, v, 0)
	words := alloc(t, v, 16)
	const wrapped = 5
	must(t, s.Write64(words, wrapped), s.Wait64(words, ^uint64(0)-3), s.Write64(words+8, 1<<63+1), s.Synchronize())
	if got := binary.LittleEndian.Uint64(read(t, v, words+8, 8)); got != 1<<63+1 {
		t.Errorf("wrote %#x", got)
	}
}

func TestStreamCopiesGoMemoryThatIsNotKept(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s := stream(t, v, 0)
	for _, n := range []int{1, 1000, 1 << 16, 5 << 20} {
		p := alloc(t, v, int64(n))
		src := pattern(n, 1)
		must(t, s.CopyFromHost(p, unsafe.Pointer(&src[0]), int64(n)))
		clear(src) // it may change when the call returns
		dst := make([]byte, n)
		must(t, s.CopyToHost(unsafe.Pointer(&dst[0]), p, int64(n)), s.Synchronize())
		if !bytes.Equal(dst, pattern(n, 1)) {
			t.Errorf("%d B differ", n)
		}
	}
}

func TestPrioritiesAreWithinTheRange(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	least, greatest, err := v.PriorityRange()
	if err != nil || greatest >= least {
		t.Fatalf("from %d to %d, %v: the greatest is the smaller number", least, greatest, err)
	}
	for asked, want := range map[int]int{least: least, greatest: greatest, greatest - 100: greatest, least + 100: least} {
		if s := stream(t, v, asked); s.Priority() != want || s.Handle() == 0 || s.Device() != v {
			t.Errorf("a stream of priority %d has %d, want %d", asked, s.Priority(), want)
		}
	}
}

func TestTimersMeasureWhatLiesBetween(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s := stream(t, v, 0)
	gate := pinned(t, v, 8)
	start, err := v.NewTimer()
	must(t, err)
	end, err := v.NewTimer()
	must(t, err)
	defer func() { must(t, start.Close(), end.Close()) }()
	p := alloc(t, v, 64<<20)
	must(t, s.Wait64(gate.Device(), 1), s.Record(start))
	for range 10 {
		must(t, s.Fill(p, 1, 64<<20))
	}
	must(t, s.Record(end))
	var e *cuda.Error
	if _, err := end.Since(start); !errors.As(err, &e) || e.Name != "CUDA_ERROR_NOT_READY" {
		t.Errorf("before it is reached: %v", err)
	}
	began := time.Now()
	word(gate, 0).Store(1)
	must(t, end.Synchronize())
	most := time.Since(began)
	d, err := end.Since(start)
	// 640 MiB: no memory writes more than 100 TB/s.
	if err != nil || d < 6*time.Microsecond || d > most {
		t.Errorf("%v, %v; between 6µs and %v", d, err, most)
	}
	if back, err := start.Since(end); err != nil || back != -d {
		t.Errorf("backwards: %v, %v, want %v", back, err, -d)
	}
}

func TestEnterNestsAlsoOfGoroutines(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	p := alloc(t, v, 64)
	s := stream(t, v, 0)
	errs := make(chan error)
	for i := range 16 {
		go func() {
			errs <- func() error {
				if err := s.Fill(p, byte(i), 64); err != nil { // outside
					return err
				}
				for range 3 {
					if err := v.Enter(); err != nil {
						return err
					}
					defer v.Leave()
				}
				return errors.Join(s.Fill(p, byte(i), 64), s.Synchronize())
			}()
		}()
	}
	for range 16 {
		must(t, <-errs)
	}
}

func TestHotCallsOnTheGPUDoNotAllocate(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "increment")
	s, e := stream(t, v, 0), event(t, v)
	words, more := alloc(t, v, 64), alloc(t, v, 64)
	h := pinned(t, v, 64)
	must(t, v.Fill(words, 0, 64), v.Fill(more, 0, 64))
	var args cuda.Args
	must(t, v.Enter())
	defer v.Leave()
	for name, call := range map[string]func() error{
		"Enter and Leave": func() error { err := v.Enter(); v.Leave(); return err },
		"Record":          func() error { return s.Record(e) },
		"Wait":            func() error { return s.Wait(e) },
		"Copy":            func() error { return s.Copy(more, words, 8) },
		"CopyToHost":      func() error { return s.CopyToHost(h.Pointer(), words, 8) },
		"CopyFromHost":    func() error { return s.CopyFromHost(more, h.Pointer(), 8) },
		"Fill":            func() error { return s.Fill(more, 1, 8) },
		"Write64":         func() error { return s.Write64(words+8, 1) },
		"Wait64":          func() error { return s.Wait64(words+8, 0) },
		"Done":            func() error { _, err := e.Done(); return err },
		"Idle":            func() error { _, err := s.Idle(); return err },
		"Synchronize":     s.Synchronize,
		"Launch": func() error {
			args.Reset()
			args.Ptr(words)
			args.U32(1)
			return f.Launch(s, cuda.Launch{}, &args)
		},
	} {
		var bad error
		if allocs := testing.AllocsPerRun(100, func() { bad = errors.Join(bad, call()) }); allocs != 0 {
			t.Errorf("%s: %v allocations, want 0", name, allocs)
		}
		must(t, bad)
	}
	must(t, s.Synchronize())
}

// child runs this test binary again for one test, as another process, with a line for it in the
// variable childVariable.
func child(t *testing.T, line string) ([]byte, error) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"="+line)
	return cmd.CombinedOutput()
}

const childVariable = "SYMGRAD_TEST_CHILD"

// A kernel that fails takes the device from its process, so it runs in one of its own.
func TestKernelThatFailsIsAFatalError(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		cudatest.Compiler(t)
		if out, err := child(t, "fail"); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	v := cudatest.Devices(t, 1)[0]
	d := cudatest.Driver(t)
	c := cudatest.Compiler(t)
	image, err := c.Compile(v, cuda.Source{Text: kernels})
	must(t, err)
	m, err := v.Load(image)
	must(t, err)
	f, err := m.Function("increment")
	must(t, err)
	s, err := v.NewStream(0)
	must(t, err)
	var args cuda.Args
	args.Ptr(0)
	args.U32(1)
	must(t, f.Launch(s, cuda.Launch{}, &args))
	var e *cuda.Error
	if err := s.Synchronize(); !errors.As(err, &e) || !e.Fatal() || e.Name != "CUDA_ERROR_ILLEGAL_ADDRESS" || e.Library != d.String() {
		t.Errorf("Synchronize: %v, want a fatal error", err)
	}
	for name, call := range map[string]func() error{
		"Launch": func() error { return f.Launch(s, cuda.Launch{}, &args) },
		"Alloc":  func() error { _, err := v.Alloc(16); return err },
		"Idle":   func() error { _, err := s.Idle(); return err },
	} {
		if err := call(); !errors.As(err, &e) || !e.Fatal() {
			t.Errorf("%s afterwards: %v, want a fatal error", name, err)
		}
	}
}
