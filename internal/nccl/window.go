package nccl

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
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
