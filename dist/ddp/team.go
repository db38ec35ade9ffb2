package ddp

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// team is this rank's end of the group that trains a model, and the names of its operations.
type team struct {
	*dist.Group
	across *dist.Group // the replicas of this rank's shards, on the group's stream; nil for none
	queue  submitter   // the group's stream; nil if it runs no host code
	prefix string      // of operation names; "" for the first DDP of the group
	epoch  time.Time   // of the recorder
}

// submitter is a stream that runs host code in order, as dist.HostStream does.
type submitter interface {
	Submit(run dist.Runner, op dist.Op, tag uint64) (dist.Work, error)
}

// newTeam returns the team of g and, unless nil, its replicas.
func newTeam(g, replicas *dist.Group) *team {
	t := &team{Group: g, epoch: g.Recorder().Epoch()}
	if replicas != nil {
		t.across = replicas.On(g.Stream())
	}
	t.queue, _ = g.Stream().(submitter)
	return t
}

// number gives the operations of a group's second DDP, and of later ones, names of their own.
func (t *team) number() {
	if n := t.Ordinal("ddp"); n > 1 {
		t.prefix = fmt.Sprintf("ddp %d ", n)
	}
}

// named returns a view of the group whose operation names identify this DDP of the group.
func (t *team) named(name string) *dist.Group { return t.With(dist.Hints{Name: t.full(name)}) }

func (t *team) full(name string) string {
	if t.prefix == "" {
		return name
	}
	return t.prefix + strings.TrimPrefix(name, "ddp ")
}

// records returns the last operations of the group, and then those of the replicas.
func (t *team) records() []dist.Record {
	all := t.Recorder().Records()
	if t.across != nil {
		all = append(all, t.across.Recorder().Records()...)
	}
	return all
}

// total returns the number of ranks that train the model.
func (t *team) total() int {
	if t.across == nil {
		return t.Size()
	}
	return t.Size() * t.across.Size()
}

// place returns this rank's number among all ranks that train the model.
func (t *team) place() int {
	if t.across == nil {
		return t.Rank()
	}
	return t.across.Rank()*t.Size() + t.Rank()
}

// view is the group and the replicas under the name of an operation.
type view struct{ in, across *dist.Group }

// view returns the view for the name of one of this DDP's operations: see named.
func (t *team) view(name string) view { return t.plainView(t.full(name)) }

// plainView returns the view for a name as it is.
func (t *team) plainView(name string) view {
	v := view{in: t.With(dist.Hints{Name: name})}
	if t.across != nil {
		v.across = t.across.With(dist.Hints{Name: name})
	}
	return v
}

// works are an operation of the group and one of the replicas that follows it in stream order.
type works struct{ in, across dist.Work }

// Wait returns when both have ended, with the first error.
func (w works) Wait() error {
	err := w.in.Wait()
	if next := w.across.Wait(); err == nil {
		err = next
	}
	return err
}

// sum queues the sum of src over all ranks that train the model.
func (v view) sum(dst, src tensor.Buffer) (w works, err error) {
	if w.in, err = v.in.AllReduce(dst, src, dist.Sum); err == nil && v.across != nil {
		w.across, err = v.across.AllReduce(dst, dst, dist.Sum)
	}
	return w, err
}

// spread queues the copy of b from the first rank to all ranks that train the model.
func (v view) spread(b tensor.Buffer) (w works, err error) {
	if w.in, err = v.in.Broadcast(b, b, 0); err == nil && v.across != nil {
		w.across, err = v.across.Broadcast(b, b, 0)
	}
	return w, err
}

// now returns the time since the recorder's epoch.
func (t *team) now() time.Duration { return time.Since(t.epoch) }

// onGPU reports whether the buckets are in memory that host code must not touch.
func (t *team) onGPU() bool { return t.Device() != tensor.Host }

// needsMachine returns the error of a machine that runs on the host.
func (t *team) needsMachine() error {
	return fmt.Errorf("ddp rank %d/%d: %w: the group is on %v, and this machine computes on the host; run the graph by package machine, with its device cuda or auto",
		t.Rank(), t.Size(), dist.ErrDevice, t.Device())
}

// alignment returns the alignment of gradients in bytes. Kernels load and store 16 at once, and
// matrix products prefer more.
func (t *team) alignment() int {
	if t.onGPU() {
		return 256
	}
	return 1
}

// inOrder queues part of r on the group's stream. If the stream runs no host code, it runs part at
// once, and r waits for its inputs.
//
// Errors: dist.ErrClosed; r's, if it runs at once.
func (t *team) inOrder(r dist.Runner, name string, part uint64) (dist.Work, error) {
	if t.queue != nil {
		return t.queue.Submit(r, dist.Op{Name: name}, part)
	}
	return dist.Work{}, r.Run(nil, part)
}

// open returns dist.ErrClosed when the group is closed, and its heap with it, which must then not
// be touched.
func (t *team) open() (err error) {
	if t.queue != nil {
		_, err = t.queue.Submit(nothing{}, dist.Op{Name: "ddp open"}, 0) // does not allocate, unlike a request for a heap
	} else if t.closed() {
		err = dist.ErrClosed
	}
	return err
}

// closed asks for a heap of negative size, which an open group rejects without communication.
func (t *team) closed() bool {
	_, err := t.Heap(-1)
	return errors.Is(err, dist.ErrClosed)
}

// nothing is queued to find out whether a stream is open. It is a dist.Runner.
type nothing struct{}

// Run does nothing.
func (nothing) Run(*dist.Op, uint64) error { return nil }
