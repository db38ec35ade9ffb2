package hostheap

import "sync/atomic"

// gate counts the accesses under way, so that memory is unmapped behind the last of them.
type gate struct {
	inside atomic.Int64 // accesses under way, plus shut once the gate closes
	empty  chan struct{}
}

const shut = -1 << 62

func newGate() gate { return gate{empty: make(chan struct{}, 1)} }

// enter reports whether an access may begin. Whoever is let in leaves.
func (g *gate) enter() bool {
	if g.inside.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.inside.Add(-1) == shut {
		select {
		case g.empty <- struct{}{}:
		default:
		}
	}
}

func (g *gate) closed() bool { return g.inside.Load() < 0 }

// close lets nobody in any more, calls hurry, and returns when all have left. It reports false, at once, when somebody
// else has closed the gate.
func (g *gate) close(hurry func()) bool {
	for {
		n := g.inside.Load()
		if n < 0 {
			return false
		}
		if g.inside.CompareAndSwap(n, n+shut) {
			if n > 0 {
				hurry()
				<-g.empty
			}
			return true
		}
	}
}
