package symmetric

import (
	"errors"

	"github.com/symgrad/symgrad/tensor"
)

// errNoRegion is the error for a nil region.
var errNoRegion = errors.New("view: no region")

// View returns this rank's part of r as elements of type T, aliased. It is empty if the region is
// freed or its heap closed.
//
// Shapes: the size of r is a multiple of T's; use a Slice of r otherwise. Owns: the memory belongs
// to the heap. Errors: another size, a Slice at an offset that is not aligned to T, or memory that
// is not on the host.
func View[T tensor.Element](r Region) ([]T, error) {
	if r == nil {
		return nil, errNoRegion
	}
	return viewOf[T](r.Local())
}

// PeerView returns rank's part of r as elements of type T, aliased: reading it reads that rank's
// memory. The caller synchronizes.
//
// Shapes, Owns: as View. Errors: those of View and of Region.Peer.
func PeerView[T tensor.Element](r Region, rank int) ([]T, error) {
	if r == nil {
		return nil, errNoRegion
	}
	b, err := r.Peer(rank)
	if err != nil {
		return nil, err
	}
	return viewOf[T](b)
}

func viewOf[T tensor.Element](b tensor.Buffer) ([]T, error) {
	typed, err := b.As(tensor.TypeOf[T]())
	if err != nil {
		return nil, err
	}
	return tensor.Data[T](typed)
}
