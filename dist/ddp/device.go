package ddp

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Layout is the memory that a step reads and writes. A machine that exchanges gradients by steps of
// its program, as on GPUs, makes these steps from Layout and Plan:
//
//	Weights[1] = sum over the ranks of Weights[0]     an allreduce
//	factor     = Weights[2] / Weights[1]              0 if the sum is 0; for each dtype
//	slots      = gradients                            or Weights[3] times gradients, or added
//	buckets    = sum over the ranks of factor*bucket  an allreduce of each, in place, in order
//
// With Stage 1 a bucket is reduce-scattered in place. Then the rank updates its own part of the
// bucket of weights, and an allgather in place shares the parts. With Stage 2 its own part of the
// sum is copied to Shards. Buckets share memory there, so each is summed in every run, also inside
// NoSync, before the next bucket in its memory fills. With Stage 3 the rank has only its Own parts
// of weights, and the graph gathers them. With a WireDType, factor*bucket is rounded to it, summed
// without a factor, and converted back.
type Layout struct {
	Prefix    string           // of names of steps that communicate; "" for the first DDP of a world
	Group     *dist.Group      // of the collectives
	Weights   [4]tensor.Buffer // f64: this rank's weight, the sum, multiplier of the slots, multiplier of gradients
	Factors   [2]tensor.Buffer // of one element: f32, f64
	Buckets   []tensor.Buffer  // in Plan's order; with Stage 2 its memory while it fills, which several share
	Shards    []tensor.Buffer  // with Stage 2 and 3: this rank's parts of gradients
	Own       []tensor.Buffer  // with Stage 3: this rank's parts of weights
	Homes     []tensor.Buffer  // with Stage 1 and 2: buckets of weights, laid out as those of gradients; else none
	Late      bool             // with Homes: a run gathers them before it reads them, not after it updates them; see Stale
	WireDType tensor.DType     // of messages; Invalid: buckets are sent unchanged
	Wires     []tensor.Buffer  // on a GPU with a WireDType, or imagined: memory of messages, in Plan's order, shared as that of Buckets
	Values    []LearnableValue // on a GPU: memory for the weights of all learnables
	Symmetric []tensor.Buffer  // the symmetric memory of all these; empty if the backend has no symmetric heap
}

// LearnableValue is a learnable and its memory on the GPU, which holds its weights after Attach.
type LearnableValue struct {
	Node   *gorgonia.Node
	Memory tensor.Buffer
}

// Run tells a machine how a run of the graph treats its gradients.
type Run struct {
	Local   bool       // communicate nothing, and return zero gradients: inside NoSync
	Joins   bool       // add gradients times Weights[3] to the slots
	Weights [4]float64 // values of Layout.Weights; the exchange computes [1]
}

// Owner returns the DDP of a reducer, and the index of its parameter in the Plan.
func Owner(r ops.Reducer) (d *DDP, param int, ok bool) {
	s, ok := r.(*slot)
	if !ok {
		return nil, 0, false
	}
	for i := range s.d.slots {
		if s.d.slots[i] == s {
			return s.d, i, true
		}
	}
	return nil, 0, false
}

// Device returns the device of the buckets.
func (d *DDP) Device() tensor.Device { return d.world.Device() }

// Overlap reports whether buckets are reduced while the backward pass still runs.
func (d *DDP) Overlap() bool { return !d.cfg.NoOverlap }

// Idle returns Config.Idle: ranks of weight 0 may have gradients that are not finite. The host
// always allows that.
func (d *DDP) Idle() bool { return d.cfg.Idle }

// Layout returns the memory of a step.
func (d *DDP) Layout() Layout {
	l := Layout{Prefix: d.prefix, Group: d.world.Group, Weights: d.mem.factors, Factors: d.mem.scales}
	if c := d.cfg.WireDType; c == tensor.BF16 || c == tensor.F16 {
		l.WireDType = c
	}
	l.Late = d.late()
	if x, ok := d.wire.(*deviceWire); ok {
		l.Wires, l.Symmetric = x.wires, append(l.Symmetric, x.raw)
	} else if d.imagined {
		l.Wires = d.mem.imagined.wires
	}
	for _, r := range d.mem.parts {
		l.Symmetric = append(l.Symmetric, r.Local())
	}
	for _, b := range d.buckets {
		l.Buckets = append(l.Buckets, b.buf)
		if !b.weights.IsZero() {
			l.Homes = append(l.Homes, b.weights)
		}
		if d.staged() {
			l.Shards = append(l.Shards, b.owned)
		}
		if d.gathers() {
			l.Own = append(l.Own, b.mine)
		}
	}
	for i := range d.values {
		l.Values = append(l.Values, LearnableValue{d.values[i].node, d.values[i].buf})
		if !d.values[i].homed {
			l.Symmetric = append(l.Symmetric, d.values[i].region.Local())
		}
	}
	return l
}

// Next returns the treatment of the next run. The machine that runs the graph calls it before each
// run, and Ran after it.
//
// Errors: dist.ErrClosed.
func (d *DDP) Next() (Run, error) {
	if err := d.ready(); err != nil {
		return Run{}, fmt.Errorf("ddp: %w", err)
	}
	d.warnOfRows()
	r := Run{Local: d.noSync, Joins: d.micro > 0}
	r.Weights = [4]float64{d.pending + d.weight, 0, d.weight, d.weight}
	if r.Joins {
		r.Weights[2] = 1 // the slots hold weighted sums
	}
	return r, nil
}

// Ran records that the run announced by Next is queued, or has failed with err.
func (d *DDP) Ran(err error) {
	switch {
	case err != nil:
		d.drop()
		d.stale = d.stale || !d.noSync && d.late() // it may have updated weights
	case d.noSync:
		d.pending += d.weight
		d.micro++
		d.stale = false
	default:
		d.step++
		d.drop()
		d.stale = d.late()
	}
}

// CheckSum returns the error of a run whose weights have the given sum over the ranks.
//
// Errors: ErrNoWeight for 0; dist.ErrInvalid for a sum that overflows.
func (d *DDP) CheckSum(sum float64) error {
	if err := checkSum(sum); err != nil {
		return d.stepError(err)
	}
	return nil
}

// onGPU reports whether the buckets are in memory that host code must not touch.
func (d *DDP) onGPU() bool { return d.world.Device() != tensor.Host }

// needsMachine returns the error of a machine that runs on the host.
func (d *DDP) needsMachine() error {
	return fmt.Errorf("ddp rank %d/%d: %w: the world is on %v, and this machine computes on the host; run the graph by package machine, with its device cuda or auto",
		d.world.Rank(), d.world.Size(), dist.ErrDevice, d.world.Device())
}

// slotAlignment returns the alignment of gradients in bytes. Kernels load and store 16 at once, and
// matrix products prefer more.
func (d *DDP) slotAlignment() int {
	if d.onGPU() {
		return 256
	}
	return 1
}

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

// allocateValues finds memory for the weights of all learnables: in buckets of weights, or
// separately in the symmetric heap.
//
// Collective: all ranks, same learnables.
func (d *DDP) allocateValues(learnables gorgonia.Nodes) error {
	total := int64(0)
	for _, n := range learnables {
		if d.gathers() && d.slotOf(n) != nil {
			continue
		}
		b, err := valueMemory(n.Value())
		if err != nil {
			return fmt.Errorf("parameter %q: %w", n.Name(), err)
		}
		v := value{node: n, host: b}
		if err := d.homeOf(&v); err != nil {
			return fmt.Errorf("parameter %q: %w", n.Name(), err)
		}
		if !v.homed {
			total += roundUp(b.Bytes())
		}
		d.values = append(d.values, v)
	}
	if total == 0 {
		return nil
	}
	heap, err := d.world.Heap(total)
	if err != nil {
		return err
	}
	d.valueHeap = heap
	for i := range d.values {
		v := &d.values[i]
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

// homeOf sets v's memory in a bucket of weights, if it has one.
func (d *DDP) homeOf(v *value) error {
	s := d.slotOf(v.node)
	if s == nil || s.weights.IsZero() {
		return nil
	}
	v.buf, v.homed, v.heap = s.weights, true, d.mem.heap
	var err error
	v.region, v.at, err = d.mem.regionOf(v.buf)
	return err
}

// slotOf returns the slot of a learnable's gradient, or nil.
func (d *DDP) slotOf(n *gorgonia.Node) *slot {
	i := slices.IndexFunc(d.slots, func(s *slot) bool { return s.param == n })
	if i < 0 {
		return nil
	}
	return d.slots[i]
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

// broadcastValues copies rank 0's weights to the GPUs of all ranks, and from there to the nodes'
// values.
//
// Collective: all ranks.
func (d *DDP) broadcastValues() error {
	me := d.world.Rank()
	for i := range d.values {
		v := &d.values[i]
		if err := v.region.Put(me, v.at, v.host); err != nil {
			return err
		}
	}
	for i := range d.values {
		if i > 0 && d.values[i].heap == d.values[i-1].heap {
			continue
		}
		if err := d.values[i].heap.Quiet(); err != nil {
			return err
		}
	}
	for i := range d.values {
		v := &d.values[i]
		work, err := d.world.With(dist.Hints{Name: v.node.Name()}).Broadcast(v.buf, v.buf, 0)
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

func (d *DDP) closeValues() error {
	if d.valueHeap == nil {
		return nil
	}
	return d.valueHeap.Close()
}

// gatherOnGPU is gather through a heap, since collectives need buffers on the GPU.
func gatherOnGPU(w *dist.World, name string, mine []byte) (parts [][]byte, err error) {
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
