package machine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// device is the GPU of a machine, with the memory there that outlasts a program: parameters,
// states, outputs.
type device struct {
	turns
	driver *cuda.Driver // opened by the machine; nil if another owns it
	from   *Machine     // machine whose parameters are shared; may be nil

	params map[*gorgonia.Node]*stored
	states map[uintptr]*stored // by address on the host
	memory map[place]tensor.Buffer
	list   []*stored       // all params and states, in the order in which they were made
	own    []tensor.Buffer // to free
	words  []word
	arenas []tensor.Buffer // part of own: arenas of programs
	copies bool            // copy values of nodes at every run, as the host updates the parameters
}

// word is eight bytes on the device that the host sets between runs.
type word struct {
	at    tensor.Buffer
	bits  uint64
	known bool
}

// newDevice returns the device that a graph runs on; nil for the host.
//
// Errors: ErrDevice when graph, world and settings do not fit together, or the GPU is missing.
func newDevice(cfg *Config, g *gorgonia.ExprGraph) (*device, error) {
	group, use, idle := groupOf(g, cfg.Eval)
	on := tensor.Host
	if group != nil {
		on = group.Device()
	}
	if idle && (cfg.Device == CPU && on != tensor.Host || cfg.Device == CUDA && on == tensor.Host) {
		group, on = nil, tensor.Host // Device decides
	}
	switch {
	case cfg.Device == CPU && on != tensor.Host:
		return nil, fmt.Errorf("%w: the device is cpu, and %s a world on %v: set the device to cuda or auto", ErrDevice, use, on)
	case cfg.Device == CUDA && group != nil && on == tensor.Host:
		return nil, fmt.Errorf("%w: the device is cuda, and %s a world of the host: take one of GPUs, or set the device to cpu", ErrDevice, use)
	case cfg.Share != nil && cfg.Share.closed:
		return nil, fmt.Errorf("%w: the machine that has the parameters is closed", ErrClosed)
	case on != tensor.Host:
		v, err := deviceOf(group)
		if err != nil {
			return nil, err
		}
		return freshDevice(v, nil, cfg.Share), nil
	case cfg.Device != CPU && cfg.Share != nil && cfg.Share.device != nil:
		return freshDevice(cfg.Share.device.dev, nil, cfg.Share), nil
	case cfg.Device != CUDA:
		return nil, nil
	}
	return openGPU(cfg)
}

// openGPU opens the driver and the GPU.
func openGPU(cfg *Config) (*device, error) {
	driver, err := cuda.Open(cuda.Config{Driver: cfg.CUDADriver, NVRTC: cfg.NVRTC, Dirs: dl.Places(os.DirFS("/"), launch.Environ())})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDevice, err)
	}
	v, err := driver.Device(cfg.GPU)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrDevice, err), driver.Close())
	}
	return freshDevice(v, driver, cfg.Share), nil
}

func freshDevice(v *cuda.Device, driver *cuda.Driver, from *Machine) *device {
	return &device{
		turns: turns{dev: v}, driver: driver, from: from, copies: true,
		params: map[*gorgonia.Node]*stored{}, states: map[uintptr]*stored{}, memory: map[place]tensor.Buffer{},
	}
}

// groupOf returns the group whose device a graph runs on: that of its DDP, or else of its first
// collective; nil without any. With Config.Eval a batch normalization over a group does not use it:
// idle reports whether only such layers have a group. use describes the traffic to the group.
func groupOf(g *gorgonia.ExprGraph, eval bool) (group *dist.Group, use string, idle bool) {
	if d := ownerOf(g); d != nil {
		return d.Machine().Group(), "the gradients go to", false
	}
	for _, n := range g.AllNodes() {
		if op, ok := ops.Describe(n); ok {
			return op.Group, fmt.Sprintf("the %v of %q goes to", op.Kind, op.Tensor), false
		}
		if b, ok := ops.DescribeBatchNorm(n); ok && b.Exchange.Group != nil && group == nil {
			group, use, idle = b.Exchange.Group, fmt.Sprintf("the statistics of %q go to", b.Exchange.Tensor), true
			if !eval {
				return group, use, false
			}
		}
	}
	return group, use, idle
}

// ownerOf returns the DDP that the gradients of a graph go to, or nil.
func ownerOf(g *gorgonia.ExprGraph) *ddp.DDP {
	for _, n := range g.AllNodes() {
		if h, ok := n.Op().(*ops.Hook); ok {
			if d, _, ok := ddp.Owner(h.Reducer()); ok {
				return d
			}
		}
	}
	return nil
}

// deviceOf returns the device of a group.
func deviceOf(g *dist.Group) (*cuda.Device, error) {
	s, ok := g.Stream().(interface{ CUDA() *cuda.Stream })
	if !ok {
		return nil, fmt.Errorf("%w: the stream of the world on %v is a %T, not one of a GPU", ErrDevice, g.Device(), g.Stream())
	}
	return s.CUDA().Device(), nil
}

// config returns the settings of programs on the device.
func (d *device) config(cfg *Config, symmetric []tensor.Buffer) (cudaexec.Config, error) {
	c := cudaexec.Config{
		Device: d.dev, Eager: cfg.NoGraph, Deterministic: cfg.Deterministic, Tune: cfg.Tune,
		CUBLAS: cfg.CUBLAS, CUDNN: cfg.CUDNN, Dirs: dl.Places(os.DirFS("/"), launch.Environ()), Symmetric: symmetric,
	}
	if cfg.Compute == "" {
		return c, nil
	}
	var err error
	c.Compute, err = cudaexec.ParseCompute(cfg.Compute)
	return c, err
}

// alloc returns zeroed memory, which close frees.
func (d *device) alloc(dt tensor.DType, n int) (tensor.Buffer, error) {
	bytes := max(int64(n)*int64(dt.Size()), 1)
	raw, err := d.dev.AllocBuffer(bytes)
	if err != nil {
		return tensor.Buffer{}, err
	}
	d.own = append(d.own, raw)
	if err := d.dev.Fill(uintptr(raw.Pointer()), 0, bytes); err != nil {
		return tensor.Buffer{}, err
	}
	return tensor.FromPointer(raw.Pointer(), n, dt, raw.Device())
}

// memoryFor returns memory for the value of a node, shared by all programs.
func (d *device) memoryFor(p place, dt tensor.DType, n int) (tensor.Buffer, error) {
	if b, ok := d.memory[p]; ok && b.DType() == dt && b.Len() >= n {
		return b.Slice(0, n)
	}
	b, err := d.alloc(dt, n)
	if err == nil {
		d.memory[p] = b
	}
	return b, err
}

// param returns the parameter of a node on the device.
func (d *device) param(n *gorgonia.Node, dt tensor.DType, length int, in *lower.Exchange) (*stored, error) {
	if s, ok := d.params[n]; ok {
		return s, nil
	}
	s := &stored{name: n.Name(), node: n}
	if other := d.shared(n, dt, length); other != nil {
		s.at, s.lent = other.at, true
	} else if b, ok := in.ValueOf(n); ok {
		s.at = b
	} else {
		var err error
		if s.at, err = d.alloc(dt, length); err != nil {
			return nil, fmt.Errorf("parameter %q: %w", lower.Called(n), err)
		}
	}
	d.params[n] = s
	d.list = append(d.list, s)
	return s, nil
}

// shared returns the parameter of Config.Share with n's name and form, or nil.
func (d *device) shared(n *gorgonia.Node, dt tensor.DType, length int) *stored {
	if d.from == nil || d.from.device == nil {
		return nil
	}
	for _, s := range d.from.device.list {
		if s.node != nil && s.name == n.Name() && s.at.DType() == dt && s.at.Len() == length {
			return s
		}
	}
	return nil
}

// state returns the device copy of host memory that an op keeps between runs.
func (d *device) state(name string, host tensor.Buffer) (*stored, error) {
	key := uintptr(host.Pointer())
	if s, ok := d.states[key]; ok {
		return s, nil
	}
	at, err := d.alloc(host.DType(), host.Len())
	if err != nil {
		return nil, fmt.Errorf("state %q: %w", name, err)
	}
	s := &stored{name: name, host: host, at: at}
	d.states[key] = s
	d.list = append(d.list, s)
	return s, d.write(s.at, s.host)
}

// write copies from the host. No run may be in flight.
func (d *device) write(to, from tensor.Buffer) error {
	if from.Bytes() == 0 {
		return nil
	}
	return d.dev.CopyFromHost(uintptr(to.Pointer()), from.Pointer(), from.Bytes())
}

// read copies to the host. No run may be in flight.
func (d *device) read(to, from tensor.Buffer) error {
	if to.Bytes() == 0 {
		return nil
	}
	return d.dev.CopyToHost(to.Pointer(), uintptr(from.Pointer()), to.Bytes())
}

// set sets the word at an address for later runs, unless it has the value. Runs begin on stream s.
func (d *device) set(s *cuda.Stream, at tensor.Buffer, bits uint64) error {
	i := 0
	for i < len(d.words) && d.words[i].at != at {
		i++
	}
	if i == len(d.words) {
		d.words = append(d.words, word{at: at})
	}
	w := &d.words[i]
	if w.known && w.bits == bits {
		return nil
	}
	if err := s.Write64(uintptr(at.Pointer()), bits); err != nil {
		return err
	}
	w.bits, w.known = bits, true
	return nil
}

// forgetWords marks words as unknown, since another machine may have set them.
func (d *device) forgetWords(at []tensor.Buffer) {
	for i := range d.words {
		if slices.Contains(at, d.words[i].at) {
			d.words[i].known = false
		}
	}
}

// close frees the memory, after the programs.
func (d *device) close() error {
	var errs []error
	if d.turned != nil {
		errs = append(errs, d.turned.Close())
		d.turned = nil
	}
	for _, b := range d.own {
		errs = append(errs, d.dev.FreeBuffer(b))
	}
	d.own = nil
	if d.driver != nil {
		errs = append(errs, d.driver.Close())
	}
	return errors.Join(errs...)
}

// bufferOver returns n elements of dt in raw.
func bufferOver(raw []byte, dt tensor.DType, n int) (tensor.Buffer, error) {
	return tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(raw)), n, dt, tensor.Host)
}

// fetchParams copies the parameters, whose update is done, to the values of their nodes.
func (d *device) fetchParams() error {
	for _, s := range d.list {
		if s.node == nil || s.lent || s.seen == nil {
			continue
		}
		if err := s.fetch(d); err != nil {
			return err
		}
	}
	return nil
}

// arena returns memory for the arena of a program; the zero Buffer for none. Programs share one
// that is large enough, since runs follow each other and nothing in an arena outlasts a run.
func (d *device) arena(bytes int64) (tensor.Buffer, error) {
	if bytes == 0 {
		return tensor.Buffer{}, nil
	}
	for _, b := range d.arenas {
		if b.Bytes() >= bytes {
			return b, nil
		}
	}
	b, err := d.dev.AllocBuffer(bytes)
	if err != nil {
		return tensor.Buffer{}, err
	}
	d.own, d.arenas = append(d.own, b), append(d.arenas, b)
	return b, nil
}

// free frees an arena that no program uses.
func (d *device) free(arena tensor.Buffer) error {
	i := slices.Index(d.arenas, arena)
	if i < 0 {
		return nil
	}
	d.arenas = slices.Delete(d.arenas, i, i+1)
	d.own = slices.DeleteFunc(d.own, func(b tensor.Buffer) bool { return b == arena })
	return d.dev.FreeBuffer(arena)
}

// refresh copies a parameter to the device if its node has a new value, or always if the host
// updates it.
func (d *device) refresh(st *stored, s *source) error {
	v := s.Node.Value()
	if st.lent || st.seen == v && !d.copies {
		return nil
	}
	if err := d.wait(); err != nil {
		return err
	}
	from, err := values.Memory(v, s.dtype)
	if err != nil {
		return err
	}
	st.seen = v
	return d.write(st.at, from)
}
