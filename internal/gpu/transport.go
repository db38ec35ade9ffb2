package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// Transport is one rank's end of a group of GPUs. It implements dist.Transport.
//
// It keeps the order of the group, compares operations between ranks, and chooses an engine for
// each; the engine moves the bytes. It owns its control group.
type Transport struct {
	core
	tools    tools
	engines  engineSet // mu guards rewrites, the rest is constant
	watching sync.WaitGroup
	unwatch  context.CancelFunc
	closed   atomic.Bool

	mu      sync.Mutex // guards the fields below, and the order of calls
	scratch ticket     // of an operation that is captured
	streams streamSet
	heaps   heapSet
}

// Open returns this rank's transport of the group of cfg.Control's ranks, each with its GPU.
//
// Collective: all ranks of cfg.Control, same settings except the device. Owns: cfg.Control, which
// is closed with the transport, and on an error. Errors: on all ranks: those of Config.Validate;
// ErrDevice if two ranks of a host have one GPU; ErrMismatch if tables or settings differ; those of
// cfg.Make.
func Open(cfg Config) (*Transport, error) {
	g := cfg.Control
	if err := cfg.Validate(); err != nil {
		if g != nil {
			err = errors.Join(err, g.Close())
		}
		return nil, err
	}
	p := MemberOf(g, cfg.Device)
	t, err := open(cfg, *p, cfg.Make)
	if err != nil {
		return nil, fmt.Errorf("gpu: open rank %d/%d on %v: %w", p.Rank, p.Size, cfg.Device.Tensor(), errors.Join(err, g.Close()))
	}
	return t, nil
}

// open opens the transport of a member; build makes its engines.
func open(cfg Config, p Member, build Maker) (*Transport, error) {
	t := &Transport{core: core{cfg: cfg, member: p, on: p.Device.Tensor(), limit: cfg.StepTimeout}}
	t.wire()
	if t.limit == 0 {
		t.limit = defaultStepTimeout
	}
	var err error
	if t.ledger, err = newLedger(p.Control, !cfg.Unchecked, t.limit); err != nil {
		return nil, err
	}
	t.ledger.doubt = t.streams.stuckWork
	if err = t.prepare(build); err != nil {
		return nil, errors.Join(err, closeEngines(t.engines.list), t.free(), t.ledger.close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.unwatch = cancel
	t.watching.Go(func() {
		t.ledger.watch(ctx, t.engines.failed)
		if t.ledger.broken() != nil {
			t.halt()
		}
	})
	return t, nil
}

// wire connects the parts of t.
func (t *Transport) wire() {
	t.engines.core, t.engines.tools = &t.core, &t.tools
	t.streams.core, t.streams.tools = &t.core, &t.tools
	t.heaps.core, t.heaps.engines = &t.core, &t.engines
}

// prepare allocates the transport's device objects, and makes its engines.
func (t *Transport) prepare(build Maker) error {
	p := &t.member
	if err := p.distinct(); err != nil {
		return err
	}
	if err := p.Agree(t.streams.idle()); err != nil { // of another group, maybe
		return err
	}
	if err := p.Agree(t.tools.allocate(p.Device)); err != nil {
		return err
	}
	k, err := loadKernels(p.Device)
	if err = p.Agree(err); err != nil {
		k = &kernels{err: err} // on all ranks, so that all choose the same engine
	}
	t.tools.kernels = k
	word, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&t.tools.word)), 1, tensor.U32, t.on)
	if err != nil {
		return err
	}
	x := &t.engines
	if x.list, err = build(p); err != nil {
		return err
	}
	if c := t.cfg.Choose; p.hierarchical() && !c.First && (c.Engine == "" || c.Engine == Hierarchical) {
		h, err := newHierarchy(c, p, build, word)
		if err != nil {
			return err
		}
		x.list = append(x.list, h)
	}
	if p.Size == 1 {
		x.list = append(x.list, &local{w: &t.tools})
	}
	for _, e := range x.list {
		k, _ := e.(Keeper)
		u, unending := e.(Unending)
		if unending = unending && p.Size > 1; unending {
			u.Pace(t.streams.pace)
		}
		x.keepers, x.unending = append(x.keepers, k), append(x.unending, unending)
	}
	if x.choose, err = newDispatcher(t.cfg.Choose, p, x.list, k.err == nil, word); err != nil {
		err = fmt.Errorf("choice of engines: %w", err)
	}
	return p.Agree(err)
}

const stopBytes = 64

// halt ends the group's work on the device: aborts the engines, and ends the waits of streams.
func (t *Transport) halt() {
	atomic.StoreUint32((*uint32)(pinned(t.tools.stop, 0)), 1)
	t.engines.abort()
}

// free releases the device objects, unless work on the device may never end.
func (t *Transport) free() error {
	if t.streams.stalled() {
		return nil
	}
	v := t.member.Device
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	return errors.Join(t.tools.free(v), t.streams.paced.close())
}

// distinct returns an error on all ranks if two of a host have one GPU: NCCL and NVSHMEM refuse it,
// or hang.
func (p *Member) distinct() error {
	id := p.Device.UUID()
	all, err := p.Exchange(id[:])
	if err != nil {
		return err
	}
	for r, b := range all {
		for q := range r {
			if string(all[q]) == string(b) && p.OneHost(q, r) {
				return fmt.Errorf("%w: ranks %d and %d have one GPU, %x: give each rank one of its own", dist.ErrDevice, q, r, b)
			}
		}
	}
	return nil
}

// Info implements dist.Transport.
func (t *Transport) Info() dist.Info {
	p := &t.member
	return dist.Info{
		Rank: p.Rank, Size: p.Size, Device: t.on, Backend: t.cfg.backend(), Ranks: slices.Clone(p.World), Timing: t.cfg.Timing,
	}
}

// Engines returns the names of the engines, in the order in which the Maker made them.
func (t *Transport) Engines() []string {
	var names []string
	for _, e := range t.engines.list {
		names = append(names, e.Name())
	}
	return names
}

// NewStream returns a stream of the greatest priority of the device, as groups use.
//
// Owns: the caller closes it. Errors: those of the driver.
func (t *Transport) NewStream() (dist.Stream, error) {
	_, greatest, err := t.member.Device.PriorityRange()
	if err != nil {
		return nil, err
	}
	s, err := newStream(t.member.Device, greatest)
	if err != nil {
		return nil, err
	}
	s.from = t
	return s, nil
}

// Abort implements dist.Transport.
func (t *Transport) Abort(cause error) error {
	if t.closed.Load() {
		return dist.ErrClosed
	}
	_ = t.ledger.fail(endUser, t.member.Rank, cause.Error())
	return nil
}

// grace is how long a rank that closes waits for the others, in order to free shared memory
// together.
const grace = 5 * time.Second

// Close implements dist.Transport. Ranks that close within the grace time free engines and heaps
// together. If a rank does not arrive, or the group is broken, the engines are aborted and
// symmetric memory is left until the process ends.
func (t *Transport) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	t.mu.Lock() // after the last call; later ones, such as those that wait in a heap, see closed
	heaps := t.heaps.heaps
	t.mu.Unlock()
	together := t.ledger.leave(grace)
	t.unwatch()
	t.watching.Wait()
	for _, s := range t.streams.list {
		s.release(t)
	}
	var errs []error
	if together {
		errs = append(errs, t.heaps.unborrow(), t.heaps.freeHeaps(heaps))
	} else {
		t.halt()
	}
	errs = append(errs, t.engines.close())
	for _, h := range t.heaps.releases {
		h.borrows.Add(-1)
	}
	errs = append(errs, t.free(), t.ledger.close(), t.member.Control.Close())
	return errors.Join(errs...)
}

// exclusive runs a collective call that is not an operation. The call is ordered and compared like
// an operation, and exchanges own between the ranks. do receives the bytes of every rank.
func (t *Transport) exclusive(c *opEntry, own []byte, do func(all [][]byte) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return dist.ErrClosed
	}
	c.sig.Root = -1
	if err := t.ledger.announce(c); err != nil {
		return err
	}
	head := t.heaps.closings()
	all, err := t.member.Exchange(append(head, own...))
	if err != nil {
		return t.ledger.settle(err)
	}
	if err := t.ledger.compared(); err != nil {
		return err
	}
	if err := t.heaps.reap(all); err != nil {
		return err
	}
	for r := range all {
		all[r] = all[r][closingsBytes:]
	}
	err = do(all)
	if broken := t.ledger.broken(); err != nil && broken != nil {
		return broken
	}
	return err
}

// load calls Builder.Load between operations.
func (t *Transport) load(b Builder, image []byte) (*cuda.Module, func() error, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return nil, nil, dist.ErrClosed
	}
	if err := t.streams.idle(); err != nil {
		return nil, nil, err
	}
	return b.Load(image)
}

// Broken returns the error of the broken group, or nil. The watcher and operations of this rank set
// it.
func (t *Transport) Broken() error {
	if e := t.ledger.end.Load(); e != nil {
		return e.err
	}
	return nil
}
