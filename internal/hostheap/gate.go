package hostheap

import "sync/atomic"

// Gate counts the accesses under way, so that memory is unmapped behind the last of them. NewGate
// makes one.
type Gate struct {
	inside atomic.Int64 // accesses under way, plus shut once the gate closes
	empty  chan struct{}
}

const shut = -1 << 62

// NewGate is an open gate.
func NewGate() Gate { return Gate{empty: make(chan struct{}, 1)} }

// Enter reports whether an access may begin. Whoever is let in leaves.
func (g *Gate) Enter() bool {
	if g.inside.Add(1) > 0 {
		return true
	}
	g.Leave()
	return false
}

// Leave ends an access that Enter has let in.
func (g *Gate) Leave() {
	if g.inside.Add(-1) == shut {
		select {
		case g.empty <- struct{}{}:
		default:
		}
	}
}

// Closed reports whether somebody has closed the gate, or is about to.
func (g *Gate) Closed() bool { return g.inside.Load() < 0 }

// Close lets nobody in any more, calls hurry if somebody is inside, and returns when all have left.
// It reports false, at once, when somebody else has closed the gate. Accesses that wait for a peer
// look at Closed, and leave.
func (g *Gate) Close(hurry func()) bool {
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
