package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// BeginCapture makes the stream note what is queued from here on, instead of running it, until
// EndCapture. Streams that wait for an event of it join in, and must be joined again before the
// end. Other threads may use the driver meanwhile.
//
// What is noted keeps the addresses it was given, and the arguments of kernels as they are now.
// Calls that wait are refused on a stream that captures. Errors: *Error, ErrClosed.
func (s *Stream) BeginCapture() error {
	h := s.h.Load()
	if h == 0 {
		return errStreamClosed
	}
	err := s.v.inside("cuStreamBeginCapture_v2", func() int32 { return s.v.d.api.captureBegin(h, captureRelaxed) })
	if err == nil {
		s.recording.Store(true)
	}
	return err
}

// EndCapture is what was queued since BeginCapture. The stream runs what is queued again, also
// after an error.
//
// Owns: the caller closes the graph. Errors: *Error, where something could not be captured;
// ErrClosed.
func (s *Stream) EndCapture() (*Graph, error) {
	h := s.h.Load()
	if h == 0 {
		return nil, errStreamClosed
	}
	g := &Graph{v: s.v}
	var graph uintptr
	s.recording.Store(false)
	err := s.v.inside("cuStreamEndCapture", func() int32 { return s.v.d.api.captureEnd(h, &graph) })
	g.h.Store(graph)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Capture is what queue queues on s, and on streams that join it, as a graph, between BeginCapture
// and EndCapture.
//
// Owns: the caller closes the graph. Errors: queue's, and then there is no graph; *Error,
// ErrClosed.
func (s *Stream) Capture(queue func() error) (*Graph, error) {
	if err := s.BeginCapture(); err != nil {
		return nil, err
	}
	failed := queue()
	g, err := s.EndCapture()
	if err = errors.Join(failed, err); err != nil {
		if g != nil {
			err = errors.Join(err, g.Close())
		}
		return nil, err
	}
	return g, nil
}

// Capturing reports whether the stream is between BeginCapture and EndCapture, or joined one that
// is. Errors: *Error, ErrClosed.
func (s *Stream) Capturing() (bool, error) {
	h := s.h.Load()
	if h == 0 {
		return false, errStreamClosed
	}
	var status int32
	err := s.v.inside("cuStreamIsCapturing", func() int32 { return s.v.d.api.capturing(h, &status) })
	return status != captureNone, err
}

// Recording is Capturing without asking the driver, of streams that BeginCapture was called for,
// not of those that joined.
func (s *Stream) Recording() bool { return s.recording.Load() }

// Captured is how many operations the graph has that the stream captures, with those of streams
// that joined; 0 where it captures none. Errors: *Error, ErrClosed.
func (s *Stream) Captured() (int, error) {
	graph, err := s.capturedGraph(nil, nil)
	if err != nil || graph == 0 {
		return 0, err
	}
	var n uint64
	err = s.v.inside("cuGraphGetNodes", func() int32 { return s.v.d.api.graphNodes(graph, 0, &n) })
	return int(n), err
}

// capturedGraph is the graph that the stream captures, 0 for none, and the n nodes behind which
// what comes next is.
func (s *Stream) capturedGraph(nodes *unsafe.Pointer, n *uint64) (graph uintptr, err error) {
	h := s.h.Load()
	if h == 0 {
		return 0, errStreamClosed
	}
	var status int32
	var id uint64
	err = s.v.inside("cuStreamGetCaptureInfo_v2", func() int32 { return s.v.d.api.captureInfo(h, &status, &id, &graph, nodes, n) })
	if status != captureActive {
		return 0, err
	}
	return graph, err
}

// newest is the kernel behind which the next operation comes of a stream that captures; 0 where
// that is none, or more than one.
func (s *Stream) newest() (uintptr, error) {
	var nodes unsafe.Pointer
	var n uint64
	graph, err := s.capturedGraph(&nodes, &n)
	if err != nil || graph == 0 || n != 1 {
		return 0, err
	}
	node, kind := *(*uintptr)(nodes), int32(0)
	err = s.v.inside("cuGraphNodeGetType", func() int32 { return s.v.d.api.nodeType(node, &kind) })
	if err != nil || kind != nodeKernel {
		return 0, err
	}
	return node, nil
}

// WaitBegun makes what is captured on s from here on wait until all blocks of the kernel have begun
// that of, which captures into the same graph, has captured last. It is for a kernel of greater
// priority, which must not wait for multiprocessors that the next operation of s would take. The
// device does what it can: one that waits for the ends of others besides may wait for the end of
// this one.
//
// Returns: false where that cannot be said: of does not capture, or has captured no kernel last; a
// driver before CUDA 12.3. Errors: *Error, ErrClosed.
func (s *Stream) WaitBegun(of *Stream) (bool, error) {
	h := s.h.Load()
	if h == 0 {
		return false, errStreamClosed
	}
	node, err := of.newest()
	alter := s.v.d.api.captureAlter
	if err != nil || node == 0 || alter == nil {
		return false, err
	}
	edge := edgeData{portBegun}
	err = s.v.inside("cuStreamUpdateCaptureDependencies_v2", func() int32 { return alter(h, &node, &edge, 1, captureAdd) })
	return err == nil, err
}

// Graph is captured work. It is not safe for concurrent use.
type Graph struct {
	v *Device
	h atomic.Uintptr // CUgraph; 0 when closed
}

// Nodes is the number of kernels, copies, fills and other operations. Errors: *Error, ErrClosed.
func (g *Graph) Nodes() (int, error) {
	h := g.h.Load()
	if h == 0 {
		return 0, errGraphClosed
	}
	var n uint64
	err := g.v.inside("cuGraphGetNodes", func() int32 { return g.v.d.api.graphNodes(h, 0, &n) })
	return int(n), err
}

// errGraphClosed is made once, because the hot path returns it.
var errGraphClosed = fmt.Errorf("cuda: the graph: %w", ErrClosed)

// useNodePriority is CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: kernels keep the priorities of
// the streams on which they were captured. Without it all have that of the stream that launches the
// graph.
const useNodePriority = 8

// Instantiate makes of the graph what can be launched, any number of times; the graph itself may be
// closed then.
//
// Owns: the caller closes it. Errors: *Error, ErrClosed.
func (g *Graph) Instantiate() (*GraphExec, error) {
	return g.instantiate(useNodePriority)
}

func (g *Graph) instantiate(flags uint64) (*GraphExec, error) {
	h := g.h.Load()
	if h == 0 {
		return nil, errGraphClosed
	}
	var exec uintptr
	if err := g.v.inside("cuGraphInstantiateWithFlags", func() int32 { return g.v.d.api.graphInst(&exec, h, flags) }); err != nil {
		return nil, err
	}
	x := &GraphExec{v: g.v}
	x.h.Store(exec)
	return x, nil
}

// Close frees the graph. Idempotent. Errors: *Error.
func (g *Graph) Close() error {
	h := g.h.Swap(0)
	if h == 0 {
		return nil
	}
	return g.v.inside("cuGraphDestroy", func() int32 { return g.v.d.api.graphDestroy(h) })
}

// GraphExec is a graph that can be launched. Launches of one GraphExec run one after another.
type GraphExec struct {
	v *Device
	h atomic.Uintptr // CUgraphExec; 0 when closed
}

// Launch queues the whole graph on s as one operation. It allocates nothing. Errors: *Error,
// ErrClosed.
func (x *GraphExec) Launch(s *Stream) error {
	exec, h := x.h.Load(), s.h.Load()
	switch {
	case exec == 0:
		return errGraphClosed
	case h == 0:
		return errStreamClosed
	}
	d := x.v.d
	if h > streamPerThread && !d.closed.Load() && d.api.graphLaunch.Status2(exec, h) == success { // s.call, with few functions on the way back
		return nil
	}
	return s.call(&d.api.graphLaunch, "cuGraphLaunch", exec, h) // what was refused has not begun
}

// Upload gets the graph ready on the device of s, which otherwise the first Launch does. Errors:
// *Error, ErrClosed.
func (x *GraphExec) Upload(s *Stream) error {
	exec, h := x.h.Load(), s.h.Load()
	switch {
	case exec == 0:
		return errGraphClosed
	case h == 0:
		return errStreamClosed
	}
	return x.v.inside("cuGraphUpload", func() int32 { return x.v.d.api.graphUpload(exec, h) })
}

// Close frees it, once launches that are queued have run. Idempotent. Errors: *Error.
func (x *GraphExec) Close() error {
	h := x.h.Swap(0)
	if h == 0 {
		return nil
	}
	return x.v.release("cuGraphExecDestroy", func() int32 { return x.v.d.api.execDestroy(h) })
}
