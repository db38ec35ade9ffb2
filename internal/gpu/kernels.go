package gpu

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

//go:embed kernels/gpu.cu
var source string

// kernels has the functions of kernels/gpu.cu on one device, or the error that prevents them.
type kernels struct {
	err     error // matches ErrUnsupported
	module  *cuda.Module
	scale   [16]*cuda.Function // by dtype
	word    *cuda.Function
	wait    *cuda.Function
	strided *cuda.Function
}

// loadKernels compiles the kernels for v, or takes them from the cache.
//
// Errors: ErrUnsupported, with the error of the compiler or the driver.
func loadKernels(v *cuda.Device) (*kernels, error) {
	k, err := compileKernels(v)
	if err != nil {
		return nil, fmt.Errorf("%w: kernels of package gpu: %w", dist.ErrUnsupported, err)
	}
	return k, nil
}

func compileKernels(v *cuda.Device) (*kernels, error) {
	c, err := v.Driver().Compiler()
	if err != nil {
		return nil, err
	}
	image, err := c.Compile(v, cuda.Source{Name: "gpu.cu", Text: source})
	if err != nil {
		return nil, err
	}
	if err := v.Enter(); err != nil {
		return nil, err
	}
	defer v.Leave()
	k := &kernels{}
	if k.module, err = v.Load(image); err != nil {
		return nil, err
	}
	for _, dt := range tensor.DTypes() {
		if k.scale[dt], err = k.module.Function("scale_" + dt.String()); err != nil {
			return nil, errors.Join(err, k.close())
		}
	}
	for _, f := range []struct {
		name string
		to   **cuda.Function
	}{{"word_op", &k.word}, {"wait_words", &k.wait}, {"strided", &k.strided}} {
		if *f.to, err = k.module.Function(f.name); err != nil {
			return nil, errors.Join(err, k.close())
		}
	}
	return k, nil
}

func (k *kernels) close() error {
	if k == nil || k.module == nil {
		return nil
	}
	return k.module.Close()
}

// newArgs allocates room for the arguments of any of the kernels.
func newArgs() (*cuda.Args, error) { return cuda.NewArgs(8) }

// grid returns the launch for n elements: one a thread, several if n is large.
func grid(n uint64) cuda.Launch {
	const threads, most = 256, 1024
	blocks := min((n+threads-1)/threads, most)
	return cuda.Launch{Grid: [3]uint32{uint32(max(blocks, 1)), 1, 1}, Block: [3]uint32{threads, 1, 1}}
}

var single = cuda.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}

// launchScale queues dst = src times a factor, the value at at or else bits; with divide, src /
// bits.
func (k *kernels) launchScale(a *cuda.Args, s *cuda.Stream, dst, src tensor.Buffer, at uintptr, bits uint64, divide bool) error {
	if k.err != nil {
		return k.err
	}
	n := uint64(src.Len())
	a.Reset()
	a.Ptr(address(dst))
	a.Ptr(address(src))
	a.U64(n)
	a.Ptr(at)
	a.U64(bits)
	a.I32(flag(divide))
	return k.scale[src.DType()].Launch(s, grid(n), a)
}

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// launchWord queues an atomic operation on the word of bytes bytes at p. The previous value is
// stored at old, unless old is 0.
func (k *kernels) launchWord(a *cuda.Args, s *cuda.Stream, op symmetric.AtomicOp, bytes int, p uintptr, value, compare uint64, old uintptr) error {
	if k.err != nil {
		return k.err
	}
	a.Reset()
	a.I32(int32(op))
	a.I32(int32(bytes))
	a.Ptr(p)
	a.U64(value)
	a.U64(compare)
	a.Ptr(old)
	return k.word.Launch(s, single, a)
}

// launchWait queues the wait of w for words at p. The word at stop ends it early.
func (k *kernels) launchWait(a *cuda.Args, s *cuda.Stream, p uintptr, w symmetric.Watch, stop uintptr) error {
	if k.err != nil {
		return k.err
	}
	a.Reset()
	a.Ptr(p)
	a.U64(uint64(w.Count))
	a.I32(int32(w.DType.Size()))
	a.I32(flag(w.DType == tensor.I32 || w.DType == tensor.I64))
	a.I32(int32(w.Cmp))
	a.U64(w.Value)
	a.I32(flag(w.All))
	a.Ptr(stop)
	return k.wait.Launch(s, single, a)
}

// launchStrided queues a copy of n elements of size bytes; steps are in bytes.
func (k *kernels) launchStrided(a *cuda.Args, s *cuda.Stream, dst uintptr, dstStep int, src uintptr, srcStep, n, size int) error {
	if k.err != nil {
		return k.err
	}
	a.Reset()
	a.Ptr(dst)
	a.U64(uint64(dstStep))
	a.Ptr(src)
	a.U64(uint64(srcStep))
	a.U64(uint64(n))
	a.I32(int32(size))
	return k.strided.Launch(s, grid(uint64(n)), a)
}
