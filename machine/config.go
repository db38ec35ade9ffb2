package machine

import (
	"errors"
	"fmt"
	"log/slog"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// Device is the kind of processor that runs a program.
type Device string

// The devices. The zero Device is Auto.
const (
	Auto Device = "auto" // the GPU of the graph's world or of Config.Share, else the CPU
	CPU  Device = "cpu"
	CUDA Device = "cuda"
)

// NewBatch says how to handle an input whose shape differs from the last run. Ranks that are
// data-parallel on GPUs must change shapes in the same run: if only some ranks capture anew, the
// run returns ErrMismatch.
type NewBatch string

// Values of NewBatch. The zero NewBatch is Recompile.
const (
	Recompile NewBatch = "recompile" // compile a program for the new shapes and keep the others
	Refuse    NewBatch = "error"     // RunAll returns ErrShape
)

// Config has the settings of compilation and runs. The zero value is the default.
type Config struct {
	Name       string   // name of the program in Explain and in errors; "" means "program"
	Device     Device   // "" means Auto
	Threads    int      // goroutines that compute on the CPU, including the caller's; 0 means GOMAXPROCS
	BLAS       string   // path of a BLAS library for products on the CPU, used where it is faster; "none"; "" means the first installed
	NewBatch   NewBatch // "" means Recompile
	Watch      bool     // check for NaN after each step: RunAll returns ErrNaN with the node. Slow
	Fallback   bool     // ops that run by their own Do are expected: do not warn
	Eval       bool     // run for results only: dropout and batch normalization do not train
	DualValues bool     // accumulate gradients until a solver sets them to 0, as gorgonia.BindDualValues does
	Seed       uint64   // of dropout and of random nodes
	Samples    int      // samples in this rank's batch; 0 means the length of the first input that is not a parameter
	NoOptimize bool     // skip optimizations; slow, to find out whether one is wrong

	Recompute   Recompute // activations to compute again; "" means RecomputeNone; no effect with Eval or NoOptimize
	MemoryBytes int64     // with RecomputeAuto: limit of a program's Footprint; 0 means the free memory of a GPU, and no limit on the CPU

	// Log gets one warning for each type of op that runs by its own Do on the host. nil means
	// slog.Default().
	Log *slog.Logger
	// Keep lists nodes whose Value is set after each run, in addition to outputs. Each costs its
	// memory and prevents fusion across it.
	Keep gorgonia.Nodes

	// Solver makes each RunAll end with the update of the parameters; nil leaves it to a solver. On
	// a GPU run and update are then one graph. NewSolver returns the solver, to steer and save it;
	// its Step does nothing more.
	Solver *optim.Config

	// The rest is for GPUs and has no effect on the CPU.
	GPU   int      // number of the GPU among those that the process sees, if no world or Share determines it
	Share *Machine // use the parameters of this machine with the same names and forms: see On a GPU. It is closed last
	// Compute is the arithmetic of float32 products, equal on all ranks: f32, tf32, bf16 or f16,
	// with sums in f32. "" means f32. The settings bf16 and f16 also round results of large
	// products inside the program; with bf16 attention stores no scores. f16 needs a factor in the
	// cost, or small gradients become 0: see optim.LossScaler.
	Compute string

	KeepInputs    bool   // copy an input only when it is set anew, not when its elements change in place
	Deterministic bool   // the same bits in every run, at some cost in time
	Tune          bool   // measure the variants of each product, in New on all ranks together; all set it equally
	NoGraph       bool   // queue step by step instead of replaying a captured graph
	CUDADriver    string // path or soname of libcuda; "" means libcuda.so.1, searched for
	NVRTC         string // path or soname of libnvrtc; "" means the newest that the driver supports
	CUBLAS        string // path of libcublas; "none" for built-in kernels; "" means the installed one
	CUDNN         string // path of libcudnn; "none" for built-in kernels; "" means the installed one
}

// The errors of a Machine.
var (
	// ErrUnknownOp is returned by New for an op without a rule whose Do does not accept the node's
	// inputs. The error has op and node.
	ErrUnknownOp = lower.ErrUnknownOp
	// ErrNoValue is returned by RunAll when an input has no value.
	ErrNoValue = lower.ErrNoValue
	// ErrShape is returned by RunAll when an input's value has an invalid shape or type, or when a
	// Reshape does not show which dimension holds the samples. If they are not in the first one,
	// build the graph with a number of samples that no other dimension has.
	ErrShape = errors.New("another shape")
	// ErrNaN is returned by RunAll, with Config.Watch, when a result is not a number.
	ErrNaN = errors.New("not a number")
	// ErrClosed is returned by RunAll after Close.
	ErrClosed = errors.New("the machine is closed")
	// ErrDevice is returned by New when the device is missing, or the graph's world is on another.
	ErrDevice = errors.New("no such device")
	// ErrSolver is returned by NewSolver when another solver already updates the parameters.
	ErrSolver = errors.New("the machine has another solver")
	// ErrStale is returned by Sync, and by runs that gather no weights, with
	// ddp.Config.OverlapGather.
	ErrStale = errors.New("weights that other ranks have updated are not here yet")
)

// withGradients returns outputs and the gradients to compute with them. With Solver these are all.
// Otherwise, unless the graph is run for its results, they are those that ddp.Attach exchanges,
// since an optimizer reads them after each run.
func (c *Config) withGradients(g *gorgonia.ExprGraph, outputs gorgonia.Nodes) gorgonia.Nodes {
	return lower.WithGradients(g, outputs, c.Solver != nil, !c.Eval)
}

// lowering returns the settings that lowering for a GPU or for the host reads.
func (c *Config) lowering(onGPU bool) lower.Options {
	o := lower.Options{
		Name: c.Name, Seed: c.Seed, Samples: c.Samples, DualValues: c.DualValues, NoOptimize: c.NoOptimize,
		Fallback: c.Fallback, Log: c.Log, OnGPU: onGPU,
	}
	if !c.Eval {
		o.Recompute, o.Memory = recomputes[c.Recompute], c.MemoryBytes
	}
	if onGPU {
		o.Aside, o.Narrow = cudaexec.Aside, narrow[c.Compute]
	}
	return o
}

// narrow has the dtype of operands and results of large products, by Config.Compute.
var narrow = map[string]tensor.DType{cudaexec.BF16.String(): tensor.BF16, cudaexec.F16.String(): tensor.F16}

// Validate checks the settings.
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
	if err := c.checkRecompute(); err != nil {
		return fmt.Errorf("machine config: %w", err)
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
