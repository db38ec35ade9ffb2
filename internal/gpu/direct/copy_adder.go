package direct

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// adder has the stream for combining data of copy engines, and for copies that continue an
// operation.
type adder struct {
	stream        *cuda.Stream
	copied, added [mostParts]*cuda.Event
	gathered      *cuda.Event // after the copies of the last all-gather
	number        uint64      // sequence number of that all-gather; 0 for none
}

// open makes the stream, of the greatest priority, and the events.
func (a *adder) open(v *cuda.Device) error {
	_, greatest, err := v.PriorityRange()
	if err != nil {
		return err
	}
	if a.stream, err = v.NewStream(greatest); err != nil {
		return err
	}
	if a.gathered, err = v.NewEvent(); err != nil {
		return err
	}
	for i := range mostParts {
		for _, e := range [...]**cuda.Event{&a.copied[i], &a.added[i]} {
			if *e, err = v.NewEvent(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *adder) close() error {
	var errs []error
	for i := range mostParts {
		for _, e := range [...]*cuda.Event{a.copied[i], a.added[i]} {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	if a.gathered != nil {
		errs = append(errs, a.gathered.Close())
	}
	if a.stream != nil {
		errs = append(errs, a.stream.Close())
	}
	*a = adder{}
	return errors.Join(errs...)
}

// seams are the borders between allocations within slabs, on all ranks as addressed here,
// ascending. NVSHMEM's heap has several allocations. A copy in a graph must not cross a border.
type seams struct{ at atomic.Pointer[[]uintptr] }

// until returns the bytes from p to the next seam.
func (s *seams) until(p uintptr) uint64 {
	all := s.at.Load()
	if all == nil {
		return math.MaxUint64
	}
	i, _ := slices.BinarySearch(*all, p+1)
	if i == len(*all) {
		return math.MaxUint64
	}
	return uint64((*all)[i] - p)
}

// note sets the seams of slabs.
func (s *seams) note(slabs []known) {
	var all []uintptr
	for i := range slabs {
		all = append(all, slabs[i].seams...)
	}
	slices.Sort(all)
	s.at.Store(&all)
}
