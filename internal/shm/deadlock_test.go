package shm

import (
	"errors"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// A rank in a collective waits for one that is in a message with it. If the message can go on, that rank has only not been
// given a core, or is stopped by a debugger: the wait is for it. Otherwise neither can ever go on.
func TestARankThatIsStoppedInAMessageIsWaitedFor(t *testing.T) {
	const lent = -1
	for _, c := range []struct {
		what string
		kind dist.Kind // what rank 1 is in, with rank 0
		sent int       // chunks sent to the receiver so far; lent stands for a large message that is not read yet
		want error
	}{
		{"receives what has been sent", dist.KindRecv, 1, nil},
		{"receives what was never sent", dist.KindRecv, 0, dist.ErrMismatch},
		{"sends, and there is room", dist.KindSend, ringDepth - 1, nil},
		{"sends, and nobody receives", dist.KindSend, ringDepth, dist.ErrMismatch},
		{"lends, and nobody receives", dist.KindSend, lent, dist.ErrMismatch},
	} {
		ends, err := Local(2, GoMemory, Config{})
		if err != nil {
			t.Fatal(err)
		}
		waits, other := ends[0].(*worldTransport).Transport, ends[1].(*worldTransport).Transport
		from := waits
		if c.kind == dist.KindSend {
			from = other
		}
		if c.sent == lent {
			large := make([]byte, ringDepth*from.ctl.ring+1)
			op := dist.Op{Kind: dist.KindSend, Peer: 1 - from.rank, Count: len(large), Src: tensor.Of(large)}
			if !from.push(&message{op: &op}) {
				t.Fatal("no room for a message")
			}
		}
		for range max(c.sent, 0) {
			op := dist.Op{Kind: dist.KindSend, Peer: 1 - from.rank, Count: 1, Src: tensor.Of([]byte{1})}
			if err := from.exchange([]dist.Op{op}); err != nil {
				t.Fatal(err)
			}
		}
		other.ctl.busy(1, c.kind, 0, 1)
		if err := waits.open(1); err != nil {
			t.Fatal(err)
		}
		waits.ctl.busy(0, dist.KindBarrier, -1, 2)
		if err := waits.deadlock(&sleeper{suspect: true}); !errors.Is(err, c.want) {
			t.Errorf("rank 1 %s: %v, want %v", c.what, err, c.want)
		}
		if err := errors.Join(ends[0].Close(), ends[1].Close()); err != nil {
			t.Error(err)
		}
	}
}
