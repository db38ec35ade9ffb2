package cudaexec

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// argument is a parameter of a kernel: an entry of the address table, and an offset in bytes.
type argument struct {
	slot   int32 // in the table; literal for offset itself
	offset int64
}

// literal is the slot of a number.
const literal = -1

// launch is a kernel of a step that lacks only the addresses.
type launch struct {
	f     *cuda.Function
	shape cuda.Launch
	args  []argument
}

// queue launches the kernel on s with addresses from addr. room is empty between launches.
func (k *launch) queue(s *cuda.Stream, addr []uintptr, room *cuda.Args) error {
	room.Reset()
	for _, a := range k.args {
		if a.slot == literal {
			room.U64(uint64(a.offset))
		} else {
			room.Ptr(addr[a.slot] + uintptr(a.offset))
		}
	}
	return k.f.Launch(s, k.shape, room)
}

// resolve finds the sources of the arguments of k, a kernel of step i.
//
// Errors: dist.ErrInvalid for arguments that are not in the program.
func resolve(p *program.Program, l *layout, i int, k *cudagen.Kernel) ([]argument, error) {
	if len(k.Args) > mostArgs {
		return nil, fmt.Errorf("%w: kernel %s has %d arguments, %d at most", dist.ErrUnsupported, k.Name, len(k.Args), mostArgs)
	}
	args := make([]argument, len(k.Args))
	for n, a := range k.Args {
		r, err := resolveOne(p, l, &a)
		if err != nil {
			return nil, fmt.Errorf("cudaexec: %w: argument %d of kernel %s of %s: %w", dist.ErrInvalid, n, k.Name, stepName(p, i), err)
		}
		args[n] = r
	}
	return args, nil
}

// mostArgs is the number of arguments that fit in a cuda.Args.
const mostArgs = 128

func resolveOne(p *program.Program, l *layout, a *cudagen.Arg) (argument, error) {
	extra := func(slot int, offset int64) (argument, error) {
		return argument{int32(len(p.Values) + slot), offset}, nil
	}
	switch a.Kind {
	case cudagen.Number:
		return argument{literal, a.Offset}, nil
	case cudagen.Fault:
		return extra(slotFault, a.Offset)
	case cudagen.Clock:
		if p.Clock == program.None {
			return argument{}, errors.New("the program has no clock")
		}
		return argument{int32(p.Clock), a.Offset}, nil
	}
	if a.Step < 0 || a.Step >= len(p.Steps) {
		return argument{}, fmt.Errorf("of step %d, there are %d", a.Step, len(p.Steps))
	}
	views := p.Steps[a.Step].In
	switch a.Kind {
	case cudagen.Scratch:
		return extra(slotScratch, l.scratch[a.Step]+a.Offset)
	case cudagen.Out:
		views = p.Steps[a.Step].Out
	case cudagen.In:
	default:
		return argument{}, fmt.Errorf("of unknown kind %d", a.Kind)
	}
	if a.Index < 0 || a.Index >= len(views) {
		return argument{}, fmt.Errorf("number %d of step %d, there are %d", a.Index, a.Step, len(views))
	}
	return argument{int32(views[a.Index].Value), a.Offset}, nil
}

// code is the kernels of a program, on the device.
type code struct {
	module *cuda.Module
	steps  [][]launch // by step
	faults bool       // whether a kernel may report a fault
}

// plainShared is the bytes of shared memory that a kernel may use without asking (CUDA C++
// Programming Guide, "Compute Capabilities").
const plainShared = 48 << 10

// newCode compiles text and prepares the launches of steps. Without kernels it compiles nothing.
func newCode(p *program.Program, dev *cuda.Device, l *layout, text string, steps []cudagen.Step) (*code, error) {
	c := &code{steps: make([][]launch, len(steps))}
	some := false
	for i := range steps {
		some = some || len(steps[i].Kernels) > 0
	}
	if !some {
		return c, nil
	}
	var err error
	if c.module, err = compile(dev, cuda.Source{Name: "program.cu", Text: text, Options: cudagen.Options()}); err != nil {
		return nil, fmt.Errorf("cudaexec: program %q: %w", p.Name, err)
	}
	if err := c.prepare(p, l, steps); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *code) prepare(p *program.Program, l *layout, steps []cudagen.Step) error {
	functions := map[string]*cuda.Function{}
	shared := map[string]uint32{}
	for i := range steps {
		for n := range steps[i].Kernels {
			k := &steps[i].Kernels[n]
			f := functions[k.Name]
			if f == nil {
				var err error
				if f, err = c.module.Function(k.Name); err != nil {
					return fmt.Errorf("cudaexec: %s: %w", stepName(p, i), err)
				}
				functions[k.Name] = f
			}
			if k.Shared > plainShared && k.Shared > shared[k.Name] {
				if err := f.AllowShared(int(k.Shared)); err != nil {
					return fmt.Errorf("cudaexec: %s: %d B of shared memory for kernel %s: %w", stepName(p, i), k.Shared, k.Name, err)
				}
				shared[k.Name] = k.Shared
			}
			args, err := resolve(p, l, i, k)
			if err != nil {
				return err
			}
			for _, a := range k.Args {
				c.faults = c.faults || a.Kind == cudagen.Fault
			}
			c.steps[i] = append(c.steps[i], launch{f, cuda.Launch{Grid: k.Grid, Block: k.Block, Shared: k.Shared}, args})
		}
	}
	return nil
}

func (c *code) close() error {
	if c == nil || c.module == nil {
		return nil
	}
	return c.module.Close()
}

// compile loads the kernels of src.
func compile(dev *cuda.Device, src cuda.Source) (*cuda.Module, error) {
	compiler, err := dev.Driver().Compiler()
	if err != nil {
		return nil, err
	}
	image, err := compiler.Compile(dev, src)
	if err != nil {
		return nil, err
	}
	return dev.Load(image)
}

//go:embed kernels/runner.cu
var runnerSource string

// own is the runner's own kernels.
type own struct {
	module      *cuda.Module
	tail, stamp *cuda.Function
	transpose   [9]*cuda.Function // by the bytes of an element: 2, 4 and 8
}

// ownOptions returns the compiler options of the runner's own kernels.
func ownOptions() []string {
	return []string{
		fmt.Sprintf("-DCOPIES=%d", mostCopies), fmt.Sprintf("-DSLOTS=%d", ringSlots),
		fmt.Sprintf("-DEDGE=%d", turnEdge), fmt.Sprintf("-DTHREADS=%d", turnThreads),
	}
}

func newOwn(dev *cuda.Device) (*own, error) {
	m, err := compile(dev, cuda.Source{Name: "runner.cu", Text: runnerSource, Options: ownOptions()})
	if err != nil {
		return nil, fmt.Errorf("cudaexec: the runner's own kernels: %w", err)
	}
	k := &own{module: m}
	for _, f := range [...]struct {
		to   **cuda.Function
		name string
	}{
		{&k.tail, "tail"},
		{&k.stamp, "stamp"},
		{&k.transpose[2], "transpose2"},
		{&k.transpose[4], "transpose4"},
		{&k.transpose[8], "transpose8"},
	} {
		if *f.to, err = m.Function(f.name); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return k, nil
}

// needOwn makes the runner's own kernels, unless x has them.
func (x *Exec) needOwn() error {
	if x.own != nil {
		return nil
	}
	var err error
	x.own, err = newOwn(x.dev)
	return err
}

func (k *own) close() error {
	if k == nil {
		return nil
	}
	return k.module.Close()
}
