package ddp

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/tensor"
)

// farLine is the exchange of a bucket on a GPU by a hook, whose codec needs memory of the host:
//
//	machine   copies the bucket to the host
//	codec     makes a message
//	ranks     sum the message on their GPUs, in the symmetric heap
//	codec     makes the gradient of the sums
//	machine   copies that to the GPU
type farLine struct {
	copy       tensor.Buffer   // the bucket, during the exchange
	share, sum float64         // factor of the gradients, and the sum of all ranks' weights
	places     []tensor.Buffer // of the messages on the GPU
	offsets    []int64         // of places in the region
}

// allocateFar allocates the messages of the codecs in memory of the process, and those that ranks
// sum in the symmetric heap. All buckets share both.
//
// Collective: all ranks. Errors: those of Heap and Alloc; dist.ErrUnsupported for state with
// sharded gradients: a rank sees its part only, and not whether a step counts.
func (x *hooked) allocateFar(bytes int64) error {
	d := x.d
	if d.plan.sharded() && x.stateful() {
		return fmt.Errorf("%w: hook %v keeps state, and on GPUs with Stage %d ranks do not see all gradients; use Stage 0, or a WireDType with ErrorFeedback",
			dist.ErrUnsupported, x.hook, d.cfg.Stage)
	}
	bytes = roundUp(bytes)
	x.mem = &messageMemory{raw: tensor.Of(make([]uint64, bytes/8))}
	var err error
	if x.heap, err = d.team.Heap(bytes); err == nil {
		x.region, err = x.heap.Alloc(bytes)
	}
	return err
}

// carveFar gives a line on GPUs the places of its messages.
func (x *hooked) carveFar(l *coding, messages []compress.Message) error {
	if x.region == nil {
		return nil
	}
	l.far = &farLine{}
	raw, from := x.region.Local(), int64(0)
	for _, m := range messages {
		bytes := int64(m.Elements) * int64(m.DType.Size())
		part, err := raw.Slice(int(from), int(from+bytes))
		if err != nil {
			return err
		}
		place, err := tensor.FromPointer(part.Pointer(), m.Elements, m.DType, raw.Device())
		if err != nil {
			return err
		}
		l.far.places, l.far.offsets = append(l.far.places, place), append(l.far.offsets, from)
		from += roundUp(bytes)
	}
	return nil
}

func (x *hooked) closeFar() error {
	if x.heap == nil {
		return nil
	}
	return x.heap.Close()
}

// Hook implements drive.Exchange.
func (x *driver) Hook(bucket int, c drive.HookCall) error {
	d := x.d
	h, ok := d.wire.(*hooked)
	if !ok {
		return d.stepError(fmt.Errorf("%w: the settings have no hook of this kind", dist.ErrInvalid))
	}
	if err := h.exchangeFar(h.codings[bucket], c); err != nil {
		err = d.stepError(err)
		return errors.Join(err, d.team.Abort(err)) // other ranks wait for the next bucket
	}
	return nil
}

// exchangeFar exchanges one bucket.
func (x *hooked) exchangeFar(l *coding, c drive.HookCall) error {
	if l.far == nil { // a program for GPUs in memory of the host, as tests have it
		l.far = &farLine{}
		defer func() { l.far = nil }()
	}
	l.far.copy, l.far.share, l.far.sum, l.err = c.Gradients, c.Share, c.Sum, nil
	l.b.clearGaps(c.Gradients)
	for r := range l.messages {
		if l.err = l.compress(r); l.err != nil {
			return l.err
		}
		if err := x.sumFar(l, r); err != nil {
			return fmt.Errorf("%s: %w", l.b.name, err)
		}
	}
	l.err = l.decompress(l.actions[len(l.actions)-1].By)
	return l.err
}

// sumFar sums message r over the ranks, and waits.
func (x *hooked) sumFar(l *coding, r int) error {
	message, me := l.messages[r], x.d.team.Rank()
	place := message
	if x.region != nil {
		place = l.far.places[r]
		if err := errors.Join(x.region.Put(me, l.far.offsets[r], message), x.heap.Quiet()); err != nil {
			return err
		}
	}
	work, err := l.sum(place)
	if err == nil {
		err = work.Wait()
	}
	if err != nil || x.region == nil {
		return err
	}
	return x.region.Get(message, me, l.far.offsets[r])
}
