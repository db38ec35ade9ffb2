package farheap_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/net/farheap"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
)

// layout returns the host of a rank.
type layout func(rank int) int

var layouts = map[string]layout{
	"2x2":         func(rank int) int { return rank / 2 },
	"1+3":         func(rank int) int { return min(rank, 1) },
	"3x1":         func(rank int) int { return rank },
	"interleaved": func(rank int) int { return rank % 2 },
}

// job is a world over hosts in one process. Collectives of the world are those of a simulated world
// over all ranks; each host has a simulated world for its near heaps.
type job struct {
	host     layout
	cfg      sim.Config
	net      *fake.Network
	wires    []*fake.End
	services []*farheap.Service
	ends     []*end // by rank, of the world

	mu     sync.Mutex
	groups map[string]*members
	heaps  uint32

	open    atomic.Int32 // world ends
	stop    chan struct{}
	drivers sync.WaitGroup
}

// members is a group, seen from outside.
type members struct {
	ids  []uint32 // of its heaps, in order
	left int      // ranks that have closed it
}

// end is one rank's transport.
type end struct {
	dist.Transport // over all ranks
	job            *job
	inner          dist.Transport
	key            string // of the group
	stream         *dist.HostStream
	lost           atomic.Pointer[dist.RankError]

	mu     sync.Mutex
	heaps  []*farheap.Heap
	made   int
	splits int
	closed bool
}

func newJob(t *testing.T, n int, host layout, cfg sim.Config, wires fake.Config) *job {
	t.Helper()
	j := &job{host: host, cfg: cfg, groups: map[string]*members{}, stop: make(chan struct{}), services: make([]*farheap.Service, n)}
	wires.OnLost = func(rank int) func(int, string) {
		return func(peer int, how string) { j.lose(rank, peer, how) }
	}
	j.net, j.wires = fake.New(n, wires)
	outer, err := sim.Transports(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	near := cfg
	near.Script = ""
	j.open.Store(int32(n))
	j.ends = make([]*end, n)
	for h := range n {
		var ranks []int
		for r := range n {
			if host(r) == h {
				ranks = append(ranks, r)
			}
		}
		if len(ranks) == 0 {
			continue
		}
		inner, err := sim.Transports(len(ranks), near)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range ranks {
			j.ends[r] = &end{Transport: outer[r], job: j, inner: inner[i], key: "world", stream: dist.NewHostStream()}
		}
	}
	for r := range n {
		if j.services[r], err = farheap.NewService(j.wires[r], farheap.ServiceConfig{Tag: 7}); err != nil {
			t.Fatal(err)
		}
	}
	for r := range n {
		j.drivers.Go(func() { j.drive(r) })
	}
	return j
}

// drive is the progress goroutine of a process.
func (j *job) drive(rank int) {
	var pause wire.Backoff
	for {
		select {
		case <-j.stop:
			return
		default:
		}
		moved := j.wires[rank].Progress()
		if j.services[rank].Progress() || moved {
			pause.Reset()
			continue
		}
		pause.Pause()
	}
}

// lose breaks the world on one rank: peer is gone.
func (j *job) lose(rank, peer int, how string) {
	j.services[rank].Lost(peer, how)
	j.ends[rank].lost.CompareAndSwap(nil, &dist.RankError{Rank: peer, How: how})
}

// group returns the state that the ranks of a group share; the lock is held.
func (j *job) group(key string) *members {
	if j.groups[key] == nil {
		j.groups[key] = &members{}
	}
	return j.groups[key]
}

// id returns the number of heap nth of a group.
func (j *job) id(key string, nth int) uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	g := j.group(key)
	for len(g.ids) <= nth {
		g.ids = append(g.ids, j.heaps)
		j.heaps++
	}
	return g.ids[nth]
}

// Broken implements the optional method of a transport.
func (e *end) Broken() error {
	if err := e.Transport.(interface{ Broken() error }).Broken(); err != nil {
		return err
	}
	if lost := e.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// Start implements dist.Transport: a barrier completes the one-sided calls.
func (e *end) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	barrier := op.Kind == dist.KindBarrier
	for i := range op.Ops {
		barrier = barrier || op.Ops[i].Kind == dist.KindBarrier
	}
	if barrier {
		e.mu.Lock()
		heaps := slices.Clone(e.heaps)
		e.mu.Unlock()
		for _, h := range heaps {
			if err := h.Flush(); err != nil && e.Broken() == nil {
				return dist.Work{}, err
			}
		}
	}
	return e.Transport.Start(op, s)
}

// Split implements dist.Transport.
func (e *end) Split(color, key int) (dist.Transport, error) {
	outer, err := e.Transport.Split(color, key)
	if err != nil {
		return nil, err
	}
	inner, err := e.inner.Split(color, key)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.splits++
	name := fmt.Sprintf("%s/%d.%d", e.key, e.splits, color)
	e.mu.Unlock()
	if outer == nil {
		return nil, nil
	}
	return &end{Transport: outer, job: e.job, inner: inner, key: name, stream: dist.NewHostStream()}, nil
}

// Heap implements dist.Transport. The heap of the world over all ranks agrees on allocations; its
// memory is unused.
func (e *end) Heap(bytes int64) (symmetric.Heap, error) {
	agreed, err := e.Transport.Heap(bytes)
	if err != nil {
		return nil, err
	}
	inner, err := e.inner.Heap(bytes)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	nth := e.made
	e.made++
	e.mu.Unlock()
	info := e.Info()
	regions := map[int64]symmetric.Region{}
	h, err := farheap.New(farheap.Config{
		Service: e.job.services[info.Ranks[info.Rank]], ID: e.job.id(e.key, nth), Bytes: bytes, Inner: inner,
		Rank: info.Rank, Size: info.Size,
		Near:    func(rank int) (int, bool) { return e.near(info, rank) },
		Process: func(rank int) int { return info.Ranks[rank] },
		Failed:  e.Broken, Alone: func() error { return e.alone(info) }, Barrier: e.sync, StepTimeout: e.job.cfg.StepTimeout,
		Agree: func(sig dist.Signature, alignment int64, do func() error) error {
			if sig.Kind == dist.KindFree {
				if err := agreed.Free(regions[sig.Count]); err != nil {
					return err
				}
				return do()
			}
			r, err := agreed.Aligned(alignment, sig.Count)
			if err != nil {
				return err
			}
			regions[r.Offset()] = r
			return do()
		},
	})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.heaps = append(e.heaps, h)
	e.mu.Unlock()
	return h, e.sync()
}

// near returns the rank in the near group of a rank of the group.
func (e *end) near(info dist.Info, rank int) (int, bool) {
	host := e.job.host(info.Ranks[info.Rank])
	if e.job.host(info.Ranks[rank]) != host {
		return 0, false
	}
	inner := 0
	for _, world := range info.Ranks[:rank] {
		if e.job.host(world) == host {
			inner++
		}
	}
	return inner, true
}

// sync waits for all ranks of the group.
func (e *end) sync() error {
	w, err := e.Transport.Start(dist.Op{Kind: dist.KindSync, Root: -1}, e.stream)
	if err != nil {
		return err
	}
	return w.Wait()
}

// alone reports that all other ranks have closed the group.
func (e *end) alone(info dist.Info) error {
	e.job.mu.Lock()
	defer e.job.mu.Unlock()
	if info.Size > 1 && e.job.group(e.key).left == info.Size-1 {
		return fmt.Errorf("all other ranks have closed their ends: %w", dist.ErrClosed)
	}
	return nil
}

// Close implements dist.Transport. The last one of the world ends the progress of all.
func (e *end) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	err := errors.Join(e.Transport.Close(), e.inner.Close(), e.stream.Close())
	e.job.mu.Lock()
	e.job.group(e.key).left++
	e.job.mu.Unlock()
	if e.key == "world" && e.job.open.Add(-1) == 0 {
		close(e.job.stop)
		e.job.drivers.Wait()
		for r, s := range e.job.services {
			err = errors.Join(err, s.Close(), e.job.wires[r].Close())
		}
	}
	return err
}

// worlds returns the worlds of a job's ranks.
func (j *job) worlds(t *testing.T) []*dist.World {
	t.Helper()
	worlds := make([]*dist.World, len(j.ends))
	for r, e := range j.ends {
		var err error
		if worlds[r], err = dist.NewWorld(e, dist.LocalInfo{Rank: r, Size: len(j.ends), Launcher: "none", Job: "farheap"}, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	return worlds
}

// on returns the Launch of a layout.
func on(host layout) conformance.Launch {
	return func(t *testing.T, n int, opt conformance.LaunchOptions, body func(w *dist.World) error) {
		t.Helper()
		cfg := sim.Config{StepTimeout: opt.StepTimeout}
		if opt.Die != nil {
			cfg.Script = fmt.Sprintf("die rank=%d op=%d", opt.Die.Rank, opt.Die.Op)
		}
		conformance.Drive(t, newJob(t, n, host, cfg, fake.Config{}).worlds(t), body)
	}
}
