package ddp

import (
	"fmt"
	"time"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
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
	staging *staging      // nil while buf has no memory

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

// zeroView returns a view of zeros in the parameter's shape. All parameters of a dtype share the
// memory, which is allocated at first use.
func (s *slot) zeroView() (*gtensor.Dense, error) {
	if s.zeros != nil {
		return s.zeros, nil
	}
	m, k := s.d.mem, typeIndex(s.b.dtype)
	if m.zeros[k].IsZero() {
		longest := 0
		for _, t := range s.d.slots {
			if t.b.dtype == s.b.dtype {
				longest = max(longest, t.n)
			}
		}
		var err error
		if m.zeros[k], err = m.newZeros(longest, s.b.dtype); err != nil {
			return nil, err
		}
	}
	z, err := m.zeros[k].Slice(0, s.n)
	if err != nil {
		return nil, err
	}
	s.zeros, err = tensor.View(z, s.shape...)
	return s.zeros, err
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
	if s.b.missing > 0 {
		return nil
	}
	return s.d.stage.full()
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
	if err := s.d.stage.claim(s.b); err != nil {
		return err
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
	if !s.d.run.local && !s.d.plan.staged() {
		return s.value(s.view, s.element()), nil
	}
	v, err := s.noGradient()
	if err == nil && s.d.plan.gathers() {
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

// detach gives the gradient's node a value in its own memory.
func (s *slot) detach(gone bool) error {
	v := s.wait.Value()
	if s.view == nil {
		return nil // a scalar owns its value, and zeros of Stage 2 are never freed
	}
	if gone {
		zeros, err := s.zeroView()
		if err != nil {
			return err
		}
		v = zeros
	}
	own, err := gorgonia.CloneValue(v)
	if err != nil {
		return err
	}
	return gorgonia.UnsafeLet(s.wait, own)
}
