package conformance

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// guard limits the time until a mismatch is found. One second is promised; the rest is for busy
// machines.
const guard = 20 * time.Second

// disagreement is a difference between one rank, odd, and the others. call issues the operation and
// waits.
type disagreement struct {
	name string
	word string // must be in the error; "" for any
	call func(w *dist.World, p *space, odd bool) error
}

// issuer issues an operation on buffers of a space.
type issuer func(g *dist.Group, p *space) (dist.Work, error)

// either returns a call of usual, or of odd on the rank that differs.
func either(usual, odd issuer) func(*dist.World, *space, bool) error {
	return func(w *dist.World, p *space, differs bool) error {
		if differs {
			return finish(odd(w.Group, p))
		}
		return finish(usual(w.Group, p))
	}
}

func allReduce(count int, red dist.RedOp) issuer {
	return func(g *dist.Group, p *space) (dist.Work, error) {
		return g.AllReduce(p.floats(count), p.floats(count), red)
	}
}

func broadcast(root int) issuer {
	return func(g *dist.Group, p *space) (dist.Work, error) { return g.Broadcast(p.floats(3), p.floats(3), root) }
}

func barrier(g *dist.Group, _ *space) (dist.Work, error) { return g.Barrier() }

func batched(f issuer) issuer {
	return func(g *dist.Group, p *space) (dist.Work, error) {
		return g.Batch(func(g *dist.Group) error { _, err := f(g, p); return err })
	}
}

// neighbour returns a rank other than that of g.
func neighbour(g *dist.Group) int { return (g.Rank() + 1) % g.Size() }

var disagreements = []disagreement{
	{"operation", "operation", either(allReduce(3, dist.Sum), broadcast(0))},
	{"barrier or sync", "operation", either(barrier, func(g *dist.Group, _ *space) (dist.Work, error) { return g.Sync() })},
	{"dtype", "dtype", either(allReduce(3, dist.Sum), func(g *dist.Group, p *space) (dist.Work, error) {
		b := p.take(tensor.I32, 3)
		return g.AllReduce(b, b, dist.Sum)
	})},
	{"count", "count", either(allReduce(3, dist.Sum), allReduce(4, dist.Sum))},
	{"count of zero", "count", either(allReduce(3, dist.Sum), allReduce(0, dist.Sum))},
	{"large count", "count", either(allReduce(100000, dist.Sum), allReduce(99999, dist.Sum))},
	{"reduction", "reduction", either(allReduce(3, dist.Sum), allReduce(3, dist.Max))},
	{"root", "root", either(broadcast(0), broadcast(1))},
	{"order", "operation", func(w *dist.World, p *space, odd bool) error {
		calls := []issuer{allReduce(3, dist.Sum), barrier}
		if odd {
			calls[0], calls[1] = calls[1], calls[0]
		}
		first, err := calls[0](w.Group, p)
		if err != nil {
			return err
		}
		return errors.Join(finish(calls[1](w.Group, p)), first.Wait())
	}},
	{"in a group call", "count", either(batched(allReduce(3, dist.Sum)), batched(allReduce(4, dist.Sum)))},
	{"collective or recv", "", either(allReduce(3, dist.Sum), func(g *dist.Group, p *space) (dist.Work, error) {
		return g.Recv(p.floats(3), neighbour(g))
	})},
	{"collective or recv in a group call", "", either(barrier, batched(func(g *dist.Group, p *space) (dist.Work, error) {
		return g.Recv(p.floats(3), neighbour(g))
	}))},
	{"split or barrier", "operation", func(w *dist.World, p *space, odd bool) error {
		if odd {
			return finish(w.Barrier())
		}
		_, err := w.Split(0, 0)
		return err
	}},
	{"size of a heap", "count", func(w *dist.World, p *space, odd bool) error {
		bytes := int64(1 << 12)
		if odd {
			bytes *= 2
		}
		_, err := w.Heap(bytes)
		if errors.Is(err, dist.ErrUnsupported) {
			return errNoHeap
		}
		return err
	}},
	{"size of a region", "count", func(w *dist.World, p *space, odd bool) error {
		h, err := w.Heap(1 << 12)
		if errors.Is(err, dist.ErrUnsupported) {
			return errNoHeap
		}
		if err != nil {
			return err
		}
		bytes := int64(100)
		if odd {
			bytes = 101
		}
		_, err = h.Alloc(bytes)
		return err
	}},
	{"length of a message", "message", message(tensor.F32, 3, tensor.F32, 4)},
	{"dtype of a message", "message", message(tensor.F32, 3, tensor.I32, 3)},
	{"empty message", "message", message(tensor.F32, 3, tensor.F32, 0)},
}

// errNoHeap is returned by a disagreement on heaps if the backend has none.
var errNoHeap = errors.New("no symmetric heaps here")

// message: the odd rank receives a message with another type or length than its neighbour sends.
// The others are in a barrier, which these two reach later. If the backend buffers messages, the
// sender may go on and get the error in its next operation.
func message(sent tensor.DType, sends int, received tensor.DType, receives int) func(*dist.World, *space, bool) error {
	return func(w *dist.World, p *space, odd bool) error {
		from := (w.Rank() + w.Size() - 1) % w.Size()
		switch {
		case odd:
			return finish(w.Recv(p.take(received, receives), neighbour(w.Group)))
		case from == oddRank(w.Size()): // this rank is the neighbour
			if err := finish(w.Send(p.take(sent, sends), from)); err != nil {
				return err
			}
		}
		return finish(w.Barrier())
	}
}

// oddRank returns the rank that differs in a world of n.
func oddRank(n int) int { return n / 2 }

func runMismatches(t *testing.T, o Options, launch Launch) {
	for i, d := range disagreements {
		if o.Every > 1 && i%5 != 0 {
			continue
		}
		for _, n := range o.worlds(2, 3, 4) {
			t.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(d.name, " ", "_"), n), func(t *testing.T) {
				launch(t, n, LaunchOptions{StepTimeout: 10 * guard}, o.breaking(d.body))
			})
		}
	}
}

// body checks that every rank soon gets the mismatch as an error, that it names the difference, and
// that the group stays broken.
func (d disagreement) body(w *dist.World, p *space) error {
	began := time.Now()
	err := d.call(w, p, w.Rank() == oddRank(w.Size()))
	if errors.Is(err, errNoHeap) {
		return nil
	}
	if took := time.Since(began); took > guard {
		return fmt.Errorf("the mismatch took %v to be found", took)
	}
	if !errors.Is(err, dist.ErrMismatch) {
		return fmt.Errorf("error %v, want %v", err, dist.ErrMismatch)
	}
	if !strings.Contains(err.Error(), d.word) || !strings.Contains(err.Error(), "rank") {
		return fmt.Errorf("error %q does not name ranks and the difference, %q", err, d.word)
	}
	if err := finish(w.Barrier()); !errors.Is(err, dist.ErrMismatch) {
		return fmt.Errorf("later operation: error %v, want %v", err, dist.ErrMismatch)
	}
	return nil
}
