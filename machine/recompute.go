package machine

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/values"
)

// Recompute says which activations, results of the forward pass, a training computes again in its
// backward pass instead of keeping them. It changes memory and time, and no bits of results.
type Recompute string

// Values of Recompute. The zero Recompute is RecomputeNone.
const (
	RecomputeNone Recompute = "none" // keep all
	// RecomputeBlocks divides the forward pass where few bytes pass from step to step, such as
	// between the layers of a transformer. It keeps these, and computes everything between them
	// again, block by block. That takes the time of about one more forward pass.
	RecomputeBlocks Recompute = "blocks"
	// RecomputeAuto computes as little as possible again, so that a program keeps MemoryBytes.
	RecomputeAuto Recompute = "auto"
)

var recomputes = map[Recompute]program.Recompute{RecomputeBlocks: program.RecomputeBlocks, RecomputeAuto: program.RecomputeAuto}

// checkRecompute checks the settings of recomputation.
func (c *Config) checkRecompute() error {
	switch c.Recompute {
	case "", RecomputeNone, RecomputeBlocks, RecomputeAuto:
	default:
		return fmt.Errorf("recompute %q; want none, blocks or auto", c.Recompute)
	}
	switch {
	case c.MemoryBytes < 0:
		return fmt.Errorf("a limit of %d bytes; 0 means the free memory of a GPU, and no limit on the CPU", c.MemoryBytes)
	case c.MemoryBytes > 0 && c.Recompute != RecomputeAuto:
		return fmt.Errorf("a limit of %d bytes without recompute %q, which alone keeps it", c.MemoryBytes, RecomputeAuto)
	}
	return nil
}

// librariesShare is the part of a GPU's memory that RecomputeAuto leaves to others: workspaces of
// cuBLAS and cuDNN, modules of kernels and captured graphs. It is a twentieth.
const librariesShare = 20

// limitMemory sets the limit of RecomputeAuto if the settings have none: the free memory of the GPU
// without the parameters that are not there yet. States of solvers and buckets of gradients are.
// Programs for other shapes get the same limit, since they share the memory.
func limitMemory(m *Machine) error {
	c := &m.cfg
	if c.Recompute != RecomputeAuto || c.MemoryBytes > 0 || m.device == nil {
		return nil
	}
	free, total, err := m.device.dev.Memory()
	if err != nil {
		return err
	}
	left := free - total/librariesShare
	if m.ddp == nil || m.ddp.Plan().Stage == 0 { // else they are in the buckets
		for _, p := range m.g.Params {
			dt, err := values.DType(p.Node.Dtype())
			if err != nil {
				return fmt.Errorf("parameter %q: %w", p.Node.Name(), err)
			}
			left -= int64(max(values.Size(m.shapes[p.Node]), 1)) * int64(dt.Size())
		}
	}
	c.MemoryBytes = max(left, 1)
	return nil
}
