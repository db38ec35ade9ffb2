package ddp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Keep implements drive.Exchange.
func (x *driver) Keep() { x.kept = true }

// Stepped implements drive.Exchange.
func (x *driver) Stepped(skipped bool) error {
	if x.d.local.every == 0 {
		return nil
	}
	return x.d.local.afterStep(skipped)
}

// averageOnGPU averages the weights on the GPUs. Unless a machine keeps them there, they come from
// the values of the nodes, and go back.
//
// Collective: all ranks.
func (x *driver) averageOnGPU() error {
	d, me := x.d, x.d.team.Rank()
	if !x.kept {
		for _, s := range d.slots {
			v, err := x.valueOf(s)
			if err != nil {
				return err
			}
			if v.host, err = valueMemory(s.param.Value()); err == nil { // it may have a new value
				err = errors.Join(v.region.Put(me, v.at, v.host), v.heap.Quiet())
			}
			if err != nil {
				return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
			}
		}
	}
	err := d.local.averageValues(func(s *slot) (tensor.Buffer, error) {
		v, err := x.valueOf(s)
		if err != nil {
			return tensor.Buffer{}, err
		}
		return v.buf, nil
	})
	if err != nil || x.kept {
		return err
	}
	for _, s := range d.slots {
		v, err := x.valueOf(s)
		if err == nil {
			err = v.region.Get(v.host, me, v.at)
		}
		if err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
	}
	return nil
}

// valueOf returns the memory of a parameter on the GPU.
func (x *driver) valueOf(s *slot) (*value, error) {
	i := slices.IndexFunc(x.values.all, func(v value) bool { return v.node == s.param })
	if i < 0 {
		return nil, fmt.Errorf("%w: %q has no memory on the GPU", dist.ErrInvalid, s.param.Name())
	}
	return &x.values.all[i], nil
}

// sumOnGPU returns the sum of a number over the ranks, in their order.
//
// Collective: all ranks.
func (x *driver) sumOnGPU(own float64) (float64, error) {
	mine := binary.LittleEndian.AppendUint64(nil, math.Float64bits(own))
	parts, err := gatherOnGPU(x.d.team.Group, x.d.team.full(weightName), mine)
	sum := 0.0
	for _, p := range parts {
		sum += math.Float64frombits(binary.LittleEndian.Uint64(p))
	}
	return sum, err
}

// setShareOnGPU writes the factor of the weights of this rank. No run is in flight.
func (x *driver) setShareOnGPU(share float64) error {
	m := x.d.mem
	for k, from := range [...]tensor.Buffer{tensor.Of([]float32{float32(share)}), tensor.Of([]float64{share})} {
		region, at, err := m.regionOf(m.scales[k])
		if err == nil {
			err = region.Put(x.d.team.Rank(), at, from)
		}
		if err != nil {
			return err
		}
	}
	return m.heap.Quiet()
}
