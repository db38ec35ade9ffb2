package hostcost

import (
	"math"
	"testing"
)

// Where bytes cost the time of processors, large allreduces take as much longer as links are slower
// in both directions, and as hosts have fewer processors.
func TestProcessorsLimitLargeAllReduces(t *testing.T) {
	const bytes = 64 << 20
	free := Net{Hosts: 2, Bandwidth: 1e9, Latency: 10e-6, Memory: 1e12}
	both, own := free, Net{Hosts: 3, Bandwidth: 1e9, Both: 0.5e9, Latency: 10e-6, Memory: 1e12}
	both.Both = 0.5e9
	shared := own
	shared.Processors = 2
	for _, c := range []struct {
		name        string
		slow, quick Net
		want        float64
	}{
		{"both directions", both, free, 2},
		{"two processors of three hosts, whose middle one has half of the work", shared, own, 1},
	} {
		if got := c.slow.AllReduce(bytes).Seconds / c.quick.AllReduce(bytes).Seconds; math.Abs(got-c.want) > 0.05 {
			t.Errorf("%s: %.3f times as long, want %.3f", c.name, got, c.want)
		}
	}
	shared.Processors = 1
	if got := shared.AllReduce(bytes).Seconds / own.AllReduce(bytes).Seconds; math.Abs(got-2) > 0.1 {
		t.Errorf("one processor: %.3f times as long, want 2", got)
	}
}

// The algorithm is that of internal/hosts, and invalid networks are errors.
func TestAllReduceIsThatOfHosts(t *testing.T) {
	for _, c := range []struct {
		hosts, ranks int
		bytes        int64
		want         Algorithm
	}{
		{2, 1, 8, Exchange},
		{2, 1, 64 << 20, Exchange},
		{2, 2, 32 << 10, Exchange},
		{2, 2, 64 << 10, Parts},
		{2, 2, 64 << 20, Parts},
		{4, 2, 64 << 20, Chain},
		{3, 1, 64 << 20, Chain},
	} {
		n := Net{Hosts: c.hosts, Ranks: c.ranks}
		got := n.AllReduce(c.bytes)
		if got.Algorithm != c.want || !(got.Seconds >= n.WithDefaults().Latency) {
			t.Errorf("%d x %d, %d B: %+v, want %v", c.hosts, c.ranks, c.bytes, got, c.want)
		}
	}
	for _, n := range []Net{
		{Hosts: 2, Both: 2e9},
		{Hosts: 2, Both: -1},
		{Hosts: 2, Processors: 3},
	} {
		if n.Validate() == nil {
			t.Errorf("%+v is valid", n)
		}
	}
}
