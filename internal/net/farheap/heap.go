package farheap

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// defaultStepTimeout is the value of a zero StepTimeout.
const defaultStepTimeout = 100 * time.Second

// Config has the parameters of a heap. The functions may be called from any goroutine, also while
// the service handles messages: they must not call the service or the heap.
type Config struct {
	Service *Service // of this process
	ID      uint32   // equal on all ranks, and unique among the open heaps of each process
	Bytes   int64    // that can be allocated on each rank, rounded up to symmetric.Alignment

	// Inner is a new heap of the ranks of this host, with room for Bytes. Owns: the heap, from a
	// successful New on.
	Inner symmetric.Heap
	// Near returns the rank in Inner of a rank of the group; false for a rank on another host.
	Near func(rank int) (inner int, ok bool)
	// Process returns the process on the wire that has a far rank in its near heap.
	Process func(rank int) int

	Rank int // this rank in the group
	Size int // ranks in the group

	// Failed returns why the group is broken, or nil. It is called before every access.
	Failed func() error
	// Reason returns why the group is broken, which it may get a moment after Inner. err is the
	// error of Inner.
	Reason func(err error) error
	// Alone returns an error that matches dist.ErrClosed if all other ranks have closed the group,
	// or nil. It ends waits. A nil Alone never does.
	Alone func() error
	// Agree compares an allocation on all ranks, and then calls do. sig has KindAlloc with the
	// bytes, or KindFree with the offset. No other operation of the group runs before do returns.
	// Collective. Errors: on all ranks; dist.ErrMismatch if sig or alignment differ; do's.
	Agree func(sig dist.Signature, alignment int64, do func() error) error
	// Barrier returns when all ranks have called it. do of Agree calls it. It need not contain
	// Quiet. Collective.
	Barrier func() error
	// StepTimeout is the longest wait for an answer of a process; 0 means 100 s. Waits have the
	// step timeout of Inner.
	StepTimeout time.Duration
}

// Heap is one rank's end of a symmetric heap over hosts. It implements symmetric.Heap.
type Heap struct {
	cfg     Config
	timeout time.Duration
	whole   symmetric.Region // all of Inner
	own     []byte           // the own part
	near    []int            // by rank: its rank in Inner, or -1
	ranks   []int            // by rank in Inner: its rank
	process []int            // by rank: its process, or -1 for a near one
	far     []int            // processes of far ranks, ascending

	broken atomic.Pointer[error] // of Inner

	gate hostheap.Gate
	gone chan struct{} // closed when Close is done

	mu    sync.Mutex
	arena *symmetric.Arena

	nbi  batch // non-blocking gets; the service's lock guards it
	late error // of a request without an answer, for Quiet; the same lock
}

// New returns a heap over Inner and the service.
//
// Collective: the ranks of a host, as it allocates all of Inner. Only after all ranks of the group
// have returned from it may one of them Alloc: the caller lets them agree that all have succeeded.
// Errors: those of Inner's Alloc; dist.ErrInvalid.
func New(cfg Config) (*Heap, error) {
	const unit = symmetric.Alignment
	if cfg.Bytes < 0 || cfg.Bytes > 1<<62 || cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return nil, fmt.Errorf("heap over hosts: %w: %d B on rank %d of %d", dist.ErrInvalid, cfg.Bytes, cfg.Rank, cfg.Size)
	}
	capacity := max((cfg.Bytes+unit-1)&^(unit-1), unit)
	arena, err := symmetric.NewArena(capacity)
	if err != nil {
		return nil, err
	}
	h := &Heap{cfg: cfg, arena: arena, gate: hostheap.NewGate(), gone: make(chan struct{}), timeout: cfg.StepTimeout}
	if h.timeout == 0 {
		h.timeout = defaultStepTimeout
	}
	if err := h.locate(); err != nil {
		return nil, err
	}
	if h.whole, err = cfg.Inner.Aligned(symmetric.MaxAlignment, capacity); err != nil {
		return nil, fmt.Errorf("heap over hosts, on this host: %w", err)
	}
	h.own = h.whole.Local().Raw()
	s := cfg.Service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("heap over hosts: the service: %w", dist.ErrClosed)
	}
	if s.heaps[cfg.ID] != nil {
		return nil, fmt.Errorf("heap over hosts: %w: heap %d exists", dist.ErrInvalid, cfg.ID)
	}
	s.heaps[cfg.ID] = h
	return h, nil
}

// locate fills the tables of ranks and processes.
func (h *Heap) locate() error {
	processes := len(h.cfg.Service.peers)
	for rank := range h.cfg.Size {
		inner, ok := h.cfg.Near(rank)
		if ok {
			h.near, h.process = append(h.near, inner), append(h.process, -1)
			for len(h.ranks) <= inner {
				h.ranks = append(h.ranks, -1)
			}
			h.ranks[inner] = rank
			continue
		}
		p := h.cfg.Process(rank)
		if p < 0 || p >= processes || rank == h.cfg.Rank {
			return fmt.Errorf("heap over hosts: %w: rank %d is in process %d of %d, and not near", dist.ErrInvalid, rank, p, processes)
		}
		h.near, h.process = append(h.near, -1), append(h.process, p)
		if !slices.Contains(h.far, p) {
			h.far = append(h.far, p)
		}
	}
	slices.Sort(h.far)
	return nil
}

// Alloc implements symmetric.Heap.
func (h *Heap) Alloc(bytes int64) (symmetric.Region, error) {
	return h.alloc("alloc", symmetric.Alignment, bytes)
}

// Calloc implements symmetric.Heap.
func (h *Heap) Calloc(count, bytes int64) (symmetric.Region, error) {
	r, err := h.alloc("calloc", symmetric.Alignment, hostheap.Product(count, bytes))
	if err != nil {
		return nil, fmt.Errorf("%d elements of %d B: %w", count, bytes, err)
	}
	return r, nil
}

// Aligned implements symmetric.Heap.
func (h *Heap) Aligned(alignment, bytes int64) (symmetric.Region, error) {
	r, err := h.alloc("aligned alloc", alignment, bytes)
	if err != nil {
		return nil, fmt.Errorf("alignment %d: %w", alignment, err)
	}
	return r, nil
}

// alloc lets the ranks agree before it checks the arguments, so that invalid ones are an error on
// every rank.
func (h *Heap) alloc(call string, alignment, bytes int64) (symmetric.Region, error) {
	off, err := int64(0), hostheap.ErrClosed
	if h.gate.Enter() {
		off, err = h.take(alignment, bytes)
		h.gate.Leave()
	}
	if err != nil {
		return nil, fmt.Errorf("%s %d B rank %d/%d: %w", call, bytes, h.cfg.Rank, h.cfg.Size, err)
	}
	return &Region{heap: h, of: &allocation{}, off: off, n: bytes}, nil
}

// take allocates on all ranks. All of them have the same result.
func (h *Heap) take(alignment, bytes int64) (off int64, err error) {
	err = h.cfg.Agree(dist.Signature{Kind: dist.KindAlloc, Count: bytes, Root: -1}, alignment, func() (err error) {
		if err := hostheap.CheckSize(alignment, bytes); err != nil {
			return err
		}
		h.mu.Lock()
		off, err = h.arena.Aligned(alignment, bytes)
		h.mu.Unlock()
		if err != nil {
			return err
		}
		clear(h.own[off : off+bytes])
		return h.cfg.Barrier() // no rank may write before it is cleared
	})
	return off, err
}

// Free implements symmetric.Heap. It contains Quiet, so that late data of this region never reaches
// the next one.
func (h *Heap) Free(r symmetric.Region) error {
	own, ok := r.(*Region)
	switch {
	case !ok || own == nil || own.heap != h:
		return fmt.Errorf("free rank %d/%d: %w", h.cfg.Rank, h.cfg.Size, symmetric.ErrNotAllocated)
	case own.slice:
		return fmt.Errorf("free rank %d/%d: a slice of a region at offset %d; free the whole: %w",
			h.cfg.Rank, h.cfg.Size, own.off, symmetric.ErrNotAllocated)
	}
	err := hostheap.ErrClosed
	if h.gate.Enter() {
		err = h.free(own)
		h.gate.Leave()
	}
	if err != nil {
		return fmt.Errorf("free of %d B at offset %d rank %d/%d: %w", own.n, own.off, h.cfg.Rank, h.cfg.Size, err)
	}
	return nil
}

func (h *Heap) free(r *Region) error {
	if !r.of.freed.CompareAndSwap(false, true) {
		return fmt.Errorf("freed before: %w", symmetric.ErrNotAllocated)
	}
	h.wake()
	flushed, agreed := h.flush(), false
	err := h.cfg.Agree(dist.Signature{Kind: dist.KindFree, Count: r.off, Root: -1}, 0, func() error {
		agreed = true
		h.mu.Lock()
		defer h.mu.Unlock()
		return errors.Join(flushed, h.arena.Free(r.off))
	})
	if !agreed {
		r.of.freed.Store(false)
	}
	return err
}

// Fence implements symmetric.Heap. Requests to a far rank are applied in order, so that only near
// ranks need it.
func (h *Heap) Fence() error {
	return h.order("fence", func() error { return h.innerError(h.cfg.Inner.Fence()) })
}

// Quiet implements symmetric.Heap: the processes of all far ranks have applied all requests.
func (h *Heap) Quiet() error {
	return h.order("quiet", func() error { return errors.Join(h.innerError(h.cfg.Inner.Quiet()), h.flush()) })
}

func (h *Heap) order(call string, do func() error) error {
	err := hostheap.ErrClosed
	if h.gate.Enter() {
		if err = h.failed(); err == nil {
			err = do()
		}
		h.gate.Leave()
	}
	if err != nil {
		return fmt.Errorf("%s rank %d/%d: %w", call, h.cfg.Rank, h.cfg.Size, err)
	}
	return nil
}

// Flush is Quiet for a barrier of the group, which its transport lets follow: it is nil for a heap
// that is closed.
func (h *Heap) Flush() error {
	if !h.gate.Enter() {
		return nil
	}
	defer h.gate.Leave()
	return h.flush()
}

// flush returns when all far processes have applied all requests, and the data of all non-blocking
// gets is here.
func (h *Heap) flush() error {
	var errs []error
	for _, peer := range h.far {
		if err := h.ask(peer); err != nil {
			return h.named(err)
		}
	}
	for _, peer := range h.far {
		if err := h.applied(peer); err != nil {
			return h.named(err)
		}
	}
	if len(h.far) > 0 {
		s := h.cfg.Service
		s.mu.Lock()
		defer s.mu.Unlock()
		errs = append(errs, h.late, h.named(h.nbi.err))
		h.late, h.nbi.err = nil, nil
	}
	return errors.Join(errs...)
}

// ask requests an acknowledgement of everything sent to peer, unless one is on its way.
func (h *Heap) ask(peer int) error {
	s := h.cfg.Service
	s.mu.Lock()
	p := s.peers[peer]
	s.mu.Unlock()
	if p.asked == p.sent {
		return nil
	}
	rank := slices.Index(h.process, peer)
	m, entry, err := h.reserve(rank, nil)
	if err != nil {
		return err
	}
	h.request(m, rank, head{verb: verbFlush, entry: entry}, 0)
	return nil
}

// Stats implements symmetric.Heap.
func (h *Heap) Stats() symmetric.Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.arena.Stats()
}

// Close implements symmetric.Heap. Requests of other ranks that arrive later are errors there. It
// closes Inner.
func (h *Heap) Close() error {
	if !h.gate.Close(h.wake) {
		<-h.gone
		return nil
	}
	defer close(h.gone)
	s := h.cfg.Service
	s.mu.Lock()
	delete(s.heaps, h.cfg.ID)
	s.abandon(&h.nbi)
	s.mu.Unlock()
	return h.cfg.Inner.Close()
}

// innerError returns the error of a call of Inner as one of this heap: without the ranks of Inner.
// A broken Inner breaks this heap, as the group may get the reason later.
func (h *Heap) innerError(err error) error {
	if err == nil {
		return nil
	}
	if failed := h.failed(); failed != nil {
		return failed
	}
	var access *symmetric.AccessError
	if errors.As(err, &access) {
		err = access.Err
	}
	var died *dist.RankError
	switch {
	case errors.As(err, &died) && died.Rank < len(h.ranks):
		err = &dist.RankError{Rank: h.ranks[died.Rank], Host: died.Host, How: died.How}
	case !errors.Is(err, dist.ErrAborted):
		return err
	case h.cfg.Reason != nil:
		err = h.cfg.Reason(err)
	}
	h.broken.CompareAndSwap(nil, &err)
	return err
}

// failed returns why the group or Inner is broken, or nil.
func (h *Heap) failed() error {
	if err := h.cfg.Failed(); err != nil {
		return err
	}
	if err := h.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// none returns an empty buffer.
func none() tensor.Buffer { return tensor.Of([]byte(nil)).Untyped() }

// allocation is the state that a region shares with its slices.
type allocation struct {
	freed atomic.Bool
}
