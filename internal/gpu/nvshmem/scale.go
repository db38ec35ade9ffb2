package nvshmem

import (
	_ "embed" // the kernels

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

//go:embed kernels/scale.cu
var scaleSource string

// scaler holds the kernels that multiply and divide, for every element type.
type scaler struct {
	module   *cuda.Module
	multiply [tensor.U64 + 1]*cuda.Function
	divide   [tensor.U64 + 1]*cuda.Function
	blocks   uint32 // largest grid
}

const (
	scaleThreads   = 256
	scaleBlocksPer = 8 // of a multiprocessor: its 2048 threads
	scaleArgs      = 5
)

// newScaler compiles and loads the kernels.
func newScaler(c *cuda.Compiler, v *cuda.Device) (*scaler, error) {
	image, err := c.Compile(v, cuda.Source{Name: "nvshmem_scale.cu", Text: scaleSource})
	if err != nil {
		return nil, err
	}
	k := &scaler{blocks: uint32(scaleBlocksPer * v.SMs())}
	if k.module, err = v.Load(image); err != nil {
		return nil, err
	}
	for _, dt := range tensor.DTypes() {
		if k.multiply[dt], err = k.module.Function("multiply_" + dt.String()); err == nil {
			k.divide[dt], err = k.module.Function("divide_" + dt.String())
		}
		if err != nil {
			k.close()
			return nil, err
		}
	}
	return k, nil
}

// close unloads the kernels; k may be nil.
func (k *scaler) close() {
	if k == nil || k.module == nil {
		return
	}
	_ = k.module.Close() // only the device can fail here, which others report
	k.module = nil
}

// grid returns the launch for n elements.
func (k *scaler) grid(n int64) cuda.Launch {
	blocks := uint32(min((n+scaleThreads-1)/scaleThreads, int64(k.blocks)))
	return cuda.Launch{Grid: [3]uint32{max(blocks, 1), 1, 1}, Block: [3]uint32{scaleThreads, 1, 1}}
}

// multiply queues dst = src times the factor of a premulsum, n elements.
func (e *engine) multiply(op *dist.Op, s *cuda.Stream, dst, src uintptr, n int64) error {
	k, a, factor := e.rt.scale, e.args, &op.Red.Scalar
	a.Reset()
	a.Ptr(dst)
	a.Ptr(src)
	a.U64(uint64(n))
	a.Ptr(address(factor.At))
	a.U64(factor.Bits)
	return k.multiply[op.DType()].Launch(s, k.grid(n), a)
}

// divide queues dst = src divided by the number of ranks, n elements.
func (e *engine) divide(dt tensor.DType, s *cuda.Stream, dst, src uintptr, n int64) error {
	k, a := e.rt.scale, e.args
	a.Reset()
	a.Ptr(dst)
	a.Ptr(src)
	a.U64(uint64(n))
	a.U32(uint32(e.size))
	return k.divide[dt].Launch(s, k.grid(n), a)
}
