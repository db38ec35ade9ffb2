package ddp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// PlanFor returns the Plan that Attach makes for parameters whose gradients come in the given
// order, on so many ranks, on GPUs or on the host. It needs neither ranks nor memory.
//
// Errors: those of Config.Validate; dist.ErrInvalid if order is not a permutation, there are no
// ranks, or VirtualRanks is no multiple of them; its kinds for a dtype other than f32 and f64, or a
// negative dimension.
func PlanFor(params []PlanParam, order []int, cfg Config, ranks int, gpu bool) (Plan, error) {
	if err := cfg.Validate(); err != nil {
		return Plan{}, err
	}
	wrong := len(order) != len(params)
	for i, k := range slices.Sorted(slices.Values(order)) {
		wrong = wrong || i != k
	}
	switch {
	case wrong:
		return Plan{}, fmt.Errorf("ddp plan: %w: an order %v of %d parameters", dist.ErrInvalid, order, len(params))
	case ranks > 0 && cfg.VirtualRanks%ranks != 0:
		return Plan{}, fmt.Errorf("ddp plan: %w: VirtualRanks is %d, which %d ranks do not divide", dist.ErrInvalid, cfg.VirtualRanks, ranks)
	}
	for i, q := range params {
		if err := q.check(); err != nil {
			return Plan{}, fmt.Errorf("ddp plan: parameter %d, %q: %w", i, q.Name, err)
		}
	}
	w, err := newNowhere(ranks, gpu)
	if err != nil {
		return Plan{}, err
	}
	p, t := Plan{Params: slices.Clone(params), Memory: "no memory"}, newTeam(w.Group, nil)
	p.lay(order, cfg.withDefaults(), ranks, t.alignment())
	return p, w.Close()
}

// check repeats Attach's check of a node's dtype and shape.
func (p PlanParam) check() error {
	switch {
	case !slices.Contains(bucketTypes[:], p.DType):
		return fmt.Errorf("%w: it is %v, want f32 or f64", dist.ErrDType, p.DType)
	case slices.ContainsFunc(p.Shape, func(d int) bool { return d < 0 }):
		return fmt.Errorf("%w: shape %v", dist.ErrCount, p.Shape)
	}
	return nil
}

// Supports returns the error of Attach for these settings on so many ranks, on GPUs or on the host,
// for any model. It returns nil if Attach accepts them.
//
// Errors: those of Config.Validate; dist.ErrInvalid.
func Supports(cfg Config, ranks int, gpu bool) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	w, err := newNowhere(ranks, gpu)
	if err != nil {
		return err
	}
	return errors.Join(cfg.fits(w.Group), w.Close())
}

// nowhere is the transport of a world that only knows its size and device.
type nowhere struct{ info dist.Info }

func newNowhere(ranks int, gpu bool) (*dist.World, error) {
	if ranks < 1 {
		return nil, fmt.Errorf("ddp plan: %w: %d ranks", dist.ErrInvalid, ranks)
	}
	t := nowhere{dist.Info{Size: ranks, Device: tensor.Host, Backend: "plan"}}
	if gpu {
		t.info.Device = tensor.CUDA(0)
	}
	return dist.NewWorld(t, dist.LocalInfo{Size: ranks}, 1, nil)
}

// Info implements dist.Transport.
func (t nowhere) Info() dist.Info { return t.info }

// Start implements dist.Transport.
func (nowhere) Start(dist.Op, dist.Stream) (dist.Work, error) {
	return dist.Work{}, dist.ErrUnsupported
}

// Split implements dist.Transport.
func (nowhere) Split(int, int) (dist.Transport, error) { return nil, dist.ErrUnsupported }

// Heap implements dist.Transport.
func (nowhere) Heap(int64) (symmetric.Heap, error) { return nil, dist.ErrUnsupported }

// Abort implements dist.Transport.
func (nowhere) Abort(error) error { return nil }

// Close implements dist.Transport.
func (nowhere) Close() error { return nil }

// GradientOrder returns an order of gradients from which Attach makes these buckets. Within each
// dtype it is the gradients' own order.
func (p Plan) GradientOrder() []int {
	var all []int
	for _, b := range p.Buckets {
		params := slices.Clone(b.Params)
		if p.Stage == stageParams { // in the order of the forward pass
			slices.Reverse(params)
		}
		all = append(all, params...)
	}
	return all
}

// Room is the bytes that Attach takes on one rank for a Plan, without values that nodes keep
// themselves.
type Room struct {
	Grads   int64 // whole buckets, or this rank's shards of them
	Params  int64 // buckets of weights, or this rank's shards of them; on a GPU the weights of all parameters
	Staging int64 // buffers that gradients pass through
	Scalars int64 // weights of ranks, and factors
}

// Room returns the bytes that Attach takes for p.
func (p Plan) Room(gpu bool) Room {
	a := p.areas()
	r := Room{Staging: int64(a.count) * a.staging, Scalars: a.scalars}
	for k := range bucketTypes {
		r.Grads += a.grads[k] + a.shards[k]
		r.Params += a.values[k]
	}
	if gpu && p.Stage == 0 {
		for _, q := range p.Params {
			r.Params += roundUp(int64(q.Len()) * int64(q.DType.Size()))
		}
	}
	return r
}

// Wire describes the messages of a Plan's buckets.
type Wire struct {
	Messages [][]compress.Message // of each bucket, in rounds; nil for buckets that are sent unchanged
	Bytes    int64                // of memory on one rank: messages, and the state kept between steps
}

// Wire returns the messages that Attach makes of the settings for p on so many ranks. On GPUs each
// bucket's messages have their own memory; with Stage 2, each staging buffer's.
//
// Errors: those of the Hook; dist.ErrInvalid for no ranks.
func (p Plan) Wire(cfg Config, ranks int, gpu bool) (Wire, error) {
	var w Wire
	if ranks < 1 {
		return w, fmt.Errorf("ddp plan: %w: %d ranks", dist.ErrInvalid, ranks)
	}
	hook := cfg.hook()
	switch {
	case gpu:
		w.Bytes = p.formBytes(&cfg, ranks)
	case cfg.VirtualRanks > 0:
		w.Bytes = p.virtualRoom(cfg.VirtualRanks/ranks, ranks)
	}
	if hook == nil {
		return w, nil
	}
	longest := int64(0)
	for i := range p.Buckets {
		messages, kept, err := compress.Sizes(hook, p.hookBucket(i, 0, ranks))
		if err != nil {
			return w, fmt.Errorf("hook %v bucket %d: %w", hook, i, err)
		}
		w.Messages = append(w.Messages, messages)
		longest = max(longest, messageBytes(messages))
		if !gpu || cfg.cast() == nil {
			w.Bytes += kept
		}
	}
	if !gpu || cfg.cast() == nil {
		w.Bytes += longest
	}
	return w, nil
}

// virtualRoom returns the bytes that newVirtual takes for so many runs of each rank in a step.
func (p Plan) virtualRoom(runs, ranks int) int64 {
	total, longest := roundUp(int64(8*runs*ranks)), int64(0)
	for _, b := range p.Buckets {
		slice := (b.Elements + ranks - 1) / ranks
		bytes := roundUp(int64(ranks*slice) * int64(b.DType.Size()))
		total += int64(runs) * bytes
		longest = max(longest, bytes)
	}
	return total + int64(runs+1)*longest
}

// messages returns the places of messages of a dtype on a GPU, and the index of each bucket's
// place.
func (p *Plan) messages(dt tensor.DType) (places []compress.Message, at []int) {
	for i, b := range p.Buckets {
		k := i
		if p.Stage >= stageGrads {
			k = p.stagingOf(i)
		}
		for len(places) <= k {
			places = append(places, compress.Message{DType: dt})
		}
		places[k].Elements = max(places[k].Elements, b.Elements)
		at = append(at, k)
	}
	return places, at
}
