package hostcost

// Sizes of the messages of a meeting.
const (
	addressBytes = 110     // of a rank's address, of UCX over TCP; internal/ucx
	nameBytes    = 256     // of a host's name; internal/hosts, Join
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
