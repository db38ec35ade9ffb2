package cudaexec

import (
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// Compute is the precision in which libraries multiply f32 elements, in matrix products and
// convolutions. All sums are in f32. Elements of other types are multiplied as they are.
type Compute uint8

// Precisions of products.
const (
	F32  Compute = iota // as they are
	TF32                // rounded to TF32 (10 bits of fraction), on tensor cores
	BF16                // rounded to bf16 (7 bits of fraction), on tensor cores
	F16                 // as TF32, which has the bits of f16 and the range of f32; large products have elements of f16
)

var computeNames = [...]string{F32: "f32", TF32: "tf32", BF16: "bf16", F16: "f16"}

// String returns the name, such as "tf32".
func (c Compute) String() string {
	if int(c) < len(computeNames) {
		return computeNames[c]
	}
	return fmt.Sprintf("compute(%d)", uint8(c))
}

// ParseCompute is the inverse of String. Errors: dist.ErrInvalid.
func ParseCompute(s string) (Compute, error) {
	for c, name := range computeNames {
		if s == name {
			return Compute(c), nil
		}
	}
	return 0, fmt.Errorf("cudaexec: %w: compute %q, want one of %s", dist.ErrInvalid, s, strings.Join(computeNames[:], ", "))
}

// Without as the path of a library disables the library, even if it is installed.
const Without = "none"

// Config says how a program runs on a GPU. Device must be set. Zero values of the other fields are
// the fast choices.
type Config struct {
	Device  *cuda.Device
	Compute Compute // equal on all ranks

	Eager         bool // queue all steps in every run, without a graph
	Deterministic bool // the same bits in every run of the program on one kind of GPU, at some cost in time
	// Tune makes New time the candidates for each matrix product and convolution. All ranks take
	// the candidate that is fastest on the slowest of them. Not with Deterministic.
	Tune bool

	// TuneAlone makes Tune use this rank's times alone, for a program that other ranks may not load
	// now. For them New is then the same as without Tune.
	TuneAlone bool

	turns turning // with Tune: when products work on transposed copies of an operand

	CUBLAS string   // path of libcublas; "" searches, Without leaves matrix products to kernels of our own
	CUDNN  string   // path of libcudnn; "" searches, Without leaves convolutions to kernels of our own
	Dirs   []string // folders and patterns to search for both; nil means those of the device's driver

	// Arena is memory for the program's arena. Memory of a symmetric heap makes collectives faster.
	// With the zero Buffer New allocates the arena.
	Arena tensor.Buffer

	// Before is called before a wait on a program without collectives. It returns when the work is
	// done that earlier programs queued on the device, or with the reason why it will never be: the
	// driver's waits do not end after a rank has died. nil is for a device without such work.
	Before func() error

	// Symmetric is memory in symmetric heaps of the groups. Collectives whose buffers are in
	// it have dist.Hints.Symmetric: the program is the same, and so are the offsets, on all ranks.
	Symmetric []tensor.Buffer
	// HeapGroup is the group of Symmetric's heaps; nil means every group of the program.
	HeapGroup *dist.Group
}

// Validate reports the first wrong setting. Errors: dist.ErrInvalid and its kinds.
func (c *Config) Validate() error {
	switch {
	case c.Device == nil:
		return fmt.Errorf("cudaexec: %w: no device", dist.ErrInvalid)
	case int(c.Compute) >= len(computeNames):
		return fmt.Errorf("cudaexec: %w: %v", dist.ErrInvalid, c.Compute)
	case c.Tune && c.Deterministic:
		return fmt.Errorf("cudaexec: %w: Tune chooses by measured times, so it excludes Deterministic", dist.ErrInvalid)
	}
	for i, b := range append([]tensor.Buffer{c.Arena}, c.Symmetric...) {
		if (i > 0 || !b.IsZero()) && b.Device() != c.Device.Tensor() {
			return fmt.Errorf("cudaexec: %w: memory of a heap is on %v, the program on %v", dist.ErrDevice, b.Device(), c.Device.Tensor())
		}
	}
	return nil
}

// symmetric reports whether b is in symmetric memory.
func (c *Config) symmetric(b tensor.Buffer) bool {
	at := uintptr(b.Pointer())
	for _, s := range c.Symmetric {
		base := uintptr(s.Pointer())
		if at >= base && int64(at-base)+b.Bytes() <= s.Bytes() {
			return true
		}
	}
	return false
}
