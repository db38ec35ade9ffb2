package kernel

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Table has the addresses of one region on all ranks, as an array on the device: a kernel declares
// it as T *const *. It includes the rank's own part.
type Table struct {
	device *cuda.Device
	on     tensor.Device
	ranks  int
	at     atomic.Uintptr // 0 when closed
}

// Peers returns the Table of region, whose heap is g's, on the device of g's stream.
//
// Owns: the caller closes the table, before it frees the region. Errors: ErrUnsupported if g runs
// on no GPU, or this GPU cannot address a peer's part: then use Put and Get;
// symmetric.ErrNotAllocated for a freed region, and for nil; ErrInvalid or ErrRank for a region of
// another group's heap, if this rank can tell: by the number of ranks, or by its own number.
func Peers(g *dist.Group, region symmetric.Region) (*Table, error) {
	t, err := newTable(g, region)
	if err != nil {
		return nil, fmt.Errorf("peers of a region, rank %d/%d: %w", g.Rank(), g.Size(), err)
	}
	return t, nil
}

func newTable(g *dist.Group, region symmetric.Region) (*Table, error) {
	stream, err := streamOf(g.Stream())
	if err != nil {
		return nil, err
	}
	d := stream.Device()
	addresses, err := addressesOf(region, g.Rank(), g.Size(), d.Tensor())
	if err != nil {
		return nil, err
	}
	bytes := int64(len(addresses)) * pointerBytes
	at, err := d.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	if err := d.CopyFromHost(at, tensor.Of(addresses).Pointer(), bytes); err != nil {
		return nil, errors.Join(err, d.Free(at))
	}
	t := &Table{device: d, on: d.Tensor(), ranks: g.Size()}
	t.at.Store(at)
	return t, nil
}

const pointerBytes = 8

// addressesOf returns the address of region on every rank, for a kernel on the device on.
func addressesOf(region symmetric.Region, rank, size int, on tensor.Device) ([]uint64, error) {
	if region == nil {
		return nil, fmt.Errorf("no region: %w", symmetric.ErrNotAllocated)
	}
	all := make([]uint64, size)
	for r := range all {
		part, err := region.Peer(r)
		switch {
		case err != nil:
			return nil, fmt.Errorf("rank %d: %w", r, err)
		case part.Pointer() == nil:
			return nil, fmt.Errorf("rank %d: %w", r, symmetric.ErrNotAllocated)
		case r == rank && part.Pointer() != region.Local().Pointer():
			return nil, fmt.Errorf("rank %d: %w: the region belongs to the heap of another group, in which this rank has another number", r, dist.ErrInvalid)
		case part.Device().Kind != on.Kind:
			return nil, fmt.Errorf("rank %d: %w: the region is on %v, the group's stream on %v", r, dist.ErrDevice, part.Device(), on)
		}
		all[r] = uint64(uintptr(part.Pointer()))
	}
	if _, err := region.Peer(size); err == nil {
		return nil, fmt.Errorf("%w: the region belongs to the heap of another group, which has more than %d ranks", dist.ErrInvalid, size)
	}
	return all, nil
}

// Ranks returns the number of addresses.
func (t *Table) Ranks() int { return t.ranks }

// Close frees the array. Kernels that use it must have run. Idempotent.
func (t *Table) Close() error {
	at := t.at.Swap(0)
	if at == 0 {
		return nil
	}
	if err := t.device.Free(at); err != nil {
		return fmt.Errorf("peers of a region: %w", err)
	}
	return nil
}

// value returns the array's address, for a kernel on the device on.
func (t *Table) value(on tensor.Device) (value, error) {
	if t == nil {
		return value{}, fmt.Errorf("%w: no table of peers", dist.ErrInvalid)
	}
	at := t.at.Load()
	switch {
	case at == 0:
		return value{}, fmt.Errorf("peers: %w", dist.ErrClosed)
	case t.on != on:
		return value{}, fmt.Errorf("%w: peers on %v, but the kernel runs on %v", dist.ErrDevice, t.on, on)
	}
	return value{uint64(at), pointerBytes}, nil
}
