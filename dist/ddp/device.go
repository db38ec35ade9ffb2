package ddp

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// value is a learnable and its memory on a GPU.
type value struct {
	node   *gorgonia.Node
	host   tensor.Buffer
	buf    tensor.Buffer
	region symmetric.Region
	at     int64 // byte offset in region
	heap   symmetric.Heap
	homed  bool // it is a part of a bucket of weights
}

// deviceValues are the learnables on a GPU and their memory.
type deviceValues struct {
	all  []value
	heap symmetric.Heap // of the values outside buckets; nil if there are none
}

// allocate finds memory for the weights of all learnables: in buckets of weights, or separately in
// the symmetric heap.
//
// Collective: all ranks, same learnables.
func (vs *deviceValues) allocate(d *DDP, learnables gorgonia.Nodes) error {
	total := int64(0)
	for _, n := range learnables {
		if d.plan.gathers() && slotOf(d.slots, n) != nil {
			continue
		}
		b, err := valueMemory(n.Value())
		if err != nil {
			return fmt.Errorf("parameter %q: %w", n.Name(), err)
		}
		v := value{node: n, host: b}
		if err := v.home(d); err != nil {
			return fmt.Errorf("parameter %q: %w", n.Name(), err)
		}
		if !v.homed {
			total += roundUp(b.Bytes())
		}
		vs.all = append(vs.all, v)
	}
	if total == 0 {
		return nil
	}
	heap, err := d.team.Heap(total)
	if err != nil {
		return err
	}
	vs.heap = heap
	for i := range vs.all {
		v := &vs.all[i]
		if v.homed {
			continue
		}
		v.heap = heap
		if v.region, err = heap.Alloc(v.host.Bytes()); err != nil {
			return err
		}
		raw := v.region.Local()
		if v.buf, err = tensor.FromPointer(raw.Pointer(), v.host.Len(), v.host.DType(), raw.Device()); err != nil {
			return err
		}
	}
	return nil
}

// home sets v's memory in a bucket of weights, if it has one.
func (v *value) home(d *DDP) error {
	s := slotOf(d.slots, v.node)
	if s == nil || s.weights.IsZero() {
		return nil
	}
	v.buf, v.homed, v.heap = s.weights, true, d.mem.heap
	var err error
	v.region, v.at, err = d.mem.regionOf(v.buf)
	return err
}

// broadcast copies rank 0's weights to the GPUs of all ranks, and from there to the nodes'
// values.
//
// Collective: all ranks.
func (vs *deviceValues) broadcast(t *team) error {
	me := t.Rank()
	for i := range vs.all {
		v := &vs.all[i]
		if err := v.region.Put(me, v.at, v.host); err != nil {
			return err
		}
	}
	for i := range vs.all {
		if i > 0 && vs.all[i].heap == vs.all[i-1].heap {
			continue
		}
		if err := vs.all[i].heap.Quiet(); err != nil {
			return err
		}
	}
	for i := range vs.all {
		v := &vs.all[i]
		work, err := t.plainView(v.node.Name()).spread(v.buf)
		if err == nil {
			err = work.Wait()
		}
		if err == nil {
			err = v.region.Get(v.host, me, v.at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (vs *deviceValues) close() error {
	if vs.heap == nil {
		return nil
	}
	return vs.heap.Close()
}

// slotOf returns the slot of a learnable's gradient, or nil.
func slotOf(slots []*slot, n *gorgonia.Node) *slot {
	i := slices.IndexFunc(slots, func(s *slot) bool { return s.param == n })
	if i < 0 {
		return nil
	}
	return slots[i]
}

// regionOf returns the region that contains b, a part of m, and b's byte offset in it.
func (m *memory) regionOf(b tensor.Buffer) (symmetric.Region, int64, error) {
	for _, r := range m.parts {
		part := r.Local()
		if off := int64(uintptr(b.Pointer())) - int64(uintptr(part.Pointer())); off >= 0 && off+b.Bytes() <= part.Bytes() {
			return r, off, nil
		}
	}
	return nil, 0, fmt.Errorf("%w: its bucket is in none of the %d regions of the heap", dist.ErrInvalid, len(m.parts))
}

func roundUp(bytes int64) int64 {
	return (max(bytes, 1) + symmetric.Alignment - 1) / symmetric.Alignment * symmetric.Alignment
}

// gatherOnGPU is gather through a heap, since collectives need buffers on the GPU.
func gatherOnGPU(w *dist.Group, name string, mine []byte) (parts [][]byte, err error) {
	heap, err := w.Heap(roundUp(int64(len(mine)*w.Size())) + roundUp(int64(len(mine))))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, heap.Close()) }()
	src, err := heap.Alloc(int64(len(mine)))
	if err != nil {
		return nil, err
	}
	dst, err := heap.Alloc(int64(len(mine) * w.Size()))
	if err != nil {
		return nil, err
	}
	if err = src.Put(w.Rank(), 0, tensor.Of(mine)); err == nil {
		err = heap.Quiet()
	}
	if err != nil {
		return nil, err
	}
	work, err := w.With(dist.Hints{Name: name}).AllGather(dst.Local(), src.Local())
	if err == nil {
		err = work.Wait()
	}
	all := make([]byte, len(mine)*w.Size())
	if err == nil {
		err = dst.Get(tensor.Of(all), w.Rank(), 0)
	}
	if err != nil {
		return nil, err
	}
	for r := range w.Size() {
		parts = append(parts, all[r*len(mine):(r+1)*len(mine)])
	}
	return parts, nil
}
