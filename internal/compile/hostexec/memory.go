package hostexec

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

const lineBytes = 64 // a cache line and the widest vector

// block is memory aligned to a line.
type block struct {
	raw []uint64 // keeps it alive
	p   unsafe.Pointer
}

func newBlock(bytes int) block {
	raw := make([]uint64, blockBytes(bytes)/8)
	p := unsafe.Pointer(unsafe.SliceData(raw))
	return block{raw, unsafe.Add(p, int(-uintptr(p)&(lineBytes-1)))}
}

// blockBytes returns the bytes that a block of so many bytes allocates.
func blockBytes(bytes int) int { return (bytes+lineBytes)/8*8 + 8 }

// memory holds the values of a program.
type memory struct {
	p     *program.Program
	base  []unsafe.Pointer // of each value; nil: not bound yet
	arena block
	fixed []block // of constants
	work  block   // shared by the goroutines during a step
}

func newMemory(p *program.Program, work int) (*memory, error) {
	m := &memory{p: p, base: make([]unsafe.Pointer, len(p.Values)), arena: newBlock(int(p.Arena)), work: newBlock(work)}
	for i := range p.Values {
		v := &p.Values[i]
		if !v.DType.Valid() {
			return nil, fmt.Errorf("value %d %q: %w", i, v.Name, errDType)
		}
		switch v.Place {
		case program.Arena:
			if v.Offset < 0 || v.Offset+v.Bytes() > p.Arena || v.Offset%int64(v.DType.Size()) != 0 {
				return nil, fmt.Errorf("value %d %q: %d B at %d of an arena of %d B; was the program planned?", i, v.Name, v.Bytes(), v.Offset, p.Arena)
			}
			m.base[i] = unsafe.Add(m.arena.p, v.Offset)
		case program.Constant:
			if int64(len(v.Data)) != v.Bytes() {
				return nil, fmt.Errorf("value %d %q: a constant of %d B has %d B of data", i, v.Name, v.Bytes(), len(v.Data))
			}
			b := newBlock(len(v.Data))
			copy(unsafe.Slice((*byte)(b.p), len(v.Data)), v.Data)
			m.fixed = append(m.fixed, b)
			m.base[i] = b.p
		}
	}
	return m, nil
}

// bind sets the memory of an Outside value.
func (m *memory) bind(id program.ID, b tensor.Buffer) error {
	if id < 0 || int(id) >= len(m.base) {
		return fmt.Errorf("hostexec: bind: value %d of %d", id, len(m.base))
	}
	v := &m.p.Values[id]
	switch {
	case v.Place != program.Outside:
		return fmt.Errorf("hostexec: bind: value %d %q is not Outside", id, v.Name)
	case b.Device() != tensor.Host:
		return fmt.Errorf("hostexec: bind: value %d %q is on %v, the program runs on the host", id, v.Name, b.Device())
	case b.DType() != v.DType:
		return fmt.Errorf("hostexec: bind: value %d %q is %v, the memory %v", id, v.Name, v.DType, b.DType())
	case b.Len() < v.Len():
		return fmt.Errorf("hostexec: bind: value %d %q has %d elements, the memory %d", id, v.Name, v.Len(), b.Len())
	}
	m.base[id] = b.Pointer()
	if v.Len() == 0 {
		m.base[id] = m.arena.p // never read; nil would mean that it is not bound
	}
	return nil
}

// buffer returns n elements of value id from element off on.
func (m *memory) buffer(id program.ID, off, n int) (tensor.Buffer, error) {
	v := &m.p.Values[id]
	return tensor.FromPointer(m.at(id, off), n, v.DType, tensor.Host)
}

// at returns the address of an element.
func (m *memory) at(id program.ID, off int) unsafe.Pointer {
	return unsafe.Add(m.base[id], off*m.p.Values[id].DType.Size())
}
