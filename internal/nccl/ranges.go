package nccl

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/dl"
)

// ranges asks the driver about memory: the allocation of an address, and whether others can map it.
type ranges struct {
	check func(call string, code int32) error
	t     struct {
		addressRange func(base *uint64, bytes *uint64, addr uint64) int32 `dl:"cuMemGetAddressRange_v2"`
		retain       func(handle *uint64, addr uint64) int32              `dl:"cuMemRetainAllocationHandle"`
		release      func(handle uint64) int32                            `dl:"cuMemRelease"`
	}
}

// driverRanges returns the functions of dev's driver; a process has one driver.
func (l *Library) driverRanges(dev *cuda.Device) (*ranges, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ranges != nil {
		return l.ranges, nil
	}
	r := &ranges{check: dev.Driver().Check}
	lib, err := dl.Open(dl.Search{Name: "cuda", Override: dev.Driver().Path()})
	if err == nil {
		err = lib.Bind(&r.t)
	}
	if err != nil {
		return nil, fmt.Errorf("nccl: the driver: %w: %w", dist.ErrUnsupported, err)
	}
	l.ranges = r
	return r, nil
}

// extent is the location of some memory in its allocation.
type extent struct {
	offset uint64 // of the memory in the allocation
	bytes  uint64 // of the allocation
}

// extentOf returns the extent of bytes bytes at addr, if NCCL can make a window of them. NCCL
// itself finds out only after all ranks have met inside it, and a rank that fails there leaves the
// others waiting. So this check comes before.
//
// Errors: dist.ErrUnsupported, with the reason.
func (r *ranges) extentOf(addr uintptr, bytes int64) (extent, error) {
	var base, size, handle uint64
	if err := r.check("cuMemGetAddressRange_v2", r.t.addressRange(&base, &size, uint64(addr))); err != nil {
		return extent{}, fmt.Errorf("%w: no window on memory at %#x: the driver knows no allocation there: %w", dist.ErrUnsupported, addr, err)
	}
	e := extent{offset: uint64(addr) - base, bytes: size}
	if err := e.holds(bytes); err != nil {
		return extent{}, err
	}
	if err := r.check("cuMemRetainAllocationHandle", r.t.retain(&handle, base)); err != nil {
		return extent{}, fmt.Errorf("%w: no window on memory of cudaMalloc, NCCL takes only memory of cuMemCreate, as from ncclMemAlloc or an NVSHMEM heap: %w",
			dist.ErrUnsupported, err)
	}
	if err := r.check("cuMemRelease", r.t.release(handle)); err != nil {
		return extent{}, fmt.Errorf("%w: %w", dist.ErrAborted, err)
	}
	return e, nil
}

// holds returns an error if a window of bytes bytes may not begin at the offset.
func (e extent) holds(bytes int64) error {
	switch {
	case e.offset%windowAlignment != 0:
		return fmt.Errorf("%w: no window at %d B into an allocation: NCCL wants a multiple of %d", dist.ErrUnsupported, e.offset, windowAlignment)
	case bytes <= 0 || uint64(bytes) > e.bytes-e.offset:
		return fmt.Errorf("%w: no window on %d B that begin %d B into an allocation of %d B: it must lie in one allocation",
			dist.ErrUnsupported, bytes, e.offset, e.bytes)
	}
	return nil
}
