package hostcost

import (
	"math"
	"testing"
)

// With measured exchanges, an allreduce takes the sum of its exchanges, and a chain the time that
// its busiest host, or the processors of all, need for its messages.
func TestMeasuredExchangesGiveTheTime(t *testing.T) {
	const ms = 1e-3
	points := []Point{{1 << 10, 1 * ms}, {512 << 10, 9 * ms}, {1 << 20, 20 * ms}}
	pair := Net{Hosts: 2, Memory: 1e15, Exchanges: points}
	three := Net{Hosts: 3, Memory: 1e15, Exchanges: points}
	crowded := three
	crowded.Processors = 2
	const chain = 64 << 20 / (512 << 10) // chunks
	for _, c := range []struct {
		name  string
		net   Net
		bytes int64
		want  float64
	}{
		{"less than the first point", pair, 8, 1 * ms},
		{"between two points", pair, 256<<10 + 512 - HeaderBytes, 5 * ms},
		{"beyond the last: chunks of 512 KiB, 48 KiB with the first", pair, 32<<20 + 48<<10, 10*ms + 63*9*ms},
		{"a host sends and takes two chunks as all do in an exchange", three, 64 << 20, chain * 9 * ms},
		{"two processors have four of the six messages of an exchange", crowded, 64 << 20, chain * 6 * ms},
	} {
		if got := c.net.AllReduce(c.bytes).Seconds; math.Abs(got/c.want-1) > 0.1 {
			t.Errorf("%s: %.2f ms, want %.2f", c.name, got/ms, c.want/ms)
		}
	}
}

// The algorithm is that of internal/net/hosts, and invalid networks are errors.
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
		{Hosts: 2, Exchanges: []Point{{8, 0}}},
		{Hosts: 2, Exchanges: []Point{{8, 1}, {8, 2}}},
		{Hosts: 2, Processors: 3},
	} {
		if n.Validate() == nil {
			t.Errorf("%+v is valid", n)
		}
	}
}
