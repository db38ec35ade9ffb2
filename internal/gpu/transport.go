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
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Transport is one rank's end of a group of GPUs. It implements dist.Transport.
//
// It keeps the order of the group, compares operations between ranks, and chooses an engine for
// each; the engine moves the bytes. It owns its control group.
type Transport struct {
	cfg     Config
	member  Member
	on      tensor.Device
	limit   time.Duration
	ledger  *ledger
	engines []Engine
	keepers []Keeper // by engine; nil for one that is no Keeper
	choose  *dispatcher
	kernels *kernels

	unending []bool // by engine

	word  uintptr          // 4 bytes of device memory, for barriers that are sums
	stop  *cuda.HostMemory // a word; not 0 ends the waits of streams
	order *cuda.Event      // between streams

	watching sync.WaitGroup
	doubted  sync.Once
	unwatch  context.CancelFunc

	closed  atomic.Bool
	used    sync.Mutex // guards streams
	streams []*Stream  // that have run any operation

	mu       sync.Mutex // guards the fields below, and the order of calls
	last     *Stream    // that has run the newest operation
	scratch  ticket     // of an operation that is captured
	rewrites dist.Op    // scratch: a composed operation
	args     *cuda.Args
	paced    backpressure
	heaps    []*Heap // not yet freed, in the order of creation, which all ranks share
	borrowed []*Slab // slabs of the parent group, registered here
	releases []*Heap // heaps of the borrowed slabs
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
	t := &Transport{cfg: cfg, member: p, on: p.Device.Tensor(), limit: cfg.StepTimeout}
	if t.limit == 0 {
		t.limit = defaultStepTimeout
	}
	var err error
	if t.ledger, err = newLedger(p.Control, !cfg.Unchecked, t.limit); err != nil {
		return nil, err
	}
	t.ledger.doubt = t.stuckWork
	if err = t.prepare(build); err != nil {
		for _, e := range t.engines {
			e.Abort()
			err = errors.Join(err, e.Close())
		}
		return nil, errors.Join(err, t.free(), t.ledger.close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.unwatch = cancel
	t.watching.Go(func() {
		t.ledger.watch(ctx, t.failed)
		if t.ledger.broken() != nil {
			t.halt()
		}
	})
	return t, nil
}

// prepare allocates the transport's device objects, and makes its engines.
func (t *Transport) prepare(build Maker) error {
	p := &t.member
	if err := p.distinct(); err != nil {
		return err
	}
	if err := p.Agree(t.idle()); err != nil { // of another group, maybe
		return err
	}
	if err := p.Agree(t.allocate()); err != nil {
		return err
	}
	k, err := loadKernels(p.Device)
	if err = p.Agree(err); err != nil {
		k = &kernels{err: err} // on all ranks, so that all choose the same engine
	}
	t.kernels = k
	word, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&t.word)), 1, tensor.U32, t.on)
	if err != nil {
		return err
	}
	if t.engines, err = build(p); err != nil {
		return err
	}
	if c := t.cfg.Choose; p.hierarchical() && !c.First && (c.Engine == "" || c.Engine == Hierarchical) {
		h, err := newHierarchy(c, p, build, word)
		if err != nil {
			return err
		}
		t.engines = append(t.engines, h)
	}
	if p.Size == 1 {
		t.engines = append(t.engines, &local{t: t})
	}
	for _, e := range t.engines {
		k, _ := e.(Keeper)
		u, unending := e.(Unending)
		if unending = unending && p.Size > 1; unending {
			u.Pace(t.pace)
		}
		t.keepers, t.unending = append(t.keepers, k), append(t.unending, unending)
	}
	if t.choose, err = newDispatcher(t.cfg.Choose, p, t.engines, t.kernels.err == nil, word); err != nil {
		err = fmt.Errorf("choice of engines: %w", err)
	}
	return p.Agree(err)
}

// allocate makes the transport's event, memory and kernel arguments.
func (t *Transport) allocate() error {
	v := t.member.Device
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	var err error
	if t.order, err = v.NewEvent(); err != nil {
		return err
	}
	if t.word, err = v.Alloc(symmetric.Alignment); err != nil {
		return err
	}
	if t.stop, err = v.AllocHost(stopBytes); err != nil {
		return err
	}
	if t.args, err = newArgs(); err != nil {
		return err
	}
	return v.Fill(t.word, 0, symmetric.Alignment)
}

const stopBytes = 64

// halt ends the group's work on the device: aborts the engines, and ends the waits of streams.
func (t *Transport) halt() {
	atomic.StoreUint32((*uint32)(pinned(t.stop, 0)), 1)
	for _, e := range t.engines {
		e.Abort()
	}
}

// free releases the results of allocate and loadKernels, also after an error in these.
func (t *Transport) free() error {
	if t.stalled() {
		return nil
	}
	v := t.member.Device
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	var errs []error
	if t.order != nil {
		errs = append(errs, t.order.Close())
	}
	if t.word != 0 {
		errs = append(errs, v.Free(t.word))
	}
	if t.stop != nil {
		errs = append(errs, t.stop.Close())
	}
	errs = append(errs, t.kernels.close(), t.paced.close())
	return errors.Join(errs...)
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

// failed returns the first error of an engine.
func (t *Transport) failed() error {
	for _, e := range t.engines {
		if err := e.Failed(); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
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
	for _, e := range t.engines {
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

func (t *Transport) opError(op *dist.Op, err error) error {
	return &dist.OpError{Op: *op, Rank: t.member.Rank, Size: t.member.Size, Err: err}
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
	heaps := t.heaps
	t.mu.Unlock()
	together := t.ledger.leave(grace)
	t.unwatch()
	t.watching.Wait()
	for _, s := range t.streams {
		s.release(t)
	}
	var errs []error
	if together {
		errs = append(errs, t.unborrow(), t.freeHeaps(heaps))
	} else {
		t.halt()
	}
	for i := len(t.engines) - 1; i >= 0; i-- {
		if err := t.engines[i].Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.engines[i].Name(), err))
		}
	}
	for _, h := range t.releases {
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
	head := t.closings()
	all, err := t.member.Exchange(append(head, own...))
	if err != nil {
		return t.ledger.settle(err)
	}
	if err := t.ledger.compared(); err != nil {
		return err
	}
	if err := t.reap(all); err != nil {
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
