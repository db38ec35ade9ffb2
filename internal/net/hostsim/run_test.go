package hostsim

import (
	"math"
	"testing"

	"github.com/symgrad/symgrad/internal/net/hostcost"
)

// sizes of hosts and ranks of a host, for the checks of every algorithm.
var layouts = []struct{ hosts, ranks int }{{1, 1}, {1, 3}, {2, 1}, {2, 2}, {3, 1}, {3, 2}, {4, 1}, {5, 3}, {7, 2}, {8, 1}, {13, 1}, {16, 4}}

// Every rank ends with every contribution exactly once, in rank order where that is promised.
func TestEveryContributionCountsOnce(t *testing.T) {
	for _, a := range hostcost.All() {
		for _, l := range layouts {
			for _, bytes := range []int64{8, 5000, 1 << 20} {
				cfg := Config{Net: hostcost.Net{Hosts: l.hosts, Ranks: l.ranks}, Bytes: bytes, Check: true, Late: 1e-4, Seed: 1}
				res, err := Run(a, cfg)
				if err != nil {
					t.Error(err)
				}
				if len(res.Stuck) > 0 {
					t.Errorf("%v on %d x %d: hosts %v are stuck", a, l.hosts, l.ranks, res.Stuck)
				}
			}
		}
	}
}

// nets are networks: the defaults, InfiniBand, Ethernet of 100 Gbit/s with TCP, and of 1 Gbit/s.
var nets = []hostcost.Net{
	{}, {Latency: 2e-6, Overhead: 0.3e-6, Bandwidth: 25e9}, {Latency: 20e-6, Bandwidth: 12.5e9}, {Latency: 50e-6, Bandwidth: 1.25e8},
}

// tolerance returns the bounds of the ratio of simulated and predicted time. Formulas are exact
// where no host waits for a message of another step.
func tolerance(a hostcost.Algorithm, hosts, ranks int) (least, most float64) {
	power := hosts&(hosts-1) == 0
	switch {
	case a == hostcost.Chain:
		return 0.85, 1.1 // both directions share links and processors
	case a == hostcost.FlatRing && ranks > 1:
		return 0.9, 1.15 // slow and fast hops alternate
	case (a == hostcost.Doubling || a == hostcost.Halving || a == hostcost.Tree) && !power:
		return 0.55, 1.04 // hosts without a partner are early, and their messages delay others
	}
	return 0.999, 1.001
}

// The formulas of Thakur et al., with alpha, beta and gamma, hold.
func TestTimesAreThoseOfTheFormulas(t *testing.T) {
	for _, net := range nets {
		for _, l := range layouts {
			net.Hosts, net.Ranks = l.hosts, l.ranks
			for _, a := range hostcost.All() {
				least, most := tolerance(a, l.hosts, l.ranks)
				for _, bytes := range []int64{8, 5000, 60 << 10, 1 << 20, 8 << 20} {
					res, err := Run(a, Config{Net: net, Bytes: bytes})
					if err != nil {
						t.Fatal(err)
					}
					ratio := res.Seconds / net.Seconds(a, bytes)
					if l.hosts > 1 && !(ratio >= least && ratio <= most) {
						t.Errorf("%v, %+v, %d B: %.4g s, %.3f of the formula", a, net, bytes, res.Seconds, ratio)
					}
				}
			}
		}
	}
}

// A ring sends 2 (H-1)/H of the bytes, which is the least that is possible.
func TestHostsSendTheBytesOfTheLiterature(t *testing.T) {
	const hosts, ranks, bytes = 8, 4, 1 << 20
	slot := int64(hostcost.SlotBytes(hosts * ranks))
	for a, want := range map[hostcost.Algorithm]int64{
		hostcost.Exchange: (hosts - 1) * ranks * (bytes + (bytes+slot-1)/slot*hostcost.HeaderBytes),
		hostcost.Parts:    (hosts - 1) * (ranks + 1) * bytes / hosts,
		hostcost.Chain:    2 * bytes,
		hostcost.Doubling: 3 * bytes,
		hostcost.Halving:  2 * (hosts - 1) * bytes / hosts,
		hostcost.Ring:     2 * (hosts - 1) * bytes / hosts,
		hostcost.Tree:     3 * bytes, // the root sends the result to three
		hostcost.FlatRing: 2 * (hosts*ranks - 1) * bytes / (hosts * ranks),
	} {
		res, err := Run(a, Config{Net: hostcost.Net{Hosts: hosts, Ranks: ranks}, Bytes: bytes})
		if err != nil || res.Sent != want {
			t.Errorf("%v: %d bytes sent, want %d (%v)", a, res.Sent, want, err)
		}
	}
}

// A run with one seed gives one result.
func TestRunsAreDeterministic(t *testing.T) {
	cfg := Config{Net: hostcost.Net{Hosts: 13, Ranks: 2}, Bytes: 1 << 20, Late: 1e-3, Seed: 7}
	for _, a := range hostcost.All() {
		first, err := Run(a, cfg)
		again, _ := Run(a, cfg)
		if err != nil || first.Seconds != again.Seconds || first.Messages != again.Messages {
			t.Errorf("%v: %+v, then %+v (%v)", a, first, again, err)
		}
	}
}

// A slow host delays all. Late hosts delay all by their delay, and by messages of early hosts that
// keep a link busy.
func TestStragglersDelayAll(t *testing.T) {
	net := hostcost.Net{Hosts: 16, Ranks: 1}
	for _, a := range hostcost.All() {
		base, _ := Run(a, Config{Net: net, Bytes: 1 << 20})
		slow, _ := Run(a, Config{Net: net, Bytes: 1 << 20, Slow: map[int]float64{5: 3}})
		late, err := Run(a, Config{Net: net, Bytes: 1 << 20, Late: 1e-3, Seed: 3})
		if err != nil || slow.Seconds <= base.Seconds*1.05 || late.Seconds > 1.5*base.Seconds+1e-3 || late.Seconds < base.Seconds {
			t.Errorf("%v: %v, with a slow host %v, with late ones %v (%v)", a, base.Seconds, slow.Seconds, late.Seconds, err)
		}
	}
}

// After the loss of a host the others do not end: heartbeats end that.
func TestLostHostLeavesOthersWaiting(t *testing.T) {
	for _, a := range hostcost.All() {
		res, err := Run(a, Config{Net: hostcost.Net{Hosts: 8}, Bytes: 1 << 20, Lost: map[int]float64{3: 0}, Check: true})
		if err != nil || len(res.Stuck) == 0 {
			t.Errorf("%v: stuck %v (%v)", a, res.Stuck, err)
		}
	}
}

// Invalid input is an error.
func TestRunRejectsInvalidInput(t *testing.T) {
	for _, cfg := range []Config{
		{Bytes: 1},
		{Net: hostcost.Net{Hosts: 2}},
		{Net: hostcost.Net{Hosts: 2, Latency: math.Inf(1)}, Bytes: 1},
		{Net: hostcost.Net{Hosts: 2, Latency: 1e-6, Overhead: 1e-6}, Bytes: 1},
		{Net: hostcost.Net{Hosts: 2}, Bytes: 1, Chunk: -1},
	} {
		if _, err := Run(hostcost.Ring, cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
	if _, err := Run(99, Config{Net: hostcost.Net{Hosts: 2}, Bytes: 1}); err == nil {
		t.Error("an unknown algorithm is accepted")
	}
}
