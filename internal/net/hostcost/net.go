package hostcost

import (
	"fmt"
	"math"
)

// Net describes the network between hosts. The zero value of a speed means its default.
type Net struct {
	Hosts     int     `json:"hosts"`
	Ranks     int     `json:"ranks_per_host"` // ranks of each host; 0 means 1
	Latency   float64 `json:"latency_s"`      // of an empty message from host to host; 0 means 10 us
	Overhead  float64 `json:"overhead_s"`     // part of Latency on the processor of each end; 0 means Latency/5
	Bandwidth float64 `json:"bandwidth"`      // B/s of a host's link, in each direction; 0 means 1.25e9 (10 Gbit/s)
	Memory    float64 `json:"memory"`         // B/s at which one rank adds or copies; 0 means 8e9

	// Exchanges are measured times, by ascending bytes. With them exchanges, parts, chains and
	// pairs have times of messages between those of two points, not from Latency and Bandwidth.
	Exchanges []Point `json:"exchanges,omitempty"`
	// Processors is the number of processors that all hosts have together for their messages. Hosts
	// made of one machine have fewer than Hosts. 0 means one each.
	Processors float64 `json:"processors,omitempty"`
}

// Point is the measured time in which every host sends a message of so many bytes to each other
// host, and takes as many.
type Point struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// Defaults of Net: TCP over Ethernet of 10 Gbit/s, and one core that adds float32.
const (
	defaultLatency   = 10e-6
	defaultBandwidth = 1.25e9
	defaultMemory    = 8e9
	overheadShare    = 1.0 / 5
)

// MostHosts is the most hosts of a Net.
const MostHosts = 1 << 16

// WithDefaults returns n with its zero values replaced.
func (n Net) WithDefaults() Net {
	n.Ranks = max(n.Ranks, 1)
	for _, f := range []struct {
		field *float64
		value float64
	}{{&n.Latency, defaultLatency}, {&n.Bandwidth, defaultBandwidth}, {&n.Memory, defaultMemory}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if n.Overhead == 0 {
		n.Overhead = overheadShare * n.Latency
	}
	return n
}

// Validate returns the first invalid field of n, whose zero values are valid.
func (n Net) Validate() error {
	n = n.WithDefaults()
	switch {
	case n.Hosts < 1 || n.Hosts > MostHosts:
		return fmt.Errorf("%d hosts: want 1 to %d", n.Hosts, MostHosts)
	case !finite(n.Latency) || !finite(n.Overhead) || !finite(n.Bandwidth) || !finite(n.Memory):
		return fmt.Errorf("speeds %+v: want positive, finite numbers", n)
	case n.Processors < 0 || n.Processors > float64(n.Hosts):
		return fmt.Errorf("%v processors: want %d at most", n.Processors, n.Hosts)
	case 2*n.Overhead > n.Latency:
		return fmt.Errorf("overhead of %v s at each end: want half of the latency of %v s at most", n.Overhead, n.Latency)
	}
	for i, p := range n.Exchanges {
		if !finite(p.Seconds) || p.Bytes < 1 || i > 0 && p.Bytes <= n.Exchanges[i-1].Bytes {
			return fmt.Errorf("exchange %d, %+v: want positive numbers, by ascending bytes", i, p)
		}
	}
	return nil
}

func finite(x float64) bool { return x > 0 && !math.IsInf(x, 1) }

// World returns the number of all ranks.
func (n Net) World() int { return n.Hosts * max(n.Ranks, 1) }

// wire returns the seconds in which an empty message is between the processors of its ends.
func (n Net) wire() float64 { return n.Latency - 2*n.Overhead }

// Message returns the seconds of a message of b bytes.
func (n Net) Message(b float64) float64 {
	if len(n.Exchanges) > 0 {
		return 2 * n.end(b)
	}
	return n.Latency + b/n.Bandwidth
}

// link returns the seconds in which b bytes pass a link; 0 if times are measured, because those
// include it.
func (n Net) link(b float64) float64 {
	if len(n.Exchanges) > 0 {
		return 0
	}
	return b / n.Bandwidth
}

// end returns the seconds in which the processor of an end is busy with a message of b bytes.
func (n Net) end(b float64) float64 {
	if len(n.Exchanges) == 0 {
		return n.Overhead
	}
	hosts := float64(n.Hosts)
	processors := n.Processors
	if processors == 0 {
		processors = hosts
	}
	return n.exchanged(b) * processors / (2 * hosts * (hosts - 1))
}

// exchanged returns the measured seconds of an exchange of b bytes, on the line between two points.
// Beyond the last point they grow with the bytes.
func (n Net) exchanged(b float64) float64 {
	last := n.Exchanges[len(n.Exchanges)-1]
	if b >= float64(last.Bytes) {
		return last.Seconds * b / float64(last.Bytes)
	}
	before := n.Exchanges[0]
	for _, p := range n.Exchanges {
		if b <= float64(p.Bytes) {
			share := (b - float64(before.Bytes)) / max(float64(p.Bytes-before.Bytes), 1)
			return before.Seconds + max(share, 0)*(p.Seconds-before.Seconds)
		}
		before = p
	}
	return last.Seconds
}

// shared returns the seconds that the processors of all hosts need for some seconds of work, of all
// hosts together. Hosts with a processor each do not wait for it.
func (n Net) shared(work float64) float64 {
	if n.Processors == 0 {
		return 0
	}
	return work / n.Processors
}

// add returns the seconds in which a rank adds or copies b bytes.
func (n Net) add(b float64) float64 { return b / n.Memory }

// within returns the seconds in which the ranks of a host add their inputs of b bytes, or copy a
// result to all. Each rank does its part; one rank alone does nothing.
func (n Net) within(b float64) float64 {
	if n.Ranks < 2 {
		return 0
	}
	return n.add(b)
}

// Spread returns the seconds in which every host sends a message of b bytes to each of count other
// hosts, and takes as many, if host h sends to h+1 first, then to h+2.
//
// A processor is busy with 2 count ends of messages, and a link for count b/Bandwidth. The first
// message can be taken once it has arrived, and the others after it.
func (n Net) Spread(count int, b float64) float64 {
	if count < 1 {
		return 0
	}
	if len(n.Exchanges) > 0 {
		return n.exchanged(b) * float64(count) / float64(n.Hosts-1)
	}
	k, m := float64(count), b/n.Bandwidth
	first := n.Overhead + m + n.wire()
	last := n.wire() + max(n.Overhead+k*m, k*n.Overhead+m)
	busy := 2 * k * n.end(b)
	return max(busy, first+k*n.Overhead, last+n.Overhead, n.shared(busy*float64(n.Hosts)))
}

// Sizes of the messages of a meeting.
const (
	addressBytes = 110     // of a rank's address, of UCX over TCP; internal/net/ucx
	nameBytes    = 256     // of a host's name; internal/net/hosts, Join
	digestBytes  = 41 + 64 // of a rank's plan and the lengths of its inputs; dist/ddp
	valueBytes   = 4 << 20 // most bytes of a value of the store; dist/launch
)

// Costs of a rank in the store, measured by BenchmarkMeeting of dist/launch with 1,024 ranks on two
// cores, the rank's end included.
const (
	joinSeconds = 2.6e-3    // handshake, hello, goodbye and four requests
	joinBytes   = 180 << 10 // memory of both ends
)

// Cost is one part of the meeting of all ranks.
type Cost struct {
	Name    string  `json:"name"`
	Of      string  `json:"of"`      // place that has the cost
	Bytes   int64   `json:"bytes"`   // that it sends, or of its memory
	Seconds float64 `json:"seconds"` // 0 for memory
	Limit   int     `json:"limit"`   // most ranks that are possible; 0 means no limit
}

// Meeting returns the parts of the meeting of all ranks of n and their costs.
func (n Net) Meeting() []Cost {
	n = n.WithDefaults()
	ranks := int64(n.World())
	link := func(bytes int64) float64 { return float64(bytes) / n.Bandwidth }
	addresses, names := ranks*ranks*addressBytes, ranks*(ranks+1)*nameBytes
	plan := n.Seconds(Exchange, digestBytes)
	return []Cost{
		{Name: "connections", Of: "store", Bytes: ranks * joinBytes, Seconds: float64(ranks) * joinSeconds},
		{Name: "addresses (ucx)", Of: "store", Bytes: addresses, Seconds: link(addresses), Limit: valueBytes / (addressBytes + 4)},
		{Name: "names of hosts", Of: "rank 0", Bytes: names, Seconds: link(names)},
		{Name: "board", Of: "each host", Bytes: BoardBytes(int(ranks))},
		{Name: "plan comparison", Of: "each host", Bytes: int64(n.Hosts-1) * int64(n.Ranks) * (digestBytes + HeaderBytes), Seconds: plan},
		{Name: "notice of a death", Of: "each rank", Bytes: ranks * noticeBytes, Seconds: 2 * float64(ranks) * n.Overhead},
	}
}

// noticeBytes is about the length of a control message that reports a dead rank. Each rank that
// hears of the death reports it to all others.
const noticeBytes = 64
