package direct

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/symmetric"
)

// Memory allocates symmetric memory.
type Memory = gpu.Allocator

// IPC allocates symmetric memory without NCCL or NVSHMEM. Each rank allocates its part and maps the
// others' by CUDA's inter-process handles. Ranks that are goroutines of one process use peer
// access. It serves every subgroup whose GPUs can address each other. Parts of ranks on other hosts
// have no address.
type IPC struct{}

var _ gpu.Allocator = IPC{}

// Name implements gpu.Allocator.
func (IPC) Name() string { return "ipc" }

// granule is the unit of allocations. The driver takes smaller ones from blocks of this size, and a
// handle names the block.
const granule = 2 << 20

// token identifies this process: process numbers repeat among containers on one machine.
var token = sync.OnceValue(func() (t [16]byte) {
	_, _ = rand.Read(t[:]) // cannot fail: crypto/rand would end the process
	return t
})

// partInfo describes a rank's part to the others.
type partInfo struct {
	pid     uint32
	index   uint32 // of the device in its process
	token   [16]byte
	uuid    [16]byte
	handle  [64]byte
	address uint64
	bytes   int64
}

const partBytes = 4 + 4 + 16 + 16 + 64 + 8 + 8

func (c *partInfo) encode() []byte {
	b := make([]byte, 0, partBytes)
	b = binary.LittleEndian.AppendUint32(b, c.pid)
	b = binary.LittleEndian.AppendUint32(b, c.index)
	b = append(b, c.token[:]...)
	b = append(b, c.uuid[:]...)
	b = append(b, c.handle[:]...)
	b = binary.LittleEndian.AppendUint64(b, c.address)
	return binary.LittleEndian.AppendUint64(b, uint64(c.bytes))
}

func decodePart(b []byte) (c partInfo) {
	c.pid, c.index = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	b = b[8:]
	b = b[copy(c.token[:], b):]
	b = b[copy(c.uuid[:], b):]
	b = b[copy(c.handle[:], b):]
	c.address, c.bytes = binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:]))
	return c
}

// sameProcess reports whether two ranks are goroutines of one process.
func (c *partInfo) sameProcess(o *partInfo) bool { return c.pid == o.pid && c.token == o.token }

// mapping is one rank's view of a slab.
type mapping struct {
	p      *gpu.Member
	own    uintptr
	base   []uintptr
	opened []uintptr // the elements of base that were opened by handle
}

// Alloc implements gpu.Allocator.
//
// Collective: all ranks of p, same size. Errors: on all ranks; dist.ErrUnsupported if a GPU cannot
// address another's memory, or processes cannot share it; symmetric.ErrNoSpace, which then matches
// cuda.ErrMemory too.
func (IPC) Alloc(p *gpu.Member, n int64) (*gpu.Slab, error) {
	m := &mapping{p: p, base: make([]uintptr, p.Size)}
	own, handleErr, err := m.allocate(n)
	if err = p.Agree(err); err == nil {
		err = m.connect(&own, handleErr)
	}
	if err != nil {
		return nil, fmt.Errorf("ipc slab of %d B rank %d/%d: %w", n, p.Rank, p.Size, errors.Join(err, m.undo()))
	}
	return &gpu.Slab{Bytes: n, Base: m.base, Free: m.free}, nil
}

// allocate allocates this rank's part. handleErr is the error of its handle, which matters only if
// another process needs one.
func (m *mapping) allocate(n int64) (c partInfo, handleErr, err error) {
	v := m.p.Device
	if n <= 0 {
		return c, nil, fmt.Errorf("%w: %d B", dist.ErrInvalid, n)
	}
	bytes := (n + granule - 1) / granule * granule
	if m.own, err = v.Alloc(bytes); errors.Is(err, cuda.ErrMemory) {
		return c, nil, fmt.Errorf("%w: %w", symmetric.ErrNoSpace, err)
	} else if err != nil {
		return c, nil, err
	}
	if m.own%symmetric.MaxAlignment != 0 {
		return c, nil, fmt.Errorf("%w: the driver aligned %d B to %#x only", dist.ErrUnsupported, bytes, m.own&-m.own)
	}
	if err = v.Fill(m.own, 0, bytes); err != nil {
		return c, nil, err
	}
	c = partInfo{pid: uint32(os.Getpid()), index: uint32(v.Index()), token: token(), uuid: v.UUID(), address: uint64(m.own), bytes: n}
	if m.p.Size > 1 {
		c.handle, handleErr = v.IPCHandle(m.own)
	}
	return c, handleErr, nil
}

// connect maps the others' parts.
//
// Collective: all ranks. Errors: on all ranks.
func (m *mapping) connect(own *partInfo, handleErr error) error {
	all, err := m.p.Exchange(own.encode())
	if err != nil {
		return err
	}
	for r, b := range all {
		theirs := decodePart(b)
		switch {
		case r == m.p.Rank:
			m.base[r] = m.own
		case !m.p.Near(r): // has no address here
		case theirs.bytes != own.bytes:
			err = fmt.Errorf("%w: %d B here, %d B on rank %d", dist.ErrMismatch, own.bytes, theirs.bytes, r)
		case own.sameProcess(&theirs):
			m.base[r], err = m.inProcess(r, &theirs)
		case handleErr != nil:
			err = fmt.Errorf("%w: rank %d is another process, and the memory cannot be shared: %w", dist.ErrUnsupported, r, handleErr)
		default:
			m.base[r], err = m.open(r, &theirs)
		}
		if err != nil {
			break
		}
	}
	return m.p.Agree(err)
}

// inProcess returns the part of a rank of this process.
func (m *mapping) inProcess(r int, c *partInfo) (uintptr, error) {
	v := m.p.Device
	if c.uuid == v.UUID() {
		return uintptr(c.address), nil
	}
	peer, err := v.Driver().Device(int(c.index))
	if err != nil {
		return 0, err
	}
	can, err := v.CanAccess(peer)
	if err != nil {
		return 0, err
	}
	if !can {
		return 0, m.apart(r, peer.String(), nil)
	}
	if err := v.EnablePeer(peer); err != nil {
		return 0, m.apart(r, peer.String(), err)
	}
	return uintptr(c.address), nil
}

// open returns the part of a rank of another process.
func (m *mapping) open(r int, c *partInfo) (uintptr, error) {
	p, err := m.p.Device.OpenIPC(c.handle)
	if err != nil {
		return 0, m.apart(r, fmt.Sprintf("GPU %x of process %d", c.uuid, c.pid), err)
	}
	m.opened = append(m.opened, p)
	return p, nil
}

// apart returns the error for two GPUs without peer access.
func (m *mapping) apart(r int, other string, err error) error {
	e := fmt.Errorf("%w: rank %d on %v cannot address the memory of rank %d on %s: peer access is missing: use GPUs joined by NVLink, or engines that need none",
		dist.ErrUnsupported, m.p.Rank, m.p.Device, r, other)
	if err != nil {
		e = fmt.Errorf("%w: %w", e, err)
	}
	return e
}

// undo frees the memory of a failed Alloc, on all ranks.
func (m *mapping) undo() error {
	errs := []error{m.unmap()}
	if err := m.p.Agree(nil); err != nil {
		return errors.Join(errs...) // other ranks may still map the part
	}
	return errors.Join(append(errs, m.p.Device.Free(m.own))...)
}

// unmap closes the others' parts.
func (m *mapping) unmap() error {
	var errs []error
	for _, p := range m.opened {
		errs = append(errs, m.p.Device.CloseIPC(p))
	}
	m.opened = nil
	return errors.Join(errs...)
}

// free frees the slab after all ranks have arrived and unmapped it. If a rank does not arrive, the
// memory stays until the process ends: a mapped part must not be freed.
func (m *mapping) free() error {
	if m.own == 0 || m.p.Agree(nil) != nil {
		return nil
	}
	err := m.unmap()
	if m.p.Agree(nil) != nil {
		return err
	}
	own := m.own
	m.own = 0
	return errors.Join(err, m.p.Device.Free(own))
}
