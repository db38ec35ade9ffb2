package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// BeginCapture makes the stream record later work instead of running it, until EndCapture. Streams
// that wait for one of its events join the capture, and s must wait for them before the end. Other
// threads may use the driver meanwhile.
//
// The recorded work keeps its addresses, and a copy of its kernel arguments. Calls that wait fail
// on a stream in capture. Errors: *Error, ErrClosed.
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

// EndCapture returns the work queued since BeginCapture as a graph. The stream then runs its work
// again, also after an error.
//
// Owns: the caller closes the graph. Errors: *Error if some work could not be captured; ErrClosed.
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

// Capture returns the work that queue queues on s, and on streams that join it, as a graph.
//
// Owns: the caller closes the graph. Errors: queue's; *Error, ErrClosed. After an error there is no
// graph.
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

// Capturing reports whether the stream is in a capture, its own or one that it joined. Errors:
// *Error, ErrClosed.
func (s *Stream) Capturing() (bool, error) {
	h := s.h.Load()
	if h == 0 {
		return false, errStreamClosed
	}
	var status int32
	err := s.v.inside("cuStreamIsCapturing", func() int32 { return s.v.d.api.capturing(h, &status) })
	return status != captureNone, err
}

// Recording is Capturing without a call of the driver. It covers streams in their own capture, not
// those that joined one.
func (s *Stream) Recording() bool { return s.recording.Load() }

// Captured returns the number of operations in the graph that the stream captures, including joined
// streams; 0 outside of a capture. Errors: *Error, ErrClosed.
func (s *Stream) Captured() (int, error) {
	graph, err := s.capturedGraph(nil, nil)
	if err != nil || graph == 0 {
		return 0, err
	}
	var n uint64
	err = s.v.inside("cuGraphGetNodes", func() int32 { return s.v.d.api.graphNodes(graph, 0, &n) })
	return int(n), err
}

// capturedGraph returns the graph that the stream captures, or 0. It sets the n nodes that the next
// operation depends on.
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

// newest returns the kernel that the next operation of the stream in capture depends on; 0 if that
// is not exactly one kernel.
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

// WaitBegun makes the next operation captured on s wait until all blocks of of's last captured
// kernel have started. of captures into the same graph. It is meant for a kernel of higher
// priority, whose start must not wait for multiprocessors that the next operation of s would
// occupy. The device may be stricter: an operation with further dependencies may wait for the
// kernel's end.
//
// Returns: false if not possible: of does not capture, its last operation is no kernel, or the
// driver is older than CUDA 12.3. Errors: *Error, ErrClosed.
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

// Nodes returns the number of kernels, copies, fills and other operations. Errors: *Error,
// ErrClosed.
func (g *Graph) Nodes() (int, error) {
	h := g.h.Load()
	if h == 0 {
		return 0, errGraphClosed
	}
	var n uint64
	err := g.v.inside("cuGraphGetNodes", func() int32 { return g.v.d.api.graphNodes(h, 0, &n) })
	return int(n), err
}

// errGraphClosed is allocated once, because the hot path returns it.
var errGraphClosed = fmt.Errorf("cuda: the graph: %w", ErrClosed)

// useNodePriority is CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: kernels keep the priorities of
// the streams on which they were captured. Without it all have the priority of the launching
// stream.
const useNodePriority = 8

// Instantiate returns an executable copy of the graph for any number of launches; the graph may
// then be closed.
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

// GraphExec is an executable graph. Launches of one GraphExec run one after another.
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
	if h > streamPerThread && !d.closed.Load() && d.api.graphLaunch.Status2(exec, h) == success { // s.call with fewer nested calls
		return nil
	}
	return s.call(&d.api.graphLaunch, "cuGraphLaunch", exec, h) // safe: a rejected call had no effect
}

// Upload prepares the graph on the device of s; otherwise the first Launch does. Errors: *Error,
// ErrClosed.
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

// Close frees it, after queued launches have run. Idempotent. Errors: *Error.
func (x *GraphExec) Close() error {
	h := x.h.Swap(0)
	if h == 0 {
		return nil
	}
	return x.v.release("cuGraphExecDestroy", func() int32 { return x.v.d.api.execDestroy(h) })
}
