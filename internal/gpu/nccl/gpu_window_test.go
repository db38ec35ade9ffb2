package nccl

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

const slabBytes = 64 << 20

// withSlab runs body with an arena in symmetric memory of NCCL's that the window engine knows.
func (r *rank) withSlab(body func() error) error {
	s, err := r.lib.Allocator().Alloc(r.Member, slabBytes)
	if err != nil {
		return err
	}
	if err := r.window.(gpu.Registrar).Register(s); err != nil {
		return errors.Join(err, s.Free())
	}
	r.at = &arena{base: s.Base[r.Rank], size: slabBytes}
	if err = body(); err != nil {
		r.fail(err) // the slab's end waits for the other ranks
	}
	r.at = &r.own
	return errors.Join(err, r.window.(gpu.Registrar).Unregister(s), s.Free(), s.Free())
}

func needsWindows(t *testing.T) {
	t.Helper()
	if v := library(t).Version(); v < windowVersion {
		t.Skipf("NCCL %v has no windows", v)
	}
}

// Operations with windows and without give the same results, and both are right.
func TestWindowsGiveWhatThePlainWayGives(t *testing.T) {
	needsWindows(t)
	for _, n := range sizes {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			onGPUs(t, n, func(r *rank) error {
				needs := buffers(dist.Op{Kind: dist.KindAllReduce, Symmetric: true}, tensor.F32, 4)
				if err := r.window.Can(&needs); !errors.Is(err, dist.ErrUnsupported) {
					return fmt.Errorf("without windows: error %w, want ErrUnsupported", err)
				}
				return r.withSlab(r.throughWindows)
			})
		})
	}
}

func (r *rank) throughWindows() error {
	for _, kind := range []dist.Kind{dist.KindAllReduce, dist.KindReduceScatter} {
		for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32} {
			for _, red := range []dist.RedKind{dist.RedSum, dist.RedAvg} {
				if red == dist.RedAvg && dt == tensor.F16 {
					continue
				}
				for k, count := range []int{1, 13, 16, 1004, 70_001, 1 << 20} {
					c := reduction{kind: kind, dt: dt, red: red, count: count, inPlace: k%2 == 0, promise: true}
					for _, c := range []reduction{exactly(c, r.Size), rounding(c, r.Size)} {
						if count > 1<<16 && dt != tensor.F32 {
							continue
						}
						err := r.try(r.window, c)
						if r.uneven(kind, dt, count) {
							err = unsupported(err)
						}
						if err != nil {
							return fmt.Errorf("windows: %w", err)
						}
						if err := r.try(r.plain, c); err != nil {
							return fmt.Errorf("no windows: %w", err)
						}
					}
				}
			}
		}
	}
	for _, dt := range tensor.DTypes() {
		for k, count := range []int{1, 13, 16, 1000, 70_001, 70_000, 1 << 20} {
			c := copied{kind: dist.KindAllGather, dt: dt, count: count, inPlace: k%2 == 1, promise: true}
			err := r.copies(r.window, c)
			if r.uneven(c.kind, dt, count) {
				err = unsupported(err)
			}
			if err != nil {
				return fmt.Errorf("windows: %+v: %w", c, err)
			}
		}
	}
	if err := r.askew(); err != nil {
		return fmt.Errorf("windows: %w", err)
	}
	return r.sameBits()
}

// uneven reports whether the library is too old for parts of so many elements in windows.
func (r *rank) uneven(kind dist.Kind, dt tensor.DType, count int) bool {
	return r.lib.Version() < alignVersion && kind != dist.KindAllReduce && count*dt.Size()%8 != 0
}

// unsupported is nil for an error that is ErrUnsupported.
func unsupported(err error) error {
	if errors.Is(err, dist.ErrUnsupported) {
		return nil
	}
	return fmt.Errorf("error %w, want ErrUnsupported", err)
}

// askew sums elements that lie one after a multiple of 8 B, on buffers that all of the others leave
// alone.
func (r *rank) askew() error {
	const n = 1001
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32} {
		for _, in := range []int{0, 1} { // where the source begins
			r.at.used = 0
			small := func(rank int) []byte {
				return elements(dt, n+1, func(i int) uint64 { return encode(dt, float64(hash(rank, i, 40)%9)-4) })
			}
			src, err := r.buffer(dt, n+1, small(r.Rank))
			if err != nil {
				return err
			}
			whole, err := r.buffer(dt, n+1, nil)
			if err != nil {
				return err
			}
			op := dist.Op{Kind: dist.KindAllReduce, Red: dist.Sum, Count: n, Symmetric: true}
			if op.Src, err = src.Slice(in, in+n); err != nil {
				return err
			}
			if op.Dst, err = whole.Slice(1, 1+n); err != nil {
				return err
			}
			if err := r.do(r.window, op); err != nil {
				return err
			}
			got, err := r.read(whole)
			if err != nil {
				return err
			}
			for i := range n {
				sum := 0.0
				for q := range r.Size {
					sum += value(dt, get(small(q), dt, in+i))
				}
				if v := value(dt, get(got, dt, 1+i)); v != sum {
					return fmt.Errorf("%v, source %d elements into its buffer: element %d is %v, want %v", dt, in, i, v, sum)
				}
			}
		}
	}
	return nil
}

// sameBits compares the results of the two engines for random f32 on two ranks, which have only one
// order.
func (r *rank) sameBits() error {
	if r.Size != 2 {
		return nil
	}
	c := rounding(reduction{kind: dist.KindAllReduce, dt: tensor.F32, red: dist.RedSum, count: 70_001, promise: true}, 2)
	var got [2][]byte
	for i, e := range []gpu.Engine{r.plain, r.window} {
		r.at.used = 0
		op, err := r.prepare(&c)
		if err != nil {
			return err
		}
		if err := r.do(e, op); err != nil {
			return err
		}
		if got[i], err = r.read(op.Dst); err != nil {
			return err
		}
	}
	if !bytes.Equal(got[0], got[1]) {
		return errors.New("windows give other bits than the plain way")
	}
	return nil
}

// With the policy zero, copy engines move between windows; and the settings of a communicator reach
// NCCL.
func TestCopyEnginesMoveEveryBit(t *testing.T) {
	cudatest.Devices(t, 2)
	whole := library(t)
	cfg := Config{Policy: PolicyZero, MinCTAs: 2, MaxCTAs: 8, ClusterSize: 2}
	if err := cfg.fits(whole.version); err != nil {
		t.Skip(err)
	}
	lib := &Library{lib: whole.lib, t: whole.t, version: whole.version, cfg: cfg, members: map[*dist.Group]*member{}}
	onGPUsWith(t, lib, 2, func(r *rank) error {
		return r.withSlab(func() error {
			for _, kind := range []dist.Kind{dist.KindAllGather, dist.KindAllToAll} {
				for _, dt := range tensor.DTypes() {
					for _, count := range []int{1, 13, 16, 70_000, 70_001} {
						c := copied{kind: kind, dt: dt, count: count, promise: true}
						err := r.copies(r.window, c)
						if kind == dist.KindAllGather && r.uneven(kind, dt, count) {
							err = unsupported(err)
						}
						if err != nil {
							return fmt.Errorf("%+v: %w", c, err)
						}
					}
				}
			}
			return nil
		})
	})
}

// A buffer outside of the windows is refused, not handed to a kernel that would hang.
func TestWindowsRefuseBuffersOutside(t *testing.T) {
	needsWindows(t)
	onGPUs(t, 2, func(r *rank) error {
		return r.withSlab(func() error {
			r.at = &r.own
			c := exactly(reduction{kind: dist.KindAllReduce, dt: tensor.F32, red: dist.RedSum, count: 10, promise: true}, 2)
			op, err := r.prepare(&c)
			if err != nil {
				return err
			}
			if err := r.queue(r.window, op); !errors.Is(err, dist.ErrInvalid) {
				return fmt.Errorf("error %w, want ErrInvalid", err)
			}
			op.Symmetric = false
			if err := r.queue(r.window, op); !errors.Is(err, dist.ErrUnsupported) {
				return fmt.Errorf("without the promise: error %w, want ErrUnsupported", err)
			}
			return nil
		})
	})
}

// Memory of cudaMalloc cannot become a window: Can says so on all ranks, until it is unregistered,
// and none hangs.
func TestMemoryThatCannotBeAWindowBarsTheEngine(t *testing.T) {
	needsWindows(t)
	onGPUs(t, 2, func(r *rank) error {
		base := make([]uintptr, 2)
		base[r.Rank] = r.own.base
		s := &gpu.Slab{Bytes: 1 << 20, Base: base}
		op := buffers(dist.Op{Kind: dist.KindAllReduce, Symmetric: true}, tensor.F32, 4)
		return r.withSlab(func() error {
			if err := r.window.Can(&op); err != nil {
				return err
			}
			if err := r.window.(gpu.Registrar).Register(s); err != nil {
				return err
			}
			err := r.window.Can(&op)
			if !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "cudaMalloc") {
				return fmt.Errorf("error %w, want ErrUnsupported that names cudaMalloc", err)
			}
			if err := r.window.(gpu.Registrar).Unregister(s); err != nil {
				return err
			}
			return errors.Join(r.window.Can(&op), r.do(r.plain, dist.Op{Kind: dist.KindBarrier}))
		})
	})
}

// A slab is zero and aligned, and every rank can read the writes of every other.
func TestSlabsAreAddressedByAllRanks(t *testing.T) {
	needsWindows(t)
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			onGPUs(t, n, func(r *rank) error {
				a := r.lib.Allocator()
				if _, err := a.Alloc(r.Member, 0); !errors.Is(err, dist.ErrInvalid) {
					return fmt.Errorf("no bytes: error %w, want ErrInvalid", err)
				}
				var slabs []*gpu.Slab
				for _, bytes := range []int64{4096, 3<<20 + 512} {
					s, err := a.Alloc(r.Member, bytes)
					if err != nil {
						return err
					}
					slabs = append(slabs, s)
					if err := r.crossRead(s); err != nil {
						return fmt.Errorf("%d B: %w", bytes, err)
					}
				}
				return errors.Join(slabs[1].Free(), slabs[0].Free())
			})
		})
	}
}

func (r *rank) crossRead(s *gpu.Slab) error {
	raw := make([]byte, s.Bytes)
	at := s.Base[r.Rank]
	if len(s.Base) != r.Size || at%4096 != 0 {
		return fmt.Errorf("bases %x", s.Base)
	}
	if err := r.Device.CopyToHost(unsafe.Pointer(&raw[0]), at, s.Bytes); err != nil {
		return err
	}
	if !bytes.Equal(raw, make([]byte, s.Bytes)) {
		return errors.New("not zeroed")
	}
	for i := range raw {
		raw[i] = byte(hash(r.Rank, i, 30))
	}
	err := r.Device.CopyFromHost(at, unsafe.Pointer(&raw[0]), s.Bytes)
	if err := r.Agree(err); err != nil {
		return err
	}
	for q, at := range s.Base {
		if at == 0 && r.lib.Version() >= vidmemVersion {
			return fmt.Errorf("rank %d cannot be addressed", q)
		}
		if at == 0 {
			continue
		}
		if err := r.Device.CopyToHost(unsafe.Pointer(&raw[0]), at, s.Bytes); err != nil {
			return err
		}
		for i, b := range raw {
			if b != byte(hash(q, i, 30)) {
				return fmt.Errorf("byte %d of rank %d is %#x", i, q, b)
			}
		}
	}
	return r.Agree(nil)
}
