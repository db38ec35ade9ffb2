package hostsim

import (
	"testing"

	"github.com/symgrad/symgrad/internal/net/hostcost"
)

// A lost host is found after its silence, less one period of heartbeats and plus one tick.
func TestLostHostIsNamedInTime(t *testing.T) {
	const limit = 4
	for _, hosts := range []int{2, 3, 16, 1024} {
		for seed := range uint64(20) {
			net := hostcost.Net{Hosts: hosts, Ranks: 8}.WithDefaults()
			got := Silence(net, limit, seed)
			if got.First < limit-limit/8.0 || got.First > limit+tick+net.Latency || got.All < got.First || got.All > got.First+1 {
				t.Errorf("%d hosts, seed %d: %+v", hosts, seed, got)
			}
		}
	}
}

// The meeting has the sizes that internal/net/hosts and internal/net/ucx send.
func TestMeetingGrowsWithTheSquareOfRanks(t *testing.T) {
	small, large := hostcost.Net{Hosts: 128, Ranks: 8}.Meeting(), hostcost.Net{Hosts: 2048, Ranks: 8}.Meeting()
	for i, c := range small {
		ratio := float64(large[i].Bytes) / float64(c.Bytes)
		switch c.Name {
		case "addresses (ucx)", "names of hosts", "board":
			if ratio < 200 || ratio > 300 {
				t.Errorf("%s: %d B, then %d B", c.Name, c.Bytes, large[i].Bytes)
			}
		default:
			if ratio < 15 || ratio > 17 {
				t.Errorf("%s: %d B, then %d B", c.Name, c.Bytes, large[i].Bytes)
			}
		}
	}
}
