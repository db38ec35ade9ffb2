package gpu

import (
	"fmt"
	"sync"

	"github.com/symgrad/symgrad/dist"
)

// gate counts the accesses under way, so that memory is unmapped behind the last of them.
type gate struct {
	mu     sync.Mutex
	empty  sync.Cond // its lock is mu
	inside int
	shut   bool
}

// enter reports whether an access may begin. Whoever is let in leaves.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.shut {
		g.empty.Broadcast()
	}
}

func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// close lets nobody in any more and returns when all have left. It reports false, at once, when somebody else has closed
// the gate.
func (g *gate) close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.shut = true
	for g.inside > 0 {
		g.empty.Wait()
	}
	return true
}

// errClosed is the cause of an error on a closed heap.
var errClosed = fmt.Errorf("the heap: %w", dist.ErrClosed)
