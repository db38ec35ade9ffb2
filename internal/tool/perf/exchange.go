package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// exchange is an allgather of bytes for measured values, on memory of the group's device.
type exchange struct {
	g   *dist.Group
	dev Device        // nil on the host
	own tensor.Buffer // of dev
	all tensor.Buffer // of dev
}

// exchangeBytes is the most bytes of a rank in one exchange.
const exchangeBytes = 256

// openExchange allocates the memory of an exchange among the ranks of g.
func openExchange(g *dist.Group, dev Device) (*exchange, error) {
	e := &exchange{g: g.Blocking(), dev: dev}
	if e.dev == nil {
		return e, nil
	}
	var err error
	if e.own, err = e.dev.Alloc(g.Device(), exchangeBytes); err == nil {
		e.all, err = e.dev.Alloc(g.Device(), int64(g.Size()*exchangeBytes))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: %w", err), e.Close())
	}
	return e, nil
}

// Close frees the memory.
func (e *exchange) Close() error {
	var errs []error
	for _, b := range []tensor.Buffer{e.own, e.all} {
		if !b.IsZero() {
			errs = append(errs, e.dev.Free(b))
		}
	}
	e.own, e.all = tensor.Buffer{}, tensor.Buffer{}
	return errors.Join(errs...)
}

// bytes returns own of every rank, in rank order.
//
// Collective: all ranks, equal lengths.
func (e *exchange) bytes(own []byte) ([]byte, error) {
	all := make([]byte, len(own)*e.g.Size())
	if e.dev == nil {
		return all, wait(e.g.AllGather(tensor.Of(all), tensor.Of(own)))
	}
	src, err := e.own.Slice(0, len(own))
	if err != nil {
		return nil, err
	}
	dst, err := e.all.Slice(0, len(all))
	if err != nil {
		return nil, err
	}
	if err := e.dev.Write(src, own); err != nil {
		return nil, err
	}
	if err := wait(e.g.AllGather(dst, src)); err != nil {
		return nil, err
	}
	return all, e.dev.Read(all, dst)
}

// numbers returns own of every rank, in rank order, with all bits.
//
// Collective: all ranks, equal lengths.
func (e *exchange) numbers(own ...uint64) ([]uint64, error) {
	var raw []byte
	for _, v := range own {
		raw = binary.LittleEndian.AppendUint64(raw, v)
	}
	all, err := e.bytes(raw)
	if err != nil {
		return nil, err
	}
	list := make([]uint64, len(all)/8)
	for i := range list {
		list[i] = binary.LittleEndian.Uint64(all[8*i:])
	}
	return list, nil
}

// floats returns own of every rank, in rank order.
//
// Collective: all ranks, equal lengths.
func (e *exchange) floats(own ...float64) ([]float64, error) {
	bits := make([]uint64, len(own))
	for i, v := range own {
		bits[i] = math.Float64bits(v)
	}
	all, err := e.numbers(bits...)
	list := make([]float64, len(all))
	for i, v := range all {
		list[i] = math.Float64frombits(v)
	}
	return list, err
}
