package cudaexec

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// sides is the number of copies of an input: a run reads one, and the next one is written.
const sides = 2

// staged is an input from the host. On each side it has pinned memory for the caller's bytes, and
// device memory that they are copied to.
type staged struct {
	id     program.ID
	bytes  int64
	pinned [sides]*cuda.HostMemory
	device [sides]uintptr
	fresh  bool // staged for the next run
	full   bool // was staged at least once
	gone   bool // replaced by memory that the caller has bound
}

// staging copies inputs of the next run during the current one, on a stream of its own. All inputs
// change sides together, so there are only two sets of addresses, each with its graph.
type staging struct {
	list   []*staged
	stream *cuda.Stream
	copied [sides]*cuda.Event // after the copies to a side
	read   [sides]*cuda.Event // after the newest run that reads a side
	side   int                // of the newest run
	open   bool               // the other side may be written
	fresh  bool               // some input was staged since the newest run
}

// Room returns the pinned memory from which Stage copies value id for the next run. A caller that
// fills it, and then passes it to Stage, saves a copy.
//
// Returns: when no copy reads it any more; waits if the host is more than a run ahead of the
// device. Owns: the runner; the caller may use it until Stage or Run. Errors: as Stage.
func (x *Exec) Room(id program.ID) ([]byte, error) {
	if x.closed {
		return nil, errClosed
	}
	st, err := x.stage.of(x, id)
	if err != nil {
		return nil, x.failure(err)
	}
	if err := x.dev.Enter(); err != nil {
		return nil, err
	}
	defer x.dev.Leave()
	if err := x.stage.ready(x); err != nil {
		return nil, x.failure(err)
	}
	return st.pinned[1-x.stage.side].Bytes(), nil
}

// Stage sets the Outside value id to the elements src for the next run, instead of memory that is
// bound by Bind. The copy to the device overlaps earlier runs. A staged value keeps its elements
// until it is staged again.
//
// Returns: when src was copied to pinned memory; waits if the host is more than a run ahead of the
// device. Errors: dist.ErrInvalid and its kinds, dist.ErrClosed; cuda.ErrMemory; the reason why a
// group is broken.
func (x *Exec) Stage(id program.ID, src []byte) error {
	room, err := x.Room(id)
	if err != nil {
		return err
	}
	if len(src) != len(room) {
		return x.failure(fmt.Errorf("%w: %d B for %s of %d B", dist.ErrCount, len(src), valueName(x.p, id), len(room)))
	}
	if len(src) == 0 {
		return nil
	}
	if &src[0] != &room[0] {
		copy(room, src)
	}
	g := &x.stage
	st, err := g.of(x, id)
	if err != nil {
		return x.failure(err)
	}
	if err := x.dev.Enter(); err != nil {
		return err
	}
	defer x.dev.Leave()
	if err := g.stream.CopyFromHost(st.device[1-g.side], unsafe.Pointer(&room[0]), st.bytes); err != nil {
		return x.failure(err)
	}
	st.fresh, st.full, g.fresh = true, true, true
	if !x.bound[id] { // Run sets the address
		x.bound[id] = true
		x.unbound--
	}
	return nil
}

// of returns the staged input id, which it makes at the first call.
func (g *staging) of(x *Exec, id program.ID) (*staged, error) {
	for _, st := range g.list {
		if st.id != id || st.device[sides-1] == 0 {
			continue
		}
		if st.gone { // it was bound meanwhile; its memory still follows the rules for sides
			st.gone, st.full, st.fresh = false, false, false
		}
		return st, nil
	}
	if int(id) < 0 || int(id) >= len(x.p.Values) || x.p.Values[id].Place != program.Outside {
		return nil, fmt.Errorf("%w: %s: only a value of the program that is placed Outside can be staged", dist.ErrInvalid, valueName(x.p, id))
	}
	if err := g.start(x.dev); err != nil {
		return nil, err
	}
	st := &staged{id: id, bytes: x.p.Values[id].Bytes()}
	g.list = append(g.list, st) // even incomplete, so that close frees it
	for i := range sides {
		var err error
		if st.pinned[i], err = x.dev.AllocHost(max(st.bytes, 1)); err == nil {
			st.device[i], err = x.dev.Alloc(max(st.bytes, 1))
		}
		if err != nil {
			st.gone = true
			return nil, fmt.Errorf("staging %s: %w", valueName(x.p, id), err)
		}
	}
	return st, nil
}

// start makes the stream and the events.
func (g *staging) start(dev *cuda.Device) error {
	if g.stream != nil {
		return nil
	}
	for i := range sides {
		for _, e := range [...]**cuda.Event{&g.copied[i], &g.read[i]} {
			if *e != nil {
				continue
			}
			var err error
			if *e, err = dev.NewEvent(); err != nil {
				return err
			}
		}
	}
	var err error
	g.stream, err = dev.NewStream(0)
	return err
}

// ready returns when the other side may be written. The host waits until its bytes were copied to
// the device; later copies wait for the last run that reads the side.
func (g *staging) ready(x *Exec) error {
	if g.open {
		return nil
	}
	other := 1 - g.side
	if err := x.await(g.copied[other]); err != nil {
		return err
	}
	if err := g.stream.Wait(g.read[other]); err != nil {
		return err
	}
	g.open = true
	return nil
}

// begin makes the next run read the inputs that were staged for it. The caller has entered the
// device.
func (g *staging) begin(x *Exec) error {
	if !g.fresh {
		return nil
	}
	other := 1 - g.side
	for _, st := range g.list {
		if st.full && !st.gone && !st.fresh {
			if err := g.stream.Copy(st.device[other], st.device[g.side], st.bytes); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(g.stream.Record(g.copied[other]), x.home.Wait(g.copied[other])); err != nil {
		return err
	}
	g.side, g.fresh, g.open = other, false, false
	for _, st := range g.list {
		if st.full && !st.gone {
			st.fresh = false
			x.place(st.id, st.device[other])
		}
	}
	return nil
}

// ran records that a run was queued.
func (g *staging) ran(home *cuda.Stream) error {
	if g.stream == nil {
		return nil
	}
	return home.Record(g.read[g.side])
}

// drop records that the caller has bound memory to id.
func (g *staging) drop(id program.ID) {
	for _, st := range g.list {
		if st.id == id {
			st.gone = true
		}
	}
}

func (g *staging) close(dev *cuda.Device) error {
	var errs []error
	if g.stream != nil {
		errs = append(errs, g.stream.Synchronize(), g.stream.Close())
	}
	for i := range sides {
		for _, e := range [...]*cuda.Event{g.copied[i], g.read[i]} {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
		for _, st := range g.list {
			if st.pinned[i] != nil {
				errs = append(errs, st.pinned[i].Close())
			}
			errs = append(errs, dev.Free(st.device[i]))
		}
	}
	*g = staging{}
	return errors.Join(errs...)
}
