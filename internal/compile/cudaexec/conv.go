package cudaexec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cudnn"
	"github.com/symgrad/symgrad/tensor"
)

// convolution is a Conv, ConvGradInput or ConvGradFilter in the form that cuDNN takes.
type convolution struct {
	desc    cudnn.ConvDesc // of one pass
	a, b, c argument       // In[0], In[1] and Out[0]
	conv    *cudnn.Conv
}

// cudnnTypes are the element types of convolutions by cuDNN.
var cudnnTypes = map[tensor.DType]cudnn.DType{
	tensor.F32: cudnn.F32, tensor.F64: cudnn.F64, tensor.F16: cudnn.F16, tensor.BF16: cudnn.BF16,
}

// newConvolution returns step i of p in cuDNN's form, or nil if it is no convolution, or one that
// cuDNN cannot do.
func newConvolution(p *program.Program, i int, cfg *Config) *convolution {
	var w *program.Window
	var k int
	var pass cudnn.Pass
	s := &p.Steps[i]
	switch o := s.Op.(type) {
	case *program.Conv:
		w, k, pass = &o.Window, o.K, cudnn.Forward
	case *program.ConvGradInput:
		w, k, pass = &o.Window, o.K, cudnn.BackwardData
	case *program.ConvGradFilter:
		w, k, pass = &o.Window, o.K, cudnn.BackwardFilter
	default:
		return nil
	}
	if len(s.In) != 2 || len(s.Out) != 1 {
		return nil
	}
	x := p.Values[s.Out[0].Value].DType
	dt, known := cudnnTypes[x]
	if !known || p.Values[s.In[0].Value].DType != x || p.Values[s.In[1].Value].DType != x {
		return nil
	}
	d := cudnn.ConvDesc{
		DType: dt, N: w.N, C: w.C, H: w.H, W: w.W, K: k, R: w.R, S: w.S, PadH: w.PadH, PadW: w.PadW, StrideH: w.StrideH,
		StrideW: w.StrideW, DilationH: w.DilationH, DilationW: w.DilationW, Passes: pass,
		Deterministic: cfg.Deterministic, Timed: cfg.Tune,
	}
	if x == tensor.F32 && cfg.Compute != F32 {
		d.Math = cudnn.TF32 // the narrowest that cuDNN has for elements of f32
	}
	if d.Validate() != nil {
		return nil
	}
	if outH, outW := d.Out(); outH != w.OutH || outW != w.OutW {
		return nil // the padding differs between sides, which cuDNN cannot do
	}
	return &convolution{desc: d, a: viewOf(p, s.In[0]), b: viewOf(p, s.In[1]), c: viewOf(p, s.Out[0])}
}

// queue queues the convolution on the handle's stream.
func (v *convolution) queue(addr []uintptr, workspace uintptr) error {
	a, b := addr[v.a.slot]+uintptr(v.a.offset), addr[v.b.slot]+uintptr(v.b.offset)
	c := addr[v.c.slot] + uintptr(v.c.offset)
	switch v.desc.Passes {
	case cudnn.Forward:
		return v.conv.Forward(a, b, c, workspace)
	case cudnn.BackwardData:
		return v.conv.BackwardData(b, a, c, workspace) // In is dy, filter; cuDNN's order is filter, dy
	}
	return v.conv.BackwardFilter(a, b, c, workspace)
}

// convolutions are the steps of a program that cuDNN does. They run one after the other and share a
// workspace.
type convolutions struct {
	dev       *cuda.Device
	handle    *cudnn.Handle
	steps     []*convolution // by step; nil for others
	workspace uintptr
}

// forCUDNN returns the steps of p for cuDNN, by step. Others are nil, also convolutions for which
// cudagen.Direct prefers our own kernels.
func forCUDNN(p *program.Program, on []program.Stream, cfg *Config) []*convolution {
	steps := make([]*convolution, len(p.Steps))
	for i := range steps {
		if on[i] == program.Compute && !cudagen.Direct(p, i) {
			steps[i] = newConvolution(p, i, cfg)
		}
	}
	return steps
}

// newConvolutions opens cuDNN if p has a step for it. It returns nil if p has none, or if cuDNN is
// missing and cfg names no path. Steps for which cuDNN has no algorithm get kernels.
//
// Errors: those of cudnn.Open for a library that cfg names; cuda.ErrMemory; *cudnn.Error.
func newConvolutions(p *program.Program, on []program.Stream, cfg *Config, s *cuda.Stream) (*convolutions, error) {
	if cfg.CUDNN == Without {
		return nil, nil
	}
	v := &convolutions{dev: cfg.Device, steps: forCUDNN(p, on, cfg)}
	if !slices.ContainsFunc(v.steps, func(c *convolution) bool { return c != nil }) {
		return nil, nil
	}
	err := v.open(cfg, s)
	if err != nil && cfg.CUDNN == "" && cudnn.IsUnavailable(err) {
		return nil, v.close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cudaexec: program %q: %w: set CUDNN to %q to do without", p.Name, err, Without), v.close())
	}
	if err := v.choose(p); err != nil {
		return nil, errors.Join(err, v.close())
	}
	return v, nil
}

func (v *convolutions) open(cfg *Config, s *cuda.Stream) error {
	lib, err := cudnn.Open(cudnn.Config{Path: cfg.CUDNN, Dirs: cfg.Dirs, CUDA: cfg.Device.Driver().Version()})
	if err != nil {
		return err
	}
	v.handle, err = lib.NewHandle(s)
	return err
}

// choose lets cuDNN choose an algorithm for each step.
func (v *convolutions) choose(p *program.Program) error {
	for i, c := range v.steps {
		if c == nil {
			continue
		}
		var err error
		c.conv, err = v.handle.NewConv(c.desc)
		switch {
		case err != nil && cudnn.IsUnavailable(err):
			v.steps[i] = nil
			continue
		case err != nil:
			return fmt.Errorf("cudaexec: %s: %w", stepName(p, i), err)
		}
	}
	return nil
}

// trials returns all that was timed, step by step.
func (v *convolutions) trials() []*trial {
	if v == nil {
		return nil
	}
	var list []*trial
	for _, c := range v.steps {
		if c == nil || !c.desc.Timed {
			continue
		}
		pass := c.desc.Passes
		names, took := c.conv.Candidates(pass)
		what := fmt.Sprintf("%v pass %d", c.desc, pass)
		list = append(list, newTrial(what, names, took, func(i int) error { return c.conv.Take(pass, i) }))
	}
	return list
}

// place allocates a workspace for the algorithm that needs most.
func (v *convolutions) place(p *program.Program) error {
	if v == nil {
		return nil
	}
	var most int64
	for _, c := range v.steps {
		if c != nil {
			most = max(most, c.conv.WorkspaceBytes())
		}
	}
	if most == 0 {
		return nil
	}
	var err error
	if v.workspace, err = v.dev.Alloc(most); err != nil {
		return fmt.Errorf("cudaexec: program %q: the workspace of cuDNN: %w", p.Name, err)
	}
	return nil
}

// does reports whether cuDNN does step i.
func (v *convolutions) does(i int) bool { return v != nil && v.steps[i] != nil }

func (v *convolutions) queue(i int, addr []uintptr) error {
	return v.steps[i].queue(addr, v.workspace)
}

func (v *convolutions) close() error {
	if v == nil {
		return nil
	}
	var errs []error
	for _, c := range v.steps {
		if c != nil && c.conv != nil {
			errs = append(errs, c.conv.Close())
		}
	}
	if v.handle != nil {
		errs = append(errs, v.handle.Close())
	}
	return errors.Join(append(errs, v.dev.Free(v.workspace))...)
}
