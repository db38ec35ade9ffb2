package ddp

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// sharded is the value of a parameter that is spread over all ranks. It has type and shape, and no
// elements. Code that needs elements, such as a solver of Gorgonia, returns an error instead of
// training a useless copy.
type sharded struct {
	name  string
	typ   hm.Type
	dtype gtensor.Dtype
	shape gtensor.Shape
}

var _ gorgonia.Value = (*sharded)(nil)

// shardedValue returns the sharded value of n.
func shardedValue(n *gorgonia.Node) *sharded {
	v := &sharded{name: n.Name(), typ: n.Dtype(), dtype: n.Dtype(), shape: gtensor.ScalarShape()}
	if !n.IsScalar() {
		v.shape = n.Shape().Clone()
		v.typ = gorgonia.TensorType{Dims: len(v.shape), Of: v.dtype}
	}
	return v
}

// Shape returns the parameter's.
func (v *sharded) Shape() gtensor.Shape { return v.shape }

// Size returns the number of elements of the parameter.
func (v *sharded) Size() int { return v.shape.TotalSize() }

// Data returns nil.
func (v *sharded) Data() any { return nil }

// Dtype returns the parameter's.
func (v *sharded) Dtype() gtensor.Dtype { return v.dtype }

// Type returns the parameter's.
func (v *sharded) Type() hm.Type { return v.typ }

// Uintptr returns 0.
func (v *sharded) Uintptr() uintptr { return 0 }

// MemSize returns 0.
func (v *sharded) MemSize() uintptr { return 0 }

// Clone returns v itself, which never changes.
func (v *sharded) Clone() any { return v }

// CopyFrom copies nothing, since v has no elements.
func (v *sharded) CopyFrom(any) error { return nil }

// ZeroValue returns v.
func (v *sharded) ZeroValue() gorgonia.Value { return v }

// Format prints "w0 f32(784, 512), sharded".
func (v *sharded) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "%s %v%v, sharded", v.name, v.dtype, v.shape)
}
