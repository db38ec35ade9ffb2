package ddp

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unsafe"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// bucket is a run of gradients that one collective reduces in place.
type bucket struct {
	name  string
	buf   tensor.Buffer
	group *dist.Group // a view of the world that names the operation
	red   dist.RedOp
	slots []*slot

	missing int       // gradients of this run that have not come yet
	started bool      // in this run
	work    dist.Work // of the last start; waited for before the bucket is written again
	ready   time.Duration
}

// slot is the place of one parameter's gradient. It is the Reducer of the parameter's hook.
type slot struct {
	d      *DDP
	b      *bucket
	param  *gorgonia.Node
	wait   *gorgonia.Node // the gradient
	buf    tensor.Buffer
	view   *gtensor.Dense // over buf; never given away, see Wait. nil for a scalar
	zeros  *gtensor.Dense // what Wait is inside NoSync
	filled bool           // in this run
}

// memory is where buckets and scalars lie.
type memory struct {
	heap    symmetric.Heap // nil when the backend has none
	parts   []symmetric.Region
	where   string
	regions [2]tensor.Buffer // of the buckets, by position in bucketTypes
	weights tensor.Buffer    // f64: this rank's weight, and the sum over the ranks
	scales  [2]tensor.Buffer // this rank's factor, by position in bucketTypes
	words   [4]tensor.Buffer // f64: see Layout.Weights
}

// bucketTypes are the dtypes that gradients can have.
var bucketTypes = [2]tensor.DType{tensor.F32, tensor.F64}

func typeIndex(dt tensor.DType) int {
	if dt == tensor.F64 {
		return 1
	}
	return 0
}

// alignElements is how many elements a bucket's start is a multiple of: symmetric.Alignment bytes.
func alignElements(n int, dt tensor.DType) int {
	unit := symmetric.Alignment / dt.Size()
	return (n + unit - 1) / unit * unit
}

// newMemory allocates a region for each dtype's buckets and one for the scalars, in the symmetric heap, or from Go where
// the backend has no heap: an allreduce works on any memory.
//
// Collective: all ranks, one plan. Errors: those of Heap and Alloc; ErrUnsupported for a device without a heap.
func newMemory(w *dist.World, p *Plan) (*memory, error) {
	var bytes [2]int64
	for _, b := range p.Buckets {
		bytes[typeIndex(b.DType)] += int64(alignElements(b.Elements, b.DType)) * int64(b.DType.Size())
	}
	const scalarBytes = symmetric.Alignment
	m := &memory{}
	alloc := func(n int64) (tensor.Buffer, error) {
		return tensor.Of(make([]uint64, n/8)), nil // for the alignment of an f64
	}
	heap, err := w.Heap(bytes[0] + bytes[1] + scalarBytes)
	switch {
	case err == nil:
		m.heap, m.where = heap, fmt.Sprintf("symmetric heap (%s)", w.Backend())
		alloc = func(n int64) (tensor.Buffer, error) {
			r, err := heap.Alloc(n)
			if err != nil {
				return tensor.Buffer{}, err
			}
			m.parts = append(m.parts, r)
			return r.Local(), nil
		}
	case errors.Is(err, dist.ErrUnsupported) && w.Device() == tensor.Host:
		m.where = fmt.Sprintf("process memory (%s has no symmetric heap)", w.Backend())
	default:
		return nil, err
	}
	if err := m.carve(bytes, scalarBytes, alloc); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// carve allocates and types the parts.
func (m *memory) carve(bytes [2]int64, scalarBytes int64, alloc func(int64) (tensor.Buffer, error)) error {
	for i, dt := range bucketTypes {
		if bytes[i] == 0 {
			continue
		}
		raw, err := alloc(bytes[i])
		if err == nil {
			m.regions[i], err = tensor.FromPointer(raw.Pointer(), int(bytes[i])/dt.Size(), dt, raw.Device())
		}
		if err != nil {
			return err
		}
	}
	raw, err := alloc(scalarBytes)
	if err != nil {
		return err
	}
	if m.weights, err = tensor.FromPointer(raw.Pointer(), 2, tensor.F64, raw.Device()); err != nil {
		return err
	}
	for i, dt := range bucketTypes {
		at := unsafe.Add(raw.Pointer(), 64*(i+1)) // each in a cache line of its own
		if m.scales[i], err = tensor.FromPointer(at, 1, dt, raw.Device()); err != nil {
			return err
		}
	}
	for i := range m.words {
		at := unsafe.Add(raw.Pointer(), 64*(i+1+len(m.scales)))
		if m.words[i], err = tensor.FromPointer(at, 1, tensor.F64, raw.Device()); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) close() error {
	if m.heap == nil {
		return nil
	}
	return m.heap.Close()
}

// place makes the buckets and slots of the plan.
func (d *DDP) place(params gorgonia.Nodes, waits gorgonia.Nodes) error {
	d.slots = make([]*slot, len(params))
	var used [2]int // elements of each region
	var longest [2]int
	for i, pb := range d.plan.Buckets {
		k := typeIndex(pb.DType)
		buf, err := d.mem.regions[k].Slice(used[k], used[k]+pb.Elements)
		if err != nil {
			return err
		}
		used[k] += alignElements(pb.Elements, pb.DType)
		name := "bucket " + strconv.Itoa(i)
		b := &bucket{name: name, buf: buf, group: d.world.Named(name), red: dist.PreMulSumAt(d.mem.scales[k])}
		d.buckets = append(d.buckets, b)
		for _, j := range pb.Params {
			q := d.plan.Params[j]
			s := &slot{d: d, b: b, param: params[j], wait: waits[j]}
			if s.buf, err = buf.Slice(q.Offset, q.Offset+q.Len()); err != nil {
				return err
			}
			if len(q.Shape) > 0 && !d.onGPU() {
				if s.view, err = tensor.View(s.buf, q.Shape...); err != nil {
					return err
				}
			}
			d.slots[j] = s
			b.slots = append(b.slots, s)
			longest[k] = max(longest[k], q.Len())
		}
	}
	return d.placeZeros(longest)
}

// placeZeros gives every slot a view of zeros; all of one dtype share the memory.
func (d *DDP) placeZeros(longest [2]int) error {
	zeros := [2]tensor.Buffer{tensor.Of(make([]float32, longest[0])), tensor.Of(make([]float64, longest[1]))}
	for j, s := range d.slots {
		q := d.plan.Params[j]
		if s.view == nil {
			continue
		}
		z, err := zeros[typeIndex(q.DType)].Slice(0, q.Len())
		if err != nil {
			return err
		}
		if s.zeros, err = tensor.View(z, q.Shape...); err != nil {
			return err
		}
	}
	return nil
}

// Start implements ops.Reducer.
func (s *slot) Start(grad gorgonia.Value) error {
	if s.d.onGPU() {
		return s.d.needsMachine()
	}
	if err := s.take(grad); err != nil {
		return s.d.stepError(fmt.Errorf("gradient of %q: %w", s.param.Name(), err))
	}
	return s.count()
}

// count notes that the slot is filled and starts what is full.
func (s *slot) count() error {
	s.filled = true
	s.b.missing--
	if s.b.missing > 0 || s.d.cfg.NoOverlap || s.d.run.local {
		return nil
	}
	return s.d.startFull()
}

// take copies or adds the gradient into the slot.
func (s *slot) take(grad gorgonia.Value) error {
	r := &s.d.run
	switch {
	case !r.running:
		return fmt.Errorf("%w: the run did not go through Begin", dist.ErrInvalid)
	case s.filled:
		return fmt.Errorf("%w: it has come twice in one run", dist.ErrInvalid)
	}
	src, err := ops.Elements(grad)
	if err != nil {
		return err
	}
	if src.DType() != s.buf.DType() || src.Len() != s.buf.Len() {
		return fmt.Errorf("%w: it is %v, the parameter %v", dist.ErrCount, src, s.buf)
	}
	if src.DType() == tensor.F64 {
		return deposit[float64](s.buf, src, r.how(), r.weight)
	}
	return deposit[float32](s.buf, src, r.how(), r.weight)
}

// manner is how a gradient goes into its slot.
type manner uint8

const (
	zero      manner = iota // the slot becomes 0: the rank's weight is 0, and 0 times an infinity would not be
	overwrite               // the slot becomes the gradient; the collective multiplies
	scale                   // the slot becomes weight times the gradient: the first micro-batch
	add                     // weight times the gradient is added: a later micro-batch
	keep                    // the slot stays: a later micro-batch of weight 0
)

// deposit puts src into dst. Products are rounded before they are added, so that no compiler fuses them.
func deposit[T float32 | float64](dst, src tensor.Buffer, how manner, weight float64) error {
	to, err := tensor.Data[T](dst)
	if err != nil {
		return err
	}
	from, err := tensor.Data[T](src)
	if err != nil {
		return err
	}
	w := T(weight)
	switch how {
	case zero:
		clear(to)
	case overwrite:
		copy(to, from)
	case scale:
		for i, x := range from {
			to[i] = T(w * x)
		}
	case add:
		for i, x := range from {
			to[i] += T(w * x)
		}
	}
	return nil
}

// Wait implements ops.Reducer. The first Wait of a bucket blocks until it has been reduced.
func (s *slot) Wait() (gorgonia.Value, error) {
	if s.d.onGPU() {
		return nil, s.d.needsMachine()
	}
	if s.d.run.local {
		return s.value(s.zeros, 0), nil
	}
	if err := s.Reduced(); err != nil {
		return nil, err
	}
	return s.value(s.view, s.element()), nil
}

// value is what Wait returns: a header of its own over the memory of view, or x for a scalar.
func (s *slot) value(view *gtensor.Dense, x float64) gorgonia.Value {
	switch {
	case view != nil:
		return view.ShallowClone()
	case s.buf.DType() == tensor.F64:
		return gorgonia.NewF64(x)
	}
	return gorgonia.NewF32(float32(x))
}

// element is the value of a scalar's slot.
func (s *slot) element() float64 {
	if s.view != nil {
		return 0
	}
	if x, err := tensor.Data[float64](s.buf); err == nil {
		return x[0]
	}
	if x, err := tensor.Data[float32](s.buf); err == nil {
		return float64(x[0])
	}
	return 0
}
