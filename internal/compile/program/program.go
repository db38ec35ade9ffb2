package program

import "github.com/symgrad/symgrad/tensor"

// Program is one compiled step of training or inference.
type Program struct {
	Name   string
	Values []Value
	Steps  []Step // in an order in which one processor could run them
	Arena  int64  // bytes of the arena; set by Plan
	Clock  ID     // Outside U64[2] that Rand reads: step number, number of this rank's first sample; or None
	Rows   bool   // Plan keeps the operands of a run of row-wise steps until its end, so that it can run row by row
	Again  bool   // Optimize recomputes cheap functions for each reader, where memory is slower than that
	Aside  bool   // Optimize puts gradients of weights on the Side stream
	// Recompute says which results of the forward pass the backward pass computes again.
	Recompute  Recompute
	ArenaLimit int64        // with RecomputeAuto: wanted bytes of the arena; 0: no limit
	Narrow     int          // least number of multiplications for which products use NarrowTo for f32; 0: none
	NarrowTo   tensor.DType // BF16, also for attention, or F16; the zero value means BF16
}

// ID is the index of a value in Program.Values.
type ID int32

// None is the ID of no value.
const None ID = -1

// Value is memory with a type and a shape, in C order.
type Value struct {
	Name  string // of the graph's node, for people; need not be unique
	DType tensor.DType
	Shape []int // empty for a scalar
	Role  Role
	Place Place

	Offset int64  // of an Arena value: bytes from the start of the arena
	Data   []byte // of a Constant: its elements
}

// Role is the purpose of a value in a training step.
type Role uint8

// The roles.
const (
	Temp     Role = iota // not read after the step
	Input                // set by the caller before each step
	Param                // a weight; lasts from step to step
	Gradient             // of a Param
	State                // of an optimizer or a layer; lasts from step to step
	Output               // read by the caller after the step
)

// Place says where the memory of a value is.
type Place uint8

// The places.
const (
	Arena    Place = iota // in the block that steps share; other values may use its bytes at another time
	Outside               // in memory bound before the run: inputs, parameters, states, gradients in buckets
	Constant              // in memory that the back half fills once from Data
)

// View maps an index space to elements of a value: index (i, j, ...) is element Offset +
// i*Strides[0] + j*Strides[1] + ... A stride of 0 repeats. Transposes, slices, repeats and reshapes
// are views, not steps.
type View struct {
	Value   ID
	Offset  int   // elements
	Strides []int // elements; one for each dimension of the space
}

// Step is one operation.
type Step struct {
	Name   string // expression in the graph: "dw0 = Aᵀ×B"
	Op     Op
	In     []View
	Out    []View
	Stream Stream
	After  []int // earlier steps on other streams that must be done before this one starts
	Again  bool  // the step repeats one of the forward pass: see Recompute
}

// Stream is where a step runs. Steps of one stream run in order.
type Stream uint8

// The streams.
const (
	Compute Stream = iota
	Comm           // collectives; overlaps Compute
	Side           // work that products of Compute need not wait for; overlaps both
)

// Len returns the number of elements of the value.
func (v *Value) Len() int {
	n := 1
	for _, d := range v.Shape {
		n *= d
	}
	return n
}

// Bytes returns the size of the value.
func (v *Value) Bytes() int64 { return int64(v.Len()) * int64(v.DType.Size()) }

// Add adds a value and returns its ID.
func (p *Program) Add(v Value) ID {
	p.Values = append(p.Values, v)
	return ID(len(p.Values) - 1)
}

// Whole returns the view of a value over its own shape.
func (p *Program) Whole(id ID) View { return View{Value: id, Strides: Contiguous(p.Values[id].Shape)} }

// Contiguous returns the strides of a tensor of that shape in C order.
func Contiguous(shape []int) []int {
	strides, n := make([]int, len(shape)), 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= shape[i]
	}
	return strides
}
