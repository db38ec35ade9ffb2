package program

import "github.com/symgrad/symgrad/tensor"

// Program is one compiled step of training or inference.
type Program struct {
	Name   string
	Values []Value
	Steps  []Step // in the order in which one processor would run them
	Arena  int64  // bytes of the arena, once Plan has run
	Clock  ID     // the Outside U64[2] that Rand reads: number of the step, number of this rank's first sample; None if no step needs it
	Rows   bool   // Plan lets successive steps along the same rows be done row by row
	Again  bool   // Optimize repeats functions in steps that read their inputs as well: memory is slower
	Aside  bool   // Optimize puts gradients of weights on the Side stream
	Narrow int    // Optimize has bf16 for f32 in products of at least so many multiplications, and in attention; 0 for none. See narrow
}

// ID is the index of a value in Program.Values.
type ID int32

// None is no value.
const None ID = -1

// Value is memory with a type and a shape, in C order.
type Value struct {
	Name  string // of the node of the graph, for people; need not be unique
	DType tensor.DType
	Shape []int // empty for a scalar
	Role  Role
	Place Place

	Offset int64  // of an Arena value: bytes from the start of the arena
	Data   []byte // of a Constant: its elements
}

// Role is the role of a value in a training step.
type Role uint8

// The roles.
const (
	Temp     Role = iota // not read after the step
	Input                // set by the program's user before each step
	Param                // a weight; lives from step to step
	Gradient             // of a Param
	State                // of an optimizer or a layer; lives from step to step
	Output               // looked at after the step
)

// Place is where a value is.
type Place uint8

// The places.
const (
	Arena    Place = iota // in the one block that steps share; its bytes may be another value's at another time
	Outside               // in memory that is bound before the run: inputs, parameters, states, gradients in buckets
	Constant              // in memory that the back half fills once from Data
)

// View is a strided look at a value over an index space: index (i, j, ...) of the space is element
// Offset + i*Strides[0] + j*Strides[1] + ... of the value. A stride of 0 repeats; transposes,
// slices, repeats and reshapes are views and not steps.
type View struct {
	Value   ID
	Offset  int   // elements
	Strides []int // elements; one for each dimension of the space
}

// Step is one operation.
type Step struct {
	Name   string // its name in the graph: "dw0 = Aᵀ×B"
	Op     Op
	In     []View
	Out    []View
	Stream Stream
	After  []int // steps before this one, on other streams, that must be done first
}

// Stream is where a step runs. Steps of one stream run in order.
type Stream uint8

// The streams.
const (
	Compute Stream = iota
	Comm           // collectives; its steps overlap those of Compute
	Side           // steps that products of Compute need not wait for; they overlap those of both
)

// Len is the number of elements of the value.
func (v *Value) Len() int {
	n := 1
	for _, d := range v.Shape {
		n *= d
	}
	return n
}

// Bytes is the size of the value.
func (v *Value) Bytes() int64 { return int64(v.Len()) * int64(v.DType.Size()) }

// Add adds a value and gives its id.
func (p *Program) Add(v Value) ID {
	p.Values = append(p.Values, v)
	return ID(len(p.Values) - 1)
}

// Whole is the value as it lies, over its own shape.
func (p *Program) Whole(id ID) View { return View{Value: id, Strides: Contiguous(p.Values[id].Shape)} }

// Contiguous is the strides of a tensor of that shape in C order.
func Contiguous(shape []int) []int {
	strides, n := make([]int, len(shape)), 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= shape[i]
	}
	return strides
}
