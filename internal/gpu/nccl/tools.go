package nccl

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

//go:embed kernels/compose.cu
var composeSource string

// stagingBytes is the memory for pieces of a reduction whose elements NCCL must reduce in another
// form. NCCL's fixed cost of some 10 us per piece is then small compared with 30 us of transfer.
const stagingBytes = 8 << 20

// wordBytes is the memory that barriers reduce; an allocation's least alignment.
const wordBytes = 512

// Threads of a block, and most blocks per multiprocessor.
const (
	blockThreads   = 256
	blocksPerMulti = 8
)

// tools has the device memory and kernels of a group's engines: a word for barriers, and kernels
// with staging memory.
type tools struct {
	dev     *cuda.Device
	word    uintptr // wordBytes
	staging uintptr // stagingBytes; 0 without kernels
	module  *cuda.Module
	encode  [tensor.F64 + 1]*cuda.Function // by dtype
	decode  [tensor.F64 + 1]*cuda.Function
	divide  [tensor.F64 + 1]*cuda.Function
	most    uint64 // blocks of a launch
	args    *cuda.Args
	missing error // the reason for missing kernels; matches dist.ErrUnsupported
}

// newTools allocates the word and, with a compiler, the kernels. Missing kernels are not an error.
// A launch has at most maxCTAs blocks; 0 means enough to occupy the device.
func newTools(dev *cuda.Device, maxCTAs int) (*tools, error) {
	t := &tools{dev: dev, most: uint64(cmp.Or(maxCTAs, max(dev.SMs(), 1)*blocksPerMulti))}
	t.missing = t.load()
	if t.missing != nil {
		t.missing = fmt.Errorf("nccl: %w: %w", dist.ErrUnsupported, t.missing)
	}
	var err error
	if t.word, err = dev.Alloc(wordBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("nccl: %d B for barriers: %w", wordBytes, err), t.close())
	}
	if err := dev.Fill(t.word, 0, wordBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("nccl: %w", err), t.close())
	}
	return t, nil
}

// load compiles the kernels and allocates their memory.
func (t *tools) load() error {
	compiler, err := t.dev.Driver().Compiler()
	if err != nil {
		return fmt.Errorf("this reduction needs kernels around NCCL's, and NVRTC to compile them: %w", err)
	}
	image, err := compiler.Compile(t.dev, cuda.Source{Name: "compose.cu", Text: composeSource})
	if err != nil {
		return fmt.Errorf("this reduction needs kernels around NCCL's: %w", err)
	}
	if t.module, err = t.dev.Load(image); err != nil {
		return fmt.Errorf("this reduction needs kernels around NCCL's: %w", err)
	}
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64} {
		for _, f := range []struct {
			to   **cuda.Function
			name string
		}{{&t.encode[dt], "encode_"}, {&t.decode[dt], "decode_"}, {&t.divide[dt], "divide_"}} {
			if dt == tensor.F16 && f.to == &t.divide[dt] {
				continue // see methodOf
			}
			if *f.to, err = t.module.Function(f.name + dt.String()); err != nil {
				return fmt.Errorf("this reduction needs kernels around NCCL's: %w", err)
			}
		}
	}
	if t.args, err = cuda.NewArgs(6); err != nil {
		return err
	}
	if t.staging, err = t.dev.Alloc(stagingBytes); err != nil {
		return fmt.Errorf("this reduction needs %d MiB of staging memory: %w", stagingBytes>>20, err)
	}
	return nil
}

// without frees the kernels because another rank has none.
func (t *tools) without(why error) error {
	t.missing = why
	return t.closeKernels()
}

func (t *tools) closeKernels() error {
	var errs []error
	if t.staging != 0 {
		errs = append(errs, t.dev.Free(t.staging))
		t.staging = 0
	}
	if t.module != nil {
		errs = append(errs, t.module.Close())
		t.module = nil
	}
	return errors.Join(errs...)
}

func (t *tools) close() error {
	errs := []error{t.closeKernels()}
	if t.word != 0 {
		errs = append(errs, t.dev.Free(t.word))
		t.word = 0
	}
	return errors.Join(errs...)
}

// grid returns enough blocks for n elements, but at most t.most.
func (t *tools) grid(n uint64) cuda.Launch {
	blocks := min((n+blockThreads-1)/blockThreads, t.most)
	return cuda.Launch{Grid: [3]uint32{uint32(max(blocks, 1)), 1, 1}, Block: [3]uint32{blockThreads, 1, 1}}
}

// encodeTo queues the copy of rows rows of n elements at src, stride elements apart, as integers in
// the same order.
func (t *tools) encodeTo(dst, src uintptr, dt tensor.DType, n, rows, stride int, largest bool, s *cuda.Stream) error {
	a := t.args
	a.Reset()
	a.Ptr(dst)
	a.Ptr(src)
	a.U64(uint64(n))
	a.U64(uint64(rows))
	a.U64(uint64(stride))
	if largest {
		a.U32(1)
	} else {
		a.U32(0)
	}
	return t.encode[dt].Launch(s, t.grid(uint64(n)*uint64(rows)), a)
}

// decodeTo queues the inverse of encodeTo.
func (t *tools) decodeTo(dst, src uintptr, dt tensor.DType, n int, s *cuda.Stream) error {
	a := t.args
	a.Reset()
	a.Ptr(dst)
	a.Ptr(src)
	a.U64(uint64(n))
	return t.decode[dt].Launch(s, t.grid(uint64(n)), a)
}

// divideBy queues the division of n elements by the number of ranks.
func (t *tools) divideBy(dst uintptr, dt tensor.DType, n, ranks int, s *cuda.Stream) error {
	a := t.args
	a.Reset()
	a.Ptr(dst)
	a.U64(uint64(n))
	a.U32(uint32(ranks))
	return t.divide[dt].Launch(s, t.grid(uint64(n)), a)
}
