package machine

import (
	"errors"
	"fmt"
	"log/slog"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/cudaexec"
	"github.com/symgrad/symgrad/optim"
)

// Device is the device of a program.
type Device string

// The devices. The zero Device is Auto.
const (
	Auto Device = "auto" // the GPU that the graph's world or Config.Share is on; without one the processor
	CPU  Device = "cpu"
	CUDA Device = "cuda"
)

// NewBatch is the reaction to an input with another shape than at the last run. Data-parallel ranks
// on GPUs must change shapes in the same run: a run that is captured anew on some ranks only is an
// ErrMismatch.
type NewBatch string

// The reactions. The zero NewBatch is Recompile.
const (
	Recompile NewBatch = "recompile" // a program for the new shapes is made, and kept with the others
	Refuse    NewBatch = "error"     // RunAll returns ErrShape
)

// Config is how a graph is compiled and run. The zero value is the default.
type Config struct {
	Name       string   // of the program, in Explain and in errors; "" means "program"
	Device     Device   // "" means Auto
	Threads    int      // goroutines that compute on the CPU, the caller's included; 0 means GOMAXPROCS
	BLAS       string   // library for products on the CPU, used where internal/hostexec is slower: a path; "none"; "" means the first installed
	NewBatch   NewBatch // "" means Recompile
	Watch      bool     // look for NaN after each step: RunAll returns ErrNaN, naming the node. Slow: step by step
	Fallback   bool     // ops that run by their own Do are expected: no warning names them
	Eval       bool     // the graph is run for its results: dropout and batch normalization are not training
	DualValues bool     // add gradients to earlier ones, as gorgonia.BindDualValues does, until a solver sets them to 0
	Seed       uint64   // of dropout and of random nodes
	Samples    int      // in this rank's batch; 0 means the length of the first input that is not a parameter
	NoOptimize bool     // run the program as it comes from the graph: slow, to find out whether an optimization is wrong

	// Log gets warnings: of ops that run by their own Do on the host, once for each type of op. nil
	// means slog.Default().
	Log *slog.Logger
	// Keep is further nodes whose Value is set after each run. It costs their memory, and prevents
	// fusion over them.
	Keep gorgonia.Nodes

	// Solver makes the update of the parameters the end of each RunAll; nil leaves it to a solver.
	// On a GPU run and update are then one graph. NewSolver gives the solver, to steer and save it;
	// its Step does nothing more.
	Solver *optim.Config

	// Of GPUs alone: on the CPU they have no effect.
	GPU           int      // number of the GPU among those that the process sees, where nothing else says which
	Share         *Machine // parameters are those of this machine of the same names and forms (with Stage 3 of ddp: see On a GPU); it is closed later. On the CPU nodes of two graphs share a parameter by having one value
	Compute       string   // how products of float32 are made: f32, tf32 or bf16, with sums in float32, equal on all ranks; "" means f32. With bf16 results of large ones that stay inside the program are rounded, too, and attention keeps no scores in memory
	KeepInputs    bool     // an input is copied when it has been let anew, and not when its elements have changed in place
	Deterministic bool     // the same bits in every run, at some cost in time
	Tune          bool     // choose the fastest algorithm of each product by trying; in New, all ranks together; equal on all ranks
	NoGraph       bool     // queue step by step, instead of replaying a captured graph
	CUDADriver    string   // path or soname of libcuda; "" means libcuda.so.1, searched for
	NVRTC         string   // path or soname of libnvrtc; "" means that of the newest CUDA that the driver runs
	CUBLAS        string   // path of libcublas; "none" for our kernels; "" means the first one found
	CUDNN         string   // path of libcudnn; "none" for our kernels; "" means the first one found
}

// The errors of a Machine.
var (
	// ErrUnknownOp is returned by New for an op that it cannot compile, and whose Do does not take
	// the inputs that the node has; the error names op and node.
	ErrUnknownOp = errors.New("unknown op")
	// ErrNoValue is returned by RunAll when an input has no value.
	ErrNoValue = errors.New("no value")
	// ErrShape is returned by RunAll when an input's value has another shape or type than it can
	// have, or when nothing tells which dimension of a Reshape the samples are in: where they are
	// not first, build the graph with a number of them that no other dimension has.
	ErrShape = errors.New("another shape")
	// ErrNaN is returned by RunAll, with Config.Watch, when a result is not a number.
	ErrNaN = errors.New("not a number")
	// ErrClosed is returned by RunAll after Close.
	ErrClosed = errors.New("the machine is closed")
	// ErrDevice is returned by New when there is no such device, or the graph's world is on
	// another.
	ErrDevice = errors.New("no such device")
	// ErrSolver is returned by NewSolver when parameters would have two solvers.
	ErrSolver = errors.New("the machine has another solver")
	// ErrStale is returned by Sync, and by runs that gather no weights, with
	// ddp.Config.OverlapGather.
	ErrStale = errors.New("weights that other ranks have updated are not here yet")
)

// Validate checks c.
func (c Config) Validate() error {
	switch c.Device {
	case "", Auto, CPU, CUDA:
	default:
		return fmt.Errorf("machine config: %w: device %q; want auto, cpu or cuda", ErrDevice, c.Device)
	}
	switch c.NewBatch {
	case "", Recompile, Refuse:
	default:
		return fmt.Errorf("machine config: new batch %q; want recompile or error", c.NewBatch)
	}
	switch {
	case c.Threads < 0:
		return fmt.Errorf("machine config: %d threads; 0 means one for each core", c.Threads)
	case c.Samples < 0:
		return fmt.Errorf("machine config: %d samples", c.Samples)
	case c.GPU < 0:
		return fmt.Errorf("machine config: %w: gpu %d", ErrDevice, c.GPU)
	}
	if c.Compute != "" {
		if _, err := cudaexec.ParseCompute(c.Compute); err != nil {
			return fmt.Errorf("machine config: %w", err)
		}
	}
	if c.Solver != nil {
		if err := c.Solver.Validate(); err != nil {
			return fmt.Errorf("machine config: %w", err)
		}
	}
	return nil
}
