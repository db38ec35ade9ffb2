package ddp

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// memory holds the buckets and scalars of a DDP.
type memory struct {
	heap    symmetric.Heap // nil when the backend has none
	parts   []symmetric.Region
	where   string
	regions [2]tensor.Buffer // of the buckets, by position in bucketTypes
	values  [2]tensor.Buffer // with sharding: of the buckets of weights
	shards  [2]tensor.Buffer // with Stage 2: of this rank's shards of gradients
	staging []tensor.Buffer  // with Stage 2: the memory of DDP.stagings
	weights tensor.Buffer    // f64: this rank's weight, and the sum over the ranks
	scales  [2]tensor.Buffer // this rank's factor of its gradients, by position in bucketTypes
	factors [5]tensor.Buffer // f64: see Layout.Weights

	zeros    [2]tensor.Buffer // by position in bucketTypes; see slot.zeroView
	unused   int64            // bytes of learnables that are not trained
	imagined *addresses       // set only by Imagine: addresses that no code may read or write
}

// newMemory allocates the plan's areas, one of them for the scalars, in the symmetric heap. If the
// backend has no heap it allocates Go memory, which collectives accept too.
//
// Collective: all ranks, one plan. Errors: those of Heap and Alloc; ErrUnsupported for a device
// without a heap.
func newMemory(w *dist.Group, p *Plan) (*memory, error) {
	parts := p.areas()
	m := &memory{}
	alloc := func(n int64) (tensor.Buffer, error) {
		return tensor.Of(make([]uint64, n/8)), nil // for the alignment of an f64
	}
	heap, err := w.Heap(parts.total())
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
	if err := m.carve(parts, alloc); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// carve allocates the parts and sets their dtypes.
func (m *memory) carve(parts areas, alloc func(int64) (tensor.Buffer, error)) error {
	for i, dt := range bucketTypes {
		for _, a := range [...]struct {
			to    *tensor.Buffer
			bytes int64
		}{{&m.regions[i], parts.grads[i]}, {&m.values[i], parts.values[i]}, {&m.shards[i], parts.shards[i]}} {
			var err error
			if *a.to, err = typed(a.bytes, dt, alloc); err != nil {
				return err
			}
		}
	}
	for range parts.count {
		b, err := typed(parts.staging, tensor.F64, alloc)
		if err != nil {
			return err
		}
		if !b.IsZero() {
			m.staging = append(m.staging, b)
		}
	}
	raw, err := alloc(parts.scalars)
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
	for i := range m.factors {
		at := unsafe.Add(raw.Pointer(), 64*(i+1+len(m.scales)))
		if m.factors[i], err = tensor.FromPointer(at, 1, tensor.F64, raw.Device()); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) close() error {
	if m.imagined != nil {
		return m.imagined.close()
	}
	if m.heap == nil {
		return nil
	}
	return m.heap.Close()
}

// areas is the sizes in bytes of a plan's memory.
type areas struct {
	grads   [2]int64 // whole buckets of gradients, by position in bucketTypes
	values  [2]int64 // buckets of weights, or this rank's shards of them
	shards  [2]int64 // with Stage 2 and 3, which keep no whole buckets: this rank's shards of gradients
	staging int64    // size of a staging buffer
	count   int      // number of staging buffers
	scalars int64
}

// areas returns the sizes for the plan's stage.
func (p *Plan) areas() areas {
	a := areas{scalars: roundUp(1), count: min(mostStagings, len(p.Buckets))}
	for _, b := range p.Buckets {
		k, size := typeIndex(b.DType), int64(b.DType.Size())
		whole := int64(alignElements(b.Elements, b.DType)) * size
		shard := int64(alignElements(b.Shard, b.DType)) * size
		switch {
		case p.Stage < stageGrads:
			a.grads[k] += whole
		default:
			a.shards[k] += shard
			a.staging = max(a.staging, whole)
		}
		switch {
		case p.Stage == stageState || p.Stage == stageGrads:
			a.values[k] += whole
		case p.Stage == stageParams:
			a.values[k] += shard
		}
	}
	return a
}

// stagingOf returns the index of the staging buffer of bucket i, if it is fixed in advance. Buckets
// take turns; with two dtypes each dtype has one buffer, since memory of a program has one dtype.
func (p *Plan) stagingOf(i int) int {
	first := p.Buckets[0].DType
	for _, b := range p.Buckets {
		if b.DType != first {
			return typeIndex(p.Buckets[i].DType)
		}
	}
	return i % mostStagings
}

// total returns the sum of all sizes.
func (a areas) total() int64 {
	n := a.scalars + int64(a.count)*a.staging
	for k := range bucketTypes {
		n += a.grads[k] + a.values[k] + a.shards[k]
	}
	return n
}

// typed allocates elements of a bucket type; nothing for 0 bytes.
func typed(bytes int64, dt tensor.DType, alloc func(int64) (tensor.Buffer, error)) (tensor.Buffer, error) {
	if bytes == 0 {
		return tensor.Buffer{}, nil
	}
	raw, err := alloc(bytes)
	if err != nil {
		return tensor.Buffer{}, err
	}
	return tensor.FromPointer(raw.Pointer(), int(bytes)/dt.Size(), dt, raw.Device())
}

// cursor cuts buckets, or shards of them, from the regions of their dtypes, in the order of the
// plan.
type cursor struct {
	regions *[2]tensor.Buffer
	used    [2]int
}

// next returns the next n elements of dt.
func (c *cursor) next(n int, dt tensor.DType) (tensor.Buffer, error) {
	k := typeIndex(dt)
	from := c.used[k]
	c.used[k] += alignElements(n, dt)
	return c.regions[k].Slice(from, from+n)
}

// Memory is the bytes that one rank has allocated for training, padding included. It excludes
// activations and memory of machines and other packages' solvers.
type Memory struct {
	Params  int64 // weights of all learnables
	Grads   int64 // gradients that last until the solver's step
	State   int64 // state of NewSolver's solver, with sharding; 0 before it exists
	Staging int64 // buffers that gradients pass through, zeros for missing gradients, state of hooks
}

// Total returns the sum.
func (m Memory) Total() int64 { return m.Params + m.Grads + m.State + m.Staging }

// String returns "params 1024 B, grads 1024 B, state 2048 B, staging 0 B".
func (m Memory) String() string {
	return fmt.Sprintf("params %d B, grads %d B, state %d B, staging %d B", m.Params, m.Grads, m.State, m.Staging)
}

// newZeros returns n zeros of a bucket type.
func (m *memory) newZeros(n int, dt tensor.DType) (tensor.Buffer, error) {
	switch {
	case m.imagined != nil:
		return m.imagined.elements(n, dt)
	case dt == tensor.F64:
		return tensor.Of(make([]float64, n)), nil
	}
	return tensor.Of(make([]float32, n)), nil
}

// countUnused counts the bytes of the learnables that are not among used.
func (m *memory) countUnused(used, learnables gorgonia.Nodes) error {
	for _, n := range learnables {
		if used.Contains(n) {
			continue
		}
		b, err := valueMemory(n.Value())
		if err != nil {
			return fmt.Errorf("parameter %q: %w", n.Name(), err)
		}
		m.unused += b.Bytes()
	}
	return nil
}
