package cudaexec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Limits of the readback at the end of a run.
const (
	ringSlots   = 4    // runs whose results are kept
	mostCopies  = 16   // copies of a run: values, and the fault words
	followBytes = 4096 // of a value
)

// follow is one copy at the end of a run, to the run's slot of the ring.
type follow struct {
	from  argument
	id    program.ID // None for the fault words
	bytes int64
	to    int64 // offset in a slot
}

// readback copies results to the host. The last kernel of a run writes them to pinned memory, one
// slot for each run, and an event after the run says when they are complete. So a reader need not
// stop the stream.
type readback struct {
	follows []follow
	slot    int64 // bytes of one
	ring    *cuda.HostMemory
	events  [ringSlots]*cuda.Event
	runs    uint64
	copies  [mostCopies * (8 + 4 + 4)]byte // struct Copies of runner.cu
}

// planReadback plans the copies at the end of a run: small outputs of p, and the fault words.
// Outputs of one element come first, since callers judge runs by them. If there are too many
// outputs, the last ones are left out.
func planReadback(p *program.Program, faults bool) (follows []follow, slot int64) {
	add := func(f follow) {
		f.to = slot
		slot += (f.bytes + 15) &^ 15
		follows = append(follows, f)
	}
	if faults {
		add(follow{from: argument{int32(len(p.Values) + slotFault), 0}, id: program.None, bytes: faultBytes})
	}
	used := usedBy(p)
	for _, single := range [...]bool{true, false} {
		for i := range p.Values {
			v := &p.Values[i]
			if used[i] && v.Role == program.Output && v.Place != program.Constant && (v.Len() == 1) == single &&
				v.Bytes() > 0 && v.Bytes() <= followBytes && len(follows) < mostCopies {
				add(follow{from: argument{int32(i), 0}, id: program.ID(i), bytes: v.Bytes()})
			}
		}
	}
	return follows, slot
}

// openReadback allocates the ring and its events.
func (x *Exec) openReadback() error {
	b := &x.back
	b.follows, b.slot = planReadback(x.p, x.code.faults)
	if len(b.follows) == 0 && x.clock == program.None {
		return nil
	}
	err := x.needOwn()
	if err != nil {
		return err
	}
	if b.ring, err = x.dev.AllocHost(ringSlots * max(b.slot, 16)); err != nil {
		return err
	}
	for i := range b.events {
		if b.events[i], err = x.dev.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

// pack writes struct Copies for the addresses addr.
func (b *readback) pack(addr []uintptr) {
	clear(b.copies[:])
	for i, f := range b.follows {
		binary.NativeEndian.PutUint64(b.copies[8*i:], uint64(addr[f.from.slot]+uintptr(f.from.offset)))
		binary.NativeEndian.PutUint32(b.copies[8*mostCopies+4*i:], uint32(f.bytes))
		binary.NativeEndian.PutUint32(b.copies[12*mostCopies+4*i:], uint32(f.to))
	}
}

// tail queues the kernel that ends a run.
func (b *readback) tail(x *Exec) error {
	if b.ring == nil {
		return nil
	}
	b.pack(x.addr)
	var clock uintptr
	if x.clock != program.None {
		clock = x.addr[x.clock]
	}
	a := x.room
	a.Reset()
	a.Ptr(clock)
	a.Ptr(x.addr[len(x.p.Values)+slotRuns])
	a.Ptr(b.ring.Device())
	a.U64(uint64(b.slot))
	a.Bytes(b.copies[:])
	if err := x.own.tail.Launch(x.home, cuda.Launch{Grid: [3]uint32{1}, Block: [3]uint32{256}}, a); err != nil {
		return fmt.Errorf("the end of the run: %w", err)
	}
	return nil
}

// ran records that a run was queued.
func (b *readback) ran(home *cuda.Stream) error {
	if b.ring == nil {
		return nil
	}
	if err := home.Record(b.events[b.runs%ringSlots]); err != nil {
		return err
	}
	b.runs++
	return nil
}

// Runs returns the number of queued runs. It counts only if the program has outputs or a clock.
func (x *Exec) Runs() uint64 { return x.back.runs }

// Read fills dst with the first bytes of value id after the newest run. It waits for that run only,
// not for later work on the stream. ReadRun reads the results of an earlier run.
//
// Errors: dist.ErrInvalid and its kinds, dist.ErrClosed; ErrFault; the reason why a group is
// broken; those of the driver.
func (x *Exec) Read(id program.ID, dst []byte) error { return x.ReadRun(x.back.runs, id, dst) }

// ReadRun is Read for run number run, from 1, one of the last four. Of runs before the newest only
// outputs of at most 4 KiB can be read, up to sixteen of them.
func (x *Exec) ReadRun(run uint64, id program.ID, dst []byte) error {
	b, err := x.Memory(id)
	if err != nil {
		return err
	}
	if int64(len(dst)) > b.Bytes() {
		return x.failure(fmt.Errorf("%w: %d B of %s of %d B", dist.ErrCount, len(dst), valueName(x.p, id), b.Bytes()))
	}
	if len(dst) == 0 {
		return nil
	}
	r := &x.back
	for _, f := range r.follows {
		if f.id != id {
			continue
		}
		if run == 0 || run > r.runs || r.runs-run >= ringSlots {
			return x.failure(fmt.Errorf("%w: run %d of %d is not one of the last %d", dist.ErrInvalid, run, r.runs, ringSlots))
		}
		if err := x.await(r.events[(run-1)%ringSlots]); err != nil {
			return x.failure(err)
		}
		if err := r.fault(x); err != nil {
			return err
		}
		copy(dst, r.ring.Bytes()[int64((run-1)%ringSlots)*r.slot+f.to:])
		return nil
	}
	if run != r.runs {
		return x.failure(fmt.Errorf("%w: %s of run %d: %d runs are queued, and only small outputs are kept", dist.ErrInvalid, valueName(x.p, id), run, r.runs))
	}
	if err := x.Wait(); err != nil {
		return err
	}
	return x.dev.CopyToHost(unsafe.Pointer(&dst[0]), uintptr(b.Pointer()), int64(len(dst)))
}

// fault returns the error of a run whose fault words have arrived on the host. Then it clears the
// words, after all queued runs. Without a fault it reads one word for each slot.
func (b *readback) fault(x *Exec) error {
	if b.ring == nil || !x.code.faults {
		return nil
	}
	ring := b.ring.Bytes()
	for i := range ringSlots {
		code := (*uint64)(unsafe.Pointer(&ring[int64(i)*b.slot+8*cudagen.FaultCodeAt])) // the fault words come first in a slot
		if atomic.LoadUint64(code) == 0 {
			continue
		}
		if err := x.settle(); err != nil {
			return x.failure(err)
		}
		var words [cudagen.FaultWords]uint64
		for k := range words {
			words[k] = binary.NativeEndian.Uint64(ring[int64(i)*b.slot+int64(8*k):])
		}
		for k := range ringSlots {
			clear(ring[int64(k)*b.slot : int64(k)*b.slot+faultBytes])
		}
		err := x.dev.Fill(x.addr[len(x.p.Values)+slotFault], 0, faultBytes)
		return errors.Join(x.failure(faultError(x.p, words)), err)
	}
	return nil
}

// faultError returns the error that the fault words encode.
func faultError(p *program.Program, words [cudagen.FaultWords]uint64) error {
	i := int(words[cudagen.FaultStepAt])
	if words[cudagen.FaultStepAt] >= uint64(len(p.Steps)) {
		return fmt.Errorf("%w: fault %d of step %d, there are %d", ErrFault, words[cudagen.FaultCodeAt], words[cudagen.FaultStepAt], len(p.Steps))
	}
	value := math.Float64frombits(words[cudagen.FaultValueAt])
	switch words[cudagen.FaultCodeAt] {
	case cudagen.FaultIndex:
	case cudagen.FaultDivisor:
		return fmt.Errorf("%s: %w: integer division by zero at element %.0f", stepName(p, i), ErrFault, value)
	default:
		return fmt.Errorf("%s: %w: fault %d", stepName(p, i), ErrFault, words[cudagen.FaultCodeAt])
	}
	axis := 0
	switch o := p.Steps[i].Op.(type) {
	case *program.Gather:
		axis = o.Axis
	case *program.GatherGrad:
		axis = o.Axis
	case *program.SparseCrossEntropy:
		return fmt.Errorf("%s: %w: %w", stepName(p, i), ErrFault, o.Wrong(int(words[cudagen.FaultPlaceAt]), value))
	}
	return fmt.Errorf("%s: %w: index %v is not in 0 to %d", stepName(p, i), ErrFault, value, axis-1)
}

func (b *readback) close() error {
	var errs []error
	for _, e := range b.events {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if b.ring != nil {
		errs = append(errs, b.ring.Close())
	}
	*b = readback{}
	return errors.Join(errs...)
}
