package shm

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"golang.org/x/sys/unix"
)

// The sender of a message that the ring cannot hold must wait for the receiver anyway. It therefore
// lends its source: one chunk of the ring has the source's place, and the receiver copies the data
// directly to its destination. The data is copied once, and there is no wake-up per chunk. A source
// in a symmetric heap is read there. Private memory is read through the kernel (process_vm_readv),
// as in Open MPI and MPICH. A receiver without that permission refuses, and the sender uses chunks
// for the rest of the group's life.

// The head of a chunk.
const (
	headType  = 0 // element type
	headHow   = 1
	headCount = 8  // elements of the message
	headPlace = 16 // heap, or 0 for private memory
	headAt    = 24 // offset in the heap, or address

	inChunk = 0 // the data is in this chunk
	isLent  = 1
)

// streamLent is the size from which the copy of a lent message bypasses the cache: two buffers per
// rank, in both directions, then fill a last-level cache of 32 MiB.
const streamLent = 8 << 20

// lentPiece is the number of bytes of a lent message that are copied before other messages of the
// exchange get a turn.
const lentPiece = 1 << 20

// lends reports whether the receiver of m should read the source itself.
func (x *messenger) lends(m *message) bool {
	op := m.op
	return !m.plain && m.moved == 0 && op.Count > ringDepth*x.perChunk(op.Src.DType()) &&
		(!x.refuses[op.Peer] || x.locate(op.Src).heap != 0)
}

// lend fills the head of chunk wrote with the place of m's source.
func (x *messenger) lend(m *message, head []byte, wrote uint64) {
	p := x.locate(m.op.Src)
	if p.heap == 0 {
		p.off = int64(uintptr(m.op.Src.Pointer()))
	}
	head[headHow] = isLent
	binary.LittleEndian.PutUint64(head[headPlace:], p.heap)
	binary.LittleEndian.PutUint64(head[headAt:], uint64(p.off))
	m.lent = wrote + 1
	atomic.StoreUint64(x.ctl.lent(x.rank, m.op.Peer), m.lent)
}

// takenBack reports whether the receiver no longer needs m's source: it has read all of it, or
// cannot read it.
func (x *messenger) takenBack(m *message) bool {
	from, to := x.rank, m.op.Peer
	if atomic.LoadUint64(x.ctl.read(from, to)) < m.lent {
		return false
	}
	if atomic.LoadUint64(x.ctl.refused(from, to)) == m.lent {
		x.refuses[to] = x.refuses[to] || x.locate(m.op.Src).heap == 0
		m.lent, m.plain = 0, true
		return true
	}
	m.moved, m.began = m.op.Count, true
	return true
}

// borrow reads the next piece of the message that head, of chunk read, lends, or refuses it. It
// returns an error if the group broke meanwhile: the sender may have gone on and overwritten the
// source.
func (x *messenger) borrow(m *message, head []byte, read uint64) error {
	op := m.op
	size := op.Dst.DType().Size()
	p := place{binary.LittleEndian.Uint64(head[headPlace:]), int64(binary.LittleEndian.Uint64(head[headAt:]))}
	n, done := min(lentPiece/size, op.Count-m.moved), m.moved*size
	err := x.fetch(op, p, done, n*size)
	if broken := x.ctl.aborted(); broken != nil {
		return broken
	}
	if err != nil && m.moved == 0 {
		atomic.StoreUint64(x.ctl.refused(op.Peer, x.rank), read+1)
		return nil
	}
	if err != nil {
		x.ctl.fail(abortFault, x.rank, err.Error())
		return err
	}
	m.moved, m.began = m.moved+n, true
	return nil
}

// fetch copies n bytes at byte from of the peer's source at p to the destination of op.
func (x *messenger) fetch(op *dist.Op, p place, from, n int) error {
	if p.heap != 0 {
		dst := unsafe.Add(op.Dst.Pointer(), from)
		src, err := x.at(op.Peer, p, from, n)
		if err == nil && src != dst {
			how := reduce.How(0)
			if op.Dst.Bytes() >= streamLent {
				how = reduce.NonTemporal
			}
			reduce.Copy(dst, src, n, how)
		}
		return err
	}
	pid := x.node.link.pid(x.ranks[op.Peer])
	if pid == 0 {
		return unix.ESRCH
	}
	for n > 0 {
		// A fresh pointer each time: one past the last byte would be a bad pointer for the garbage
		// collector.
		into := unix.Iovec{Base: (*byte)(unsafe.Add(op.Dst.Pointer(), from)), Len: uint64(n)}
		got, err := unix.ProcessVMReadv(pid, []unix.Iovec{into}, []unix.RemoteIovec{{Base: uintptr(p.off) + uintptr(from), Len: n}}, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case got == 0:
			return unix.EFAULT
		default:
			from, n = from+got, n-got
		}
	}
	return nil
}
