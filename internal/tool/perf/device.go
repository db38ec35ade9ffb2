package perf

import (
	"fmt"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Device accesses the devices that have the buffers of groups. Copies are done when they return.
type Device interface {
	// Alloc returns bytes bytes (u8) on dev, at a multiple of 256.
	Alloc(dev tensor.Device, bytes int64) (tensor.Buffer, error)
	// Free frees b, a buffer of Alloc.
	Free(b tensor.Buffer) error
	// Write copies src to the beginning of b, which has at least its length.
	Write(b tensor.Buffer, src []byte) error
	// Read copies the beginning of b to dst.
	Read(dst []byte, b tensor.Buffer) error
	// Name returns the name of dev for users: "NVIDIA H200 [0000:1b:00.0]".
	Name(dev tensor.Device) (string, error)
	// LaunchTime returns the host's time to queue a repeated empty launch on s: the least cost of
	// an operation for its caller. 0 if the device cannot measure it.
	LaunchTime(s dist.Stream) (time.Duration, error)
	// NewTimer returns a timer of work on s. The caller closes it.
	NewTimer(s dist.Stream) (Timer, error)
	// Capture returns a graph of the work that issue queues on s, without running it. The caller
	// closes it.
	Capture(s dist.Stream, issue func() error) (Graph, error)
}

// Timer measures between two marks on a stream.
type Timer interface {
	// Start sets the first mark after all queued work.
	Start() error
	// Stop sets the second.
	Stop() error
	// Elapsed returns the device's time between the marks, which the stream has passed.
	Elapsed() (time.Duration, error)
	// Close frees the timer.
	Close() error
}

// Graph is captured work.
type Graph interface {
	// Launch queues all of it on the stream that it was captured from.
	Launch() error
	// Close frees the graph, which must not be running.
	Close() error
}

// Target is one implementation of the operations, with rows of its own.
type Target struct {
	Engine  string      // name in rows; "" for a single one
	Group   *dist.Group // a group with the same ranks and devices; nil means the world's
	Missing string      // reason for a missing group, on all ranks; rows then have it
}

// Setup has the device and the targets of a measurement. The zero Setup is the world itself, on the
// host.
type Setup struct {
	Device  Device   // accesses the groups' buffers; nil for buffers of the host
	Targets []Target // measured one after the other at each size; none means the world's group
	MaxCTAs int      // most thread blocks of an operation, to record: the world was opened with it
}

func (s Setup) targets() []Target {
	if len(s.Targets) == 0 {
		return []Target{{}}
	}
	return s.Targets
}

func (s Setup) engines() []string {
	var names []string
	for _, t := range s.Targets {
		if t.Engine != "" {
			names = append(names, t.Engine)
		}
	}
	return names
}

// check reports settings that do not fit a group of dev.
//
// Errors: dist.ErrUnsupported, dist.ErrInvalid.
func (s Setup) check(cfg Config, dev tensor.Device) error {
	switch {
	case s.Device == nil && dev != tensor.Host:
		return fmt.Errorf("bench: buffers on %v: %w: this measurement has no Device for them", dev, dist.ErrUnsupported)
	case s.Device == nil && cfg.Graph > 0:
		return fmt.Errorf("bench: %w: graphs need a device, but the group is on %v", dist.ErrUnsupported, dev)
	case s.Device == nil:
		return nil
	case cfg.Fresh:
		return fmt.Errorf("bench: %w: fresh buffers are for the host, whose caches matter", dist.ErrUnsupported)
	case cfg.Graph > 0 && cfg.Style == OSU:
		return fmt.Errorf("bench: %w: a graph has its operations back to back: leave style %s out", dist.ErrInvalid, OSU)
	case cfg.Graph > 0 && slices.ContainsFunc(cfg.Ops, func(op Op) bool { return op.trait().oneSide }):
		return fmt.Errorf("bench: %w: graphs are for collectives, not for one-sided operations", dist.ErrUnsupported)
	}
	return nil
}

// Numbers of iterations on a device: the operations of a row should take deviceTime in all, at the
// rate deviceRate of a fast link.
const (
	deviceTime = 5 * time.Millisecond
	deviceRate = 250e9 // bytes in a second
	deviceStep = 8e-6  // seconds of the shortest operation
)

// deviceIters returns the number of timed iterations of a case on a device, or in one launch of a
// graph.
func (c Config) deviceIters(bytes int64) int {
	n := int(deviceTime.Seconds() / (deviceStep + float64(bytes)/deviceRate))
	if c.Graph > 0 {
		return min(max(n/c.Graph, 5), 100)
	}
	return min(max(n, 10), 1000)
}

// issuer queues one iteration of a case without waiting for it.
type issuer func() error

// queued drops the Work of an operation that is not waited for by itself.
func queued(_ dist.Work, err error) error { return err }

// newIssuer returns the queued iteration of case c on the buffers of l.
func newIssuer(c Case, g *dist.Group, l *layout) issuer {
	dst, src, red, root := l.dst, l.src, l.red, c.Root
	switch c.Op {
	case AllReduce:
		return func() error { return queued(g.AllReduce(dst, src, red)) }
	case Reduce:
		return func() error { return queued(g.Reduce(dst, src, red, root)) }
	case Broadcast:
		return func() error { return queued(g.Broadcast(dst, src, root)) }
	case AllGather:
		return func() error { return queued(g.AllGather(dst, src)) }
	case ReduceScatter:
		return func() error { return queued(g.ReduceScatter(dst, src, red)) }
	case AllToAll:
		return func() error { return queued(g.AllToAll(dst, src)) }
	case Gather:
		return func() error { return queued(g.Gather(dst, src, root)) }
	case Scatter:
		return func() error { return queued(g.Scatter(dst, src, root)) }
	case SendRecv:
		exchange := sendAndReceive(g, dst, src)
		return func() error { return queued(g.Batch(exchange)) }
	}
	return func() error { return queued(g.Barrier()) }
}

// back times all iterations of c on the device, queued back to back, or in launches of a graph.
//
// Returns: the mean time of an operation on this rank.
func (r *rig) back(c Case, l *layout) (times, error) {
	stream := r.g.Stream()
	issue := newIssuer(c, r.view(c), l)
	run, n, done, err := r.runner(c, issue)
	if err != nil {
		return times{}, err
	}
	defer done()
	if err := stream.Synchronize(); err != nil {
		return times{}, err
	}
	if err := r.barrier(); err != nil {
		return times{}, err
	}
	// One untimed iteration, so that ranks meet on the device. Otherwise the delay of a late rank,
	// and of the first launch, would be part of the times.
	if err := run(); err != nil {
		return times{}, err
	}
	if err := r.timer.Start(); err != nil {
		return times{}, err
	}
	host, err := issueAll(run, n.launches)
	if err != nil {
		return times{}, err
	}
	if err := r.timer.Stop(); err != nil {
		return times{}, err
	}
	if err := stream.Synchronize(); err != nil { // ends when a peer dies, unlike the timer
		return times{}, err
	}
	took, err := r.timer.Elapsed()
	mean := float64(took.Nanoseconds()) / float64(n.launches*n.each)
	if r.cfg.Graph > 0 {
		host = 0 // a launch has many operations
	}
	return times{mean, mean, mean, mean, host}, err
}

// mostWaiting is a number of operations that a stream takes without making the caller wait. The
// driver makes it wait at some thousand, a group at 128 if one of them is NVSHMEM's.
const mostWaiting = 100

// issueAll queues n times. Returns: the host's nanoseconds for each of the first ones, before the
// stream may be full.
func issueAll(run issuer, n int) (host float64, err error) {
	first := min(n, mostWaiting)
	began := time.Now()
	for i := range n {
		if err := run(); err != nil {
			return 0, err
		}
		if i+1 == first {
			host = float64(time.Since(began).Nanoseconds()) / float64(first)
		}
	}
	return host, nil
}

// launches is the number of launches, and of operations in each.
type launches struct{ launches, each int }

// runner returns the function that back times: issue itself, or the launch of a graph of it. Both
// are warmed up, with work still queued. Returns: done frees it.
func (r *rig) runner(c Case, issue issuer) (run issuer, n launches, done func(), err error) {
	iters := r.cfg.iters(c)
	warm := r.cfg.warmup(c)
	if r.cfg.Graph > 0 {
		warm = min(warm, 5) // the launch below is a warm-up as well
	}
	for range warm {
		if err := issue(); err != nil {
			return nil, launches{}, nil, err
		}
	}
	if r.cfg.Graph == 0 {
		return issue, launches{iters, 1}, func() {}, nil
	}
	stream := r.g.Stream()
	if err := stream.Synchronize(); err != nil {
		return nil, launches{}, nil, err
	}
	graph, err := r.dev.Capture(stream, func() error {
		for range iters {
			if err := issue(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, launches{}, nil, fmt.Errorf("capture %d operations: %w", iters, err)
	}
	free := func() { _ = graph.Close() } // the measurement is valid even so
	if err := graph.Launch(); err != nil {
		free()
		return nil, launches{}, nil, err
	}
	return graph.Launch, launches{r.cfg.Graph, iters}, free, nil
}

// slowest returns the times of the slowest rank, as nccl-tests -a 3: programs wait for that rank.
func slowest(ranks []times) times {
	most, host := 0.0, 0.0
	for _, t := range ranks {
		most, host = max(most, t.mean), max(host, t.host)
	}
	return times{most, most, most, most, host}
}
