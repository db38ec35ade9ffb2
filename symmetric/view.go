package symmetric

import (
	"errors"

	"github.com/symgrad/symgrad/tensor"
)

// errNoRegion is the error of a view of no region.
var errNoRegion = errors.New("view: no region")

// View returns this rank's part of r as elements of type T, aliased. It is empty when the region is
// freed or its heap closed.
//
// Shapes: the bytes of r are a multiple of T's; a Slice of r cuts them. Owns: the memory is the
// heap's. Errors: another number of bytes, a Slice at an offset that is not aligned to T, or memory
// that is not on the host.
func View[T tensor.Element](r Region) ([]T, error) {
	if r == nil {
		return nil, errNoRegion
	}
	return viewOf[T](r.Local())
}

// PeerView returns the part of rank of r as elements of type T, aliased: reading it reads that
// rank's memory. Synchronisation is the caller's.
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
