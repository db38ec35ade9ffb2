package hostheap

import "sync/atomic"

// Gate counts the running accesses, so that memory is unmapped after the last of them. NewGate
// makes one.
type Gate struct {
	inside atomic.Int64 // running accesses, plus shut once the gate closes
	empty  chan struct{}
}

const shut = -1 << 62

// NewGate returns an open gate.
func NewGate() Gate { return Gate{empty: make(chan struct{}, 1)} }

// Enter reports whether an access may begin. If so, the caller must call Leave.
func (g *Gate) Enter() bool {
	if g.inside.Add(1) > 0 {
		return true
	}
	g.Leave()
	return false
}

// Leave ends an access.
func (g *Gate) Leave() {
	if g.inside.Add(-1) == shut {
		select {
		case g.empty <- struct{}{}:
		default:
		}
	}
}

// Closed reports whether the gate is closed or closing.
func (g *Gate) Closed() bool { return g.inside.Load() < 0 }

// Close rejects new accesses, calls hurry if some are running, and returns when all have left. It
// returns false at once if the gate was closed before. Accesses that wait for a peer check Closed,
// and leave.
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
