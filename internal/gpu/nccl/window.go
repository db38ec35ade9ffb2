package nccl

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Window is memory that a communicator's ranks know of each other, of equal size on all.
type Window struct {
	Handle uintptr // ncclWindow_t
	Addr   uintptr // of this rank's part
	Bytes  int64
}

// RegisterWindow makes bytes bytes at addr a symmetric window. The memory must come from
// cuMemCreate (as ncclMemAlloc's does), begin at a multiple of 4096 B in its allocation, and be in
// one allocation of equal size on all ranks.
//
// Collective: all ranks, same size, in one order. Errors: dist.ErrUnsupported before NCCL 2.27, and
// if the ranks cannot map each other's memory; *Error.
func (c *Comm) RegisterWindow(addr uintptr, bytes int64) (Window, error) {
	w := Window{Addr: addr, Bytes: bytes}
	err := c.with(func() error {
		c.mem.window = 0
		err := c.call(c.lib.t.register, "ncclCommWindowRegister", c.handle, addr, uintptr(bytes),
			uintptr(unsafe.Pointer(&c.mem.window)), windowSymmetric)
		w.Handle = c.mem.window
		return err
	})
	if err != nil {
		return Window{}, err
	}
	if w.Handle == 0 {
		// NCCL reports success without a window (dev_runtime.cc).
		return Window{}, fmt.Errorf("nccl: %v: %w: NCCL %v made no window: it does so when the ranks are on several hosts, when two of them cannot reach each other's memory directly, or when NCCL_CUMEM_ENABLE=0 or NCCL_WIN_ENABLE=0",
			c, dist.ErrUnsupported, c.lib.version)
	}
	return w, nil
}

// DeregisterWindow removes a window, before its memory is freed. Collective: all ranks, in one
// order. Errors: *Error.
func (c *Comm) DeregisterWindow(w Window) error {
	return c.with(func() error {
		return c.call(c.lib.t.deregister, "ncclCommWindowDeregister", c.handle, w.Handle)
	})
}

// Peers returns this rank's addresses of all parts of a window; 0 for a part that it cannot
// address.
//
// Errors: *Error; those of reading the device.
func (c *Comm) Peers(w Window) ([]uintptr, error) {
	base := make([]uintptr, c.size)
	err := c.with(func() error {
		switch v := c.lib.version; {
		case c.lib.t.peerPointer.Err() == nil && v >= peerVersion:
			return c.askPeers(w, base)
		case v >= vidmemVersion:
			var head windowVidmem
			if err := c.dev.CopyToHost(unsafe.Pointer(&head), w.Handle, int64(unsafe.Sizeof(head))); err != nil {
				return fmt.Errorf("nccl: %v: reading a window of NCCL %v: %w", c, v, err)
			}
			return head.peers(c, base)
		}
		return nil // 2.27 has no function for it
	})
	if err != nil {
		return nil, err
	}
	base[c.rank] = w.Addr // NCCL knows windows by their registered address
	return base, nil
}

func (c *Comm) askPeers(w Window, base []uintptr) error {
	for peer := range base {
		c.mem.address = 0
		err := c.call(c.lib.t.peerPointer, "ncclGetPeerDevicePointer", w.Handle, 0, uintptr(peer), uintptr(unsafe.Pointer(&c.mem.address)))
		if err != nil {
			return err
		}
		base[peer] = c.mem.address
	}
	return nil
}

// peers computes the addresses from the structure on the device. All ranks of a group are on one
// host, so a rank's number among those that share memory is its number in the group. The structure
// has both, and they are compared.
func (h windowVidmem) peers(c *Comm, base []uintptr) error {
	if int(h.rank) != c.rank || h.lsaRank != h.rank || h.flatBase == 0 || h.stride4G == 0 {
		return fmt.Errorf("nccl: %v: %w: the window of NCCL %v has an unknown structure (rank %d, %d among those that share memory, stride %d)",
			c, dist.ErrUnsupported, c.lib.version, h.rank, h.lsaRank, h.stride4G)
	}
	for peer := range base {
		base[peer] = uintptr(h.flatBase + uint64(peer)*uint64(h.stride4G)<<32)
	}
	return nil
}

// verify checks the addresses in base: each rank writes its number to its part, and the others read
// it there. It leaves the first bytes zero.
//
// Collective: all ranks of p.
func verify(p *gpu.Member, base []uintptr) error {
	word := func(r int) uint64 { return 0x6e63636c_00000000 | uint64(r) } // "nccl"
	mine := word(p.Rank)
	if err := p.Agree(p.Device.CopyFromHost(base[p.Rank], unsafe.Pointer(&mine), 8)); err != nil {
		return err
	}
	var wrong error
	for r, addr := range base {
		if addr == 0 {
			continue
		}
		var got uint64
		err := p.Device.CopyToHost(unsafe.Pointer(&got), addr, 8)
		if err == nil && got != word(r) {
			err = fmt.Errorf("%w: the address of rank %d's part, %#x, holds %#x, not that rank's number", dist.ErrUnsupported, r, addr, got)
		}
		if err != nil && wrong == nil {
			wrong = fmt.Errorf("nccl: peer address of rank %d on rank %d: %w", r, p.Rank, err)
		}
	}
	if err := p.Agree(wrong); err != nil {
		return err
	}
	return p.Agree(p.Device.Fill(base[p.Rank], 0, 8))
}

// sameExtents compares the allocations of the ranks' parts: until 2.30.7 NCCL maps whole
// allocations, each with the size of the rank's own.
//
// Collective: all ranks of p. Errors: dist.ErrUnsupported, on all ranks.
func (l *Library) sameExtents(p *gpu.Member, own extent) error {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], own.offset)
	binary.LittleEndian.PutUint64(b[8:], own.bytes)
	all, err := p.Exchange(b[:])
	if err != nil {
		return fmt.Errorf("nccl: comparing allocations: %w", err)
	}
	if l.version >= anySizesVersion {
		return nil
	}
	for r, other := range all {
		offset, bytes := binary.LittleEndian.Uint64(other), binary.LittleEndian.Uint64(other[8:])
		first := binary.LittleEndian.Uint64(all[0][8:])
		if bytes != first || offset != binary.LittleEndian.Uint64(all[0]) {
			return fmt.Errorf("nccl: %w: no window on memory %d B into an allocation of %d B on rank %d, which differs from rank 0: NCCL before %v needs them equal",
				dist.ErrUnsupported, offset, bytes, r, anySizesVersion)
		}
	}
	return nil
}

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
