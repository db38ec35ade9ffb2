package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/symgrad/symgrad/tensor"
)

// Role is the purpose of a tensor.
type Role string

// The roles.
const (
	Param    Role = "param"    // a parameter of the model
	Buffer   Role = "buffer"   // an untrained part of the model: running statistics
	State    Role = "state"    // one slot of a solver's state for a parameter
	EMA      Role = "ema"      // the moving average of a parameter
	Residual Role = "residual" // rounding errors of gradients, sent with the next step
)

// roles has all roles, in the order of Roles.
var roles = []Role{Param, Buffer, State, EMA, Residual}

// Roles returns all roles, parameters first.
func Roles() []Role { return slices.Clone(roles) }

// Tensor describes a logical tensor, without its elements.
type Tensor struct {
	Name  string       // unique in the checkpoint; a parameter's own name for Param. See StateName.
	Role  Role         //
	Param string       // the tensor's parameter; "" for Param and Buffer
	Slot  string       // for State: exp_avg, momentum_buffer, ...; free for other roles
	DType tensor.DType //
	Shape []int        // C order; empty for a scalar
}

// StateName returns the name of the tensor of a parameter's slot: "exp_avg/w0". A slot's name has
// no slash, so that two pairs never have one name.
func StateName(param, slot string) string { return slot + "/" + param }

// Len returns the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes returns the size of all elements.
func (t Tensor) Bytes() int64 { return int64(t.Len()) * int64(t.DType.Size()) }

// same reports whether two descriptions agree.
func (t Tensor) same(o Tensor) bool {
	return t.Name == o.Name && t.Role == o.Role && t.Param == o.Param && t.Slot == o.Slot && t.DType == o.DType && slices.Equal(t.Shape, o.Shape)
}

// String returns "w f32[256 10]".
func (t Tensor) String() string { return fmt.Sprintf("%s %v%v", t.Name, t.DType, t.Shape) }

// validate rejects tensors that no file can hold.
func (t Tensor) validate() error {
	switch {
	case t.Name == "" || t.Name == metadataKey:
		return fmt.Errorf("%w: a tensor has the name %q", ErrInvalid, t.Name)
	case !utf8.ValidString(t.Name + t.Param + t.Slot):
		return fmt.Errorf("%w: tensor %q: a name is no UTF-8", ErrInvalid, t.Name)
	case !slices.Contains(roles, t.Role):
		return fmt.Errorf("%w: tensor %s: unknown role %q: use one of %v", ErrInvalid, t.Name, t.Role, roles)
	case !t.DType.Valid():
		return fmt.Errorf("%w: tensor %s: %v is no element type", ErrInvalid, t.Name, t.DType)
	}
	if _, err := product(t.Shape, t.DType.Size()); err != nil {
		return fmt.Errorf("%w: tensor %s: %w", ErrInvalid, t.Name, err)
	}
	return nil
}

// product returns the bytes of a shape with elements of size bytes. A shape with a 0 has none, for
// any other dimensions.
//
// Errors: a negative dimension; overflow of an int.
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

// Run is a range of a tensor's elements that this rank has.
type Run struct {
	Tensor Tensor
	Offset int // of the first element, in C order
	Len    int // elements

	// Data has the elements, in host memory; empty if Fetch is set.
	Data tensor.Buffer
	// Fetch writes the tensor's elements from offset on to dst, in host memory; dst.Len() is their
	// number. Use it for elements on a device. Save calls it once, on the goroutine that called
	// Save.
	Fetch func(offset int, dst tensor.Buffer) error

	// Replicated means that every rank has equal elements in this run. With Options.Sharded each
	// rank then writes only its share; otherwise rank 0 writes all.
	Replicated bool
}

// Meta has the parts of a checkpoint that are not tensors. Rank 0's values are stored, and Random
// of every rank. Step, ConfigHash and PlanHash of the other ranks are compared with rank 0's.
type Meta struct {
	Step       int             // steps made
	Stage      int             // shard.stage
	Config     string          // the resolved settings, as text
	ConfigHash string          // "" means the SHA-256 of Config
	PlanHash   string          //
	Solver     Solver          //
	Sampler    json.RawMessage // the cursor: the position in the global order of samples
	Random     json.RawMessage // this rank's random state
	Scaler     json.RawMessage // state of the loss scale
	Extra      map[string]json.RawMessage
}

// Solver describes the update rule and its number of steps.
type Solver struct {
	Name    string `json:"name"`
	Steps   int    `json:"steps"`
	Skipped int    `json:"skipped,omitempty"` // steps skipped because a gradient was not finite
}
