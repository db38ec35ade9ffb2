package shm

import (
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// The text of a wait for messages: the activity of each rank that owes a message, once, and
// nothing of the others.
func TestWhoWaitsForMessagesNamesTheirPeers(t *testing.T) {
	x := tensor.Of(make([]float32, 4))
	send := func(peer int) dist.Op { return dist.Op{Kind: dist.KindSend, Peer: peer, Count: 4, Src: x} }
	recv := func(peer int) dist.Op { return dist.Op{Kind: dist.KindRecv, Peer: peer, Count: 4, Dst: x} }
	for _, c := range []struct {
		name string
		ops  []dist.Op
		want string
	}{
		{"a receive", []dist.Op{recv(1)}, "rank 1 is in nothing"},
		{"an exchange with one rank", []dist.Op{send(2), recv(2)}, "rank 2 is in nothing"},
		{"a receive from itself", []dist.Op{recv(0)}, "its message to itself has only one half"},
	} {
		for _, before := range []int{0, 3} { // collectives, in which all have arrived
			ends, err := Local(3, GoMemory, Config{})
			if err != nil {
				t.Fatal(err)
			}
			var meeting sync.WaitGroup
			for _, e := range ends {
				meeting.Go(func() {
					for i := range before {
						if err := e.(*worldTransport).do(&dist.Op{Kind: dist.KindBarrier, Seq: uint64(i + 1)}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			meeting.Wait()
			waits := ends[0].(*worldTransport).Transport
			for i := range c.ops {
				waits.moves = append(waits.moves, message{op: &c.ops[i]})
			}
			waits.ctl.busy(0, dist.KindBatch, -1, 4)
			if len(c.ops) == 1 {
				waits.ctl.busy(0, c.ops[0].Kind, c.ops[0].Peer, 4)
			}
			if said := waits.whereabouts(); !strings.HasPrefix(said, c.want) || strings.Contains(said, ", ") {
				t.Errorf("%s behind %d collectives: %q, want %q alone", c.name, before, said, c.want)
			}
			for _, e := range ends {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
