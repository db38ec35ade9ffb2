package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/symgrad/symgrad/tensor"
)

// Role is what a tensor is for.
type Role string

// The roles.
const (
	Param    Role = "param"    // a parameter of the model
	Buffer   Role = "buffer"   // a part of the model that is not trained: running statistics
	State    Role = "state"    // what a solver keeps for the elements of a parameter: one slot
	EMA      Role = "ema"      // the moving average of a parameter
	Residual Role = "residual" // what was lost on the wire and is sent with the next step
)

// roles is all of them.
var roles = []Role{Param, Buffer, State, EMA, Residual}

// Roles is all roles, parameters first.
func Roles() []Role { return slices.Clone(roles) }

// Tensor is a logical tensor: what it is, not who has it.
type Tensor struct {
	Name  string       // unlike all others of the checkpoint; that of a parameter is the parameter's. See StateName.
	Role  Role         //
	Param string       // the parameter that it belongs to; "" for Param and Buffer
	Slot  string       // of State: exp_avg, momentum_buffer, ...; for other roles "" or what the program likes
	DType tensor.DType //
	Shape []int        // C order; empty for a scalar
}

// StateName is the name that the tensor of a slot of a parameter has: "exp_avg/w0". A slot's name
// has no slash, so that two pairs never have one name.
func StateName(param, slot string) string { return slot + "/" + param }

// Len is the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes is the size of all elements.
func (t Tensor) Bytes() int64 { return int64(t.Len()) * int64(t.DType.Size()) }

// same reports whether two descriptions agree.
func (t Tensor) same(o Tensor) bool {
	return t.Name == o.Name && t.Role == o.Role && t.Param == o.Param && t.Slot == o.Slot && t.DType == o.DType && slices.Equal(t.Shape, o.Shape)
}

// String is "w f32[256 10]".
func (t Tensor) String() string { return fmt.Sprintf("%s %v%v", t.Name, t.DType, t.Shape) }

// validate refuses what no file can hold.
func (t Tensor) validate() error {
	switch {
	case t.Name == "" || t.Name == metadataKey:
		return fmt.Errorf("%w: a tensor is called %q", ErrInvalid, t.Name)
	case !utf8.ValidString(t.Name + t.Param + t.Slot):
		return fmt.Errorf("%w: tensor %q: a name is no UTF-8", ErrInvalid, t.Name)
	case !slices.Contains(roles, t.Role):
		return fmt.Errorf("%w: tensor %s: role %q is none of %v", ErrInvalid, t.Name, t.Role, roles)
	case !t.DType.Valid():
		return fmt.Errorf("%w: tensor %s: %v is no element type", ErrInvalid, t.Name, t.DType)
	}
	if _, err := product(t.Shape, t.DType.Size()); err != nil {
		return fmt.Errorf("%w: tensor %s: %w", ErrInvalid, t.Name, err)
	}
	return nil
}

// product returns the bytes of a shape with elements of size bytes. A shape with a 0 has none,
// whatever its other lengths.
//
// Errors: a negative dimension; more than an int counts.
func product(shape []int, size int) (int, error) {
	if slices.ContainsFunc(shape, func(d int) bool { return d < 0 }) {
		return 0, fmt.Errorf("shape %v has a negative dimension", shape)
	}
	if slices.Contains(shape, 0) {
		return 0, nil
	}
	n := size
	for _, d := range shape {
		if n > math.MaxInt/d {
			return 0, fmt.Errorf("shape %v has more bytes than an int counts", shape)
		}
		n *= d
	}
	return n, nil
}

// Run is some elements of a tensor that this rank has.
type Run struct {
	Tensor Tensor
	Offset int // of the first element, in C order
	Len    int // elements

	// Data is the elements, in host memory; or nothing, with Fetch set.
	Data tensor.Buffer
	// Fetch writes the elements of the tensor from offset on to dst, which is in host memory and
	// says how many: for what lies on a device. Save calls it once, on the goroutine that called
	// Save.
	Fetch func(offset int, dst tensor.Buffer) error

	// Replicated says that every rank has this run alike. With Options.Sharded each rank then
	// writes its share of it only; without, rank 0 writes it all.
	Replicated bool
}

// Meta is all of a checkpoint that is no tensor. Rank 0's is kept; of the other ranks only Random
// is, and Step, ConfigHash and PlanHash are compared with rank 0's.
type Meta struct {
	Step       int             // steps made
	Stage      int             // shard.stage
	Config     string          // the settings as resolved, as text
	ConfigHash string          // "" means the SHA-256 of Config
	PlanHash   string          //
	Solver     Solver          //
	Sampler    json.RawMessage // the cursor: where in the global order of samples the run is
	Random     json.RawMessage // this rank's random state
	Scaler     json.RawMessage // of the loss
	Extra      map[string]json.RawMessage
}

// Solver is which rule made the update, and how often.
type Solver struct {
	Name    string `json:"name"`
	Steps   int    `json:"steps"`
	Skipped int    `json:"skipped,omitempty"` // steps not made because a gradient was not finite
}
