package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// Launch is the configuration of a launch.
type Launch struct {
	Grid, Block [3]uint32 // blocks, and threads of a block, in x, y and z; 0 means 1
	Shared      uint32    // bytes of dynamic shared memory of a block
	Together    bool      // all blocks run at the same time, else an error (a cooperative launch)
	// Early lets the kernel start before the previous kernel of the stream has ended: once all of
	// that kernel's blocks allow it (griddepcontrol.launch_dependents) or have ended. The new
	// kernel waits for that end itself before it touches memory (griddepcontrol.wait). It starts
	// after the end of other operations and events. Ignored before compute capability 9.0, and with
	// Together.
	Early bool
}

// Launch queues the kernel on s, a stream of its device, with args, which may be nil. It allocates
// nothing.
//
// Owns: args may change when it returns. Errors: ErrInvalid if number or sizes of args do not match
// the kernel (unchecked with a driver before 12.4); *Error, also of earlier kernels; ErrClosed.
func (f *Function) Launch(s *Stream, l Launch, args *Args) error {
	h := s.h.Load()
	if h == 0 {
		return errStreamClosed
	}
	if f.m.h.Load() == 0 {
		return errModuleClosed
	}
	var params uintptr
	var block *argBlock
	if args != nil && args.b != nil {
		block = args.b
		params = uintptr(unsafe.Pointer(&block.params[0]))
	}
	if err := f.takes(block); err != nil {
		return err
	}
	g, b := dimensions(l.Grid), dimensions(l.Block)
	var err error
	switch {
	case l.Together:
		err = s.call(&f.m.v.d.api.launchCoop, "cuLaunchCooperativeKernel", f.h, g[0], g[1], g[2], b[0], b[1], b[2], uintptr(l.Shared), h, params)
	case l.Early && f.m.v.major >= 9:
		if block == nil {
			block = newBlock()
		}
		err = s.call(&f.m.v.d.api.launchEx, "cuLaunchKernelEx", block.early.fill(g, b, l.Shared, h), f.h, params, 0)
	default:
		err = s.call(&f.m.v.d.api.launch, "cuLaunchKernel", f.h, g[0], g[1], g[2], b[0], b[1], b[2], uintptr(l.Shared), h, params, 0)
	}
	runtime.KeepAlive(block)
	if err != nil {
		return f.about(l, err)
	}
	return nil
}

// early is the configuration of a launch that may start before the previous kernel has ended.
type early struct {
	config    launchConfig
	attribute launchAttribute
}

// fill sets the configuration for a shape and a stream, and returns its address.
func (e *early) fill(grid, block [3]uintptr, shared uint32, stream uintptr) uintptr {
	e.attribute = launchAttribute{id: attributeEarly}
	e.attribute.value[0] = 1
	e.config = launchConfig{
		grid: narrow(grid), block: narrow(block), shared: shared, stream: stream, attributes: uintptr(unsafe.Pointer(&e.attribute)), count: 1,
	}
	return uintptr(unsafe.Pointer(&e.config))
}

func narrow(d [3]uintptr) [3]uint32 { return [3]uint32{uint32(d[0]), uint32(d[1]), uint32(d[2])} }

// Kept is a prepared launch, as a graph of one kernel. It is not safe for concurrent use.
type Kept struct {
	graph *Graph
	node  uintptr // in graph, by which the driver names the kernel in exec
	exec  *GraphExec
}

// Keep prepares a launch with its present arguments for repeated use. With a driver for CUDA 13.0 a
// prepared launch takes half the host time of Launch. Early and Together are ignored. It runs with
// the priority of the stream it is launched on. Keep may wait for running work if the driver needs
// more device memory; Set does not.
//
// Owns: the caller closes it. Errors: those of Launch.
func (f *Function) Keep(l Launch, args *Args) (_ *Kept, err error) {
	p, block, err := f.node(l, args)
	if err != nil {
		return nil, err
	}
	v := f.m.v
	if err := v.Enter(); err != nil {
		return nil, err
	}
	defer v.Leave()
	k := &Kept{graph: &Graph{v: v}}
	var graph uintptr
	if err := v.d.check("cuGraphCreate", v.d.api.graphCreate(&graph, 0)); err != nil {
		return nil, err
	}
	k.graph.h.Store(graph)
	err = v.d.check("cuGraphAddKernelNode_v2", v.d.api.graphKernel(&k.node, graph, nil, 0, &p))
	runtime.KeepAlive(block)
	if err != nil {
		return nil, errors.Join(f.about(l, err), k.graph.Close())
	}
	if k.exec, err = k.graph.instantiate(0); err != nil {
		return nil, errors.Join(err, k.graph.Close())
	}
	return k, nil
}

// Set replaces the launch by another one, of a kernel of the same device. Queued launches do not
// change.
//
// Errors: those of Function.Launch; k is then unchanged.
func (k *Kept) Set(f *Function, l Launch, args *Args) error {
	exec := k.exec.h.Load()
	if exec == 0 {
		return errGraphClosed
	}
	p, block, err := f.node(l, args)
	if err != nil {
		return err
	}
	v := k.graph.v
	err = v.inside("cuGraphExecKernelNodeSetParams_v2", func() int32 { return v.d.api.graphSet(exec, k.node, &p) })
	runtime.KeepAlive(block)
	if err != nil {
		return f.about(l, err)
	}
	return nil
}

// Launch queues the launch on s, a stream of its device. It allocates nothing. Errors: *Error,
// ErrClosed.
func (k *Kept) Launch(s *Stream) error { return k.exec.Launch(s) }

// Close frees it, after queued launches have run. Idempotent. Errors: *Error.
func (k *Kept) Close() error { return errors.Join(k.exec.Close(), k.graph.Close()) }

// node returns the parameters of a graph node. The caller keeps the arguments alive until it is
// added.
func (f *Function) node(l Launch, args *Args) (p kernelNode, block *argBlock, err error) {
	if f.m.h.Load() == 0 {
		return p, nil, errModuleClosed
	}
	p = kernelNode{function: f.h, grid: narrow(dimensions(l.Grid)), block: narrow(dimensions(l.Block)), shared: l.Shared}
	if args != nil && args.b != nil {
		block = args.b
		p.params = uintptr(unsafe.Pointer(&block.params[0]))
	}
	return p, block, f.takes(block)
}

// about adds the kernel and the configuration to an error of a launch.
func (f *Function) about(l Launch, err error) error {
	return fmt.Errorf("kernel %q, grid %v, block %v, %d B of shared memory: %w", f.name, dimensions(l.Grid), dimensions(l.Block), l.Shared, err)
}

// dimensions returns d with 1 for 0.
func dimensions(d [3]uint32) [3]uintptr {
	return [3]uintptr{uintptr(max(d[0], 1)), uintptr(max(d[1], 1)), uintptr(max(d[2], 1))}
}

// takes returns nil if the kernel accepts the arguments.
func (f *Function) takes(b *argBlock) error {
	if b == nil {
		if len(f.params) > 0 {
			return f.refuse(nil)
		}
		return nil
	}
	if b.failed != nil {
		return fmt.Errorf("kernel %q: %w", f.name, b.failed)
	}
	if f.known && !slices.Equal(f.params, b.sizes[:b.n]) {
		return f.refuse(b.sizes[:b.n])
	}
	return nil
}

// refuse returns the error for arguments of these sizes.
//
//go:noinline
func (f *Function) refuse(sizes []uint16) error {
	return fmt.Errorf("cuda: kernel %q: %w: it takes arguments of %v B, got %v B", f.name, ErrInvalid, f.params, slices.Clone(sizes))
}
