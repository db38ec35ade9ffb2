package cudaexec

import (
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// Compute is how products of f32 elements are made, in matrix products and convolutions of
// libraries. All sums are in f32, and elements of other types are multiplied as they are.
type Compute uint8

// The ways.
const (
	F32  Compute = iota // as they are
	TF32                // rounded to TF32 (10 bits of fraction), on tensor cores
	BF16                // rounded to bf16 (7 bits of fraction), on tensor cores
)

var computeNames = [...]string{F32: "f32", TF32: "tf32", BF16: "bf16"}

// String is "tf32".
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

// Without as the path of a library means that it is not used, even if it is there.
const Without = "none"

// Config has the settings of a program on a GPU. Device must be set; the zero values of the others
// are the fast ones.
type Config struct {
	Device  *cuda.Device
	Compute Compute // equal on all ranks

	Eager         bool // queue step by step in every run, instead of capturing one graph and replaying it
	Deterministic bool // the same bits in every run of the program on one kind of GPU, at some cost in time
	Tune          bool // time the candidates for each matrix product and convolution in New, and take the fastest on all ranks; not with Deterministic

	// TuneAlone is Tune by the times of this rank alone, for a program that the other ranks may not
	// load now. For them New is then the same as without Tune.
	TuneAlone bool

	turns turning // with Tune: when products work on transposed copies of an operand

	CUBLAS string   // path of libcublas; "" searches, Without leaves matrix products to kernels of our own
	CUDNN  string   // path of libcudnn; "" searches, Without leaves convolutions to kernels of our own
	Dirs   []string // folders and patterns to search for both; nil means those of the device's driver

	// Arena is memory for the program's arena, in a symmetric heap for collectives to be faster;
	// the zero Buffer means that New allocates it.
	Arena tensor.Buffer

	// Before returns when the earlier work that runs of a program without collectives may wait for
	// is done, or the reason why it never will be: the driver's waits do not end after a death. nil
	// means no such work.
	Before func() error

	// Symmetric is memory that lies in symmetric heaps of the groups. A collective whose buffers
	// lie in it, at the same places on all ranks because the program is the same, is done by
	// Group.Symmetric.
	Symmetric []tensor.Buffer
}

// Validate reports the first wrong setting. Errors: dist.ErrInvalid and its kinds.
func (c *Config) Validate() error {
	switch {
	case c.Device == nil:
		return fmt.Errorf("cudaexec: %w: no device", dist.ErrInvalid)
	case int(c.Compute) >= len(computeNames):
		return fmt.Errorf("cudaexec: %w: %v", dist.ErrInvalid, c.Compute)
	case c.Tune && c.Deterministic:
		return fmt.Errorf("cudaexec: %w: Tune takes the fastest candidate of the moment, which is not Deterministic", dist.ErrInvalid)
	}
	for i, b := range append([]tensor.Buffer{c.Arena}, c.Symmetric...) {
		if (i > 0 || !b.IsZero()) && b.Device() != c.Device.Tensor() {
			return fmt.Errorf("cudaexec: %w: memory of a heap is on %v, the program on %v", dist.ErrDevice, b.Device(), c.Device.Tensor())
		}
	}
	return nil
}

// symmetric reports whether b lies in memory that is symmetric.
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
