package shm

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// Memory is the kind of memory of a local world.
type Memory int

// The kinds of memory of a local world.
const (
	Mapped   Memory = iota // memfd, mapped by every rank at its own address, as between processes
	GoMemory               // Go memory, which the race detector sees
)

// Local returns a world of n ranks in this process, for tests of the algorithms without processes.
// The result is indexed by rank.
//
// Errors: n < 1, or unavailable shared memory.
func Local(n int, m Memory, cfg Config) ([]dist.Transport, error) {
	if n < 1 {
		return nil, fmt.Errorf("shm: a world of %d ranks: %w", n, dist.ErrInvalid)
	}
	cfg = cfg.withDefaults()
	h := newHub(n)
	var mk maker = memfdMaker{}
	if m == GoMemory {
		mk = goMaker{}
	}
	if cfg.Dir != "" && m == Mapped {
		mk = fileMaker{cfg.Dir}
	}
	nodes := make([]*node, n)
	for r := range nodes {
		nodes[r] = newNode(cfg, r, n, mk, h.ranks[r])
		nodes[r].sleepy = sleepyInside
		nodes[r].holds = false // the ranks share the processors
		h.ranks[r].gone = nodes[r].gone
	}
	out := make([]dist.Transport, n)
	for r := range out { // rank 0 first: it makes the segment for the others
		t, err := enter(context.Background(), nodes[r])
		if err != nil {
			for _, t := range out[:r] {
				_ = t.Close()
			}
			return nil, err
		}
		out[r] = t
	}
	return out, nil
}
