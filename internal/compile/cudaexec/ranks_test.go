package cudaexec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// adderSource sums over GPUs of one process, whose memory all of them address: each copies its part
// to a board, tells the others, waits for them, and adds their parts in the order of the ranks.
// Epochs are counted on the device, so that the kernel can be replayed; a word of the host ends a
// wait.
const adderSource = `
typedef unsigned long long u64;
struct Boards { char *at[8]; };

__device__ void meet(Boards b, int rank, int ranks, u64 epoch, volatile u64 *stop) {
  __syncthreads();
  if (threadIdx.x < ranks) {
    __threadfence_system();
    *(volatile u64 *)(b.at[threadIdx.x] + 8 * rank) = epoch;
    volatile u64 *other = (volatile u64 *)(b.at[rank] + 8 * threadIdx.x);
    while (*other < epoch && *stop == 0) {}
    __threadfence_system();
  }
  __syncthreads();
}

extern "C" __global__ void add(Boards b, int rank, int ranks, u64 *epoch, volatile u64 *stop, float *dst, const float *src, u64 n) {
  const u64 e = *epoch;
  float *own = (float *)(b.at[rank] + 256);
  for (u64 i = threadIdx.x; i < n; i += blockDim.x) own[i] = src[i];
  meet(b, rank, ranks, e + 1, stop);
  for (u64 i = threadIdx.x; i < n; i += blockDim.x) {
    float sum = ((volatile float *)(b.at[0] + 256))[i];
    for (int r = 1; r < ranks; r++) sum += ((volatile float *)(b.at[r] + 256))[i];
    dst[i] = sum;
  }
  meet(b, rank, ranks, e + 2, stop);
  if (threadIdx.x == 0) *epoch = e + 2;
}`

// boardBytes is room for the largest sum.
const boardBytes = 4 << 20

// adder is an engine that sums f32.
type adder struct {
	p         *gpu.Member
	module    *cuda.Module
	add       *cuda.Function
	own       uintptr // board, followed by the epoch
	boards    [64]byte
	stop      *cuda.HostMemory
	args      *cuda.Args
	symmetric atomic.Int64 // operations that promised it
	sums      atomic.Int64
}

func newAdder(p *gpu.Member) (*adder, error) {
	a := &adder{p: p}
	v := p.Device
	image, err := func() ([]byte, error) {
		c, err := v.Driver().Compiler()
		if err != nil {
			return nil, err
		}
		return c.Compile(v, cuda.Source{Name: "adder.cu", Text: adderSource})
	}()
	if err == nil {
		a.module, err = v.Load(image)
	}
	if err == nil {
		a.add, err = a.module.Function("add")
	}
	if err == nil {
		a.own, err = v.Alloc(boardBytes + 512)
	}
	if err == nil {
		err = v.Fill(a.own, 0, boardBytes+512)
	}
	if err == nil {
		a.stop, err = v.AllocHost(8)
	}
	if err == nil {
		a.args, err = cuda.NewArgs(8)
	}
	if err = p.Agree(err); err != nil {
		return nil, err
	}
	all, err := p.Exchange(binary.LittleEndian.AppendUint64(nil, uint64(a.own)))
	if err != nil {
		return nil, err
	}
	for r, b := range all {
		copy(a.boards[8*r:], b)
	}
	return a, nil
}

func (a *adder) Name() string { return "adder" }

func (a *adder) Can(op *dist.Op) error {
	if op.Kind == dist.KindAllReduce && op.Red.Kind == dist.RedSum && op.DType() == tensor.F32 && op.Count <= (boardBytes-256)/4 {
		return nil
	}
	return fmt.Errorf("%w: the adder does no %v of %v[%d]", dist.ErrUnsupported, op.Kind, op.DType(), op.Count)
}

func (a *adder) Enqueue(op *dist.Op, s *cuda.Stream) error {
	a.sums.Add(1)
	if op.Symmetric {
		a.symmetric.Add(1)
	}
	a.args.Reset()
	a.args.Bytes(a.boards[:])
	a.args.I32(int32(a.p.Rank))
	a.args.I32(int32(a.p.Size))
	a.args.Ptr(a.own + boardBytes)
	a.args.Ptr(a.stop.Device())
	a.args.Ptr(uintptr(op.Dst.Pointer()))
	a.args.Ptr(uintptr(op.Src.Pointer()))
	a.args.U64(uint64(op.Count))
	return a.add.Launch(s, cuda.Launch{Block: [3]uint32{1024}}, a.args)
}

func (a *adder) Failed() error { return nil }

func (a *adder) Abort() { atomic.StoreUint64((*uint64)(a.stop.Pointer()), 1) }

func (a *adder) Split(sub *gpu.Member) (gpu.Engine, error) {
	if sub == nil {
		return nil, nil
	}
	return newAdder(sub)
}

// Close leaves board and stop to the end of the process: others may still look at them.
func (a *adder) Close() error { return nil }

// slabs is symmetric memory of GPUs of one process.
type slabs struct{}

func (slabs) Name() string { return "slabs" }

func (slabs) Alloc(p *gpu.Member, bytes int64) (*gpu.Slab, error) {
	v := p.Device
	const align = 4096 // symmetric.MaxAlignment
	at, err := v.Alloc(bytes + align)
	if err == nil {
		err = v.Fill(at, 0, bytes+align)
	}
	if err = p.Agree(err); err != nil {
		return nil, err
	}
	base := (at + align - 1) &^ (align - 1)
	all, err := p.Exchange(binary.LittleEndian.AppendUint64(nil, uint64(base)))
	if err != nil {
		return nil, err
	}
	s := &gpu.Slab{Bytes: bytes, Free: func() error { return v.Free(at) }}
	for _, b := range all {
		s.Base = append(s.Base, uintptr(binary.LittleEndian.Uint64(b)))
	}
	return s, nil
}

// member is one rank of a group of GPUs.
type member struct {
	*dist.Group
	control *dist.Group
	adder   *adder
	v       *cuda.Device
}

// onGPUs runs body as every rank of a group of n GPUs; its ranks are goroutines.
func onGPUs(t *testing.T, n int, script string, body func(m member) error) {
	t.Helper()
	devices := cudatest.Devices(t, n)
	cudatest.Compiler(t)
	for _, v := range devices {
		for _, peer := range devices {
			if err := v.EnablePeer(peer); err != nil {
				cudatest.Missing(t, "peer access: %v", err)
			}
		}
	}
	worlds, err := sim.New(n, sim.Config{Script: script})
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for r, w := range worlds {
		ranks.Go(func() {
			m := member{control: w.Group, v: devices[r]}
			tr, err := gpu.Open(gpu.Config{
				Device: m.v, Control: w.Group, Alloc: slabs{}, StepTimeout: 20 * time.Second,
				Make: func(p *gpu.Member) ([]gpu.Engine, error) {
					a, err := newAdder(p)
					if m.adder == nil {
						m.adder = a
					}
					return []gpu.Engine{a}, err
				},
			})
			if err == nil {
				m.Group, err = dist.NewGroup(tr, 0)
			}
			if err == nil {
				err = body(m)
				if e := m.Close(); !errors.Is(e, dist.ErrAborted) { // a death in the group is no error of the test
					err = errors.Join(err, e)
				}
			}
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}
