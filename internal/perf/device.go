package perf

import (
	"fmt"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Device is what a measurement needs of the devices on which the buffers of groups lie. Copies are
// done when they return.
type Device interface {
	// Alloc is bytes bytes (u8) on dev, at a multiple of 256.
	Alloc(dev tensor.Device, bytes int64) (tensor.Buffer, error)
	// Free gives b back, as Alloc gave it.
	Free(b tensor.Buffer) error
	// Write copies src to the beginning of b, which is as long at least.
	Write(b tensor.Buffer, src []byte) error
	// Read copies the beginning of b to dst.
	Read(dst []byte, b tensor.Buffer) error
	// Name is what people call dev: "NVIDIA H200 [0000:1b:00.0]".
	Name(dev tensor.Device) (string, error)
	// LaunchTime is how long the host takes to queue work that does nothing on s, as what comes
	// again is queued: the least that an operation can cost its caller there. 0 where the device
	// cannot tell.
	LaunchTime(s dist.Stream) (time.Duration, error)
	// NewTimer is a timer of what is queued on s. The caller closes it.
	NewTimer(s dist.Stream) (Timer, error)
	// Capture is a graph of what issue queues on s, which is not run, and on which nothing waits to
	// be run. The caller closes it.
	Capture(s dist.Stream, issue func() error) (Graph, error)
}

// Timer is two marks on a stream.
type Timer interface {
	// Start sets the first mark behind what is queued so far.
	Start() error
	// Stop sets the second.
	Stop() error
	// Elapsed is the device's time between the marks. The stream is past them.
	Elapsed() (time.Duration, error)
	// Close frees the timer.
	Close() error
}

// Graph is captured work.
type Graph interface {
	// Launch queues it all on the stream that it was captured from.
	Launch() error
	// Close frees the graph. It does not run any more.
	Close() error
}

// Target is one way to do the operations, of which rows tell.
type Target struct {
	Engine  string      // what rows call it; "" where there is only one
	Group   *dist.Group // that has it, of the same ranks on the same devices; nil means the world's
	Missing string      // why it is not there, on all ranks alike; then there is no group, and rows say so
}

// Setup is what is measured besides the settings. The zero Setup is the world itself, on the host.
type Setup struct {
	Device  Device   // that reaches the groups' buffers by copies; nil for those of the host
	Targets []Target // measured one after the other at each size; none means the world's group
	MaxCTAs int      // most thread blocks of an operation, for the record: the world has been opened with it
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

// check reports what does not go together on a group of dev.
//
// Errors: dist.ErrUnsupported, dist.ErrInvalid.
func (s Setup) check(cfg Config, dev tensor.Device) error {
	switch {
	case s.Device == nil && dev != tensor.Host:
		return fmt.Errorf("bench: buffers on %v: %w: this measurement was not told how to reach them", dev, dist.ErrUnsupported)
	case s.Device == nil && cfg.Graph > 0:
		return fmt.Errorf("bench: %w: graphs belong to devices, and the group is on %v", dist.ErrUnsupported, dev)
	case s.Device == nil:
		return nil
	case cfg.Fresh:
		return fmt.Errorf("bench: %w: fresh buffers are for the host, whose caches matter", dist.ErrUnsupported)
	case cfg.Graph > 0 && cfg.Style == OSU:
		return fmt.Errorf("bench: %w: a graph has its operations back to back: leave style %s out", dist.ErrInvalid, OSU)
	case cfg.Graph > 0 && slices.ContainsFunc(cfg.Ops, func(op Op) bool { return op.trait().oneSide }):
		return fmt.Errorf("bench: %w: graphs are of collectives, not of operations of one side", dist.ErrUnsupported)
	}
	return nil
}

// deviceTime is how long the operations of one row should take together on a device, and deviceRate
// what a fast link carries: together they give the number of iterations, the more the shorter one
// is.
const (
	deviceTime = 5 * time.Millisecond
	deviceRate = 250e9 // bytes in a second
	deviceStep = 8e-6  // seconds of the shortest operation
)

// deviceIters is how many iterations of a case are timed on a device, and in one launch of a graph.
func (c Config) deviceIters(bytes int64) int {
	n := int(deviceTime.Seconds() / (deviceStep + float64(bytes)/deviceRate))
	if c.Graph > 0 {
		return min(max(n/c.Graph, 5), 100)
	}
	return min(max(n, 10), 1000)
}

// issuer queues one iteration of a case and does not wait for it.
type issuer func() error

// queued is the error of an operation that was, or was not, queued: its Work is not waited for by
// itself.
func queued(_ dist.Work, err error) error { return err }

// newIssuer is the queued iteration of case c on the buffers of l.
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
// Returns: the time of one. The same on all ranks but for what they measured.
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
	// One that is not timed, so that ranks meet on the device: what one of them comes later by than
	// the others would be a part of their times, and so would be how long the first launch takes to
	// get there.
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
	if err := stream.Synchronize(); err != nil { // which ends when a peer dies; the timer would not
		return times{}, err
	}
	took, err := r.timer.Elapsed()
	mean := float64(took.Nanoseconds()) / float64(n.launches*n.each)
	if r.cfg.Graph > 0 {
		host = 0 // of a launch of many operations
	}
	return times{mean, mean, mean, mean, host}, err
}

// mostWaiting is how many operations wait in a stream before those who queue more wait, for the
// driver or, behind 128 with one of NVSHMEM's, for the group, with room to spare.
const mostWaiting = 100

// issueAll queues n times, and tells how long the host took for each of the first, until the stream
// may be full: nanoseconds.
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

// launches is how often something is queued, and how many operations it is.
type launches struct{ launches, each int }

// runner is what back times: issue itself, or the launch of a graph of it; both have been warmed
// up, and are queued. Returns: done frees it.
func (r *rig) runner(c Case, issue issuer) (run issuer, n launches, done func(), err error) {
	iters := r.cfg.iters(c)
	warm := r.cfg.warmup(c)
	if r.cfg.Graph > 0 {
		warm = min(warm, 5) // the first launch is one as well
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
	free := func() { _ = graph.Close() } // what was measured stays true
	if err := graph.Launch(); err != nil {
		free()
		return nil, launches{}, nil, err
	}
	return graph.Launch, launches{r.cfg.Graph, iters}, free, nil
}

// slowest is the times of the slowest rank: those that nccl-tests prints with -a 3, which is what a
// program waits for.
func slowest(ranks []times) times {
	most, host := 0.0, 0.0
	for _, t := range ranks {
		most, host = max(most, t.mean), max(host, t.host)
	}
	return times{most, most, most, most, host}
}
