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
	keepers []Keeper // those of engines that are; nil for others
	choose  *dispatcher
	kernels *kernels

	unending []bool // which engines are Unending

	word  uintptr          // 4 bytes of device memory, for barriers that are sums
	stop  *cuda.HostMemory // a word that ends the waits of streams when it is not 0
	order *cuda.Event      // between streams

	watching sync.WaitGroup
	doubted  sync.Once
	unwatch  context.CancelFunc

	closed  atomic.Bool
	used    sync.Mutex // guards streams
	streams []*Stream  // that have run any operation

	mu       sync.Mutex // guards what follows, and the order of calls
	last     *Stream    // that has run the newest operation
	scratch  ticket     // of an operation that is captured
	rewrites dist.Op    // an operation as an engine gets it
	args     *cuda.Args
	paced    backpressure
	heaps    []*Heap // not yet freed, in the order in which they were made, which all ranks share
	borrowed []*Slab // of the group that this is a part of, registered here
	releases []*Heap // that borrowed comes from
}

// Open is this rank's transport of the group of cfg.Control's ranks, each with its GPU.
//
// Collective: all ranks of cfg.Control, same settings but for the device. Owns: cfg.Control, which
// is closed with the transport, and on an error. Errors: on all ranks alike: those of
// Config.Validate; ErrDevice when two ranks have one GPU; ErrMismatch when tables or settings
// differ; those of cfg.Make.
func Open(cfg Config) (*Transport, error) {
	g := cfg.Control
	if err := cfg.Validate(); err != nil {
		if g != nil {
			err = errors.Join(err, g.Close())
		}
		return nil, err
	}
	p := Member{Device: cfg.Device, Rank: g.Rank(), Size: g.Size(), World: g.Ranks(), Control: g, Memory: new(Memory)}
	t, err := open(cfg, p, cfg.Make)
	if err != nil {
		return nil, fmt.Errorf("gpu: open rank %d/%d on %v: %w", p.Rank, p.Size, cfg.Device.Tensor(), errors.Join(err, g.Close()))
	}
	return t, nil
}

// open is Open for a member that has a device of its own each; make makes its engines.
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

// prepare makes what the transport needs of the device, and its engines.
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
		k = &kernels{err: err} // on all ranks, so that all choose alike
	}
	t.kernels = k
	if t.engines, err = build(p); err != nil {
		return err
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
	word, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&t.word)), 1, tensor.U32, t.on)
	if err != nil {
		return err
	}
	if t.choose, err = newPicker(t.cfg.Choose, p, t.engines, t.kernels.err == nil, word); err != nil {
		err = fmt.Errorf("choice of engines: %w", err)
	}
	return p.Agree(err)
}

// allocate makes the transport's own few things on the device.
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

// halt ends what the group has on the device, as far as engines and waiting streams can be ended.
func (t *Transport) halt() {
	atomic.StoreUint32((*uint32)(pinned(t.stop, 0)), 1)
	for _, e := range t.engines {
		e.Abort()
	}
}

// free undoes allocate, as far as it went, and loadKernels.
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

// distinct is an error of all ranks when two of them have one GPU: NCCL and NVSHMEM refuse it, or
// hang.
func (p *Member) distinct() error {
	id := p.Device.UUID()
	all, err := p.Exchange(id[:])
	if err != nil {
		return err
	}
	for r, b := range all {
		for q := range r {
			if string(all[q]) == string(b) {
				return fmt.Errorf("%w: ranks %d and %d have one GPU, %x: give each rank one of its own", dist.ErrDevice, q, r, b)
			}
		}
	}
	return nil
}

// failed is the first error of an engine.
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

// Engines is the names of the engines, in the order of the choice's columns.
func (t *Transport) Engines() []string {
	var names []string
	for _, e := range t.engines {
		names = append(names, e.Name())
	}
	return names
}

// NewStream is a stream of the greatest priority that the device gives: a group's own.
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

// grace is how long a rank that closes waits for the others to do so, in order to free together
// what cannot be freed alone.
const grace = 5 * time.Second

// Close implements dist.Transport. Ranks that close within a few seconds of each other free engines
// and heaps together; where one does not come, or the group is broken, the engines are aborted and
// symmetric memory is left to the end of the process.
func (t *Transport) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	t.mu.Lock() // behind the last call; later ones see that it is closed, also those that a heap waits for
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

// exclusive runs a call that is collective and no operation: it takes its place among the
// operations, is compared like them, and exchanges own with what the others give. do then has the
// word of every rank.
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
