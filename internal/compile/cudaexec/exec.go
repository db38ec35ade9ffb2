package cudaexec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// Exec is a program on a GPU. It implements program.Runner, with methods that only a device needs:
// Stage, Read, SetClock, Profile. It is not for use by several goroutines at once.
type Exec struct {
	p   *program.Program
	cfg Config
	env program.Env
	dev *cuda.Device

	clock   program.ID // that steps read; None without random numbers
	order   order
	layout  layout
	mem     *memory
	code    *code
	own     *own
	mul     *products
	conv    *convolutions
	comm    *comm
	calls   map[int]*hostCall     // by step; nil for none
	streams [streams]*cuda.Stream // the groups' for Comm; that of Compute for a stream without steps
	home    *cuda.Stream          // where runs begin and end
	events  []*cuda.Event         // by number in order
	fork    *cuda.Event           // the beginning of a run; the other streams wait for it
	joins   [streams]*cuda.Event  // the end of each other stream
	room    *cuda.Args

	addr    []uintptr // by value, then the extra slots
	bound   []bool    // by value
	unbound int       // Outside values that steps use and that are not bound yet
	rebound bool      // since the last run

	stage  staging
	back   readback
	graphs graphs
	stamps *stamps // while profiled
	warm   int     // runs so far, step by step
	failed bool    // the last run failed; its values are undefined
	closed bool
}

// New loads p, which is planned, onto cfg.Device.
//
// Collective: if p has collectives, all ranks load, bind and run it in the same order. Returns: an
// *Exec. Owns: the caller closes it, before the groups of env; p does not change until then.
// Errors: dist.ErrInvalid and its kinds; dist.ErrUnsupported for steps that GPUs do not have;
// cuda.ErrMemory, with the memory that p needs and its largest values; the compiler's; those of
// libraries that cfg names.
func New(p *program.Program, cfg Config, env program.Env) (program.Runner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Dirs == nil {
		cfg.Dirs = cfg.Device.Driver().Config().Dirs
	}
	x := &Exec{p: p, cfg: cfg, env: env, dev: cfg.Device}
	if err := x.load(); err != nil {
		return nil, errors.Join(err, x.free())
	}
	return x, nil
}

// load makes all parts of x. Checks that cost little come first.
func (x *Exec) load() error {
	var err error
	if err = refuse(x.p); err != nil {
		return err
	}
	if x.clock, err = clockOf(x.p); err != nil {
		return err
	}
	if x.order, err = newOrder(x.p); err != nil {
		return err
	}
	if x.comm, err = newComm(x.p, &x.cfg, x.env.Groups); err != nil {
		return err
	}
	x.comm.goAhead(x.p, &x.order)
	if err = x.makeStreams(); err != nil {
		return err
	}
	if err = x.makeCalls(); err != nil {
		return err
	}
	if x.room, err = cuda.NewArgs(mostArgs); err != nil {
		return err
	}
	if err = x.openLibraries(); err != nil {
		return err
	}
	text, steps, err := x.generate()
	if err != nil {
		return err
	}
	x.layout = newLayout(x.p, steps)
	x.layout.need.scratch += x.mul.scratch()
	if x.mem, err = newMemory(x.p, &x.cfg, &x.layout); err != nil {
		return err
	}
	if x.code, err = newCode(x.p, x.dev, &x.layout, text, steps); err != nil {
		return err
	}
	x.addr = x.mem.addresses(x.p, &x.layout)
	x.begin()
	return x.openReadback()
}

// clockOf returns the clock of p if a step draws random numbers, else None.
//
// Errors: dist.ErrInvalid for an invalid clock.
func clockOf(p *program.Program) (program.ID, error) {
	for i := range p.Steps {
		var code []program.Instr
		switch o := p.Steps[i].Op.(type) {
		case *program.Map:
			code = o.Code
		case *program.Reduce:
			code = o.Code
		}
		if !slices.ContainsFunc(code, func(in program.Instr) bool { return in.Op == program.Rand }) {
			continue
		}
		if !isClock(p, p.Clock) {
			return program.None, fmt.Errorf("cudaexec: %w: %s draws random numbers, and the program's clock is %s", dist.ErrInvalid, stepName(p, i), valueName(p, p.Clock))
		}
		return p.Clock, nil
	}
	return program.None, nil
}

// isClock reports whether id is the clock of p and a valid one.
func isClock(p *program.Program, id program.ID) bool {
	if id != p.Clock || int(id) < 0 || int(id) >= len(p.Values) {
		return false
	}
	v := &p.Values[id]
	return v.Place == program.Outside && v.DType == tensor.U64 && v.Len() == 2
}

// generate makes the kernels of all steps that no library does.
func (x *Exec) generate() (text string, steps []cudagen.Step, err error) {
	major, minor := x.dev.Arch()
	threads, err := x.dev.Attribute(cuda.MaxThreadsPerMultiprocessor)
	if err != nil {
		return "", nil, err
	}
	t := cudagen.Target{SMs: x.dev.SMs(), MaxThreads: threads, Arch: 10*major + minor, Own: make([]bool, len(x.p.Steps)), Apart: x.env.Watch != nil}
	t.Stay = x.comm.crowds()
	for i := range t.Own {
		t.Own[i] = !x.mul.does(i) && !x.conv.does(i)
	}
	text, steps, err = cudagen.Generate(x.p, t)
	if err == nil && len(steps) != len(x.p.Steps) {
		err = fmt.Errorf("cudaexec: %w: kernels for %d steps, the program has %d", dist.ErrInvalid, len(steps), len(x.p.Steps))
	}
	return text, steps, err
}

// begin records which values must be bound. The runner's own clock is used until one is bound.
func (x *Exec) begin() {
	x.bound = make([]bool, len(x.p.Values))
	if c := x.clock; c != program.None {
		x.addr[c], x.bound[c] = x.addr[len(x.p.Values)+slotClock], true
	}
	used := usedBy(x.p)
	for i := range x.p.Values {
		v := &x.p.Values[i]
		if v.Place != program.Outside || v.Len() == 0 || !used[i] {
			x.bound[i] = true
		}
		if !x.bound[i] {
			x.unbound++
		}
	}
	x.rebound = true
}

// usedBy reports for each value whether a step of p reads or writes it.
func usedBy(p *program.Program) []bool {
	used := make([]bool, len(p.Values))
	for i := range p.Steps {
		for _, views := range [...][]program.View{p.Steps[i].In, p.Steps[i].Out} {
			for _, v := range views {
				used[v.Value] = true
			}
		}
	}
	return used
}

// bindAlignment is the alignment of bound memory: kernels load 16 bytes at once.
const bindAlignment = 16

// Bind implements program.Runner. Memory must be on the device, at a multiple of 16 bytes.
//
// Collective: with collectives, after the first run: new memory causes a new capture, so all ranks
// bind between the same runs. Memory that was bound before for the same values costs no capture, if
// the caller alternates between few sets. Errors: dist.ErrInvalid and its kinds, dist.ErrClosed.
func (x *Exec) Bind(id program.ID, b tensor.Buffer) error {
	if x.closed {
		return errClosed
	}
	if int(id) < 0 || int(id) >= len(x.p.Values) || x.p.Values[id].Place != program.Outside {
		return fmt.Errorf("cudaexec: %w: %s: only a value of the program that is placed Outside can be bound", dist.ErrInvalid, valueName(x.p, id))
	}
	v := &x.p.Values[id]
	switch {
	case b.DType() != v.DType:
		return fmt.Errorf("cudaexec: %w: %s bound to %v", dist.ErrDType, valueName(x.p, id), b)
	case b.Len() < v.Len():
		return fmt.Errorf("cudaexec: %w: %s bound to %v: it has %d elements", dist.ErrCount, valueName(x.p, id), b, v.Len())
	case uintptr(b.Pointer())%bindAlignment != 0:
		return fmt.Errorf("cudaexec: %w: %s bound to memory at %#x: kernels want a multiple of %d", dist.ErrInvalid, valueName(x.p, id), uintptr(b.Pointer()), bindAlignment)
	case b.Device() != x.dev.Tensor():
		return fmt.Errorf("cudaexec: %w: %s bound to %v: the program is on %v", dist.ErrDevice, valueName(x.p, id), b, x.dev.Tensor())
	}
	x.stage.drop(id)
	x.place(id, uintptr(b.Pointer()))
	return nil
}

// place sets the address of value id.
func (x *Exec) place(id program.ID, at uintptr) {
	if !x.bound[id] {
		x.bound[id] = true
		x.unbound--
	}
	if x.addr[id] != at {
		x.addr[id], x.rebound = at, true
	}
}

// Memory implements program.Runner.
//
// Errors: dist.ErrInvalid for an unknown value, or one that is not bound yet.
func (x *Exec) Memory(id program.ID) (tensor.Buffer, error) {
	if x.closed {
		return tensor.Buffer{}, errClosed
	}
	if int(id) < 0 || int(id) >= len(x.p.Values) {
		return tensor.Buffer{}, fmt.Errorf("cudaexec: %w: unknown %s", dist.ErrInvalid, valueName(x.p, id))
	}
	v := &x.p.Values[id]
	if x.addr[id] == 0 && v.Len() > 0 {
		return tensor.Buffer{}, fmt.Errorf("cudaexec: %w: %s is not bound", dist.ErrInvalid, valueName(x.p, id))
	}
	return bufferAt(x.addr[id], v.Len(), v.DType, x.dev.Tensor())
}

// Program returns the program.
func (x *Exec) Program() *program.Program { return x.p }

// Stream returns the stream on which runs begin and end. Other work on it runs between two runs.
func (x *Exec) Stream() *cuda.Stream { return x.home }

// SetClock sets the step number of the next run to step, and the number of this rank's first sample
// to sample. Every run adds 1 to the step number, which starts at 0. A program without a clock
// ignores it.
//
// Returns: when queued, after the runs so far. Errors: dist.ErrClosed, those of the driver.
func (x *Exec) SetClock(step, sample uint64) error {
	if x.closed {
		return errClosed
	}
	if x.clock == program.None {
		return nil
	}
	at := x.addr[x.clock]
	if err := x.dev.Enter(); err != nil {
		return err
	}
	defer x.dev.Leave()
	return errors.Join(x.home.Write64(at, step), x.home.Write64(at+8, sample))
}

// Close implements program.Runner. If a group is broken and the device makes no progress, the
// error matches ErrStuck, and the memory of its kernels is kept until the process ends.
func (x *Exec) Close() error {
	if x.closed {
		return nil
	}
	x.closed = true
	if err := x.settle(); err != nil && !x.drained() {
		return fmt.Errorf("cudaexec: program %q: %w: %w", x.p.Name, ErrStuck, err)
	}
	return x.free()
}

// free frees everything that x has.
func (x *Exec) free() error {
	errs := []error{x.graphs.close(), x.stage.close(x.dev), x.back.close(), x.conv.close(), x.mul.close(), x.code.close(), x.own.close(), x.closeCalls()}
	if x.mem != nil {
		errs = append(errs, x.mem.close())
	}
	for _, e := range slices.Concat([]*cuda.Event{x.fork}, x.joins[:], x.events) {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if s := x.streams[program.Side]; s != nil && s != x.streams[program.Compute] {
		errs = append(errs, s.Close())
	}
	if s := x.streams[program.Compute]; s != nil {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
