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
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// flags is an engine for ranks that are goroutines of one process: streams write and wait for words of pinned memory, and
// copy between heaps. It does barriers, and the gathering of symmetric buffers.
type flags struct {
	p     *Party
	own   *cuda.HostMemory
	words []uintptr // by rank
	hosts []*uint64
	round uint64
}

func newFlags(p *Party) (*flags, error) {
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
	slab, off := f.p.Memory.Find(address(op.Src), op.Src.Bytes())
	for r, base := range slab.Base {
		err = errors.Join(err, s.Copy(address(op.Dst)+uintptr(r)*uintptr(op.Src.Bytes()), base+uintptr(off), op.Src.Bytes()))
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

func (f *flags) Split(sub *Party) (Engine, error) {
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

func (direct) Alloc(p *Party, bytes int64) (*Slab, error) {
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
	t *Transport
	v *cuda.Device
}

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
	var ranks sync.WaitGroup
	for r, w := range worlds {
		ranks.Go(func() {
			c := Config{Device: devices[r], Control: w.Group, Alloc: direct{}, StepTimeout: 20 * time.Second}
			c.Make = func(p *Party) ([]Engine, error) {
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
				err = errors.Join(body(member{g, tr, devices[r]}), g.Close())
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

// download fills b, which is on the host, with what d has.
func (m member) download(b, d tensor.Buffer) error {
	return m.v.CopyToHost(b.Pointer(), address(d), b.Bytes())
}

func TestGroupOfOneScales(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		return errors.Join(
			scales(m, []float32{1, -2.5, 1e30}, 0.3, []float32{1 * 0.3, -2.5 * 0.3, 1e30 * 0.3}),
			scales(m, []float64{1, 3}, 0.1, []float64{0.1, 3 * 0.1}),
			scales(m, []int8{100, -100}, 3, []int8{44, -44}),
			scales(m, []int16{20000}, 2, []int16{-25536}),
			scales(m, []int32{1 << 30}, 5, []int32{1 << 30}),
			scales(m, []int64{-7}, 3, []int64{-21}),
			scales(m, []uint8{200}, 2, []uint8{144}),
			scales(m, []uint16{40000}, 2, []uint16{14464}),
			scales(m, []uint32{1 << 31}, 3, []uint32{1 << 31}),
			scales(m, []uint64{1 << 63}, 3, []uint64{1 << 63}),
			scales(m, []tensor.Float16{tensor.ToFloat16(1.5), tensor.ToFloat16(-0.1)}, tensor.ToFloat16(0.3), []tensor.Float16{
				tensor.ToFloat16(1.5 * tensor.ToFloat16(0.3).Float32()),
				tensor.ToFloat16(tensor.ToFloat16(-0.1).Float32() * tensor.ToFloat16(0.3).Float32()),
			}),
			scales(m, []tensor.BFloat16{tensor.ToBFloat16(1.5)}, tensor.ToBFloat16(0.3), []tensor.BFloat16{
				tensor.ToBFloat16(1.5 * tensor.ToBFloat16(0.3).Float32()),
			}))
	})
}

// scales compares a premulsum, with the factor as a value and in memory, in place and not.
func scales[T tensor.Element](m member, in []T, factor T, result []T) error {
	src, free, err := m.upload(tensor.Of(in))
	if err != nil {
		return err
	}
	dst, free2, err := m.upload(tensor.Of(make([]T, len(in))))
	if err != nil {
		return err
	}
	at, free3, err := m.upload(tensor.Of([]T{factor}))
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range []struct {
		dst tensor.Buffer
		red dist.RedOp
	}{{dst, dist.PreMulSum(factor)}, {dst, dist.PreMulSumAt(at)}, {src, dist.PreMulSumAt(at)}} {
		got := make([]T, len(in))
		err := errors.Join(finish(m.AllReduce(c.dst, src, c.red)), m.download(tensor.Of(got), c.dst))
		for i := range got {
			if err == nil && got[i] != result[i] {
				err = fmt.Errorf("%v: %v times %v is %v, want %v", src.DType(), in[i], factor, got[i], result[i])
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, free(), free2(), free3())...)
}

func TestGroupOfOneCopiesItsMessages(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		src, free, err := m.upload(tensor.Of([]int16{1, 2, 3}))
		if err != nil {
			return err
		}
		dst, free2, err := m.upload(tensor.Of(make([]int16, 3)))
		if err != nil {
			return err
		}
		got := make([]int16, 3)
		err = errors.Join(finish(m.Batch(func(g *dist.Group) error {
			_, err := g.Recv(dst, 0)
			_, err2 := g.Send(src, 0)
			return errors.Join(err, err2)
		})), m.download(tensor.Of(got), dst), free(), free2())
		if err == nil && (got[0] != 1 || got[2] != 3) {
			err = fmt.Errorf("a message to oneself is %v", got)
		}
		_, alone := m.Batch(func(g *dist.Group) error {
			_, err := g.Send(src, 0)
			return err
		})
		return errors.Join(err, want(alone, dist.ErrRoot))
	})
}

func TestGathersFromAllHeaps(t *testing.T) {
	onGPUs(t, 2, nil, func(m member) error {
		h, err := m.Heap(1 << 16)
		if err != nil {
			return err
		}
		r, err := h.Alloc(64)
		if err != nil {
			return err
		}
		all, err := h.Alloc(128)
		if err != nil {
			return err
		}
		w, err := symmetricGather(m, r, all)
		if err != nil {
			return err
		}
		if err := w.Wait(); err != nil {
			return err
		}
		got := make([]byte, 128)
		if err := m.download(tensor.Of(got), all.Local()); err != nil {
			return err
		}
		for i, v := range got {
			if want := byte(1 + i/64); v != want {
				return fmt.Errorf("byte %d is %d, want %d", i, v, want)
			}
		}
		_, unsupported := m.AllReduce(r.Local(), r.Local(), dist.Sum)
		private, free, err := m.upload(tensor.Of(make([]byte, 8)))
		if err != nil {
			return err
		}
		misplaced := finish(m.Group.Symmetric().AllGather(all.Local(), private))
		return errors.Join(want(unsupported, dist.ErrUnsupported, "flags"), want(misplaced, dist.ErrInvalid), free())
	})
}

// symmetricGather gathers a region that each rank has filled with its number, from 1.
func symmetricGather(m member, r, all symmetric.Region) (dist.Work, error) {
	if err := m.v.Fill(address(r.Local()), byte(1+m.Rank()), 64); err != nil {
		return dist.Work{}, err
	}
	return m.Group.Symmetric().AllGather(all.Local(), r.Local())
}

func TestRanksThatDifferAreToldOnGPUs(t *testing.T) {
	onGPUs(t, 2, nil, func(m member) error {
		call := m.Barrier
		if m.Rank() == 1 {
			call = m.Sync
		}
		first := finish(call())
		_, split := m.Split(0, 0)
		return errors.Join(want(first, dist.ErrMismatch, "operation", "barrier", "sync"),
			want(finish(m.Barrier()), dist.ErrMismatch), want(split, dist.ErrMismatch))
	})
}

func TestRankThatDoesNotComeIsNamed(t *testing.T) {
	onGPUs(t, 2, func(c *Config) { c.StepTimeout = time.Second }, func(m member) error {
		if m.Rank() == 1 {
			return want(m.t.pact.awaitVerdict(), dist.ErrTimeout, "rank 1")
		}
		return errors.Join(want(finish(m.Barrier()), dist.ErrTimeout, "rank 1"), want(finish(m.Barrier()), dist.ErrTimeout))
	})
}

func TestAbortEndsPendingWork(t *testing.T) {
	onGPUs(t, 2, nil, func(m member) error {
		if m.Rank() == 1 {
			return m.Abort(errors.New("the disk is full"))
		}
		return want(finish(m.Barrier()), dist.ErrAborted, "the disk is full")
	})
}

func TestPartsWorkAndTheWorldAfterThem(t *testing.T) {
	onGPUs(t, 2, nil, func(m member) error {
		h, err := m.Heap(1 << 12)
		if err != nil {
			return err
		}
		same, err := m.Split(0, -m.Rank())
		if err != nil {
			return err
		}
		own, err := m.Split(m.Rank(), 0)
		if err != nil {
			return err
		}
		if same.Rank() != 1-m.Rank() || own.Size() != 1 {
			return fmt.Errorf("rank %d of the whole, one of %d", same.Rank(), own.Size())
		}
		return errors.Join(finish(same.Barrier()), finish(own.Barrier()), same.Close(), own.Close(), h.Close(), finish(m.Barrier()))
	})
}

func TestTuneMakesATable(t *testing.T) {
	onGPUs(t, 2, nil, func(m member) error {
		table, err := Tune(m.t, Tuning{Kinds: []dist.Kind{dist.KindAllGather}, Smallest: 1 << 10, Largest: 1 << 12, Rounds: 5, Repeats: 3})
		if err != nil {
			return err
		}
		if len(table.Rows) != 3 || !table.Fits(m.v.Name()) || !table.Rows[0].Symmetric || table.Rows[2].Timings[0].Engine != "flags" {
			return fmt.Errorf("table %+v", table)
		}
		all, err := m.t.party.Exchange([]byte(table.Hash()))
		if err == nil && string(all[0]) != string(all[1]) {
			err = errors.New("ranks have different tables")
		}
		return err
	})
}
