package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// flags is an engine for ranks that are goroutines of one process: streams write and wait for words
// of pinned memory, and copy between heaps. It does barriers, and the gathering of symmetric
// buffers.
type flags struct {
	p     *Member
	own   *cuda.HostMemory
	words []uintptr // by rank
	hosts []*uint64
	round uint64
}

func newFlags(p *Member) (*flags, error) {
	own, err := p.Device.AllocHost(64)
	if err != nil {
		return nil, err
	}
	f := &flags{p: p, own: own}
	b := binary.LittleEndian.AppendUint64(nil, uint64(own.Device()))
	all, err := p.Exchange(binary.LittleEndian.AppendUint64(b, uint64(uintptr(pinned(own, 0)))))
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	for _, b := range all {
		at := uintptr(binary.LittleEndian.Uint64(b[8:]))
		f.words = append(f.words, uintptr(binary.LittleEndian.Uint64(b)))
		f.hosts = append(f.hosts, *(**uint64)(unsafe.Pointer(&at)))
	}
	return f, nil
}

func (f *flags) Name() string { return "flags" }

func (f *flags) Can(op *dist.Op) error {
	if op.Kind == dist.KindBarrier || op.Kind == dist.KindSync || op.Kind == dist.KindAllGather && op.Symmetric {
		return nil
	}
	return fmt.Errorf("%w: flags do no %v", dist.ErrUnsupported, op.Kind)
}

func (f *flags) meet(s *cuda.Stream) error {
	f.round++
	err := s.Write64(f.words[f.p.Rank], f.round)
	for _, w := range f.words {
		if err == nil {
			err = s.Wait64(w, f.round)
		}
	}
	return err
}

func (f *flags) Enqueue(op *dist.Op, s *cuda.Stream) error {
	err := f.meet(s)
	if err != nil || op.Kind != dist.KindAllGather {
		return err
	}
	// Each rank copies to all others. The driver may run a copy from a device on that device, in
	// one order with the work of another rank's stream there. So the copy may wait for that
	// stream's waits: three and more ranks hung.
	slab, off := f.p.Memory.Find(address(op.Dst), op.Dst.Bytes())
	own := uintptr(off) + uintptr(f.p.Rank)*uintptr(op.Src.Bytes())
	for _, base := range slab.Base {
		err = errors.Join(err, s.Copy(base+own, address(op.Src), op.Src.Bytes()))
	}
	return errors.Join(err, f.meet(s))
}

func (f *flags) Failed() error { return nil }

// Abort lets every stream go that waits for this rank, and this rank's own.
func (f *flags) Abort() {
	for _, w := range f.hosts {
		atomic.StoreUint64(w, 1<<62)
	}
}

func (f *flags) Split(sub *Member) (Engine, error) {
	if sub == nil {
		return nil, nil
	}
	return newFlags(sub)
}

// Close leaves the words to the end of the process: others may still write them.
func (f *flags) Close() error { return nil }

// direct is an allocator for devices of one process, which address each other.
type direct struct{}

func (direct) Name() string { return "direct" }

func (direct) Alloc(p *Member, bytes int64) (*Slab, error) {
	v := p.Device
	at, err := v.Alloc(bytes + symmetric.MaxAlignment)
	if err = p.Agree(err); err != nil {
		return nil, err
	}
	base := (at + symmetric.MaxAlignment - 1) &^ (symmetric.MaxAlignment - 1)
	if err := v.Fill(at, 0, bytes+symmetric.MaxAlignment); err != nil {
		return nil, err
	}
	all, err := p.Exchange(binary.LittleEndian.AppendUint64(nil, uint64(base)))
	if err != nil {
		return nil, err
	}
	slab := &Slab{Bytes: bytes, Free: func() error { return v.Free(at) }}
	for _, b := range all {
		slab.Base = append(slab.Base, uintptr(binary.LittleEndian.Uint64(b)))
	}
	return slab, nil
}

// member is one rank of a group of GPUs.
type member struct {
	*dist.Group
	t    *Transport
	v    *cuda.Device
	meet func() // returns when all ranks have called it, or ended: before one breaks the group on purpose
}

// mostGPUs is the largest group that tests are made for; one of 2 must be possible wherever GPUs
// are required.
const mostGPUs = 8

// onGroups runs body as every rank of groups of 2 GPUs and more, up to all GPUs.
func onGroups(t *testing.T, change func(c *Config), body func(m member) error) {
	t.Helper()
	for n := 2; n <= mostGPUs; n++ {
		t.Run(fmt.Sprintf("%d GPUs", n), func(t *testing.T) {
			cudatest.Many(t, n, 2)
			onGPUs(t, n, change, body)
		})
	}
}

// next is the rank that m sends to, and prev the one that sends to m.
func (m member) next() int { return (m.Rank() + 1) % m.Size() }
func (m member) prev() int { return (m.Rank() + m.Size() - 1) % m.Size() }

// onGPUs runs body as every rank of a group of n GPUs of this process.
func onGPUs(t *testing.T, n int, change func(c *Config), body func(m member) error) {
	t.Helper()
	devices := cudatest.Devices(t, n)
	for _, v := range devices {
		for _, peer := range devices {
			if v == peer {
				continue
			}
			if err := v.EnablePeer(peer); err != nil {
				cudatest.Missing(t, "peer access: %v", err)
			}
		}
	}
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var ranks, here sync.WaitGroup
	here.Add(n)
	for r, w := range worlds {
		come := sync.OnceFunc(here.Done)
		ranks.Go(func() {
			defer come()
			c := Config{Device: devices[r], Control: w.Group, Alloc: direct{}, StepTimeout: 20 * time.Second}
			c.Make = func(p *Member) ([]Engine, error) {
				f, err := newFlags(p)
				return []Engine{f}, err
			}
			if change != nil {
				change(&c)
			}
			tr, err := Open(c)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			g, err := dist.NewGroup(tr, 0)
			if err == nil {
				err = errors.Join(body(member{g, tr, devices[r], func() { come(); here.Wait() }}), g.Close())
			}
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

// upload is a private buffer of the device with the elements of b, which is on the host.
func (m member) upload(b tensor.Buffer) (tensor.Buffer, func() error, error) {
	p, err := m.v.Alloc(max(b.Bytes(), 8))
	if err != nil {
		return tensor.Buffer{}, nil, err
	}
	free := func() error { return m.v.Free(p) }
	if err := m.v.CopyFromHost(p, b.Pointer(), b.Bytes()); err != nil {
		return tensor.Buffer{}, nil, errors.Join(err, free())
	}
	d, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&p)), b.Len(), b.DType(), m.v.Tensor())
	return d, free, err
}

// download fills b, which is on the host, with the contents of d.
func (m member) download(b, d tensor.Buffer) error {
	return m.v.CopyToHost(b.Pointer(), address(d), b.Bytes())
}

// An operation on another stream would join the capture of one, without a way out: it is refused,
// and the capture goes on.
func TestOperationBesideACaptureIsRefused(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		s, _ := m.Stream().(*Stream)
		other, err := NewStream(m.v)
		if err != nil {
			return err
		}
		if err := finish(m.Barrier()); err != nil {
			return err
		}
		var refused error
		g, err := s.Capture(func() error {
			_, refused = m.On(other).Barrier()
			_, err := m.Barrier()
			return err
		})
		if err != nil {
			return errors.Join(refused, err)
		}
		return errors.Join(want(refused, dist.ErrInvalid), g.Close(), finish(m.On(other).Barrier()), finish(m.Barrier()), other.Close())
	})
}
