package cublas

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// HandleConfig configures a Handle. The zero value has the workspace that NVIDIA recommends.
type HandleConfig struct {
	WorkspaceBytes int64 // 0 means NVIDIA's recommendation for the device: 32 MiB on Hopper
}

// Math changes the precision of calls with Compute Full.
type Math uint8

// Modes.
const (
	MathDefault  Math = iota // as Gemm.Compute says
	MathPedantic             // Pedantic instead of Full
	MathTF32                 // TF32 instead of Full, for elements of F32
)

// mathModes has the cublasMath_t by Math.
var mathModes = [...]int32{MathDefault: mathDefault | mathFullSums, MathPedantic: mathPedantic, MathTF32: mathTF32 | mathFullSums}

// Handle is the library's state for one stream, with a workspace. It is not safe for concurrent
// use.
type Handle struct {
	lib    *Library
	dev    *cuda.Device
	stream *cuda.Stream
	handle uintptr // cublasHandle_t; 0 after Close
	lt     uintptr // cublasLtHandle_t

	own   uintptr // the handle's workspace
	ws    uintptr // the workspace in use
	bytes int64   // of ws
	owned int64   // bytes of own

	args        [23]uintptr
	alpha, beta uint64 // in the library's form, during a call
}

// NewHandle makes a handle for s with a workspace on its device.
//
// Owns: the caller closes it, after the graphs that were captured with it. Errors: cuda.ErrMemory;
// dl.ErrUnsupported if the library does not support the device; cuda.ErrInvalid for an invalid c;
// *Error.
func (l *Library) NewHandle(s *cuda.Stream, c HandleConfig) (*Handle, error) {
	dev := s.Device()
	major, minor := dev.Arch()
	if err := l.serves(major, minor); err != nil {
		return nil, fmt.Errorf("%w: %v", err, dev)
	}
	bytes := c.WorkspaceBytes
	switch {
	case bytes < 0:
		return nil, fmt.Errorf("cublas: %w: a workspace of %d B", cuda.ErrInvalid, bytes)
	case bytes == 0:
		bytes = recommended(major)
	}
	h := &Handle{lib: l, dev: dev, bytes: bytes, owned: bytes}
	var err error
	if h.own, err = dev.Alloc(bytes); err != nil {
		return nil, fmt.Errorf("cublas: the workspace: %w", err)
	}
	h.ws = h.own
	err = h.inside(func() error {
		if err := l.check("cublasCreate_v2", l.t.create(&h.handle)); err != nil {
			return fmt.Errorf("on %v: %w", dev, err)
		}
		if err := l.check("cublasLtCreate", l.ltT.create(&h.lt)); err != nil {
			return fmt.Errorf("on %v: %w", dev, err)
		}
		return errors.Join(
			l.check("cublasSetPointerMode_v2", l.t.setPointers(h.handle, pointerHost)),
			l.check("cublasSetAtomicsMode", l.t.setAtomics(h.handle, atomicsOff)),
			l.check("cublasSetMathMode", l.t.setMath(h.handle, mathModes[MathDefault])),
		)
	})
	if err == nil {
		err = h.SetStream(s)
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// serves returns nil if the library has kernels for the architecture. cuBLAS of CUDA 13 starts with
// Turing, that of 12 with Maxwell.
func (l *Library) serves(major, minor int) error {
	least := 50
	if l.version.Major >= 13 {
		least = 75
	}
	if 10*major+minor >= least {
		return nil
	}
	return fmt.Errorf("cublas: %w: %s serves GPUs of compute capability %d.%d and later, this one has %d.%d: install cuBLAS of CUDA 12 (pip install nvidia-cublas-cu12)",
		dl.ErrUnsupported, l.name, least/10, least%10, major, minor)
}

// recommended returns the workspace bytes for a device, from the table at cublasSetWorkspace in the
// manual.
func recommended(major int) int64 {
	if major >= 9 {
		return 32 << 20
	}
	return 4 << 20
}

// inside runs fn with the device's context current on a locked thread.
func (h *Handle) inside(fn func() error) error {
	if err := h.dev.Enter(); err != nil {
		return err
	}
	defer h.dev.Leave()
	return fn()
}

// SetStream makes calls queue on s, a stream of the same device.
//
// Errors: cuda.ErrInvalid for a stream of another device, ErrClosed, *Error.
func (h *Handle) SetStream(s *cuda.Stream) error {
	switch {
	case h.handle == 0:
		return ErrClosed
	case s.Device() != h.dev:
		return fmt.Errorf("cublas: %w: a stream of %v for a handle of %v", cuda.ErrInvalid, s.Device(), h.dev)
	case s.Handle() == 0:
		return fmt.Errorf("cublas: the stream: %w", cuda.ErrClosed)
	}
	err := h.inside(func() error {
		return h.lib.check("cublasSetStream_v2", h.lib.t.setStream(h.handle, s.Handle()))
	})
	if err != nil {
		return err
	}
	h.stream = s
	return h.setWorkspace() // cublasSetStream resets the workspace
}

// SetWorkspace replaces the handle's workspace by bytes bytes of the device's memory at p. With p 0
// it restores the handle's own, which is kept.
//
// Owns: p is the handle's until it is closed or has another workspace, and belongs to graphs
// captured meanwhile. Errors: cuda.ErrInvalid for no bytes or a p that is no multiple of 256,
// ErrClosed, *Error.
func (h *Handle) SetWorkspace(p uintptr, bytes int64) error {
	switch {
	case h.handle == 0:
		return ErrClosed
	case p == 0:
		p, bytes = h.own, h.owned
	case bytes <= 0 || p%workspaceAligned != 0:
		return fmt.Errorf("cublas: %w: a workspace of %d B at %#x, want a multiple of %d", cuda.ErrInvalid, bytes, p, workspaceAligned)
	}
	h.ws, h.bytes = p, bytes
	return h.setWorkspace()
}

func (h *Handle) setWorkspace() error {
	return h.inside(func() error {
		return h.lib.check("cublasSetWorkspace_v2", h.lib.t.setWorkspace(h.handle, h.ws, uint64(h.bytes)))
	})
}

// SetMathMode changes Gemm with Compute Full. Existing plans do not change. Errors:
// cuda.ErrInvalid, ErrClosed, *Error.
func (h *Handle) SetMathMode(m Math) error {
	if int(m) >= len(mathModes) {
		return fmt.Errorf("cublas: %w: math mode %d", cuda.ErrInvalid, m)
	}
	if h.handle == 0 {
		return ErrClosed
	}
	return h.inside(func() error {
		return h.lib.check("cublasSetMathMode", h.lib.t.setMath(h.handle, mathModes[m]))
	})
}

// Workspace returns the address and the bytes of the workspace in use.
func (h *Handle) Workspace() (p uintptr, bytes int64) { return h.ws, h.bytes }

// Device returns the handle's device.
func (h *Handle) Device() *cuda.Device { return h.dev }

// Stream returns the stream that calls queue on.
func (h *Handle) Stream() *cuda.Stream { return h.stream }

// Library returns the library of the handle.
func (h *Handle) Library() *Library { return h.lib }

// Close frees the handle and its workspace after the queued work is done. Plans and graphs must be
// closed before. On a device that is stuck they are kept until the process ends. Idempotent.
// Errors: *Error, *cuda.Error.
func (h *Handle) Close() error {
	handle, lt, own := h.handle, h.lt, h.own
	h.handle, h.lt, h.own, h.ws = 0, 0, 0, 0
	if handle == 0 && lt == 0 && own == 0 || h.dev.Stuck() { // the library waits for the whole device
		return nil
	}
	var errs []error
	if h.stream != nil && h.stream.Handle() != 0 {
		errs = append(errs, h.stream.Synchronize())
	}
	errs = append(errs, h.inside(func() error {
		var errs []error
		if lt != 0 {
			errs = append(errs, h.lib.check("cublasLtDestroy", h.lib.ltT.destroy(lt)))
		}
		if handle != 0 {
			errs = append(errs, h.lib.check("cublasDestroy_v2", h.lib.t.destroy(handle)))
		}
		return errors.Join(errs...)
	}), h.dev.Free(own))
	return errors.Join(errs...)
}

// scalar returns v in the library's form: a double, or a float in the first four bytes.
func scalar(v float64, dtype int32) uint64 {
	if dtype == typeF64 {
		return math.Float64bits(v)
	}
	return uint64(math.Float32bits(float32(v)))
}

// call calls p with the first n of h.args on the device; it allocates nothing.
func (h *Handle) call(p *dl.Proc, n int) (int32, error) {
	if err := h.dev.Enter(); err != nil {
		return 0, err
	}
	r, err := p.CallWords(h.args[:n]...)
	h.dev.Leave()
	runtime.KeepAlive(h)
	return int32(r), err
}
