package ddp

import (
	"fmt"
	"strconv"
	"time"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/reduce"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// bucket is a run of gradients that one collective reduces in place.
type bucket struct {
	index    int // in plan.Buckets
	name     string
	dtype    tensor.DType
	elements int
	buf      tensor.Buffer // whole, of gradients; with Stage 2 that of stage
	view     view          // names the operation
	red      dist.RedOp
	slots    []*slot

	shard   int           // elements that this rank owns; 0 without sharding, as the fields below
	owned   tensor.Buffer // of gradients
	weights tensor.Buffer // whole, laid out as buf
	mine    tensor.Buffer // of weights
	gather  *dist.Group   // names the gathering of weights
	stage   *staging      // nil while buf has no memory

	missing   int       // gradients of this run still to come
	started   bool      // in this run
	scattered dist.Work // with sharding, of the last start: the sum over the group, before that over the replicas
	work      dist.Work // of the last start; waited for before the bucket is written again
	ready     time.Duration
}

// slot is the memory of one parameter's gradient. It is the Reducer of the parameter's hook.
type slot struct {
	d       *DDP
	b       *bucket
	index   int // in plan.Params
	n       int // elements
	shape   []int
	param   *gorgonia.Node
	wait    *gorgonia.Node // the gradient
	buf     tensor.Buffer
	weights tensor.Buffer  // with sharding: memory of the parameter's value
	view    *gtensor.Dense // over buf; never returned, see value. nil for a scalar, and with Stage 2
	zeros   *gtensor.Dense // returned by Wait while buf has no gradient: see zeroView. nil until needed
	filled  bool           // in this run
}

// bytes returns the size of the whole bucket.
func (b *bucket) bytes() int64 { return int64(b.elements) * int64(b.dtype.Size()) }

// scalar reports whether the parameter is a number.
func (s *slot) scalar() bool { return len(s.shape) == 0 }

// bucketTypes are the dtypes that gradients can have.
var bucketTypes = [2]tensor.DType{tensor.F32, tensor.F64}

func typeIndex(dt tensor.DType) int {
	if dt == tensor.F64 {
		return 1
	}
	return 0
}

// alignElements rounds n elements up to a multiple of symmetric.Alignment bytes.
func alignElements(n int, dt tensor.DType) int {
	unit := symmetric.Alignment / dt.Size()
	return (n + unit - 1) / unit * unit
}

// place makes the buckets and slots of the plan.
func (d *DDP) place(params gorgonia.Nodes, waits gorgonia.Nodes) error {
	grads, values, shards := cursor{regions: &d.mem.regions}, cursor{regions: &d.mem.values}, cursor{regions: &d.mem.shards}
	for _, m := range d.mem.staging {
		d.stagings = append(d.stagings, &staging{buf: m})
	}
	d.slots = make([]*slot, len(params))
	for i, pb := range d.plan.Buckets {
		name := d.team.prefix + bucketPrefix + strconv.Itoa(i)
		b := &bucket{
			index: i, name: name, dtype: pb.DType, elements: pb.Elements, shard: pb.Shard,
			view: d.team.plainView(name), red: dist.PreMulSumAt(d.mem.scales[typeIndex(pb.DType)]),
		}
		d.buckets = append(d.buckets, b)
		var err error
		if d.staged() {
			s := d.stagings[d.plan.stagingOf(i)]
			b.buf, err = tensor.FromPointer(s.buf.Pointer(), b.elements, b.dtype, s.buf.Device())
		} else {
			b.buf, err = grads.next(b.elements, b.dtype)
		}
		if err == nil && d.sharded() {
			err = d.placeShard(b, &values, &shards)
		}
		if err != nil {
			return err
		}
		for _, j := range pb.Params {
			if d.slots[j], err = d.newSlot(b, j, params[j], waits[j]); err != nil {
				return err
			}
			b.slots = append(b.slots, d.slots[j])
		}
	}
	return nil
}

// newSlot returns the slot of parameter j in b.
func (d *DDP) newSlot(b *bucket, j int, param, wait *gorgonia.Node) (*slot, error) {
	q := &d.plan.Params[j]
	s := &slot{d: d, b: b, index: j, n: q.Len(), shape: q.Shape, param: param, wait: wait}
	var err error
	if s.buf, err = b.buf.Slice(q.Offset, q.Offset+s.n); err != nil {
		return nil, err
	}
	if !b.weights.IsZero() {
		if s.weights, err = b.weights.Slice(q.Offset, q.Offset+s.n); err != nil {
			return nil, err
		}
	}
	if !s.scalar() && !d.team.onGPU() && !d.staged() {
		s.view, err = tensor.View(s.buf, q.Shape...)
	}
	return s, err
}

// zeroView returns a view of zeros in the parameter's shape. All parameters of a dtype share the
// memory, which is allocated at first use.
func (s *slot) zeroView() (*gtensor.Dense, error) {
	if s.zeros != nil {
		return s.zeros, nil
	}
	d, k := s.d, typeIndex(s.b.dtype)
	if d.zeros[k].IsZero() {
		longest := 0
		for _, t := range d.slots {
			if t.b.dtype == s.b.dtype {
				longest = max(longest, t.n)
			}
		}
		var err error
		if d.zeros[k], err = d.newZeros(longest, s.b.dtype); err != nil {
			return nil, err
		}
	}
	z, err := d.zeros[k].Slice(0, s.n)
	if err != nil {
		return nil, err
	}
	s.zeros, err = tensor.View(z, s.shape...)
	return s.zeros, err
}

// newZeros returns n zeros of a bucket type.
func (d *DDP) newZeros(n int, dt tensor.DType) (tensor.Buffer, error) {
	switch {
	case d.imagined:
		return d.mem.imagined.elements(n, dt)
	case dt == tensor.F64:
		return tensor.Of(make([]float64, n)), nil
	}
	return tensor.Of(make([]float32, n)), nil
}

// Start implements ops.Reducer.
func (s *slot) Start(grad gorgonia.Value) error {
	if s.d.team.onGPU() {
		return s.d.team.needsMachine()
	}
	src, err := ops.Elements(grad)
	if err != nil {
		return s.d.stepError(fmt.Errorf("gradient of %q: %w", s.param.Name(), err))
	}
	return s.StartFrom(src)
}

// count marks the slot filled and starts the buckets that are now full.
func (s *slot) count() error {
	s.filled = true
	s.b.missing--
	switch d := s.d; {
	case s.b.missing > 0:
		return nil
	case d.staged():
		return d.startStaged()
	case d.cfg.NoOverlap || d.run.local:
		return nil
	}
	return s.d.startFull()
}

// take copies or adds the gradient into the slot.
func (s *slot) take(src tensor.Buffer) error {
	r := &s.d.run
	switch {
	case !r.running:
		return fmt.Errorf("%w: the run did not call Begin", dist.ErrInvalid)
	case s.filled:
		return fmt.Errorf("%w: it was computed twice in one run", dist.ErrInvalid)
	}
	if src.DType() != s.buf.DType() || src.Len() != s.buf.Len() {
		return fmt.Errorf("%w: it is %v, the parameter %v", dist.ErrCount, src, s.buf)
	}
	if s.d.staged() && s.b.stage == nil {
		if err := s.d.claim(s.b); err != nil {
			return err
		}
	}
	return deposit(s.buf, src, r.how(), r.weight)
}

// manner is a method of putting a gradient into its slot.
type manner uint8

const (
	zero      manner = iota // clear the slot: the rank's weight is 0, and 0 times an infinity would be NaN
	overwrite               // copy the gradient; the collective multiplies
	scale                   // write weight times the gradient: the first micro-batch
	add                     // add weight times the gradient: a later micro-batch
	keep                    // change nothing: a later micro-batch of weight 0
)

// deposit puts src into dst, which has the same length.
func deposit(dst, src tensor.Buffer, how manner, weight float64) error {
	switch how {
	case zero:
		clear(dst.Raw())
	case overwrite:
		copy(dst.Raw(), src.Raw())
	case scale:
		return reduce.Weighted(dst, []tensor.Buffer{src}, []float64{weight})
	case add:
		return reduce.Weighted(dst, []tensor.Buffer{dst, src}, []float64{1, weight})
	}
	return nil
}

// Wait implements ops.Reducer. The first Wait of a bucket blocks until it has been reduced.
func (s *slot) Wait() (gorgonia.Value, error) {
	if s.d.team.onGPU() {
		return nil, s.d.team.needsMachine()
	}
	if err := s.Reduced(); err != nil {
		return nil, err
	}
	if !s.d.run.local && !s.d.staged() {
		return s.value(s.view, s.element()), nil
	}
	v, err := s.noGradient()
	if err == nil && s.d.gathers() {
		err = s.noDual(v)
	}
	if err != nil {
		return nil, s.d.stepError(fmt.Errorf("gradient of %q: %w", s.param.Name(), err))
	}
	return v, nil
}

// noGradient returns zeros, for a gradient that the node's value cannot show.
func (s *slot) noGradient() (gorgonia.Value, error) {
	if s.scalar() {
		return s.value(nil, 0), nil
	}
	zeros, err := s.zeroView()
	if err != nil {
		return nil, err
	}
	return s.value(zeros, 0), nil
}

// value returns Wait's result: a new header over the memory of view, or x for a scalar.
func (s *slot) value(view *gtensor.Dense, x float64) gorgonia.Value {
	switch {
	case view != nil:
		return view.ShallowClone()
	case s.buf.DType() == tensor.F64:
		return gorgonia.NewF64(x)
	}
	return gorgonia.NewF32(float32(x))
}

// element returns the value of a scalar's slot.
func (s *slot) element() float64 {
	if !s.scalar() {
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
