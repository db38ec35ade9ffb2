package hosts

import (
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/wire"
)

// closedEnd returns the error of a wait for a rank that has closed its end.
func closedEnd(rank int) error { return fmt.Errorf("%w: rank %d closed its end", dist.ErrClosed, rank) }

// leftIn returns the error of an operation after rank, which has closed its end, ended a connection
// that the operation uses. A rank that took part in a collective left it because of an error: the
// reason is on its way to this rank too.
func (t *Transport) leftIn(rank int) error {
	if t.now.Kind.PointToPoint() {
		return closedEnd(rank)
	}
	var pause wire.Backoff
	for end := time.Now().Add(newsAfter); ; pause.Pause() {
		t.p.handle()
		if err := t.Broken(); err != nil {
			return err
		}
		if first := t.peers.firstLeft(t.round); first >= 0 {
			return closedEnd(first)
		}
		if time.Now().After(end) {
			return closedEnd(rank)
		}
		if t.p.progress() {
			pause.Reset()
		}
	}
}

// firstLeft returns the first rank that closed its end before exchange round; -1 for none.
func (p *peers) firstLeft(round uint64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.by {
		if p.by[r].gone && p.by[r].round < round {
			return r
		}
	}
	return -1
}
