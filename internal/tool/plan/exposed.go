package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/hostcost"
)

// Link is the speed of collectives between the ranks.
type Link struct {
	Source string        `json:"source"`        // "probe of shm", "given"
	Points []Point       `json:"points"`        // measured allreduces by size; a point of 0 bytes is the latency
	GBps   float64       `json:"gbps"`          // bus bandwidth: bytes that a rank sends in a nanosecond, for large sizes
	Net    *hostcost.Net `json:"net,omitempty"` // between several hosts; Points is empty and GBps that of a host
}

// Point is the time of one allreduce.
type Point struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// LeastGBps is the slowest valid link: a byte a second. Times on a slower one could become
// infinite, which JSON cannot encode.
const LeastGBps = 1e-9

// Given returns a link without latency on which each rank sends gbps GB/s.
//
// Errors: ErrJob for a bandwidth below LeastGBps, or an infinite one.
func Given(gbps float64) (*Link, error) {
	if !(gbps >= LeastGBps) || math.IsInf(gbps, 1) {
		return nil, fmt.Errorf("%w: bandwidth of %v GB/s: want a positive, finite one", ErrJob, gbps)
	}
	return &Link{Source: "given", GBps: gbps}, nil
}

// Between returns the link between hosts.
//
// Errors: ErrJob for an invalid network.
func Between(n hostcost.Net) (*Link, error) {
	if err := n.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJob, err)
	}
	n = n.WithDefaults()
	return &Link{Source: "given", GBps: n.Bandwidth / 1e9, Net: &n}, nil
}

// Probed returns the link on which allreduces of n ranks were measured.
//
// Errors: ErrJob for no points, and for times that are not positive.
func Probed(source string, n int, points []Point) (*Link, error) {
	points = slices.Clone(points)
	slices.SortFunc(points, func(a, b Point) int { return cmp.Compare(a.Bytes, b.Bytes) })
	l := &Link{Source: source, Points: points}
	for _, p := range points {
		if !(p.Seconds > 0) || p.Bytes < 0 {
			return nil, fmt.Errorf("%w: an allreduce of %d B in %v s", ErrJob, p.Bytes, p.Seconds)
		}
		l.GBps = max(l.GBps, float64(Sent(dist.KindAllReduce, p.Bytes, n))/p.Seconds/1e9)
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("%w: the probe has no measurement", ErrJob)
	}
	return l, nil
}

// Seconds returns the time of a collective on n ranks. It interpolates linearly between measured
// sizes and extrapolates from the last two. A reduce-scatter or all-gather takes as long as the
// allreduce of half the bytes, in which a rank sends as much.
func (l *Link) Seconds(c Collective, n int) float64 {
	if n < 2 {
		return 0
	}
	if l.Net != nil && l.Net.Hosts > 1 {
		return l.between(c)
	}
	if len(l.Points) == 0 {
		return float64(c.Sent) / l.GBps / 1e9
	}
	bytes := float64(c.Sent) * float64(n) / float64(2*(n-1)) // of an allreduce in which a rank sends as much
	first := l.Points[0]
	if bytes <= float64(first.Bytes) || len(l.Points) == 1 {
		if len(l.Points) == 1 && bytes > float64(first.Bytes) {
			return first.Seconds * bytes / float64(max(first.Bytes, 1))
		}
		return first.Seconds
	}
	k := 1
	for k < len(l.Points)-1 && bytes > float64(l.Points[k].Bytes) {
		k++
	}
	a, b := l.Points[k-1], l.Points[k]
	slope := (b.Seconds - a.Seconds) / float64(max(b.Bytes-a.Bytes, 1))
	return max(a.Seconds+slope*(bytes-float64(a.Bytes)), 0)
}

// Algorithm returns the algorithm of an allreduce between hosts, or "" for other collectives.
func (l *Link) Algorithm(c Collective) string {
	if l.Net == nil || l.Net.Hosts < 2 || c.Kind != dist.KindAllReduce.String() {
		return ""
	}
	return l.Net.AllReduce(c.Bytes).Algorithm.String()
}

// between returns the time of a collective between hosts.
func (l *Link) between(c Collective) float64 {
	switch c.Kind {
	case dist.KindReduceScatter.String():
		return l.Net.ReduceScatter(c.Bytes)
	case dist.KindAllGather.String():
		return l.Net.AllGather(c.Bytes)
	case dist.KindAllToAll.String():
		return l.Net.AllToAll(c.Bytes)
	case dist.KindBroadcast.String():
		return l.Net.Broadcast(c.Bytes)
	}
	return l.Net.AllReduce(c.Bytes).Seconds
}

// Exposure is the predicted communication time of a step, and the part that the step waits for.
type Exposure struct {
	Communication float64  `json:"communication_s"` // sum of all collectives
	Least         float64  `json:"least_s"`         // exposed part for the longest backward pass
	Exposed       *float64 `json:"exposed_s"`       // exposed part; null if the time of the backward pass is unknown
	Backward      float64  `json:"backward_s,omitempty"`
}

// backwardShare is the backward pass's part of forward and backward. Each product of the forward
// pass has two in the backward pass, with the same number of multiplications each.
//
// Source: Kaplan et al., Scaling Laws for Neural Language Models, 2020, section 2.1.
const backwardShare = 2.0 / 3

// Predict sets the times of all stages. compute is the measured time of a step without
// communication, or 0 if unknown. overlap means that collectives overlap the backward pass.
func (p *Plan) Predict(l *Link, compute time.Duration, overlap bool) {
	p.Link = l
	for i := range p.Stages {
		s := &p.Stages[i]
		e := &Exposure{}
		for _, c := range s.Step {
			e.Communication += l.Seconds(c, p.Ranks)
		}
		if compute > 0 {
			e.Backward = backwardShare * compute.Seconds()
			exposed := round(s.exposed(l, p.Ranks, e.Backward, overlap))
			e.Exposed = &exposed
		}
		e.Least = e.Communication
		if overlap {
			e.Least = s.leastExposed(l, p.Ranks)
		}
		e.Communication, e.Least, e.Backward = round(e.Communication), round(e.Least), round(e.Backward)
		s.Time = e
	}
}

// round rounds x to picoseconds, as smaller differences are noise.
func round(x float64) float64 { return math.Round(x*1e12) / 1e12 }

// exposed returns how long the communication of a step continues after the end of the backward
// pass. A bucket is ready at its share of the backward pass (Bucket.Ready), and collectives run one
// after the other. Those that do not wait for gradients overlap computation, except the first
// gathering of weights.
func (s *Stage) exposed(l *Link, n int, backward float64, overlap bool) float64 {
	free, before := 0.0, 0.0
	for i, c := range s.Step {
		t, ready := l.Seconds(c, n), backward
		switch k := s.phases[i]; {
		case k == first:
			before += t
			continue
		case k == early && overlap:
			continue
		case k >= 0 && overlap:
			ready *= s.Buckets[k].Ready
		}
		free = max(free, ready) + t
	}
	return before + max(free-backward, 0)
}

// leastExposed returns the part of exposed that no length of the backward pass hides: the last
// bucket, which is ready at its end, and the phases late and first.
func (s *Stage) leastExposed(l *Link, n int) float64 {
	sum := 0.0
	for i, c := range s.Step {
		if k := s.phases[i]; k == late || k == first || k >= 0 && int(k) == len(s.Buckets)-1 {
			sum += l.Seconds(c, n)
		}
	}
	return sum
}
