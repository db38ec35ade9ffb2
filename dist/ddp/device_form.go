package ddp

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// form is the memory of an exchange by steps of a machine, other than buckets: messages, which may
// all be in flight at once, residuals, and the gradients of virtual ranks.
type form struct {
	raw      tensor.Buffer
	places   []tensor.Buffer // of messages
	wires    []tensor.Buffer // messages by bucket; with Stage 2 several have one place
	feedback drive.Feedback
	virtual  drive.Virtual
}

// formPart is a part of a form's memory.
type formPart struct {
	n  int
	dt tensor.DType
	to *tensor.Buffer
}

func (x *formPart) bytes() int64 { return roundUp(int64(x.n) * int64(x.dt.Size())) }

// pieces returns the parts of f for a plan on so many ranks.
func (f *form) pieces(p *Plan, c *Config, ranks int) []formPart {
	var all []formPart
	add := func(to *tensor.Buffer, n int, dt tensor.DType) { all = append(all, formPart{n, dt, to}) }
	if h := c.cast(); h != nil {
		sizes, _ := p.messages(h.DType)
		f.places = make([]tensor.Buffer, len(sizes))
		for i, m := range sizes {
			add(&f.places[i], m.Elements, m.DType)
		}
		if h.ErrorFeedback {
			f.feedback.Residuals = make([]tensor.Buffer, len(p.Buckets))
			for i, b := range p.Buckets {
				add(&f.feedback.Residuals[i], b.Elements, tensor.F32)
			}
			add(&f.feedback.Finite, len(p.Buckets), tensor.F64)
			add(&f.feedback.Doubt, 1, tensor.F64)
		}
	}
	if c.VirtualRanks > 0 {
		v := &f.virtual
		v.Runs = c.VirtualRanks / ranks
		add(&v.Own, v.Runs, tensor.F64)
		add(&v.All, c.VirtualRanks, tensor.F64)
		for k, dt := range bucketTypes {
			add(&v.Shares[k], c.VirtualRanks, dt)
		}
		v.Send = make([]tensor.Buffer, len(p.Buckets))
		for i, b := range p.Buckets {
			add(&v.Send[i], c.VirtualRanks*drive.Slice(b.Elements, ranks), b.DType)
		}
	}
	return all
}

// formBytes returns the bytes of the form of a plan.
func (p *Plan) formBytes(c *Config, ranks int) int64 {
	var f form
	total := int64(0)
	for _, x := range f.pieces(p, c, ranks) {
		total += x.bytes()
	}
	return total
}

// newForm cuts the form of a plan from memory that alloc returns, zeroed. It allocates nothing if
// the settings need nothing.
func newForm(p *Plan, c *Config, ranks int, alloc func(bytes int64) (tensor.Buffer, error)) (*form, error) {
	f := &form{}
	all := f.pieces(p, c, ranks)
	total := p.formBytes(c, ranks)
	if total == 0 {
		return f, nil
	}
	var err error
	if f.raw, err = alloc(total); err != nil {
		return f, err
	}
	from := int64(0)
	for _, x := range all {
		at := f.raw.Pointer()
		if x.n > 0 { // else it may be at the end, where no pointer may lead
			at = unsafe.Add(at, from)
		}
		if *x.to, err = tensor.FromPointer(at, x.n, x.dt, f.raw.Device()); err != nil {
			return f, err
		}
		from += x.bytes()
	}
	if h := c.cast(); h != nil {
		_, place := p.messages(h.DType)
		f.wires = make([]tensor.Buffer, len(place))
		for i, k := range place {
			if f.wires[i], err = f.places[k].Slice(0, p.Buckets[i].Elements); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// bySteps is the exchanger of a group on GPUs, whose steps a machine makes: see drive.Layout.
type bySteps struct {
	plain
	*form
	heap   symmetric.Heap   // nil if the form is empty
	region symmetric.Region // of form.raw
	again  bool             // residuals restart, since the last run failed
}

var _ exchanger = (*bySteps)(nil)

// newBySteps allocates the form in the symmetric heap. The result is never nil; close it after an
// error too.
//
// Collective: all ranks. Errors: those of Heap and Alloc.
func newBySteps(d *DDP) (x *bySteps, err error) {
	x = &bySteps{plain: plain{d: d}}
	x.form, err = newForm(&d.plan, &d.cfg, d.team.Size(), func(bytes int64) (tensor.Buffer, error) {
		var err error
		if x.heap, err = d.team.Heap(bytes); err != nil {
			return tensor.Buffer{}, err
		}
		if x.region, err = x.heap.Alloc(bytes); err != nil {
			return tensor.Buffer{}, err
		}
		return x.region.Local(), nil
	})
	return x, err
}

func (x *bySteps) start(*bucket) (dist.Work, error) { return dist.Work{}, x.d.team.needsMachine() }

// check rejects a run that the settings do not allow.
func (x *bySteps) check() error {
	d := x.d
	if h := d.cfg.cast(); h != nil && h.ErrorFeedback && d.batch.noSync && d.plan.staged() {
		return d.cfg.needsWholeSteps()
	}
	return d.cfg.checkVirtual(d.team.Size(), d.batch.micro, d.batch.noSync)
}

func (x *bySteps) bytes(b *bucket) int64 {
	switch {
	case x.d.cfg.LocalSteps > 0:
		return 0
	case x.virtual.Runs > 0:
		send := x.virtual.Send[b.index].Bytes()
		if x.d.plan.sharded() {
			return send
		}
		return send + send/int64(x.d.cfg.VirtualRanks)
	case len(x.wires) > 0:
		return x.wires[b.index].Bytes()
	}
	return b.buf.Bytes()
}

func (x *bySteps) memory() int64 { return x.raw.Bytes() }

func (x *bySteps) close() error {
	if x.heap == nil {
		return nil
	}
	return x.heap.Close()
}

// offset returns the byte offset of b in the region.
func (x *bySteps) offset(b tensor.Buffer) int64 {
	return int64(uintptr(b.Pointer())) - int64(uintptr(x.raw.Pointer()))
}

// get copies from the GPU.
func (x *bySteps) get(to, from tensor.Buffer) error {
	return x.region.Get(to, x.d.team.Rank(), x.offset(from))
}

// put copies to the GPU.
func (x *bySteps) put(to, from tensor.Buffer) error {
	return errors.Join(x.region.Put(x.d.team.Rank(), x.offset(to), from), x.heap.Quiet())
}

func (x *bySteps) stateful() bool { return len(x.feedback.Residuals) > 0 }

// state returns the residuals, zeros if the last step does not count.
func (x *bySteps) state() ([]compress.State, error) {
	d := x.d
	if err := errors.Join(d.ready(), d.driver.queued()); err != nil {
		return nil, err
	}
	doubt := make([]float64, 1)
	if err := x.get(tensor.Of(doubt), x.feedback.Doubt); err != nil {
		return nil, err
	}
	var all []compress.State
	for i, b := range x.feedback.Residuals {
		residuals := make([]float32, b.Len())
		if !x.again && doubt[0] == 0 {
			if err := x.get(tensor.Of(residuals), b); err != nil {
				return nil, err
			}
		}
		all = append(all, compress.ResidualState(x.params(i), residuals)...)
	}
	return all, nil
}

func (x *bySteps) setState(state []compress.State) error {
	d := x.d
	if err := errors.Join(d.ready(), d.driver.queued()); err != nil {
		return err
	}
	all := make([][]float32, len(x.feedback.Residuals))
	for i, b := range x.feedback.Residuals {
		all[i] = make([]float32, b.Len())
		if err := compress.SetResiduals(x.params(i), all[i], state); err != nil {
			return fmt.Errorf("%s: %w", d.buckets[i].name, err)
		}
	}
	for i, b := range x.feedback.Residuals {
		if err := x.put(b, tensor.Of(all[i])); err != nil {
			return err
		}
	}
	x.again = false // replaces the state of the last step
	return x.put(x.feedback.Doubt, tensor.Of([]float64{0}))
}

// params returns the parameters of bucket i.
func (x *bySteps) params(i int) []compress.Param {
	return x.d.plan.hookBucket(i, x.d.team.Rank(), x.d.team.Size()).Params
}
