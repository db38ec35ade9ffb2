package nccl

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}

// machineConfig finds the machine's NCCL, as programs do, or the one that a variable of the tests
// names.
func machineConfig() Config {
	root, environ := os.DirFS("/"), os.Environ()
	return Config{Path: cmp.Or(os.Getenv("SYMGRAD_TEST_NCCL"), dl.NCCL.AtHome(root, environ)), Dirs: dl.Places(root, environ)}
}

var openLibrary = sync.OnceValues(func() (*Library, error) {
	return Open(machineConfig())
})

// library is the machine's NCCL.
func library(t testing.TB) *Library {
	t.Helper()
	lib, err := openLibrary()
	if err != nil {
		cudatest.Missing(t, "no NCCL, set SYMGRAD_TEST_NCCL to its path: %v", err)
	}
	return lib
}

// rank is one rank of a test: a goroutine with a GPU, an engine of each kind, and memory.
type rank struct {
	*gpu.Member
	t             testing.TB
	lib           *Library
	plain, window gpu.Engine
	s             *cuda.Stream
	own           arena
	at            *arena // where buffers are placed
	crew          *crew
	fail          func(error)
}

// arena is device memory that is handed out from its beginning.
type arena struct {
	base uintptr
	size int
	used int
}

const arenaBytes = 256 << 20

// crew is the ranks of a test, so that one that fails can end the others.
type crew struct {
	mu    sync.Mutex
	ranks []*rank
}

func (c *crew) add(r *rank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranks = append(c.ranks, r)
}

func (c *crew) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.ranks {
		r.plain.Abort()
		r.window.Abort()
	}
}

// leastGPUs is how many a machine for tests must have.
const leastGPUs = 2

// onGPUs runs body on n ranks, each a goroutine with a GPU of its own; the control group is a
// simulated world.
func onGPUs(t testing.TB, n int, body func(r *rank) error) {
	t.Helper()
	cudatest.Many(t, n, leastGPUs)
	onGPUsWith(t, library(t), n, body)
}

func onGPUsWith(t testing.TB, lib *Library, n int, body func(r *rank) error) {
	t.Helper()
	devices := cudatest.Many(t, n, leastGPUs)
	worlds, err := sim.New(n, sim.Config{StepTimeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var all crew
	var ranks sync.WaitGroup
	for i, w := range worlds {
		ranks.Go(func() {
			r := &rank{t: t, lib: lib, crew: &all, Member: &gpu.Member{
				Device: devices[i], Rank: i, Size: n, World: w.Ranks(), Control: w.Group, Memory: new(gpu.Memory),
			}}
			// The others wait for a rank that fails, on the GPU and in the control group.
			var once sync.Once
			r.fail = func(err error) {
				once.Do(func() {
					t.Errorf("rank %d/%d: %v", i, n, err)
					_ = w.Abort(err)
					all.abort()
				})
			}
			err := r.open()
			if err == nil {
				err = body(r)
			}
			if err != nil {
				r.fail(err)
			}
			if err := errors.Join(r.close(), w.Close()); err != nil {
				t.Errorf("rank %d/%d: closing: %v", i, n, err)
			}
		})
	}
	ranks.Wait()
}

func (r *rank) open() error {
	engines, err := r.lib.Make(r.Member)
	if err != nil {
		return err
	}
	r.plain, r.window = engines[0], engines[1]
	r.crew.add(r)
	return onDevice(r.Device, func() error {
		_, greatest, err := r.Device.PriorityRange()
		if err != nil {
			return err
		}
		if r.s, err = r.Device.NewStream(greatest); err != nil {
			return err
		}
		r.own.size = arenaBytes
		r.at = &r.own
		r.own.base, err = r.Device.Alloc(arenaBytes)
		return err
	})
}

func (r *rank) close() error {
	var errs []error
	for _, e := range []gpu.Engine{r.plain, r.window} {
		if e != nil {
			errs = append(errs, e.Close(), e.Close())
		}
	}
	return errors.Join(append(errs, onDevice(r.Device, func() error {
		var errs []error
		if r.s != nil {
			errs = append(errs, r.s.Close())
		}
		if r.own.base != 0 {
			errs = append(errs, r.Device.Free(r.own.base))
		}
		return errors.Join(errs...)
	}))...)
}

// guardBytes follow every buffer and must stay as they are.
const guardBytes = 64

const guardByte = 0xa5

// buffer returns n elements of device memory with the bytes raw, or guard bytes if raw is nil,
// followed by more guard bytes.
func (r *rank) buffer(dt tensor.DType, n int, raw []byte) (tensor.Buffer, error) {
	bytes := n * dt.Size()
	a := r.at
	if a.used+bytes+guardBytes > a.size {
		return tensor.Buffer{}, fmt.Errorf("%d B do not fit the arena of %d B", bytes, a.size)
	}
	at := a.base + uintptr(a.used)
	a.used = (a.used + bytes + guardBytes + 511) &^ 511
	if err := r.Device.Fill(at, guardByte, int64(bytes+guardBytes)); err != nil {
		return tensor.Buffer{}, err
	}
	b, err := device(at, n, dt, r.Device)
	if err == nil && len(raw) > 0 {
		err = r.Device.CopyFromHost(at, unsafe.Pointer(&raw[0]), int64(len(raw)))
	}
	return b, err
}

func device(at uintptr, n int, dt tensor.DType, v *cuda.Device) (tensor.Buffer, error) {
	return tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), n, dt, v.Tensor())
}

// read returns the bytes of b, and checks the guard after it.
func (r *rank) read(b tensor.Buffer) ([]byte, error) {
	raw := make([]byte, int(b.Bytes())+guardBytes)
	if err := r.Device.CopyToHost(unsafe.Pointer(&raw[0]), addr(&b), int64(len(raw))); err != nil {
		return nil, err
	}
	for i, g := range raw[b.Bytes():] {
		if g != guardByte {
			return nil, fmt.Errorf("byte %d behind the buffer was changed to %#x", i, g)
		}
	}
	return raw[:b.Bytes()], nil
}

// queue runs op on e without waiting for it.
func (r *rank) queue(e gpu.Engine, op dist.Op) error {
	if err := e.Can(&op); err != nil {
		return err
	}
	return onDevice(r.Device, func() error { return e.Enqueue(&op, r.s) })
}

// do runs op on e.
func (r *rank) do(e gpu.Engine, op dist.Op) error {
	if err := r.queue(e, op); err != nil {
		return err
	}
	return r.s.Synchronize()
}

// Elements are bits in the low bytes of a uint64.

func mask(dt tensor.DType) uint64 { return 1<<(8*dt.Size()-1)<<1 - 1 }

func get(raw []byte, dt tensor.DType, i int) uint64 {
	var b [8]byte
	copy(b[:], raw[i*dt.Size():(i+1)*dt.Size()])
	return binary.LittleEndian.Uint64(b[:])
}

func put(raw []byte, dt tensor.DType, i int, bits uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], bits)
	copy(raw[i*dt.Size():(i+1)*dt.Size()], b[:])
}

// elements is n elements as bytes, of which f is the i-th.
func elements(dt tensor.DType, n int, f func(i int) uint64) []byte {
	raw := make([]byte, n*dt.Size())
	for i := range n {
		put(raw, dt, i, f(i))
	}
	return raw
}

// hash is a number that depends on all of its arguments (splitmix64).
func hash(rank, i, salt int) uint64 {
	x := uint64(rank)<<40 ^ uint64(i) ^ uint64(salt)<<52
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// TestLibraryTellsWhatItIs needs no communicator, but a machine that has NCCL.
func TestLibraryTellsWhatItIs(t *testing.T) {
	cudatest.Devices(t, 1)
	lib := library(t)
	again, err := Open(Config{})
	if err != nil || again.Path() != lib.Path() || again.Version() != lib.Version() {
		t.Errorf("opened again: %v, error %v; want %v", again, err, lib)
	}
	if _, err := os.Stat(lib.Path()); err != nil || lib.Version() < leastVersion {
		t.Errorf("%v: %v", lib, err)
	}
	for _, err := range lib.Missing() {
		if !errors.Is(err, dl.ErrUnsupported) {
			t.Errorf("missing: %v", err)
		}
	}
	// A copy of the library is another file.
	raw, err := os.ReadFile(lib.Path())
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir() + "/libnccl.so.2"
	if err := os.WriteFile(other, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: other}); !errors.Is(err, ErrLibrary) {
		t.Errorf("a second library: error %v, want ErrLibrary", err)
	}
	id, err := lib.NewUniqueID()
	if err != nil || id == (UniqueID{}) {
		t.Errorf("unique id %x, error %v", id, err)
	}
}
