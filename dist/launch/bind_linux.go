package launch

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/cores"
)

// deal returns the processors of each rank; nil if ranks are not bound.
//
// Errors: dist.ErrInvalid for fewer cores than ranks.
func (c SpawnConfig) deal() ([][]int, error) {
	if c.Bind != BindCore {
		return nil, nil
	}
	allowed, err := cores.Allowed()
	if err != nil {
		return nil, fmt.Errorf("launch: bind ranks: %w", err)
	}
	processors := cores.Deal(allowed, cores.System(), c.N)
	if processors == nil {
		return nil, fmt.Errorf("launch: bind %d ranks: processors %v have fewer cores; start fewer ranks, or bind none: %w", c.N, allowed, dist.ErrInvalid)
	}
	return processors, nil
}

// bound runs start on a thread bound to the processors of a rank of this host: a child inherits
// them, and a Go program counts them when it starts. The caller has locked the thread.
func (j *job) bound(local int, start func() (*child, error)) (*child, error) {
	if j.processors == nil {
		return start()
	}
	before, err := cores.Allowed()
	if err == nil {
		err = cores.Bind(j.processors[local])
	}
	if err != nil {
		return nil, err
	}
	c, err := start()
	if undo := cores.Bind(before); undo != nil && err == nil {
		c.signal(9, true)
		return nil, undo
	}
	return c, err
}
