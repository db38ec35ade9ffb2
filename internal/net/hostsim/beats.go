package hostsim

import (
	"math"
	"math/rand/v2"

	"github.com/symgrad/symgrad/internal/net/hostcost"
)

// Heartbeats of internal/net/hosts: each rank sends them to a rank of the hosts at distances 1, 2,
// 4, eight times in the limit, and looks for silent ranks at every tick.
const (
	beatsInLimit = 8
	tick         = 0.025
)

// Notice is the time from the loss of a host until ranks know it.
type Notice struct {
	First float64 // the first rank finds a silent one
	All   float64 // all ranks have its report
}

// Silence returns the notice of the loss of one host. Ranks have ticks at random times. limit is
// the silence, in seconds, after which a rank counts as lost.
func Silence(n hostcost.Net, limit float64, seed uint64) Notice {
	n = n.WithDefaults()
	r := rand.New(rand.NewPCG(seed, 1))
	period := math.Ceil(limit/beatsInLimit/tick) * tick
	first := math.Inf(1)
	for range n.Ranks { // of the lost host
		last := -period * r.Float64() // its last heartbeats
		for d := 1; d < n.Hosts; d *= 2 {
			heard := last + n.Latency
			phase := tick * r.Float64() // of the ticks of the rank that gets them
			first = min(first, phase+tick*(math.Floor((heard+limit-phase)/tick)+1))
		}
	}
	others := float64(n.World() - n.Ranks)
	return Notice{First: first, All: first + others*n.Overhead + n.Latency}
}
