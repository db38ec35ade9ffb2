package cudaexec

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// alignment is that of constants, scratch memory and everything else that layout places. cuMemAlloc
// guarantees as much.
const alignment = 256

func aligned(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }

// Slots of the address table that follow those of the values.
const (
	slotScratch = iota
	slotFault
	slotClock // the runner's own, unless the program's clock is bound
	slotRuns
	extraSlots
)

// layout is the layout of the block that a runner allocates in addition to the arena: constants,
// then scratch memory of the steps, then a few words.
type layout struct {
	constant []int64 // by value; -1 for values that are no constants
	scratch  []int64 // by step, from the beginning of the scratch memory
	at       [extraSlots]int64
	bytes    int64
	need     need
}

// Bytes of the words at the end of the block.
const (
	faultBytes = 8 * cudagen.FaultWords
	clockBytes = 16
)

// newLayout lays out the block for p. steps has the scratch memory that each step needs.
func newLayout(p *program.Program, steps []cudagen.Step) layout {
	l := layout{constant: make([]int64, len(p.Values)), scratch: make([]int64, len(steps))}
	for i := range p.Values {
		l.constant[i] = -1
		if v := &p.Values[i]; v.Place == program.Constant {
			l.constant[i] = l.bytes
			l.bytes += aligned(max(v.Bytes(), 1))
		}
	}
	l.need = need{arena: p.Arena, constants: l.bytes}
	l.at[slotScratch] = l.bytes
	for i := range steps {
		l.scratch[i] = l.bytes - l.at[slotScratch]
		l.bytes += aligned(steps[i].Scratch)
	}
	l.need.scratch = l.bytes - l.at[slotScratch]
	for _, w := range [...]struct {
		slot  int
		bytes int64
	}{{slotFault, faultBytes}, {slotClock, clockBytes}, {slotRuns, 8}} {
		l.at[w.slot] = l.bytes
		l.bytes += aligned(w.bytes)
	}
	l.need.other = l.bytes - l.need.constants - l.need.scratch
	return l
}

// memory is the device memory of a runner.
type memory struct {
	dev   *cuda.Device
	arena uintptr
	lent  bool // the arena belongs to the caller
	block uintptr
}

// newMemory allocates the memory of p and fills it: constants with their elements, the rest with
// zeros.
//
// Errors: those of memoryError; dist.ErrCount if the caller's arena is too small.
func newMemory(p *program.Program, cfg *Config, l *layout) (*memory, error) {
	m := &memory{dev: cfg.Device}
	var err error
	switch {
	case p.Arena == 0:
	case !cfg.Arena.IsZero():
		m.arena, m.lent = uintptr(cfg.Arena.Pointer()), true
		if cfg.Arena.Bytes() < p.Arena || m.arena%alignment != 0 {
			return nil, fmt.Errorf("cudaexec: %w: the arena is %d B at %#x; program %q needs %d B, aligned to %d",
				dist.ErrCount, cfg.Arena.Bytes(), m.arena, p.Name, p.Arena, alignment)
		}
	default:
		if m.arena, err = m.dev.Alloc(p.Arena); err != nil {
			return nil, memoryError(p, l.need, err)
		}
	}
	if m.block, err = m.dev.Alloc(l.bytes); err != nil {
		return nil, errors.Join(memoryError(p, l.need, err), m.close())
	}
	if err := m.fill(p, l); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *memory) fill(p *program.Program, l *layout) error {
	if err := m.dev.Fill(m.block, 0, l.bytes); err != nil {
		return err
	}
	for i, at := range l.constant {
		v := &p.Values[i]
		if at < 0 || v.Bytes() == 0 {
			continue
		}
		if int64(len(v.Data)) != v.Bytes() {
			return fmt.Errorf("cudaexec: %w: constant %s has %d B of data, want %d", dist.ErrCount, valueName(p, program.ID(i)), len(v.Data), v.Bytes())
		}
		if err := m.dev.CopyFromHost(m.block+uintptr(at), unsafe.Pointer(&v.Data[0]), v.Bytes()); err != nil {
			return fmt.Errorf("constant %s: %w", valueName(p, program.ID(i)), err)
		}
	}
	return nil
}

// addresses returns the addresses of all values and extra slots. Values to be bound have 0.
func (m *memory) addresses(p *program.Program, l *layout) []uintptr {
	addr := make([]uintptr, len(p.Values)+extraSlots)
	for i := range p.Values {
		switch v := &p.Values[i]; v.Place {
		case program.Arena:
			addr[i] = m.arena + uintptr(v.Offset)
		case program.Constant:
			addr[i] = m.block + uintptr(l.constant[i])
		}
	}
	for slot, at := range l.at {
		addr[len(p.Values)+slot] = m.block + uintptr(at)
	}
	return addr
}

func (m *memory) close() error {
	block, arena := m.block, m.arena
	m.block, m.arena = 0, 0
	if m.lent {
		arena = 0
	}
	return errors.Join(m.dev.Free(block), m.dev.Free(arena))
}

// bufferAt returns a buffer of n elements at a device address.
func bufferAt(at uintptr, n int, dt tensor.DType, on tensor.Device) (tensor.Buffer, error) {
	return tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), n, dt, on)
}
