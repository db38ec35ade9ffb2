package ops

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
)

// DiagFlat is gorgonia.DiagFlat with a result that other functions accept. gorgonia v0.9.18 gives
// the result the type of a matrix of vectors (op_nondiff.go:22), so that gorgonia.Sum panics and
// gorgonia.Mul returns an error.
//
// Shapes: an x of n elements, at least 2, gives (n, n), with the elements of x on the diagonal.
// Errors: gorgonia's.
func DiagFlat(x *gorgonia.Node) (*gorgonia.Node, error) {
	y, err := gorgonia.DiagFlat(x)
	if err != nil {
		return nil, err
	}
	field := reflect.ValueOf(y).Elem().FieldByName("t")
	if !field.IsValid() || field.Type() != reflect.TypeFor[hm.Type]() {
		return nil, fmt.Errorf("%v: %w: nodes of this version of gorgonia have no type",
			y.Op(), dist.ErrUnsupported)
	}
	*(*hm.Type)(unsafe.Pointer(field.UnsafeAddr())) = gorgonia.TensorType{Dims: 2, Of: x.Dtype()}
	return y, nil
}
